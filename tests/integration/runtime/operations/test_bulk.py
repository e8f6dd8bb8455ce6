"""One act on many runs: what it does to which, and that it does it once whatever dies meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from everstep import Flow, Host, chain, node, wait
from everstep.errors import BadRequest, LeaseConflict, RunNotFound
from everstep.model.commits import BULK_FLOW
from everstep.model.enums import Trigger
from everstep.registry import Opened
from everstep.results import BulkPreview
from everstep.runtime.operations.acting import first
from everstep.runtime.operations.bulk.acts import RunActs
from everstep.runtime.operations.bulk.flow import bulk_flow
from everstep.runtime.operations.bulk.order import order_of, ordered
from everstep.runtime.operations.bulk.verdict import CHANGED, DO, GONE
from everstep.runtime.travel.fork import fork
from everstep.runtime.workers.built_in import BULK
from everstep.stores.memory import MemoryData, MemoryStore
from everstep.testing.clock import ManualClock
from everstep.testing.killing import Crashed, Killer, crash, killing

BROKEN = {"bank"}


@node(effects="effectful")
def charge(order: int, fails: bool) -> None:
    if fails and BROKEN:
        raise TimeoutError("the bank timed out")


ORDERS = Flow("orders", [charge])
ASKING = Flow("asking", [wait.approval("sign")])
SIGNING = Flow("signing", chain(*(wait.approval(f"sign{k}") for k in range(3))))
WHO: dict[str, Any] = {"by": "ada", "comment": "the bank is back"}


@pytest.fixture(autouse=True)
def _bank() -> Iterator[None]:
    BROKEN.add("bank")
    yield
    BROKEN.add("bank")


@pytest.fixture
def host(url: str) -> Iterator[Host]:
    with Host(url, clock=ManualClock(auto=True)) as opened:
        yield opened


def fill(host: Host, failed: int = 5, done: int = 2) -> None:
    for k in range(failed + done):
        host.run(ORDERS, {"order": k, "fails": k < failed}, run_id=f"o{k}")


def act(host: Host, what: str, where: str = "flow = orders", **options: Any) -> tuple[str, dict[str, Any]]:
    """Do something to many runs here and now; returns which run did it, and what came of it."""
    bulk = host.fleet.bulk(what, where, **{**WHO, **options})
    told = host.fleet.drive_bulk(bulk)
    assert told.status == "completed" and told.left is not None
    return bulk, {"done": told.done, **told.skipped, **told.refused}


def statuses(host: Host) -> dict[str, int]:
    return host.fleet.count(where=f"flow != {BULK_FLOW}").runs


def acts_of(host: Host, run_id: str) -> list[tuple[str, str, str, str]]:
    return [(str(row.act), row.by, row.comment, row.code) for row in host.fleet.audit(run_id)]


# -- what is done --------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_does_nothing(host: Host) -> None:
    fill(host)
    before = statuses(host)
    found = host.fleet.bulk("retry", "flow = orders", dry_run=True, sample=3)
    assert isinstance(found, BulkPreview)
    assert (found.runs, found.to_do, found.skipped, found.refused) == (7, 5, {"not_failed": 2}, {})
    assert (found.by_status, found.by_flow) == ({"failed": 5, "completed": 2}, {"orders": 7})
    assert [(one.run_id, one.would, one.why) for one in found.sample] == [
        ("o6", "skipped", "not_failed"),
        ("o5", "skipped", "not_failed"),
        ("o4", "done", ""),
    ]
    assert found.is_whole and statuses(host) == before
    assert host.fleet.bulk("retry", "status = failed", dry_run=True, at_most=2).to_do == 2
    assert host.fleet.bulk("erase", "flow = orders", dry_run=True).to_do == 7


@pytest.mark.servers
def test_retry_reopens_what_failed_and_leaves_it_to_workers(host: Host) -> None:
    fill(host)
    bulk, came = act(host, "retry")
    assert came == {"done": 5, "not_failed": 2}
    assert statuses(host) == {"completed": 2, "running": 5}
    for k in range(5):
        records = host.history(f"o{k}")
        assert [record.trigger for record in records].count(Trigger.RESUME) == 1
        assert records[-1].act is not None and records[-1].act.comment == f"the bank is back (bulk {bulk})"
        assert acts_of(host, f"o{k}") == [("retry", "ada", f"the bank is back (bulk {bulk})", "")]
    BROKEN.clear()
    assert host.work([ORDERS], until_idle=True).completed == 5
    assert statuses(host) == {"completed": 7}


def test_a_worker_does_it_though_it_was_told_of_no_such_flow(host: Host) -> None:
    fill(host)
    bulk = host.fleet.bulk("retry", "status = failed", **WHO)
    assert host.fleet.bulk_progress(bulk).status == "running"
    BROKEN.clear()
    stats = host.work([ASKING, ORDERS], until_idle=True)
    assert stats.completed == 6
    told = host.fleet.bulk_progress(bulk)
    assert (told.status, told.done, told.left, told.act) == ("completed", 5, 0, "retry")
    assert statuses(host) == {"completed": 7}


@pytest.mark.servers
def test_each_act_does_what_it_does_to_one_run(host: Host) -> None:
    fill(host, failed=2, done=2)
    host.run(ASKING, run_id="asks")
    assert act(host, "tag", add={"team": "blue"}, remove=["old"])[1] == {"done": 4}
    assert len(host.runs(tag="team=blue")) == 4
    assert act(host, "tag", add={"team": "blue"})[1] == {"done": 0, "nothing_to_do": 4}
    _, came = act(host, "pin", "id in (o0, o1)", reason="a dispute")
    assert came == {"done": 2} and (host.info("o0").pinned or "").startswith("a dispute")
    assert act(host, "erase", "flow in (orders, asking)")[1] == {
        "done": 2,
        "run.pinned": 2,
        "request.invalid": 1,
    }
    assert acts_of(host, "o0")[-1][::3] == ("erase", "run.pinned")
    assert {run.run_id for run in host.runs(flow="orders")} == {"o0", "o1"}
    assert act(host, "unpin", "pinned = true")[1] == {"done": 2} and host.info("o0").pinned is None
    _, came = act(host, "cancel", "flow in (orders, asking)")
    assert came == {"done": 1, "ended": 2} and host.info("asks").status == "cancelled"
    assert acts_of(host, "asks")[-1][0] == "cancel"


@pytest.mark.servers
def test_a_fork_is_made_of_each_with_what_is_edited(host: Host) -> None:
    fill(host, failed=3, done=0)
    _, came = act(host, "fork", "status = failed", inputs={"fails": False})
    assert came == {"done": 3}
    forks = [run for run in host.runs(flow="orders") if run.parent_run_id is not None]
    assert {run.parent_run_id for run in forks} == {"o0", "o1", "o2"}
    assert host.work([ORDERS], until_idle=True).completed == 3
    assert act(host, "fork", "id = o0", inputs={"nothing": 1})[1] == {"done": 0, "run.bad_input": 1}
    with pytest.raises(RunNotFound) as alone:
        host.fork("o0", at=99)
    seen = host.fleet.bulk("fork", "id = o0", at=99, dry_run=True)
    assert (seen.to_do, seen.refused) == (0, {alone.value.code: 1})
    assert act(host, "fork", "id = o0", at=99)[1] == {"done": 0, alone.value.code: 1}


@pytest.mark.servers
def test_runs_are_paused_and_let_go_on(host: Host) -> None:
    fill(host, failed=1, done=0)
    for k in range(3):
        host.start(ORDERS, {"order": k, "fails": False}, run_id=f"s{k}")
    host.fleet.pause("s2", by="bob")
    found = host.fleet.bulk("pause", "flow = orders", dry_run=True)
    assert isinstance(found, BulkPreview)
    assert (found.to_do, found.skipped) == (2, {"nothing_to_do": 1, "ended": 1})
    bulk, came = act(host, "pause")
    assert came == {"done": 2, "nothing_to_do": 1, "ended": 1}
    assert host.work([ORDERS], until_idle=True).claimed == 0
    told = {one.run_id: one.by.by if one.by else "" for one in host.fleet.pauses()}
    assert told == {"s0": "ada", "s1": "ada", "s2": "bob"}
    assert acts_of(host, "s0") == [("pause", "ada", f"the bank is back (bulk {bulk})", "")]
    _, came = act(host, "unpause", "paused = true and id in (s0, s1)")
    assert came == {"done": 2}
    assert host.work([ORDERS], until_idle=True).completed == 2
    host.fleet.unpause("s2")
    assert act(host, "pause", "id = s0")[1] == {"done": 0, "ended": 1}


def test_resume_lets_workers_take_what_they_left_alone(host: Host) -> None:
    host.start(ORDERS, {"order": 1, "fails": False}, run_id="o1")
    host.start(ORDERS, {"order": 2, "fails": False}, run_id="o2")
    store = host._host._services.store
    epoch = asyncio.run(store.lease("o1", owner="me", ttl=timedelta(seconds=9), process=None)).epoch
    assert asyncio.run(store.set_aside("o1", epoch=epoch, reason="a record is missing"))
    assert host.work([ORDERS], until_idle=True).completed == 1
    assert act(host, "resume")[1] == {"done": 1, "ended": 1}
    assert host.work([ORDERS], until_idle=True).completed == 1


def test_it_stops_after_so_many(host: Host) -> None:
    fill(host, failed=7, done=3)
    bulk = host.fleet.bulk("retry", "flow = orders", at_most=4)
    told = host.fleet.drive_bulk(bulk)
    assert (told.done, told.skipped) == (4, {"not_failed": 3})
    assert statuses(host)["running"] == 4


def test_it_is_as_fast_as_it_may_be(host: Host) -> None:
    fill(host, failed=10, done=0)
    began = host.clock.now()
    act(host, "retry", per_second=0.5)
    assert timedelta(seconds=20) <= host.clock.now() - began < timedelta(seconds=30)


def test_a_run_that_is_cancelled_acts_no_more(host: Host) -> None:
    fill(host, failed=3, done=0)
    bulk = host.fleet.bulk("retry", "status = failed")
    assert host.cancel(bulk) == "cancelled"
    assert host.work([ORDERS], until_idle=True).claimed == 0
    assert statuses(host) == {"failed": 3}
    assert host.fleet.bulk_progress(bulk).status == "cancelled"


def test_acts_without_a_name_are_in_the_audit_log_too(host: Host) -> None:
    fill(host, failed=1, done=0)
    bulk, _ = act(host, "retry", by=None, comment=None)
    assert acts_of(host, "o0") == [("retry", "bulk", f"(bulk {bulk})", "")]


# -- which runs ----------------------------------------------------------------------------------------


def test_only_runs_that_were_there_before_and_never_itself(host: Host) -> None:
    fill(host, failed=2, done=0)
    bulk = host.fleet.bulk("tag", "status is set", add=["seen"], **WHO)
    host.run(ORDERS, {"order": 9, "fails": True}, run_id="later")
    other = host.fleet.bulk("tag", "status is set", add=["other"], **WHO)
    told = host.fleet.drive_bulk(bulk)
    assert told.done == 2 and {run.run_id for run in host.runs(tag="seen")} == {"o0", "o1"}
    host.fleet.drive_bulk(other)
    assert {run.run_id for run in host.runs(tag="other")} == {"o0", "o1", "later"}  # and not `bulk`
    assert act(host, "tag", f"flow = {BULK_FLOW}", add=["named"])[1] == {"done": 2}
    assert host.fleet.bulk("cancel", "status is set", dry_run=True).by_flow == {"orders": 3}
    assert host.fleet.bulk("cancel", f"id = {other}", dry_run=True).by_flow == {BULK_FLOW: 1}
    assert host.fleet.bulk("cancel", f"id != {other}", dry_run=True).by_flow == {"orders": 3}


def test_times_of_a_query_count_from_when_it_began() -> None:
    clock = ManualClock(auto=True)
    with Host("memory:", clock=clock) as host:
        host.run(ORDERS, {"order": 1, "fails": True}, run_id="old")
        clock.advance("3h")
        host.run(ORDERS, {"order": 1, "fails": True}, run_id="new")
        bulk = host.fleet.bulk("retry", "started > -1h")
        clock.advance("5h")
        assert host.fleet.drive_bulk(bulk).done == 1
        assert host.info("new").status == "running" and host.info("old").status == "failed"


def test_only_runs_of_flows_that_the_caller_may_see(host: Host) -> None:
    fill(host, failed=2, done=0)
    host.run(ASKING, run_id="asks")
    assert host.fleet.bulk("cancel", "status is set", flows=["asking"], dry_run=True).runs == 1
    assert act(host, "tag", "status is set or id = o1", add=["seen"], flows=["asking"])[1] == {"done": 1}
    assert [run.run_id for run in host.runs(tag="seen")] == ["asks"]


@pytest.mark.parametrize(
    ("what", "where", "options", "said"),
    [
        ("reticulate", "status = failed", {}, "Use one of cancel, resume, retry"),
        ("retry", "", {}, "status is set"),
        ("retry", "statsu = failed", {}, "Did you mean status?"),
        ("retry", "status = failed", {"at_most": 0}, "whole number"),
        ("retry", "status = failed", {"per_second": 0}, "runs a second"),
        ("retry", "status = failed", {"add": ["vip"]}, "It takes nothing"),
        ("tag", "status = failed", {}, "Give add or remove"),
        ("tag", "status = failed", {"add": ["no blank"]}, "Use letters"),
        ("pin", "status = failed", {"reason": " "}, "Say in a few words"),
        ("fork", "status = failed", {"at": 0}, "sequence of a checkpoint"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    what: str, where: str, options: dict[str, Any], said: str
) -> None:
    with Host("memory:") as host:
        for dry_run in (True, False):
            with pytest.raises(BadRequest) as refused:
                host.fleet.bulk(what, where, dry_run=dry_run, **options)
            assert said in refused.value.fix
        assert not host.runs()


def test_the_progress_of_another_run_is_refused(host: Host) -> None:
    fill(host, failed=0, done=1)
    with pytest.raises(BadRequest, match="acts on no others"):
        host.fleet.bulk_progress("o0")


# -- what changed meanwhile ----------------------------------------------------------------------------


def on(
    host: Host, what: str, head: dict[str, int], where: str = "flow = orders", **options: Any
) -> list[Any]:
    """Act on runs as a page saw them, at these checkpoints."""
    inner = host._host

    async def ask() -> list[Any]:
        order = ordered(what, where, inner.clock.now(), **WHO, **options)
        doing = RunActs(inner._services, inner._runs, order, "bulk-1")
        return await doing.on(list(head.items()))

    return host._lanes.call(lambda _: ask())


def test_a_run_that_changed_is_judged_anew(host: Host) -> None:
    fill(host, failed=3, done=0)
    assert on(host, "retry", {"o0": 1}, "status = failed") == [DO]  # it is failed, though at another place
    host.resume("o1", ORDERS)
    BROKEN.clear()
    host.resume("o2", ORDERS)
    assert on(host, "tag", {"o1": 2, "o2": 2}, "status = failed", add=["sad"]) == [DO, CHANGED]
    assert [run.run_id for run in host.runs(tag="sad")] == ["o1"]


@pytest.mark.parametrize("what", ["cancel", "tag", "pin", "unpin", "retry", "erase"])
def test_a_run_that_goes_on_at_the_very_moment_is_looked_at_again(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a run and what is done, it goes on each time: nothing is done to it blindly."""
    world, looks = World(), Counter[str]()
    judge = RunActs.judge

    async def then_it_goes_on(acts: RunActs, row: Any) -> Any:
        verdict = await judge(acts, row)
        looks[row.run_id] += 1
        if looks[row.run_id] < 3:
            await asyncio.to_thread(world.go_on)
        return verdict

    with world.host() as host:
        world.begin(host, ORDERS if what in ("retry", "erase") else SIGNING)
        if what == "unpin":
            host.retention.pin("r")
        head = host.info("r").checkpoints
        monkeypatch.setattr(RunActs, "judge", then_it_goes_on)
        options: dict[str, Any] = {"add": ["seen"]} if what == "tag" else {}
        assert on(host, what, {"r": head}, "id = r", **options) == [DO]
        assert looks["r"] == 3 and host.fleet.audit(act=what)[-1].outcome == "done"
        assert len([row for row in host.fleet.audit(act=what) if "bulk-1" in row.comment]) == 1


