"""A search by time passes over runs of other times, and misses none that began out of turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

import apsw
import psycopg
import pytest
from psycopg import sql

import everstep.runtime.operations.find
from everstep import Flow, Host, node
from everstep.stores import label_search
from everstep.stores.label_search import Stretches
from everstep.stores.postgres.address import read_address

pytestmark = pytest.mark.stores("sqlite", "postgres")

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "run_id, flow_id, flow_version, flow_hash, status, created_at, epoch"


@node(output="done")
def work(n: int) -> int:
    return n


flow = Flow("flow", [work])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small stretches, of which a call reads two, and few runs that a call looks at."""
    monkeypatch.setattr(label_search, "STRETCH", 8)
    monkeypatch.setattr(label_search, "_LEARNT", 2)
    monkeypatch.setattr(everstep.runtime.operations.find, "EXAMINED", 10)


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def begun(url: str, times: Sequence[datetime], prefix: str = "run") -> None:
    """Insert runs that began at these times, in this order."""
    rows = [
        (f"{prefix}-{k}", "flow", "1", "hash", "failed" if k % 3 else "completed", micros(at), 1)
        for k, at in enumerate(times)
    ]
    if url.startswith("sqlite"):
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as file, file:
            file.executemany(f"INSERT INTO runs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return
    with server(url) as db:
        db.cursor().executemany(f"INSERT INTO runs ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)", rows)


def server(url: str) -> psycopg.Connection:
    at = read_address(url)
    db = psycopg.connect(at.url)
    db.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(at.schema)))
    return db


def all_pages(host: Host, where: str, limit: int = 4) -> tuple[list[str], int]:
    """Return what a query finds, and how many calls it takes."""
    found: list[str] = []
    calls, before = 0, None
    while calls == 0 or before is not None:
        page = host.runs(where=where, limit=limit, before=before)
        found += [run.run_id for run in page]
        calls, before = calls + 1, page.next
    return found, calls


def said(moment: datetime) -> str:
    return f"'{moment.isoformat()}'"


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_order_in_which_runs_began_a_window_has_those_of_a_plain_listing(
    host: Host, url: str, seed: int
) -> None:
    draw = random.Random(seed)
    host.run(flow, {"n": 1}, run_id="now")
    far = [timedelta(hours=draw.randrange(300)) if draw.random() < 0.05 else timedelta() for _ in range(200)]
    begun(url, [START + timedelta(hours=k) - away for k, away in enumerate(far)])
    for k in range(0, 200, 9):
        host.fleet.tag(f"run-{k}", ["vip"])
    for turn in range(20):
        low, high = sorted(START + timedelta(hours=draw.randrange(-20, 240)) for _ in range(2))
        windows = [f"started >= {said(low)}", f"started < {said(high)}"]
        window = draw.choice([*windows, " and ".join(windows)])
        more = draw.choice(["", " and status = failed", " and tag = vip", " and flow = flow"])
        runs = host.runs(limit=1000, labels=True)
        wanted = [
            run.run_id
            for run in runs
            if ("<" not in window or run.created_at < high)
            and (">" not in window or run.created_at >= low)
            and ("status" not in more or run.status == "failed")
            and ("tag" not in more or "vip" in (run.tags or {}))
        ]
        assert all_pages(host, window + more)[0] == wanted, window + more
        gone = draw.choice(runs).run_id
        host.cancel(gone) if gone == "now" else host.retention.erase(gone)
        begun(url, [START + timedelta(hours=draw.randrange(250)) for _ in range(3)], f"late-{turn}")


def test_once_it_is_known_when_runs_began_no_call_is_spent_on_others(host: Host, url: str) -> None:
    host.cancel(host.start(flow, {"n": 1}, run_id="now").run_id)
    host.retention.erase("now")
    begun(url, [START + timedelta(hours=k) for k in range(400)])
    long_ago = f"started < {said(START + timedelta(hours=3))}"
    lately = f"started >= {said(START + timedelta(hours=396))} and status = failed"
    of_old, calls = all_pages(host, long_ago)
    assert (of_old, calls > 10) == (["run-2", "run-1", "run-0"], True)
    assert all_pages(host, long_ago) == (of_old, 1)
    assert all_pages(host, lately) == (["run-398", "run-397"], 1)
    assert host.fleet.count("status", where=long_ago).next is None
    begun(url, [START], "from-elsewhere")
    assert all_pages(host, long_ago)[0] == ["from-elsewhere-0", *of_old]


@pytest.mark.stores("postgres")
def test_a_run_that_shows_long_after_it_had_its_key_is_found(host: Host, url: str) -> None:
    host.run(flow, {"n": 1}, run_id="now")
    begun(url, [START + timedelta(hours=k) for k in range(40)])
    long_ago = f"started < {said(START - timedelta(days=1))}"
    with server(url) as slow:
        row = ("slow", "flow", "1", "hash", "failed", micros(START - timedelta(days=9)), 1)
        slow.execute(f"INSERT INTO runs ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
        begun(url, [START + timedelta(hours=k) for k in range(40, 140)], "later")
        for _ in range(3):
            assert all_pages(host, long_ago)[0] == []
    assert all_pages(host, long_ago)[0] == ["slow"]


@pytest.mark.parametrize("change", ["come", "are erased"])
def test_runs_that_come_or_go_in_the_midst_of_a_search_leave_no_gap_and_give_none_twice(
    host: Host, url: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    host.run(flow, {"n": 1}, run_id="now")
    begun(url, [START - timedelta(days=k % 2) for k in range(40)])  # every other one is asked for
    left, asked = ["run-37", "run-38", "run-39"], label_search.LabelSearch._filled

    def filled(self: label_search.LabelSearch, query: str, *parts: str) -> str:
        if query == "looked_at" and left:
            if change == "come":
                begun(url, [START - timedelta(days=1)] * 3, "new")
                left.clear()
            with Host(url) as other:
                while left:
                    other.retention.erase(left.pop())
        return asked(self, query, *parts)

    monkeypatch.setattr(label_search.LabelSearch, "_filled", filled)
    within = f"started >= {said(START)} and started < {said(START + timedelta(days=1))}"
    found, _ = all_pages(host, within, limit=100)
    assert found[::-1] == [f"run-{k}" for k in range(0, 40, 2)]


def test_a_stretch_holds_for_good_once_all_have_ended_who_may_write_into_it() -> None:
    known = Stretches()
    known.settle(1, 100, 5, 9)
    assert known.settled == 0
    known.settle(1, 200, 8, 12)
    assert known.settled == 0  # 8 may have had a key below 100
    known.settle(1, 300, 9, 15)
    assert known.settled == 88
    known.settle(1, 300, 15, 15)
    assert known.settled == 288
    known.learn(0, 1, {1: (10, 20)})
    assert [known.below(16, 5, 9), known.below(16, 5, 10), known.below(17, 5, 9)] == [0, 16, 17]
    known.settle(250, 300, 15, 15)
    assert known.below(250, 5, 10) == 0  # all before were erased
    known.settle(1, 3, 15, 15)  # another store is in its place
    assert (known.settled, known.knows(3)) == (0, False)
