"""How often a resume asks the server before the first node is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from everstep import Flow, Host, node
from tests.servers.proxy import proxy_before

SYNC = b"S\x00\x00\x00\x04"
"""What a client sends last before it waits for the server."""
DIES = """
import os, sys
from everstep import Flow, Host, node

@node(output="b")
def first(a: int) -> int:
    return a + 1

@node(output="c")
def second(b: int) -> int:
    os._exit(9)

with Host(sys.argv[1]) as host:
    host.run(Flow("steps", [first, second], durability="strong"), {"a": 1}, run_id="r")
"""


class Resumed(BaseException):
    pass


@pytest.mark.parametrize("is_named", [True, False], ids=["run", "resume"])
def test_a_run_whose_owner_died_is_taken_up_in_three_round_trips(
    postgres_url: str, tmp_path: Path, is_named: bool
) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    assert subprocess.run([sys.executable, str(script), postgres_url]).returncode == 9
    trips: list[bytes] = []

    @node(output="b")
    def first(a: int) -> int:
        raise AssertionError("it was recorded")

    @node(output="c")
    def second(b: int) -> int:
        told.extend(trips)
        raise Resumed

    def count(request: bytes) -> bool:
        trips.extend([request] * request.count(SYNC))
        return False

    told: list[bytes] = []
    flow = Flow("steps", [first, second], durability="strong")
    with proxy_before(postgres_url) as (proxy, url), Host(url) as host:
        host.runs()  # a connection is there, and what the server is was asked
        proxy.cuts_request = count
        with pytest.raises(Resumed):
            host.run(flow, run_id="r") if is_named else host.resume("r", flow)
    assert len(told) == 3, told