def test_a_run_that_is_gone_is_skipped(host: Host) -> None:
    fill(host, failed=0, done=1)
    head = host.info("o0").checkpoints
    host.retention.erase("o0")
    assert on(host, "tag", {"o0": head}, add=["x"]) == [GONE]


@pytest.mark.parametrize("what", ["retry", "tag", "pin", "fork", "erase"])
def test_what_was_done_before_is_done_and_not_repeated(host: Host, what: str) -> None:
    fill(host, failed=3, done=0)
    options: dict[str, Any] = {"add": ["seen"]} if what == "tag" else {}
    heads = {f"o{k}": host.info(f"o{k}").checkpoints for k in range(3)}
    assert on(host, what, heads, **options) == [DO] * 3
    if what == "retry":
        assert host.work([ORDERS], until_idle=True).failed == 3  # they fail again, further on
    many = len(host.runs())
    rows = {name: acts_of(host, name) for name in heads}
    assert on(host, what, heads, **options) == [DO] * 3
    assert {name: acts_of(host, name) for name in heads} == rows
    assert len(host.runs()) == many and (what != "retry" or statuses(host) == {"failed": 3})


@pytest.mark.parametrize("what", ["tag", "pin", "unpin", "pause", "unpause"])
def test_what_a_person_took_back_is_not_done_a_second_time(host: Host, what: str) -> None:
    """The page is looked at again after a crash; the run stands at the checkpoint where it stood."""
    host.start(ORDERS, {"order": 0, "fails": False}, run_id="o0")
    if what == "unpin":
        host.retention.pin("o0")
    if what == "unpause":
        host.fleet.pause("o0")
    options: dict[str, Any] = {"add": ["seen"]} if what == "tag" else {}
    head = {"o0": host.info("o0").checkpoints}
    assert on(host, what, head, **options) == [DO]
    match what:
        case "tag":
            host.fleet.tag("o0", remove=["seen"])
        case "pin":
            host.retention.unpin("o0")
        case "unpin":
            host.retention.pin("o0")
        case "pause":
            host.fleet.unpause("o0")
        case _:
            host.fleet.pause("o0")
    before = host.info("o0")
    assert on(host, what, head, **options) == [DO]
    assert host.info("o0") == before


