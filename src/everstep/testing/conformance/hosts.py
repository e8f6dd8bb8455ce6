"""Hosts on the store, with flows as users write them: what one begins another goes on with, and what one
cleans up is gone, while all else shows what it showed.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from everstep import Context, Durability, Flow, Host, Retention, Status, ifelse, node
from everstep.codec.records import check_digest
from everstep.errors import RunErased, TokenInvalid, TokenUsed, WaitSettled
from everstep.graph.author.waits import approval, question, timer
from everstep.model.outputs import ApprovalOutput, TimerOutput
from everstep.ports.durability import Handle, ScheduleState, ScheduleStatus
from everstep.ports.retention import RetainingBlobStore, RetainingStore
from everstep.testing.conformance.kit import Client, StoreKit, Suite

KEY = "a key of sixteen or more characters"
STRONG = Durability("strong", blob_threshold=2048)
DAY = dt.timedelta(days=1).total_seconds()


@node(output="count")
def add(count: int, ctx: Context) -> int:
    ctx.channel.append("seen", count)
    ctx.channel.atomic_add("sum", count)
    return count + 1


@ifelse(when_true="add", when_false="nap")
def again(count: int) -> bool:
    return count % 5 != 0


@node(output="end")
def finish(nap: TimerOutput, ok: ApprovalOutput, ctx: Context) -> list[Any]:
    return [ok.approver, ctx.channel.get("seen"), ctx.channel.get("sum")]


FLOW = Flow(
    "hosted",
    [
        add,
        again,
        timer("nap", duration="2h", payload="count"),
        approval("ok", context="nap", timeout="3d"),
        finish,
    ],
    entry="add",
    durability=STRONG,
)

UGLY: dict[str, Any] = {
    "numbers": [0, -0.0, 1e308, 2**70, -(2**63), True, decimal.Decimal("1.10"), 1j],
    "texts": ["", "\0", "é流れ🦉", "a" * 3000, "'; --", "\r\n"],
    "bytes": [b"", b"\0\xff", bytes(range(256)) * 20],
    "shapes": [(), (1, (2,)), [[]], {}, {"": None, "a.b": {"$type": 1}}, {1: "one"}, {1, 2}],
    "times": [
        dt.datetime(2030, 2, 28, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        dt.date(1, 1, 1),
        dt.timedelta(microseconds=-1),
    ],
    "ids": [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)],
}


@node(output="kept")
def keep(values: dict[str, Any]) -> dict[str, Any]:
    return values


@node(output="same")
def compare(kept: dict[str, Any], ok: bool) -> bool:
    return repr(kept) == repr(UGLY) and ok


UGLY_FLOW = Flow("ugly", [keep, question("ok"), compare], durability=STRONG)


class Alarms:
    """A scheduler of one's own, which remembers what it is asked for."""

    def __init__(self) -> None:
        self.times: dict[str, dt.datetime] = {}

    async def schedule_at(self, handle: Handle, at: dt.datetime) -> str:
        self.times[handle.wait_id] = at
        return handle.wait_id

    async def schedule_after(self, handle: Handle, delay: dt.timedelta) -> str:
        raise AssertionError("a wait is scheduled at a time, not after a delay")

    async def cancel(self, schedule_id: str) -> None:
        self.times.pop(schedule_id, None)

    async def status(self, schedule_id: str) -> ScheduleStatus:
        return ScheduleStatus(ScheduleState.PENDING, self.times[schedule_id])


