"""No record, keyframe or put outgrows what a store takes, however much a run keeps."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from everstep import END, AsyncHost, Context, Durability, Flow, Host, ifelse, node
from everstep.errors import ValueNotStorable
from everstep.ports.store import Commit, StoredRecord
from everstep.registry import Opened, open_store
from everstep.runtime.drive import committer, values
from everstep.runtime.services import Services
from everstep.stores.sqlite.store import SqliteStore
from everstep.testing.clock import ManualClock

pytestmark = pytest.mark.stores("sqlite")

LIMIT = 64 * 1024
PAGE = 10 * 1024
SLACK = 2 * PAGE + 16 * 1024
"""A record may be over by the step that made it full, and by what names its values."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Services, "record_bytes", LIMIT)


def page(i: int) -> bytes:
    return os.urandom(PAGE)


def records(host: Host, run_id: str = "r") -> list[StoredRecord]:
    return host._lanes.call(lambda opened: opened._services.store.get(run_id))


def sizes(host: Host) -> list[int]:
    return [len(record.body) for record in records(host)]


PAGES = node(name="page", output="p", inputs=["i"])(page).map_over("i").with_outputs("ps")


@node(output="size")
def measure(ps: list[bytes]) -> int:
    return sum(map(len, ps))


@pytest.mark.parametrize("durability", ["partial", "strong", Durability("strong", interval=10_000)], ids=str)
def test_steps_between_two_commits_do_not_pile_up_into_one_record(host: Host, durability: Any) -> None:
    flow = Flow("pages", [PAGES, measure], durability=durability)
    assert host.run(flow, {"i": list(range(40))}, run_id="r")["size"] == 40 * PAGE
    assert max(sizes(host)) < LIMIT + SLACK


def test_steps_that_end_together_do_not_pile_up_into_one_record(host: Host) -> None:
    several = [node(name=f"n{k}", output=f"p{k}", inputs=["i"])(page) for k in range(30)]
    assert host.run(Flow("pages", several), {"i": 1}, run_id="r").status == "completed"
    assert max(sizes(host)) < LIMIT + SLACK


def test_what_one_step_writes_is_put_aside_if_it_is_too_much_together(host: Host) -> None:
    names = [f"p{k}" for k in range(30)]
    many = node(name="many", output=names, inputs=["i"])(lambda i: [page(i) for _ in names])
    asking = node(name="asking", output="a")(ask_for_many)
    one = node(name="one", output="b")(lambda p: len(p))
    host.run(Flow("pages", [many, asking], tasks=[one]), {"i": 1}, run_id="r")
    assert max(sizes(host)) < 2 * LIMIT + SLACK
    assert all(len(host.state("r")[name]) == PAGE for name in names)


def ask_for_many(p0: bytes, ctx: Context) -> int:
    for _ in range(20):
        ctx.next_task("one", p=page(0))
    return 1


def test_many_inputs_are_put_aside_if_they_are_too_much_together(host: Host) -> None:
    names = [f"p{k}" for k in range(20)]
    count = node(name="count", output="n", inputs=names)(lambda **given: sum(map(len, given.values())))
    assert host.run(Flow("f", [count]), {name: page(0) for name in names}, run_id="r")["n"] == 20 * PAGE
    assert max(sizes(host)) < LIMIT + SLACK


def test_a_keyframe_of_many_values_does_not_outgrow_a_store(host: Host) -> None:
    keep = [node(name=f"n{k}", output=f"p{k}", inputs=["i"])(page) for k in range(20)]

    @node(output="draft")
    def write(draft: bytes, p19: bytes, ctx: Context) -> bytes:
        return page(ctx.visit)

    @ifelse(when_true="write", when_false=END)
    def more(draft: bytes, ctx: Context) -> bool:
        return ctx.visit < 60

    flow = Flow("f", [*keep, write, more], entry="write")
    host.run(flow, {"i": 1, "draft": b""}, run_id="r")
    kept = records(host)
    assert any(record.keyframe for record in kept)
    assert max(len(record.body) for record in kept) < LIMIT + SLACK + LIMIT
    assert len(host.state("r")["p3"]) == PAGE
    assert all(run.is_sound for run in host.storage.verify("r"))
    assert host.run(flow, run_id="r").status == "completed"


def test_a_value_that_is_too_large_for_any_record_is_put_aside_or_refused_by_name(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "VALUE_BYTES", PAGE // 2)
    inline = node(name="inline", output="p", inputs=["i"], persist="inline")(page)
    host.run(Flow("f", [inline]), {"i": 1}, run_id="r")
    assert len(host.state("r")["p"]) == PAGE
    assert max(sizes(host)) < PAGE
    store = open_store("memory:", ManualClock())
    with Host(Opened(store.store, None, "memory:")) as bare:
        result = bare.run(Flow("f", [inline]), {"i": 1})
    assert result.error is not None
    assert result.error.code == ValueNotStorable.code
    assert "more than a record takes" in result.error.message


def test_runs_that_commit_together_do_not_outgrow_a_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    put = SqliteStore.put_blocking

    def noting(self: SqliteStore, commits: list[Commit]) -> Any:
        together.append(sum(len(commit.body) for commit in commits))
        return put(self, commits)

    monkeypatch.setattr(SqliteStore, "put_blocking", noting)
    monkeypatch.setattr(committer, "PUT_BYTES", LIMIT)
    one = node(name="one", output="p", inputs=["i"], effects="effectful", idempotency_key="auto")(page)
    two = node(name="two", output="q", inputs=["p"])(lambda p: page(1))
    flow = Flow("f", [one, two], durability="strong")
    asyncio.run(_run_together(flow, f"sqlite:///{tmp_path}/many.db"))
    assert max(together) < LIMIT + SLACK


async def _run_together(flow: Flow, url: str) -> None:
    async with AsyncHost(url) as host:
        await asyncio.gather(*(host.run(flow, {"i": k}) for k in range(30)))


def test_a_large_value_that_stays_in_the_records_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    @node(output="p")
    def again(p: bytes) -> bytes:
        return page(len(p))

    @ifelse(when_true="again", when_false=END)
    def more(p: bytes, ctx: Context) -> bool:
        return ctx.visit < 3

    flow = Flow("f", [again, more], entry="again", durability=Durability(blob_threshold=PAGE // 2))
    store = open_store("memory:", ManualClock())
    with Host(Opened(store.store, None, "memory:")) as bare, caplog.at_level("WARNING", "everstep"):
        assert bare.run(flow, {"p": b""}, run_id="r").status == "completed"
        assert len(bare.state("r")["p"]) == PAGE
    [told] = caplog.messages
    assert told.startswith("'p' has ") and "no place for artifacts" in told
