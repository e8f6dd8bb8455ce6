"""How long runs and their nodes took, as their checkpoints tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import everstep.runtime.operations.run_times as run_times
from everstep import Context, Flow, Host, node, wait
from everstep.errors import BadRequest
from everstep.model.enums import Status
from everstep.results import Durations, FlowDurations, NodeDurations, Spread

pytestmark = pytest.mark.stores("memory", "sqlite", "folder", "postgres", "redis")


@node(output="pages")
def fetch(n: int) -> list[int]:
    if n == 9:
        raise LookupError("there is none")
    return list(range(n))


@node(output="size", retry=2)
def measure(page: int, ctx: Context) -> int:
    if page == 1 and ctx.attempt == 1:
        raise TimeoutError("too slow")
    return ctx.step("look", lambda: page)


sizes = measure.map_over("page").with_inputs(page="pages").with_outputs("sizes")
books = Flow("books", [fetch, sizes, wait.approval("sign", context="sizes", prompt="Sign?")])
plain = Flow("plain", [fetch])


@contextmanager
def reading(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note whose checkpoints are read."""
    read: list[str] = []

    async def store_of(at: Any) -> Any:
        return at._services.store

    kind = type(host._lanes.call(store_of))
    get = kind.get

    async def noted(self: Any, run_id: str, **between: int) -> Any:
        read.append(run_id)
        return await get(self, run_id, **between)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "get", noted)
        yield read


def finished(host: Host, run_id: str, n: int) -> None:
    result = host.run(books, {"n": n}, run_id=run_id)
    host.answer(result.waits[0].id, {"approved": True})
    assert host.resume(run_id, books).status == "completed"


def of_node(found: FlowDurations, node: str) -> NodeDurations:
    return next(one for one in found.nodes if one.node == node)


def test_durations_are_those_of_the_checkpoints(host: Host) -> None:
    finished(host, "A", 2)
    finished(host, "B", 3)
    host.run(books, {"n": 9}, run_id="C")
    host.run(books, {"n": 1}, run_id="halted")
    host.run(plain, {"n": 1}, run_id="D")
    found = host.fleet.durations()
    assert (found.runs, [(one.flow, one.runs) for one in found.flows]) == (4, [("books", 3), ("plain", 1)])
    ended = [host.info(run_id) for run_id in "ABCD"]
    assert found.began == min(run.created_at for run in ended)
    assert found.ended == max(run.ended_at for run in ended if run.ended_at is not None)
    told = found.flows[0]
    assert told.total == Spread.of(run.seconds or 0.0 for run in ended if run.flow == "books")
    assert {one.node: (one.visits, one.failures, one.retries) for one in told.nodes} == {
        "fetch": (3, 1, 0),
        "measure": (2, 0, 0),
        "measure#": (5, 0, 2),
        "sign": (2, 0, 0),
    }
    steps = [step for run_id in "ABC" for record in host.history(run_id) for step in record.steps]
    times = [
        (step.ended_at - step.started_at).total_seconds()
        for step in steps
        if step.path == "fetch" and step.ended_at is not None and step.started_at is not None
    ]
    assert len(times) == 3
    assert of_node(told, "fetch").seconds == Spread.of(times)


def test_a_run_waits_until_it_begins_and_while_it_is_halted(host: Host) -> None:
    finished(host, "A", 1)
    found = host.fleet.durations("books").flows[0]
    assert found.waiting is not None
    assert found.running is not None
    assert found.total is not None
    assert found.waiting.max + found.running.max == pytest.approx(found.total.max, abs=1e-5)
    records = host.history("A")
    halted = next(record for record in records if record.status is Status.HALTED)
    signed = [step for record in records for step in record.steps if step.path == "sign"][-1].ended_at
    fetched = next(step for record in records for step in record.steps if step.path == "fetch").started_at
    assert signed is not None
    assert fetched is not None
    before, meanwhile = fetched - records[0].created_at, signed - halted.created_at
    assert found.waiting.max == pytest.approx((before + meanwhile).total_seconds(), abs=1e-5)


def test_what_was_read_of_a_run_is_kept_until_the_run_goes_on(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(host, "A", 1)
    host.run(plain, {"n": 9}, run_id="B")
    with reading(host, monkeypatch) as read:
        first = host.fleet.durations()
        assert sorted(read) == ["A", "B"]
        assert host.fleet.durations() == first
        assert host.fleet.durations("plain").flows == [one for one in first.flows if one.flow == "plain"]
        assert len(read) == 2
    assert host.resume("B", plain).status == "failed"
    with reading(host, monkeypatch) as read:
        again = host.fleet.durations()
    assert read == ["B"]
    assert again.read_since is not None
    assert of_node(again.flows[1], "fetch").failures == 2


def test_only_so_many_runs_and_checkpoints_are_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(host, "A", 2)
    host.run(plain, {"n": 0}, run_id="B")
    assert [one.flow for one in host.fleet.durations(newest=1).flows] == ["plain"]
    assert [one.flow for one in host.fleet.durations(where="id = A").flows] == ["books"]
    monkeypatch.setattr(run_times, "MOST_RECORDS", 3)
    monkeypatch.setattr(run_times, "MOST_RUNS", 1)
    assert host.fleet.durations(newest=1, where="id = A").cut == 0  # read before
    assert host.fleet.durations("plain", newest=1).runs == 1
    found = host.fleet.durations(newest=1, where="id = A")
    assert found.cut == 1
    assert found.flows[0].waiting is None
    assert found.flows[0].total is not None
    for newest in (0, 1001, True):
        with pytest.raises(BadRequest, match="newest is"):
            host.fleet.durations(newest=newest)


def test_nothing_is_told_where_no_run_has_ended(host: Host) -> None:
    host.start(plain, {"n": 1}, run_id="A")
    none = Durations(runs=0, began=None, ended=None, read_since=None, cut=0, flows=[])
    assert host.fleet.durations() == none


@pytest.mark.parametrize(("many", "p50", "p90", "p99"), [(1, 1, 1, 1), (2, 1, 2, 2), (100, 50, 90, 99)])
def test_a_spread_names_times_that_there_were(many: int, p50: int, p90: int, p99: int) -> None:
    assert Spread.of(range(1, many + 1)) == Spread(p50=p50, p90=p90, p99=p99, max=many)
    assert Spread.of([]) is None
