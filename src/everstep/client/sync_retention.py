"""The part of a host that is about what is kept, without awaiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from everstep.client.lanes import Lanes
from everstep.client.views import Collected, Erased, Removal, RemovedRun, RunInfo
from everstep.graph.author.flow import Flow
from everstep.model.retention import Retention


class SyncRetention:
    """Calls on what a store keeps; none needs a lease."""

    _lanes: Lanes

    def gc(
        self,
        *run_ids: str,
        retention: Retention | None = None,
        flows: Iterable[Flow] = (),
        dry_run: bool = False,
        shared: bool = False,
        on_progress: Callable[[str], object] | None = None,
    ) -> Collected:
        """Remove what the rules say: of every run, or of those that are named; says what went and what not.

        A run is kept by the rules of its flow if that is among `flows`, else by those that it was begun with,
        else by `retention`, or the host's. Without names, artifacts that no record names go too, and
        tombstones whose time is over; `shared` says that no other store shares their place. With
        `dry_run` nothing is removed. `on_progress` is told in words how far it has come.
        """
        return self._lanes.call(
            lambda host: host.gc(
                *run_ids,
                retention=retention,
                flows=flows,
                dry_run=dry_run,
                shared=shared,
                on_progress=on_progress,
            )
        )

    def pin(
        self,
        run_id: str,
        reason: str = "pinned on request",
        *,
        by: str | None = None,
        comment: str | None = None,
    ) -> RunInfo:
        """Keep a run whole until it is unpinned, whatever retention says."""
        return self._lanes.call(lambda host: host.pin(run_id, reason, by=by, comment=comment))

    def unpin(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> RunInfo:
        """Let retention apply to a run again; who wants that stands in the log of what went."""
        return self._lanes.call(lambda host: host.unpin(run_id, by=by, comment=comment))

    def ack(self, run_id: str, *, by: str | None = None, comment: str | None = None) -> RunInfo:
        """Note that the result of a run that has ended was taken: rules about time count from then on.

        Only the first time counts. Who took it stands in the log of what went.
        """
        return self._lanes.call(lambda host: host.ack(run_id, by=by, comment=comment))

    def erase(
        self,
        run_id: str,
        *,
        dry_run: bool = False,
        by: str | None = None,
        comment: str | None = None,
    ) -> Erased:
        """Remove a run that has ended, with the artifacts that only it names. Its id stays taken.

        Nothing is told of it afterwards but that it was there. A run that is not over, that is pinned or that
        a fork goes on from is refused.
        """
        return self._lanes.call(lambda host: host.erase(run_id, dry_run=dry_run, by=by, comment=comment))

    def removed(
        self, *, flow: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[RemovedRun]:
        """List what is left of runs that were removed, those removed last first, with their summaries."""
        return self._lanes.call(lambda host: host.removed(flow=flow, limit=limit, before=before))

    def removals(self, *, limit: int = 100) -> list[Removal]:
        """Return the log of what went, the newest lines first: runs, checkpoints, artifacts."""
        return self._lanes.call(lambda host: host.removals(limit=limit))

    def was_imported(self, run_id: str) -> bool:
        """True if a run came with a bundle, so that what it says of itself is the word of a stranger."""
        return self._lanes.call(lambda host: host.was_imported(run_id))

    def clean_up(self, run_id: str, *, keep: int = 5) -> int:
        """Remove old checkpoints and return how many: what a resume from the last `keep` does not need.

        Whatever lies before a keyframe can go, so as much stays as lies between two of them. Nothing that a
        fork goes on from is removed.
        """
        return self._lanes.call(lambda host: host.clean_up(run_id, keep=keep))
