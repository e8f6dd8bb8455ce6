"""What is kept of runs, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everstep import Durability, Flow, Host, Retention, Status, node, wait
from everstep.errors import BadRequest, CheckpointPinned, RunErased, RunNotFound
from everstep.ports.store import Capabilities
from everstep.registry import Opened
from everstep.results import Collected
from everstep.stores.memory import MemoryStore
from everstep.testing import ManualClock

DAY = timedelta(days=1)


@node(output="doubled")
def double(count: int) -> int:
    return 2 * count


@node(output="total_cost_usd")
def charge(doubled: int) -> float:
    return doubled / 4


STRONG = Durability("strong", blob_threshold=1000)
STEPS = Flow("steps", [double, charge], durability=STRONG)


@node(output="page")
def fetch(text: str) -> str:
    return text * 1000


PAGES = Flow("pages", [fetch], durability=STRONG)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db?synchronous=off"


@pytest.fixture
def open_host(url: str, clock: ManualClock) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def make(retention: Retention | None = None) -> Host:
        hosts.append(Host(url, clock=clock, retention=retention))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


def artifacts(tmp_path: Path) -> list[Path]:
    return sorted(p for p in (tmp_path / "runs.db.artifacts").rglob("*") if p.is_file())


def test_sixty_runs_ten_whole_forty_with_their_last_checkpoint_ten_summaries(
    open_host: Callable[..., Host], clock: ManualClock
) -> None:
    with open_host(Retention.tiers()) as host:
        for number in range(60):
            host.run(STEPS, {"count": number}, run_id=f"run-{number:02}").raise_for_status()
            clock.advance(60)
    host = open_host()
    listed = [run.run_id for run in host.runs(limit=100)]
    assert listed == [f"run-{number:02}" for number in range(59, 9, -1)]
    for number in range(50, 60):
        assert [c.trigger is not None for c in host.checkpoints(f"run-{number:02}")] == [True] * 3
    for number in range(10, 50):
        name = f"run-{number:02}"
        left = [c for c in host.checkpoints(name) if c.trigger is not None]
        assert [(c.sequence, c.trigger.value if c.trigger else "") for c in left] == [(4, "trim")]
        assert host.run(STEPS, {"count": number}, run_id=name)["doubled"] == 2 * number
        assert host.state(name)["total_cost_usd"] == number / 2
        info = host.info(name)
        assert info.status is Status.COMPLETED and info.duration is not None
        assert info.duration < timedelta(seconds=1), "it ended when it ended, not when it was trimmed"
    gone = host.retention.removed()
    assert {run.run_id for run in gone} == {f"run-{number:02}" for number in range(10)}
    for run in gone:
        assert run.summary is not None
        number = int(run.run_id[-2:])
        assert run.summary.run_id == run.run_id and run.summary.started_at == run.created_at
        assert run.summary.final_status == "completed" and run.summary.completed_at is not None
        assert (run.summary.phases_completed, run.summary.errors_count) == (2, 0)
        assert run.summary.total_cost_usd == number / 2
    assert all(verified.problem == "" for verified in host.storage.verify())
    log = host.retention.removals(limit=200)
    assert sum(line.what == "run" for line in log) == 10
    assert sum(line.what == "checkpoints" for line in log) == 50
    assert host.retention.gc(retention=Retention.tiers()).runs == []


def test_a_removed_run_says_so_and_its_id_stays_taken(open_host: Callable[..., Host]) -> None:
    host = open_host()
    host.run(STEPS, {"count": 1}, run_id="old")
    host.run(STEPS, {"count": 1}, run_id="new")
    host.retention.gc(retention=Retention(keep_last=1))
    for look in (host.info, host.state, host.history, host.cancel):
        with pytest.raises(RunErased, match="the newest 1 are kept"):
            look("old")
    with pytest.raises(RunErased):
        host.run(STEPS, {"count": 1}, run_id="old")
    with pytest.raises(RunErased):
        host.start(STEPS, {"count": 1}, run_id="old")
    with pytest.raises(RunNotFound) as error:
        host.info("unknown")
    assert not isinstance(error.value, RunErased)


def test_runs_are_kept_for_a_while_after_their_end_or_their_acknowledgement(
    open_host: Callable[..., Host], clock: ManualClock
) -> None:
    host, policy = open_host(), Retention(keep_for="30d")
    for name in ("old", "acknowledged", "new"):
        host.run(STEPS, {"count": 1}, run_id=name)
        clock.advance(DAY.total_seconds() * 10)
    host._lanes.call(lambda one: one._services.store.ack("acknowledged"))
    clock.advance(DAY.total_seconds() * 5)
    assert [one.run_id for one in host.retention.gc(retention=policy, dry_run=True).runs] == ["old"]
    found = host.retention.gc(retention=policy)
    assert [(one.run_id, one.action, one.reason) for one in found.runs] == [
        ("old", "erase", "it ended more than 30d ago")
    ]
    assert {run.run_id for run in host.runs()} == {"new", "acknowledged"}


def test_a_dry_run_removes_nothing(
    open_host: Callable[..., Host], clock: ManualClock, tmp_path: Path
) -> None:
    host = open_host()
    for number in range(4):
        host.run(PAGES, {"text": f"{number}"}, run_id=f"run-{number}")
    host.run(STEPS, {"count": 1}, run_id="steps")
    host.retention.erase("steps")
    clock.advance(2 * DAY.total_seconds())
    before = artifacts(tmp_path)
    policy = Retention(keep_last=2, whole=1, tombstones_for="1d")
    found = host.retention.gc(retention=policy, dry_run=True)
    assert [(one.run_id, one.action) for one in found.runs] == [
        ("run-2", "trim"),
        ("run-1", "erase"),
        ("run-0", "erase"),
    ]
    assert found.tombstones == 1 and found.dry_run
    assert len(host.runs()) == 4 and artifacts(tmp_path) == before and len(host.retention.removed()) == 1
    assert host.retention.removals()[0].run_id == "steps"
    real = host.retention.gc(retention=policy)
    assert real.runs == found.runs and real.artifacts.removed == 2
    assert len(artifacts(tmp_path)) == 2
    assert host.retention.gc(retention=policy).has_removed is False


def test_a_flow_has_rules_of_its_own(open_host: Callable[..., Host], clock: ManualClock) -> None:
    short = Flow("short", [double], retention=Retention(keep_last=1))
    timed = Flow("timed", [double], durability=Durability(retain_completed_for=DAY))
    brief = Flow("brief", [double], durability=Durability(checkpoint_ttl=2 * DAY))
    with open_host(Retention(keep_for="100d")) as host:
        for flow in (short, timed, brief):
            for number in range(3):
                host.run(flow, {"count": 1}, run_id=f"{flow.name}-{number}")
    host = open_host()
    assert [run.run_id for run in host.runs(flow="short")] == ["short-2"], "at once, after each run"
    clock.advance(DAY.total_seconds())
    found = host.retention.gc()
    assert {one.run_id for one in found.runs} == {f"timed-{number}" for number in range(3)}
    clock.advance(DAY.total_seconds())
    assert {one.run_id for one in host.retention.gc().runs} == {f"brief-{number}" for number in range(3)}
    assert [run.run_id for run in host.runs()] == ["short-2"]
    laxer = Flow("short", [double], retention=Retention())
    clock.advance(200 * DAY.total_seconds())
    assert host.retention.gc(flows=[laxer], retention=Retention(keep_for="1d")).runs == []
    assert host.retention.gc(retention=Retention(keep_for="1d")).runs == [], "it was begun with other rules"


def test_what_is_needed_is_kept(open_host: Callable[..., Host], clock: ManualClock) -> None:
    host = open_host()
    asks = Flow("steps", [wait.approval("ask", prompt="Well?")])
    for name in ("forked", "pinned", "plain"):
        host.run(STEPS, {"count": 1}, run_id=name)
    host.run(asks, {}, run_id="halted")
    host.start(STEPS, {"count": 1}, run_id="accepted")
    host.fork("forked", fork_id="fork")
    host.retention.pin("pinned", "a lesson")
    clock.advance(1000 * DAY.total_seconds())
    strict = Retention(keep_for="1s", keep_last=1, whole=1, abandoned_for="1s")
    found = host.retention.gc(retention=strict)
    assert [one.run_id for one in found.runs] == ["plain"]
    assert {(one.run_id, one.reason) for one in found.spared} == {("forked", "a fork goes on from it")}
    host.resume("fork", STEPS).raise_for_status()
    host.retention.unpin("pinned")
    clock.advance(10)
    # The fork goes first, and so does its parent behind it.
    assert [one.run_id for one in host.retention.gc(retention=strict).runs] == ["fork", "pinned", "forked"]
    assert {run.run_id for run in host.runs()} == {"halted", "accepted"}


def test_an_open_wait_keeps_a_failed_run(open_host: Callable[..., Host], clock: ManualClock) -> None:
    @node(output="broken")
    def breaks(count: int) -> int:
        raise ValueError("no")

    both = Flow("both", [breaks, wait.approval("ask", prompt="Well?")])
    host = open_host()
    host.run(both, {"count": 1}, run_id="run")
    assert host.info("run").status is Status.FAILED
    clock.advance(DAY.total_seconds())
    assert len(host.waits("run")) == 1
    found = host.retention.gc(retention=Retention(keep_for="1h"))
    assert [one.reason for one in found.spared] == ["it has a wait that is not closed"]
    assert host.retention.erase("run").checkpoints > 0


def test_a_pinned_run_is_kept_whole_and_listed(open_host: Callable[..., Host]) -> None:
    host = open_host()
    for number in range(3):
        host.run(STEPS, {"count": number}, run_id=f"run-{number}")
    assert host.retention.pin("run-0", "case 7").pinned == "case 7"
    host.retention.gc(retention=Retention(keep_last=2, whole=1))
    assert [run.run_id for run in host.runs(pinned=True)] == ["run-0"]
    assert len(host.history("run-0")) == 3
    with pytest.raises(CheckpointPinned, match="case 7"):
        host.retention.erase("run-0")
    assert host.retention.unpin("run-0").pinned is None
    with pytest.raises(RunNotFound):
        host.retention.pin("unknown")
    with pytest.raises(BadRequest, match="reason"):
        host.retention.pin("run-0", " ")


def test_an_erased_run_takes_its_own_artifacts_along(
    open_host: Callable[..., Host], clock: ManualClock, tmp_path: Path
) -> None:
    host = open_host()
    host.run(PAGES, {"text": "mine"}, run_id="mine")
    host.run(PAGES, {"text": "both"}, run_id="one")
    host.run(PAGES, {"text": "both"}, run_id="other")
    assert len(artifacts(tmp_path)) == 2
    told = host.retention.erase("mine")
    assert (told.artifacts, told.artifacts_left) == (0, 1), "another run may be about to name the same"
    clock.advance(2 * DAY.total_seconds())
    assert host.retention.gc().artifacts.removed == 1
    assert host.retention.erase("one").artifacts == 0 and len(artifacts(tmp_path)) == 1
    assert host.state("other")["page"] == "both" * 1000
    clock.advance(121)
    assert host.retention.erase("other").artifacts == 1 and artifacts(tmp_path) == []
    assert host.retention.removed()[0].summary is None
    with pytest.raises(RunErased):
        host.retention.erase("other")


def test_an_erased_run_takes_its_artifacts_along_while_another_is_driven(
    open_host: Callable[..., Host], clock: ManualClock, tmp_path: Path
) -> None:
    host, other = open_host(), open_host()
    found: list[tuple[int, int]] = []
    host.run(PAGES, {"text": "mine"}, run_id="mine")
    clock.advance(200)

    @node(output="size")
    def measure(page: str) -> int:
        told = other.retention.erase("mine")
        found.append((told.artifacts, told.artifacts_left))
        return len(page)

    flow = Flow("measured", [fetch, measure], durability=Durability("strong", blob_threshold=1000))
    host.run(flow, {"text": "ours"}, run_id="ours").raise_for_status()
    assert found == [(1, 0)]
    assert len(artifacts(tmp_path)) == 1 and host.state("ours")["page"] == "ours" * 1000


def test_a_run_that_is_not_over_is_not_erased(open_host: Callable[..., Host]) -> None:
    host = open_host()
    host.start(STEPS, {"count": 1}, run_id="run")
    with pytest.raises(BadRequest, match="Cancel it first"):
        host.retention.erase("run")
    host.cancel("run")
    assert host.retention.erase("run", dry_run=True).checkpoints == 2
    assert host.retention.erase("run").checkpoints == 2


def test_a_live_run_may_still_name_what_it_put_long_ago(
    open_host: Callable[..., Host], clock: ManualClock, tmp_path: Path
) -> None:
    host, other = open_host(), open_host()
    found: list[int] = []

    @node(output="page")
    def fetch_once(text: str) -> str:
        return text * 1000

    @node(output="seen")
    def slow(page: str) -> int:
        clock.advance(30 * DAY.total_seconds())
        swept = other.retention.gc(retention=Retention(abandoned_for="1d")).artifacts
        found.append(swept.removed)
        return len(page)

    flow = Flow("slow", [fetch_once, slow], durability=Durability("partial", blob_threshold=1000))
    result = host.run(flow, {"text": "x"}, run_id="run")
    assert found == [0] and result["seen"] == 1000
    assert other.state("run")["page"] == "x" * 1000


def test_abandoned_runs_are_listed_and_removed_only_if_asked_for(
    open_host: Callable[..., Host], clock: ManualClock
) -> None:
    host = open_host()
    host.start(STEPS, {"count": 1}, run_id="run")
    host._lanes.call(
        lambda one: one._services.store.lease("run", owner="dead", ttl=timedelta(seconds=30), process=None)
    )
    clock.advance(3600)
    assert host.retention.gc().abandoned == []
    clock.advance(2 * DAY.total_seconds())
    found = host.retention.gc(retention=Retention(keep_for="1s", keep_last=1))
    assert (found.abandoned, found.runs) == (["run"], [])
    found = host.retention.gc(retention=Retention(abandoned_for="7d"))
    assert (found.abandoned, found.runs) == (["run"], [])
    clock.advance(5 * DAY.total_seconds())
    found = host.retention.gc(retention=Retention(abandoned_for="7d"))
    assert found.abandoned == [] and [one.run_id for one in found.runs] == ["run"]
    assert "abandoned" in host.retention.removed()[0].reason


def test_a_trimmed_failure_can_still_be_reopened(open_host: Callable[..., Host]) -> None:
    is_fixed = False

    @node(output="out")
    def fragile(doubled: int) -> int:
        if not is_fixed:
            raise ValueError("not yet")
        return doubled + 1

    flow = Flow("steps", [double, fragile], durability="strong")
    host = open_host()
    host.run(flow, {"count": 2}, run_id="failed")
    host.run(STEPS, {"count": 2}, run_id="newer")
    before = host.info("failed")
    found = host.retention.gc(retention=Retention(whole=1))
    assert [(one.run_id, one.action) for one in found.runs] == [("failed", "trim")]
    after = host.info("failed")
    assert (after.status, after.ended_at) == (before.status, before.ended_at)
    assert [event.kind for event in host.events("failed", live=False)] == ["checkpoint", "run_ended"]
    is_fixed = True
    assert host.resume("failed", flow)["out"] == 5
    host.retention.gc(retention=Retention(whole=1, keep_last=1))
    summary = host.retention.removed()[0].summary
    assert summary is not None and summary.errors_count == 1


def test_tombstones_go_when_their_time_is_over(open_host: Callable[..., Host], clock: ManualClock) -> None:
    host = open_host()
    for name in ("one", "two"):
        host.run(STEPS, {"count": 1}, run_id=name)
        host.retention.erase(name)
        clock.advance(DAY.total_seconds())
    assert host.retention.gc(retention=Retention(tombstones_for="2d")).tombstones == 1
    assert [run.run_id for run in host.retention.removed()] == ["two"]
    assert host.run(STEPS, {"count": 1}, run_id="one").status is Status.COMPLETED
    assert host.retention.removals()[0].what == "tombstones"


def test_only_the_named_runs_are_touched(open_host: Callable[..., Host], clock: ManualClock) -> None:
    host = open_host()
    for number in range(4):
        host.run(STEPS, {"count": 1}, run_id=f"run-{number}")
    found = host.retention.gc("run-0", "run-3", retention=Retention(keep_last=2))
    assert [one.run_id for one in found.runs] == ["run-0"]
    with pytest.raises(RunNotFound):
        host.retention.gc("unknown")


def test_two_may_clean_up_at_once(open_host: Callable[..., Host], clock: ManualClock, tmp_path: Path) -> None:
    host = open_host()
    for number in range(40):
        host.run(PAGES, {"text": f"{number}"}, run_id=f"run-{number}")
    clock.advance(2 * DAY.total_seconds())
    hosts, start = [open_host() for _ in range(3)], threading.Barrier(3)
    found: list[Collected] = []

    def clean(one: Host) -> None:
        start.wait(30)
        found.append(one.retention.gc(retention=Retention(keep_last=8, whole=4)))

    threads = [threading.Thread(target=clean, args=(one,)) for one in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.problems for one in found] == [[], [], []]
    assert [one.artifacts.problem for one in found] == ["", "", ""]
    erased = [run.run_id for one in found for run in one.runs if run.action == "erase"]
    assert sorted(erased) == sorted(f"run-{number}" for number in range(32))
    assert len(host.runs()) == 8 and all(verified.is_sound for verified in host.storage.verify())
    assert host.retention.gc().artifacts.removed + sum(one.artifacts.removed for one in found) == 32
    assert len(artifacts(tmp_path)) == 8


@pytest.mark.parametrize("there", ["file", "sqlite"])
def test_what_a_copied_run_names_as_elsewhere_is_kept(
    there: str, url: str, clock: ManualClock, tmp_path: Path
) -> None:
    file, sqlite = f"file://{tmp_path}/objects", url
    source, target = (sqlite, file) if there == "file" else (file, sqlite)
    with Host(source, clock=clock) as host:
        host.run(PAGES, {"text": "carried"}, run_id="run")
        host.transfer.copy(target)
    with Host(target, clock=clock) as host:
        clock.advance(10 * DAY.total_seconds())
        assert host.retention.gc().artifacts.removed == 0
        assert host.state("run")["page"] == "carried" * 1000
        assert host.retention.erase("run").artifacts == 1


def test_artifacts_in_a_place_of_their_own_are_left_alone_unless_no_other_uses_it(
    url: str, clock: ManualClock, tmp_path: Path
) -> None:
    home = f"sqlite:///{tmp_path}/home.db?synchronous=off"
    with Host(url, clock=clock, blobs=home) as host, Host(home, clock=clock) as other:
        for name in ("mine", "gone"):
            host.run(PAGES, {"text": name}, run_id=name)
        other.run(PAGES, {"text": "theirs"}, run_id="theirs")
        host.retention.erase("gone")
        clock.advance(2 * DAY.total_seconds())
        for cleaner in (host, other):
            swept = cleaner.retention.gc().artifacts
            assert swept.removed == 0 and "other stores" in swept.left_alone
        assert host.state("mine")["page"] and other.state("theirs")["page"]
        # A caller that says what is not so loses what the other store names.
        assert host.retention.gc(shared=True).artifacts.removed == 2


def test_a_store_that_cannot_remove_runs_is_no_place_for_rules(clock: ManualClock) -> None:
    class Keeping(MemoryStore):
        capabilities = Capabilities(durable=False, single_writer=True)

    store = Keeping(clock)
    with pytest.raises(BadRequest, match="cannot pin or remove"):
        Host(Opened(store, store.artifacts, "memory:"), clock=clock, retention=Retention(keep_last=1))
    with (
        Host(Opened(store, store.artifacts, "memory:"), clock=clock) as host,
        pytest.raises(BadRequest, match="cannot pin or remove"),
    ):
        host.retention.gc()


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_last": 0},
        {"whole": -1},
        {"keep_for": "soon"},
        {"whole": 5, "keep_last": 4},
        {"keep_last": True},
    ],
)
def test_rules_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        Retention(**wrong)


def test_a_policy_is_a_value(open_host: Callable[..., Host]) -> None:
    assert Retention.tiers() == Retention(whole=10, keep_last=50) != Retention()
    assert Retention().keeps_all and hash(Retention(keep_for="1d")) == hash(Retention(keep_for=DAY))
    assert Retention.of_wire(Retention.tiers().changed(keep_for="2d").to_wire()).keep_for == 2 * DAY
    with pytest.raises(BadRequest, match="Retention"):
        Flow("f", [double], retention="30d")  # type: ignore[arg-type]  # on purpose


def test_the_days_of_a_run_whose_result_was_taken_are_counted_from_then(
    open_host: Callable[..., Host], clock: ManualClock
) -> None:
    host = open_host(Retention(keep_for="3d"))
    for run_id in ("taken", "left"):
        host.run(STEPS, {"count": 1}, run_id=run_id)
    clock.advance(2 * DAY)
    acked = host.retention.ack("taken", by="ann", comment="booked").acked_at
    assert acked is not None
    clock.advance(2 * DAY)
    assert host.retention.ack("taken", by="bob").acked_at == acked, "only the first time counts"
    host.retention.gc()
    assert [info.run_id for info in host.runs()] == ["taken"]
    [line] = [line for line in host.retention.removals() if line.what == "ack"]
    assert line.act is not None
    assert (line.run_id, line.act.by, line.act.comment) == ("taken", "ann", "booked")
    clock.advance(DAY)
    host.retention.gc()
    assert host.runs() == []


def test_a_run_that_has_not_ended_has_no_result_to_take(open_host: Callable[..., Host]) -> None:
    host = open_host()
    host.start(STEPS, {"count": 1}, run_id="r")
    with pytest.raises(BadRequest, match="it has no result yet"):
        host.retention.ack("r")
    assert host.info("r").acked_at is None
    with pytest.raises(RunNotFound):
        host.retention.ack("unknown")
