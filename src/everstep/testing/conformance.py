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
"""

from __future__ import annotations

import sys

import pytest

_PARTS = [
    f"{__name__}_{part}"
    for part in (
        *("adoption", "buckets", "client", "clients", "clocks", "crash", "due", "fleet", "forks"),
        *("hosts", "keeping", "leases", "records", "recoding", "restoring", "retention", "skew", "waits"),
    )
]
# Before the imports below, or a failed assertion of the suite shows no values.
pytest.register_assert_rewrite(*(part for part in _PARTS if part not in sys.modules))

from everstep.testing.conformance_adoption import Adoptions  # noqa: E402
from everstep.testing.conformance_buckets import BucketConformance  # noqa: E402
from everstep.testing.conformance_client import StoreKit  # noqa: E402
from everstep.testing.conformance_clients import Blobs, Listing, TwoClients  # noqa: E402
from everstep.testing.conformance_clocks import Clocks  # noqa: E402
from everstep.testing.conformance_crash import Crashes  # noqa: E402
from everstep.testing.conformance_due import Changes, Due, Endings  # noqa: E402
from everstep.testing.conformance_fleet import Holding, Quotas, Repairs, Turns, Workers  # noqa: E402
from everstep.testing.conformance_forks import Forks, Trimming  # noqa: E402
from everstep.testing.conformance_hosts import Hosts  # noqa: E402
from everstep.testing.conformance_keeping import Keeping  # noqa: E402
from everstep.testing.conformance_leases import Fencing, Leases, Signals  # noqa: E402
from everstep.testing.conformance_recoding import Recoding  # noqa: E402
from everstep.testing.conformance_records import Atomicity, LostReplies, Records, UglyValues  # noqa: E402
from everstep.testing.conformance_restoring import Restoring  # noqa: E402
from everstep.testing.conformance_retention import (  # noqa: E402
    Erasing,
    Pinning,
    RemovalLog,
    RetentionRaces,
    Sweeping,
)
from everstep.testing.conformance_skew import ClockSkew  # noqa: E402
from everstep.testing.conformance_waits import Settling, WaitListing, Waits  # noqa: E402

__all__ = ["GROUPS", "BucketConformance", "StoreConformance", "StoreKit"]

GROUPS = (
    Records,
    Atomicity,
    LostReplies,
    UglyValues,
    Leases,
    Fencing,
    Signals,
    Listing,
    TwoClients,
    Blobs,
    Forks,
    Trimming,
    Recoding,
    Erasing,
    Pinning,
    RemovalLog,
    RetentionRaces,
    Sweeping,
    Keeping,
    Restoring,
    Waits,
    Settling,
    WaitListing,
    Due,
    Endings,
    Changes,
    Turns,
    Quotas,
    Holding,
    Repairs,
    Workers,
    Clocks,
    ClockSkew,
    Adoptions,
    Hosts,
    Crashes,
)
"""The parts of the suite, to run one at a time while a store is being written."""


class StoreConformance(
    Records,
    Atomicity,
    LostReplies,
    UglyValues,
    Leases,
    Fencing,
    Signals,
    Listing,
    TwoClients,
    Blobs,
    Forks,
    Trimming,
    Recoding,
    Erasing,
    Pinning,
    RemovalLog,
    RetentionRaces,
    Sweeping,
    Keeping,
    Restoring,
    Waits,
    Settling,
    WaitListing,
    Due,
    Endings,
    Changes,
    Turns,
    Quotas,
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
