"""Four workers on one bucket: killed at random, the server too; each effect of each run once by its key.

The tests are those of a fleet on Redis; only the server is another.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.workers import test_workers_redis as fleet
from tests.servers.running import Server, private
from tests.servers.seaweed import SeaweedServer, key_in_the_environment

hire = fleet.hire
test_runs_end_as_they_should_while_workers_and_the_server_are_killed = (
    fleet.test_runs_end_as_they_should_while_workers_and_the_server_are_killed
)
test_a_stopped_worker_that_wakes_after_its_lease_expired_writes_nothing = (
    fleet.test_a_stopped_worker_that_wakes_after_its_lease_expired_writes_nothing
)


@pytest.fixture
def server() -> Iterator[Server]:
    with private(SeaweedServer) as running, key_in_the_environment():
        yield running