class Hosts(Suite):
    @pytest.fixture
    def hosts(self, store_kit: StoreKit) -> Iterator[Callable[..., Host]]:
        """Open hosts on the store, one after the other; the one before is closed, as a process that ended."""
        opened: list[Host] = []

        def open_one(**options: Any) -> Host:
            while opened:
                opened.pop().close()
            opened.append(Host(store_kit.open(), clock=store_kit.clock, **options))
            return opened[-1]

        yield open_one
        while opened:
            opened.pop().close()

    def test_a_run_passes_from_host_to_host_through_timers_tokens_and_its_channel(
        self, hosts: Callable[..., Host], store_kit: StoreKit
    ) -> None:
        assert hosts(key=KEY).run(FLOW, {"count": 1}, run_id="run").status is Status.HALTED
        store_kit.clock.advance(dt.timedelta(hours=2))
        host = hosts(key=KEY)
        assert host.resume("run", FLOW).status is Status.HALTED
        [asked] = host.waits("run", kind="approval")
        assert asked.token is not None
        host = hosts(key=KEY)
        renewed = host.waiting.reissue(asked.id)
        with pytest.raises(TokenInvalid):
            host.answer(asked.token, {"approved": True})
        assert renewed.token is not None
        hosts(key=KEY).answer(renewed.token, {"approved": True, "approver": "ann"})
        host = hosts(key=KEY)
        with pytest.raises((TokenUsed, WaitSettled)):
            host.answer(renewed.token, {"approved": False})
        result = host.resume("run", FLOW)
        assert result["end"] == ["ann", [1, 2, 3, 4], 10]
        again = hosts().resume("run", FLOW)
        assert (again.status, dict(again)) == (Status.COMPLETED, dict(result))

    def test_a_wait_without_an_answer_ends_by_its_time(
        self, hosts: Callable[..., Host], store_kit: StoreKit
    ) -> None:
        hosts().run(FLOW, {"count": 1}, run_id="run")
        for wait_for in (dt.timedelta(hours=2), dt.timedelta(days=3)):
            store_kit.clock.advance(wait_for)
            result = hosts().resume("run", FLOW)
        assert result.status is Status.COMPLETED
        assert result["end"][0] in ("", None)

    def test_ugly_values_come_back_as_they_were(self, hosts: Callable[..., Host]) -> None:
        host = hosts()
        assert host.run(UGLY_FLOW, {"values": UGLY}, run_id="run").status is Status.HALTED
        host = hosts()
        host.answer(host.waits("run")[0].id, True)
        result = hosts().resume("run", UGLY_FLOW)
        assert result["same"] is True
        assert repr(hosts().state("run")["kept"]) == repr(UGLY)

    def test_what_is_not_a_number_stays_what_it_is(self, hosts: Callable[..., Host]) -> None:
        hosts().run(Flow("nan", [keep], durability=STRONG), {"values": {"x": math.nan}}, run_id="run")
        assert math.isnan(hosts().state("run")["kept"]["x"])

    def test_every_digest_covers_the_one_before(self, hosts: Callable[..., Host], client: Client) -> None:
        hosts().run(FLOW, {"count": 1}, run_id="run")
        told = [record.digest for record in hosts().history("run")]
        before, found = b"", []
        for record in client.get("run"):
            before = check_digest(record.body, f"record {record.sequence}", before, record.checkpoint_id)
            found.append(before.hex())
        assert found == told
        assert len(set(found)) == len(found) >= 5

    def test_a_scheduler_of_ones_own_is_told_and_fires(self, hosts: Callable[..., Host]) -> None:
        alarms = Alarms()
        flow = Flow("alarm", [timer("nap", duration="1h", scheduler="mine")], durability=STRONG)
        hosts(schedulers={"mine": alarms}).run(flow, run_id="run")
        [wait_id] = alarms.times
        host = hosts(schedulers={"mine": alarms})
        host.waiting.fire(wait_id)
        assert host.resume("run", flow).status is Status.COMPLETED
        with pytest.raises(WaitSettled):
            host.waiting.fire(wait_id)

    def test_a_fork_and_its_parent_go_their_own_ways(self, hosts: Callable[..., Host]) -> None:
        hosts().run(FLOW, {"count": 1}, run_id="run")
        hosts().fork("run", at=2, state={"count": 8}, fork_id="fork")
        assert hosts().resume("fork", FLOW).status is Status.HALTED
        assert hosts().state("fork")["count"] == 10
        assert hosts().state("run")["count"] == 5


