"""The suite that every store must pass. Inherit it and say how to open your store:

class TestMyStore(StoreConformance):
    @pytest.fixture
    def store_kit(self, tmp_path):
        clock = ManualClock()
        return StoreKit(
            open=lambda: Opened(MyStore(tmp_path, clock), MyArtifacts(tmp_path)),
            clock=clock,
            capabilities=Capabilities(durable=True, single_writer=True),
        )

One module for each promise of a store; read `records` first. `kit` is what they all work with, and
`buckets` is a suite of its own, for places where the object store keeps its objects. May import what
`testing` may, and no other room of it.
"""

from __future__ import annotations

from pkgutil import iter_modules

import pytest

# Before the imports below, or a failed assertion of the suite shows no values.
pytest.register_assert_rewrite(*(f"{__name__}.{part.name}" for part in iter_modules(__path__)))

from everstep.testing.conformance.audit import Audits, Heads  # noqa: E402
from everstep.testing.conformance.buckets import BucketConformance  # noqa: E402
from everstep.testing.conformance.children import Children  # noqa: E402
from everstep.testing.conformance.clients import Blobs, Listing, TwoClients  # noqa: E402
from everstep.testing.conformance.clocks import Clocks, ClockSkew  # noqa: E402
from everstep.testing.conformance.crash import Crashes  # noqa: E402
from everstep.testing.conformance.due import Changes, Due, Endings  # noqa: E402
from everstep.testing.conformance.fleet import (  # noqa: E402
    Holding,
    Limits,
    Pausing,
    Quotas,
    Repairs,
    Turns,
    Workers,
)
from everstep.testing.conformance.forks import Forks, Recoding, Trimming  # noqa: E402
from everstep.testing.conformance.histories import Histories  # noqa: E402
from everstep.testing.conformance.hosts import Hosts, Keeping  # noqa: E402
from everstep.testing.conformance.inbox import Events, Inboxes  # noqa: E402
from everstep.testing.conformance.kit import StoreKit  # noqa: E402
from everstep.testing.conformance.labels import Attributes, Searches, Undoes  # noqa: E402
from everstep.testing.conformance.leases import Fencing, Leases, StopRequests  # noqa: E402
from everstep.testing.conformance.notices import Notices  # noqa: E402
from everstep.testing.conformance.records import Adoptions, Atomicity, LostReplies, Records, UglyValues  # noqa: E402
from everstep.testing.conformance.restoring import RestoredStores, Restoring  # noqa: E402
from everstep.testing.conformance.retention import (  # noqa: E402
    Erasing,
    Pinning,
    RemovalLog,
    RetentionRaces,
    Sweeping,
)
from everstep.testing.conformance.waits import Settling, WaitListing, Waits  # noqa: E402

__all__ = ["GROUPS", "BucketConformance", "StoreConformance", "StoreKit"]


class StoreConformance(
    Records,
    Atomicity,
    Histories,
    LostReplies,
    UglyValues,
    Leases,
    Fencing,
    StopRequests,
    Listing,
    TwoClients,
    Blobs,
    Forks,
    Children,
    Undoes,
    Trimming,
    Recoding,
    Erasing,
    Pinning,
    RemovalLog,
    RetentionRaces,
    Sweeping,
    Keeping,
    RestoredStores,
    Restoring,
    Waits,
    Settling,
    WaitListing,
    Inboxes,
    Events,
    Audits,
    Attributes,
    Searches,
    Heads,
    Notices,
    Pausing,
    Due,
    Endings,
    Changes,
    Turns,
    Quotas,
    Limits,
    Holding,
    Repairs,
    Workers,
    Clocks,
    ClockSkew,
    Adoptions,
    Hosts,
    Crashes,
):
    """Everything a store promises, as tests."""


GROUPS = StoreConformance.__bases__
"""The parts of the suite, to run one at a time while a store is being written."""