def test_a_run_that_another_reopens_at_that_moment_has_changed(host: Host) -> None:
    fill(host, failed=1, done=0)
    head = {"o0": host.info("o0").checkpoints}
    inner = host._host
    reopen = inner._runs.resting.reopen

    async def at_the_same_time(row: Any, act: Any, ends: Any = None) -> bool:
        inner._runs.resting.reopen = reopen  # type: ignore[method-assign]
        assert await reopen(row, None)
        raise LeaseConflict("run 'o0' is driven by another owner.")

    inner._runs.resting.reopen = at_the_same_time  # type: ignore[method-assign]
    assert on(host, "retry", head, "status = failed") == [CHANGED]
    # The row keeps an owner that is late from doing it all the same.
    assert acts_of(host, "o0") == [("retry", "ada", "the bank is back (bulk bulk-1)", "changed")]


def test_a_paused_run_is_refused_to_those_who_would_resume_it(host: Host) -> None:
    host.start(ORDERS, {"order": 1, "fails": False}, run_id="o1")
    host.fleet.pause("o1")
    found = host.fleet.bulk("resume", "flow = orders", dry_run=True)
    assert isinstance(found, BulkPreview)
    assert (found.to_do, found.refused) == (0, {"run.paused": 1})
    assert act(host, "resume")[1] == {"done": 0, "run.paused": 1}
    assert host.info("o1").paused_at is not None


