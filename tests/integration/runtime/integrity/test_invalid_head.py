"""A run whose records were altered is refused, with the way back; workers go on with the others."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from everstep import Flow, Host, node
from everstep.cli.commands.travel.compat import judged
from everstep.errors import StateCorrupted


@node(output="a")
def first(x: int) -> int:
    return x + 1


@node(output="b")
def second(a: int) -> int:
    return a + 1


@node(output="c")
def third(b: int, broken: bool = False) -> int:
    if broken:
        raise ValueError("not yet")
    return b + 1


FLOW = Flow("f", [first, second, third], durability="strong")


def alter(path: Path, offset: int) -> int:
    """Change one bit of a record, counted from the newest; returns how many there are."""
    db = apsw.Connection(str(path))
    try:
        found = list(db.execute("SELECT position, body FROM checkpoints ORDER BY position DESC"))
        position, body = found[offset]
        db.execute(
            "UPDATE checkpoints SET body = ? WHERE position = ?",
            (body[:40] + bytes([body[40] ^ 1]) + body[41:], position),
        )
        return len(found)
    finally:
        db.close()


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_an_altered_record_is_refused_and_the_newest_valid_one_before_it_is_named(
    tmp_path: Path, offset: int
) -> None:
    url, path = f"sqlite:///{tmp_path}/runs.db", tmp_path / "runs.db"
    with Host(url) as host:
        assert host.run(FLOW, {"x": 1, "broken": True}, run_id="A").status == "failed"
    count = alter(path, offset)
    with Host(url) as host:
        with pytest.raises(StateCorrupted) as refused:
            host.resume("A", FLOW)
        newest = count - offset - 1
        assert refused.value.details["newest_valid"] == newest
        assert f"everstep fork A --at {newest}" in refused.value.fix
        host.fork("A", at=newest, inputs={"broken": False}, fork_id="B")
        assert host.resume("B", FLOW)["c"] == 4


def test_with_nothing_valid_left_no_way_back_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.start(FLOW, {"x": 1}, run_id="A")
    alter(tmp_path / "runs.db", 0)
    with Host(url) as host, pytest.raises(StateCorrupted) as refused:
        host.resume("A", FLOW)
    assert "newest_valid" not in refused.value.details


def test_a_worker_leaves_such_a_run_alone_and_drives_the_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.start(FLOW, {"x": 1}, run_id="A")
    alter(tmp_path / "runs.db", 0)
    with Host(url) as host:
        host.start(FLOW, {"x": 1}, run_id="B")
        stats = host.work([FLOW], until_idle=True)
        assert (stats.completed, stats.set_aside) == (1, 1)
        assert [(r.run_id, r.status.value, r.is_driven) for r in host.runs()] == [
            ("B", "completed", False),
            ("A", "running", False),
        ]


def test_compat_tells_of_such_a_run_and_judges_the_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.start(FLOW, {"x": 1}, run_id="A")
        host.start(FLOW, {"x": 1}, run_id="B")
    alter(tmp_path / "runs.db", 0)
    changed = Flow("f", [first, second], durability="strong")
    with Host(url) as host:
        told = {
            run: compat
            for (_, compat), runs in judged(host, changed, None, quiet=True).items()
            for run in runs
        }
    assert (told["A"].verdict, told["B"].verdict) == ("continues", "refused")
    assert told["B"].code == StateCorrupted.code and "'B'" in told["B"].reason
