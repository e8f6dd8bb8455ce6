"""Every metric moves when what it counts happens, and keeps its name."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from everstep import AsyncHost, Breaker, Context, Flow, Limit, Retry, node, wait
from everstep.testing import ManualClock
from tests.golden.comparing import differences
from tests.integration.runtime.metrics.exposition_text import Labels, Read, read


@node(output="b")
def double(a: int) -> int:
    return 2 * a


@node(output="b", retry=Retry(2, first=0))
def stumble(a: int) -> int:
    raise ConnectionError("down")


@node(output="b")
def call(a: int, ctx: Context) -> int:
    return ctx.step("fetch", lambda: a + 1)


@node(output="b")
def fill(a: int) -> bytes:
    return b"x" * (a << 20)


@node(output="b")
async def hang(a: int) -> int:
    await asyncio.Event().wait()
    return a


@node(output="b", retry=Retry(9, first=0))
def send(a: int, ctx: Context) -> int:
    ctx.spend(usd="4.50")
    raise ConnectionError("down")


PLAIN = Flow("plain", [double])
STUMBLING = Flow("stumbling", [stumble])
CALLING = Flow("calling", [call])
FILLING = Flow("filling", [fill])
HANGING = Flow("hanging", [hang])
LIMITED = Flow("limited", [hang], limits=[Limit("a", running=1)])
WAITING = Flow("waiting", [wait.timer("pause", duration="1h"), double])
ASKING = Flow("asking", [wait.approval("ok", notify=["mail", "pager"])])
GUARDED = Flow(
    "guarded",
    [send],
    budgets={"usd": "5.00"},
    breakers=[Breaker("mail", failures=1, shared=True)],
)


class Stage(NamedTuple):
    """A host that counts, its clock, and where it keeps runs."""

    host: AsyncHost
    clock: ManualClock
    folder: Path
    ends: AsyncExitStack
    """What is ended before the host is closed."""

    async def told(self) -> dict[str, Read]:
        """Return what a scrape finds a while later."""
        self.clock.advance("2s")
        return read(await self.host.fleet.metrics())

    async def work(self, *flows: Flow) -> None:
        await self.host.worker(flows).run(until_idle=True)

    async def die(self, run_id: str) -> None:
        """Let an owner claim a run and be heard of no more."""
        store: Any = self.host.durability.checkpoint_store
        await store.lease(run_id, owner="dead", ttl=timedelta(seconds=5), process=None)
        self.clock.advance("1min")


Act = Callable[[Stage], Awaitable[object]]


async def run_plain(stage: Stage) -> None:
    await stage.host.run(PLAIN, {"a": 1})


async def fork_one(stage: Stage) -> None:
    await stage.host.run(PLAIN, {"a": 1}, run_id="P1")
    before = number(await stage.told(), "everstep_runs_started_total", flow="plain")
    await stage.host.fork("P1", at=1)
    assert number(await stage.told(), "everstep_runs_started_total", flow="plain") == before + 1


async def halt(stage: Stage) -> None:
    await stage.host.run(WAITING, {"a": 1})


async def fire_late(stage: Stage) -> None:
    await stage.host.run(WAITING, {"a": 1})
    stage.clock.advance("1h")
    stage.clock.advance("7s")
    await stage.work(WAITING)


async def accept_and_work(stage: Stage) -> None:
    await stage.host.start(PLAIN, {"a": 1})
    stage.clock.advance("3s")
    await stage.work(PLAIN)


async def take_over(stage: Stage) -> None:
    await stage.host.start(PLAIN, {"a": 1}, run_id="P1")
    await stage.die("P1")
    await stage.work(PLAIN)


async def leave_due(stage: Stage) -> None:
    await stage.host.start(PLAIN, {"a": 1})


async def leave_waiting(stage: Stage) -> None:
    """Of three runs a worker drives one of each key: the other waits, though there are slots."""
    for run_id, a in (("L1", 1), ("L2", 1), ("L3", 2)):
        await stage.host.start(LIMITED, {"a": a}, run_id=run_id)
    worker = stage.host.worker([LIMITED], concurrency=3, grace=0)
    task = asyncio.ensure_future(worker.run())

    async def end() -> None:
        worker.stop()
        await task

    stage.ends.push_async_callback(end)
    while worker.describe().driving < 2:
        await asyncio.sleep(0.001)
    assert number(await stage.told(), "everstep_limit_waiting_runs", limit="limited/a") == 1


async def make_artifact(stage: Stage) -> None:
    await stage.host.run(FILLING, {"a": 1})


async def use_guards(stage: Stage) -> None:
    await stage.host.run(GUARDED, {"a": 1})


async def work_while_told(stage: Stage) -> None:
    """A worker is there, and drives one run, while the numbers are read."""
    await stage.host.start(HANGING, {"a": 1}, run_id="H1")
    worker = stage.host.worker([HANGING], concurrency=3, grace=0)
    task = asyncio.ensure_future(worker.run())
    while not worker.describe().driving:
        await asyncio.sleep(0.001)
    told = await stage.told()
    assert number(told, "everstep_slots") == 3
    assert number(told, "everstep_slots_used") == 1
    assert number(told, "everstep_workers") == 1
    assert number(told, "everstep_steps_started_total", flow="hanging", node="hang") == 1
    worker.stop()
    await task


async def damage(stage: Stage) -> None:
    await stage.host.start(PLAIN, {"a": 1}, run_id="P1")
    with closing(apsw.Connection(f"{stage.folder}/runs.db")) as db:
        db.execute("UPDATE checkpoints SET body = x'00'")
    await stage.work(PLAIN)


async def ask(stage: Stage) -> None:
    await stage.host.run(ASKING)


RUNS = "everstep_runs"
TABLE: list[tuple[Act, str, dict[str, str]]] = [
    (run_plain, "everstep_runs_started_total", {"flow": "plain"}),
    (fork_one, "everstep_runs_started_total", {"flow": "plain"}),
    (run_plain, "everstep_runs_ended_total", {"flow": "plain", "status": "completed"}),
    (run_plain, "everstep_steps_started_total", {"flow": "plain", "node": "double"}),
    (run_plain, "everstep_steps_ended_total", {"flow": "plain", "node": "double", "status": "completed"}),
    (run_plain, "everstep_step_seconds", {"flow": "plain", "node": "double"}),
    (run_plain, "everstep_commit_seconds", {}),
    (run_plain, "everstep_commit_size", {}),
    (run_plain, RUNS, {"status": "completed"}),
    (run_plain, "process_cpu_seconds_total", {}),
    (halt, "everstep_runs_halted_total", {"flow": "waiting"}),
    (halt, "everstep_steps_ended_total", {"flow": "waiting", "node": "pause", "status": "halted"}),
    (halt, "everstep_open_waits", {"kind": "timer"}),
    (fire_late, "everstep_timer_drift_seconds", {"flow": "waiting"}),
    (fire_late, "everstep_due_to_claimed_seconds", {"flow": "waiting", "why": "woken"}),
    (accept_and_work, "everstep_due_to_claimed_seconds", {"flow": "plain", "why": "accepted"}),
    (accept_and_work, "everstep_runs_claimed_total", {"flow": "plain"}),
    (take_over, "everstep_takeovers_total", {"flow": "plain"}),
    (leave_due, "everstep_due_runs", {"flow": "plain"}),
    (leave_due, "everstep_oldest_due_seconds", {"flow": "plain"}),
    (leave_due, "everstep_untaken_runs", {"flow": "plain"}),
    (leave_waiting, "everstep_limit_waiting_runs", {"limit": "limited/a"}),
    (lambda s: s.host.run(STUMBLING, {"a": 1}), "everstep_runs_ended_total", {"status": "failed"}),
    (lambda s: s.host.run(STUMBLING, {"a": 1}), "everstep_steps_ended_total", {"status": "retrying"}),
    (lambda s: s.host.run(STUMBLING, {"a": 1}), "everstep_steps_ended_total", {"status": "failed"}),
    (lambda s: s.host.run(CALLING, {"a": 1}), "everstep_calls_ended_total", {"node": "call"}),
    (lambda s: s.host.run(CALLING, {"a": 1}), "everstep_call_seconds", {"node": "call"}),
    (make_artifact, "everstep_artifacts_total", {}),
    (make_artifact, "everstep_artifact_bytes_total", {}),
    (ask, "everstep_notified_total", {"notifier": "mail"}),
    (ask, "everstep_notifier_failures_total", {"notifier": "pager"}),
    (use_guards, "everstep_spent_total", {"name": "usd"}),
    (use_guards, "everstep_budget_warnings_total", {"budget": "usd"}),
    (use_guards, "everstep_breaker_trips_total", {"breaker": "mail"}),
    (use_guards, "everstep_breakers", {"breaker": "mail", "state": "open"}),
    (work_while_told, "everstep_runs_handed_back_total", {}),
    (damage, "everstep_runs_set_aside_total", {}),
]
ELSEWHERE = {
    "everstep_slots": "in `work_while_told`",
    "everstep_slots_used": "in `work_while_told`",
    "everstep_workers": "in `work_while_told`",
    "everstep_store_up": "in test_scrapes_in_outages.py",
    "everstep_store_seen_seconds": "in test_scrapes_in_outages.py",
    "everstep_store_outages_total": "in test_scrapes_in_outages.py",
    "process_resident_memory_bytes": "below",
    "process_open_fds": "below",
    "process_max_fds": "below",
    "process_start_time_seconds": "below",
    "everstep_build_info": "below",
}
"""Where those are tried that no act above moves."""


def number(told: dict[str, Read], name: str, /, **labels: str) -> float:
    """Return the sum of the samples with these labels; of a histogram, how many there are."""
    family = told[name]
    suffix = "_count" if family.kind == "histogram" else ""

    def is_meant(of: str, has: Labels) -> bool:
        return of == suffix and labels.items() <= dict(has).items()

    return sum(value for (of, has), value in family.samples.items() if is_meant(of, has))


def staged(folder: Path, test: Callable[[Stage], Awaitable[None]]) -> None:
    def fail(notice: object) -> None:
        raise ConnectionError("no line")

    async def main() -> None:
        clock = ManualClock()
        notifiers = {"mail": lambda notice: None, "pager": fail}
        url = f"sqlite:///{folder}/runs.db"
        made = AsyncHost(url, clock=clock, metrics=True, notifiers=notifiers)
        async with made as host, AsyncExitStack() as ends:
            await test(Stage(host, clock, folder, ends))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("act", "name", "labels"), TABLE, ids=[f"{name}-{'-'.join(labels.values())}" for _, name, labels in TABLE]
)
def test_it_moves_when_what_it_counts_happens(
    quick_folder: Path, act: Act, name: str, labels: dict[str, str]
) -> None:
    async def moves(stage: Stage) -> None:
        before = number(await stage.told(), name, **labels)
        await act(stage)
        assert number(await stage.told(), name, **labels) > before

    staged(quick_folder, moves)


def test_what_it_measures_is_what_the_clock_says(quick_folder: Path) -> None:
    async def measured(stage: Stage) -> None:
        await fire_late(stage)
        told = await stage.told()
        drift = told["everstep_timer_drift_seconds"].samples
        assert drift["_sum", (("flow", "waiting"),)] == 7
        await accept_and_work(stage)
        claimed = (await stage.told())["everstep_due_to_claimed_seconds"].samples
        assert claimed["_sum", (("flow", "plain"), ("why", "accepted"))] == 3
        await make_artifact(stage)
        assert number(await stage.told(), "everstep_artifact_bytes_total") >= 1 << 20
        await leave_due(stage)
        stage.clock.advance("40s")
        assert number(await stage.told(), "everstep_oldest_due_seconds", flow="plain") == 42

    staged(quick_folder, measured)


def test_a_flow_that_is_paused_has_nothing_due(quick_folder: Path) -> None:
    async def told(stage: Stage) -> None:
        await leave_due(stage)
        await stage.host.start(WAITING, {"a": 1})
        await stage.host.fleet.pause(flow="plain")
        paused = await stage.told()
        for name in ("everstep_due_runs", "everstep_oldest_due_seconds", "everstep_untaken_runs"):
            assert {dict(labels)["flow"] for _, labels in paused[name].samples} == {"waiting"}
        await stage.host.fleet.unpause(flow="plain")
        assert number(await stage.told(), "everstep_due_runs", flow="plain") == 1

    staged(quick_folder, told)


def test_what_the_process_uses_is_what_its_machine_says(quick_folder: Path) -> None:
    async def told(stage: Stage) -> None:
        before = await stage.told()
        with (quick_folder / "open").open("w"):
            during = await stage.told()
        assert number(during, "process_open_fds") == number(before, "process_open_fds") + 1
        assert number(before, "process_max_fds") == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert 1 << 20 < number(before, "process_resident_memory_bytes") < 1 << 40
        assert number(before, "process_start_time_seconds") > 1.7e9
        assert number(before, "everstep_build_info") == 1

    staged(quick_folder, told)


def test_names_kinds_and_labels_are_those_of_the_golden_file(quick_folder: Path) -> None:
    async def told(stage: Stage) -> None:
        acts = (run_plain, accept_and_work, fire_late, ask, use_guards, make_artifact, take_over, leave_due)
        for act in (*acts, leave_waiting):
            await act(stage)
        await stage.host.run(CALLING, {"a": 1})
        found = {
            name: {
                "kind": family.kind,
                "labels": sorted({label for _, labels in family.samples for label, _ in labels} - {"le"}),
                "help": family.help,
            }
            for name, family in (await stage.told()).items()
        }
        assert found.keys() == {name for _, name, _ in TABLE} | ELSEWHERE.keys()
        different = differences("metrics", {"host": found})
        assert not different, "\n".join(different)

    staged(quick_folder, told)


def test_a_host_without_metrics_counts_nothing_and_tells_what_its_store_says(quick_folder: Path) -> None:
    async def main() -> None:
        async with AsyncHost(f"sqlite:///{quick_folder}/runs.db") as host:
            await host.run(PLAIN, {"a": 1})
            told = read(await host.fleet.metrics())
            assert number(told, RUNS, status="completed") == 1
            assert "everstep_runs_ended_total" not in told

    asyncio.run(main())