@node(output="page")
def fetch(text: str) -> str:
    return f"{text} " * 2000


@node(output="total_cost_usd")
def measure(page: str) -> float:
    return len(page) / 100


PAGES = Flow("pages", [fetch, measure], durability=STRONG)


class Keeping(Suite):
    """Only for stores that declare `retains`, with artifacts that can be listed."""

    @pytest.fixture
    def keeper(self, store_kit: StoreKit) -> Iterator[Host]:
        opened = store_kit.open()
        with Host(opened, clock=store_kit.clock) as host:
            if not isinstance(opened.store, RetainingStore):
                pytest.skip("it declares that nothing in it can be erased")
            assert isinstance(opened.blobs, RetainingBlobStore)
            for k in range(6):
                host.run(PAGES, {"text": f"text {k % 4}"}, run_id=f"run-{k}").raise_for_status()
                store_kit.clock.advance(60)
            yield host

    def test_rules_leave_whole_runs_last_checkpoints_and_summaries(
        self, keeper: Host, store_kit: StoreKit
    ) -> None:
        host = keeper
        host.retention.pin("run-0", "a lesson")
        host.fork("run-1", fork_id="fork")
        store_kit.clock.advance(2 * DAY)
        policy = Retention(whole=3, keep_last=5)
        dry = host.retention.gc(retention=policy, dry_run=True)
        found = host.retention.gc(retention=policy)
        assert found.runs == dry.runs and found.problems == []
        # The fork is the newest, so that of six runs and a fork five are kept, and what is needed.
        assert [(run.run_id, run.action) for run in found.runs] == [("run-3", "trim"), ("run-2", "trim")]
        assert [run.run_id for run in found.spared] == ["run-1"]
        host.cancel("fork")
        host.retention.unpin("run-0")
        assert host.retention.erase("fork").checkpoints == 2
        found = host.retention.gc(retention=Retention(whole=1, keep_last=2))
        assert [(run.run_id, run.action) for run in found.runs] == [
            ("run-4", "trim"),
            *((f"run-{k}", "erase") for k in (3, 2, 1, 0)),
        ]
        assert found.artifacts.removed == 2, "of four texts two are named by the runs that are left"
        assert [run.run_id for run in host.runs()] == ["run-5", "run-4"]
        assert [c.is_trimmed for c in host.checkpoints("run-4")] == [True, True, True, False]
        assert host.state("run-4")["page"] == "text 0 " * 2000
        assert host.run(PAGES, {"text": "text 0"}, run_id="run-4").status is Status.COMPLETED
        assert all(one.is_sound for one in host.storage.verify())
        left = {run.run_id: run.summary for run in host.retention.removed()}
        assert left.pop("fork") is None and sorted(left) == [f"run-{k}" for k in range(4)]
        for summary in left.values():
            assert summary is not None and (summary.phases_completed, summary.errors_count) == (2, 0)
            assert summary.total_cost_usd == 140
        assert sum(line.what == "run" for line in host.retention.removals()) == 5
        with pytest.raises(RunErased):
            host.run(PAGES, {"text": "text 0"}, run_id="run-0")
        assert host.retention.gc(retention=Retention(whole=1, keep_last=2)).has_removed is False

    def test_an_erased_run_takes_along_what_only_it_names(self, keeper: Host, store_kit: StoreKit) -> None:
        host = keeper
        store_kit.clock.advance(DAY)
        assert host.retention.erase("run-2").artifacts == 1
        assert host.retention.erase("run-0").artifacts == 0, "another run names the same bytes"
        assert host.state("run-4")["page"] == "text 0 " * 2000
        assert host.retention.erase("run-4").artifacts == 1
        assert host.retention.gc().artifacts.removed == 0
        assert {run.run_id for run in host.runs()} == {"run-1", "run-3", "run-5"}
