"""What the calls of a host return, wherever it is made; `run_views` has what a run needs."""

from __future__ import annotations

import msgspec

from everstep.client.run_views import OWN as OWN
from everstep.client.run_views import CheckpointInfo as CheckpointInfo
from everstep.client.run_views import Delivery as Delivery
from everstep.client.run_views import DrivenInfo as DrivenInfo
from everstep.client.run_views import RunInfo as RunInfo
from everstep.client.run_views import RunResult as RunResult
from everstep.client.run_views import RunState as RunState
from everstep.client.run_views import Values as Values
from everstep.client.run_views import WaitInfo as WaitInfo
from everstep.client.run_views import WorkerInfo as WorkerInfo
from everstep.codec.classes import Stored as Stored  # what values are shown as without their class
from everstep.codec.compare import Change as Change
from everstep.codec.compare import Pair as Pair
from everstep.codec.compare import Unreadable as Unreadable
from everstep.model.acts import Act, split_act
from everstep.model.compat import Compat as Compat
from everstep.model.compat import Compatibility as Compatibility
from everstep.model.removal import Removal as Removal
from everstep.model.removal import Tombstone
from everstep.model.shapes import Instant
from everstep.ports.health import Finding as Finding
from everstep.ports.health import Level as Level
from everstep.runtime.bundles.copy import Copied as Copied
from everstep.runtime.bundles.export import Exported as Exported
from everstep.runtime.bundles.export import Progress as Progress
from everstep.runtime.bundles.import_run import Imported as Imported
from everstep.runtime.doctor import Diagnosis as Diagnosis
from everstep.runtime.events import Event as Event
from everstep.runtime.integrity.findings import Fallback as Fallback
from everstep.runtime.integrity.findings import Flaw as Flaw
from everstep.runtime.integrity.findings import FlawKind as FlawKind
from everstep.runtime.integrity.findings import Repeated as Repeated
from everstep.runtime.integrity.findings import Verified as Verified
from everstep.runtime.rekey import Rekeyed as Rekeyed
from everstep.runtime.resume import Resumed as Resumed
from everstep.runtime.retention.collect import Collected as Collected
from everstep.runtime.retention.collect import Removed as Removed
from everstep.runtime.retention.collect import Spared as Spared
from everstep.runtime.retention.erase import Erased as Erased
from everstep.runtime.retention.summaries import RunSummary as RunSummary
from everstep.runtime.retention.summaries import decode as read_summary
from everstep.runtime.retention.sweep import Swept as Swept
from everstep.runtime.travel.bisect import Divergence as Divergence
from everstep.runtime.travel.bisect import Visited as Visited
from everstep.runtime.travel.explain import Awaited as Awaited
from everstep.runtime.travel.explain import Explanation as Explanation
from everstep.runtime.travel.explain import Planned as Planned
from everstep.runtime.travel.explain import Recorded as Recorded
from everstep.runtime.travel.replay import Replay as Replay


class RemovedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a run that was removed."""

    run_id: str
    flow: str
    created_at: Instant
    removed_at: Instant
    reason: str
    """Which rule wanted it."""
    act: Act | None
    """Who asked for it, and why, if that was said."""
    summary: RunSummary | None
    """None if it was erased without a summary."""

    @classmethod
    def of(cls, left: Tombstone) -> RemovedRun:
        """Describe what is left."""
        reason, act = split_act(left.reason)
        return cls(
            run_id=left.run_id,
            flow=left.flow_id,
            created_at=left.created_at,
            removed_at=left.erased_at,
            reason=reason,
            act=act,
            summary=None if left.summary is None else read_summary(left.summary),
        )

    def __repr__(self) -> str:
        return f"<removed run {self.run_id} of {self.flow}: {self.reason}>"