def test_a_fork_of_which_the_reply_was_lost_is_in_the_audit_log_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(host, failed=1, done=0)

    async def asked_twice(*args: Any, **options: Any) -> Any:
        with first():
            await fork(*args, **options)
        return await fork(*args, **options)

    monkeypatch.setattr("everstep.runtime.operations.bulk.acts.fork", asked_twice)
    _, came = act(host, "fork", "id = o0")
    assert came == {"done": 1}
    rows = host.fleet.audit(act="fork")
    assert [row.run_id for row in rows if row.run_id == "o0"] == []


def test_no_fork_of_a_bulk_run_carries_out_another_order(host: Host) -> None:
    fill(host, failed=1, done=0)
    bulk, _ = act(host, "tag", add=["seen"])
    order = {"act": "erase", "where": "id = o0", "now": host.clock.now().isoformat(), "by": "root"}
    _, came = act(host, "fork", f"id = {bulk}", at=1, inputs={"order": order})
    assert came == {"done": 0, "request.invalid": 1}
    assert host.work([ORDERS], until_idle=True).claimed == 0 and host.info("o0").status == "failed"


# -- crashes -------------------------------------------------------------------------------------------


class World:
    """A store in this process that hosts come to one after the other, as processes do that die."""

    def __init__(self) -> None:
        self.clock = ManualClock(auto=True)
        self.data = MemoryData()

    def host(self, killer: Killer | None = None) -> Host:
        store = MemoryStore(self.clock, self.data)
        opened = Opened(store, store.artifacts, "memory:")
        return Host(opened if killer is None else killing(opened, by=killer), clock=self.clock)

    def begin(self, host: Host, flow: Flow) -> None:
        host.run(flow, {"order": 1, "fails": True} if flow is ORDERS else {}, run_id="r")

    def go_on(self) -> None:
        """Let another process drive the run a little: one that failed fails again."""
        with self.host() as other:
            if other.info("r").status == "failed":
                other.resume("r", ORDERS)
            else:
                other.answer(other.waits("r")[0].id, {"approved": True})
                other.resume("r", SIGNING)


def prepared(what: str) -> World:
    world = World()
    with world.host() as host:
        fill(host, failed=3, done=1)
        for k in range(2):
            host.run(ASKING, run_id=f"a{k}")
        if what == "unpin":
            act(host, "pin", "flow = orders")
        if what == "unpause":
            act(host, "pause", "flow = asking")
    return world


DONE: dict[str, tuple[dict[str, Any], int, Callable[[Host], int]]] = {
    "retry": ({}, 3, lambda host: len(host.runs(flow="orders", status="running"))),
    "cancel": ({}, 2, lambda host: len(host.runs(flow="asking", status="cancelled"))),
    "pause": ({}, 2, lambda host: len(host.runs(flow="asking", paused=True))),
    "unpause": ({}, 2, lambda host: 2 - len(host.runs(flow="asking", paused=True))),
    "tag": ({"add": ["seen"]}, 6, lambda host: len(host.runs(tag="seen"))),
    "pin": ({}, 6, lambda host: len(host.runs(pinned=True))),
    "unpin": ({}, 4, lambda host: 4 - len(host.runs(pinned=True))),
    "fork": ({}, 6, lambda host: len([run for run in host.runs() if run.parent_run_id])),
    "erase": ({}, 4, lambda host: 4 - len(host.runs(flow="orders"))),
}


@pytest.mark.parametrize("what", DONE)
def test_whatever_dies_each_run_is_acted_on_once(what: str) -> None:
    options, many, done = DONE[what]
    points = 0
    for at in range(1, 400):
        world, killer = prepared(what), Killer(at, act=crash)
        with world.host() as host:
            bulk = host.fleet.bulk(what, "flow in (orders, asking)", **WHO, **options)
        try:
            with world.host(killer) as dying:
                dying.fleet.drive_bulk(bulk)
        except Crashed:
            world.clock.advance("1m")  # its leases run out
        with world.host() as host:
            told = host.fleet.drive_bulk(bulk)
            assert (told.status, told.done, done(host)) == ("completed", many, many), killer.points[-1]
            rows = [row for row in host.fleet.audit(limit=1000) if f"(bulk {bulk})" in row.comment]
            acted = [row.run_id for row in rows if row.outcome == "done"]
            assert len(acted) == len(set(acted)) == many, killer.points[-1]
            assert told.done + sum(told.skipped.values()) + sum(told.refused.values()) == 6
            for run in host.runs(flow="orders"):
                assert [r.trigger for r in host.history(run.run_id)].count(Trigger.RESUME) <= 1
        points = len(killer.points)
        if points < at:
            break
    assert points > 3 * many, "it died at every point"


# -- the built-in flow ---------------------------------------------------------------------------------


def test_the_flow_is_the_one_that_workers_know() -> None:
    with Host("memory:") as host:
        flow = bulk_flow(host._host._services, host._host._runs)
    assert (flow.name, flow.plan.hash) == BULK.key, "workers would not claim its runs: change `BULK`"


def test_an_order_is_read_as_it_was_told() -> None:
    now = ManualClock().now()
    for what, options in (("tag", {"add": {"a": "b"}, "remove": ["c"]}), ("fork", {"inputs": {"x": (1,)}})):
        order = ordered(
            what, "status = failed", now, at_most=3, per_second=2, flows=["b", "a"], **WHO, **options
        )
        assert order_of(order.told()) == order
