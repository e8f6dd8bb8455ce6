"""What is said before a resume is what the resume then does, for any flow and any crash."""

from __future__ import annotations

from hypothesis import assume, event, given
from hypothesis import strategies as st

from everstep import Host
from everstep.graph.compile.plan import Plan
from everstep.registry import Opened
from everstep.results import Event
from everstep.stores.memory import MemoryStore
from tests import inside_memory
from tests.unit.properties.flows import Built, Case, Log, cases
from tests.unit.properties.test_random_flows import every_put, examples
from tests.unit.properties.test_random_migrations import RENAMEABLE, is_under_way, renames
from tests.unit.properties.test_random_waits import SOME_WAITING, WHIMS
from tests.unit.properties.worlds import RUN, TAG, World, around


def check(world: World, built: Built, log: Log) -> tuple[int, int, int]:
    """Resume, and compare with what was explained; returns how much was skipped, started, waited for."""
    before = [record.body for record in inside_memory.records(world.data, RUN)]
    events: list[Event] = []
    store = MemoryStore(world.clock, world.data)
    with Host(Opened(store, store.artifacts, "memory:"), clock=world.clock, on_event=events.append) as host:
        told = host.explain(RUN, built.flow)
        assert host.explain(RUN, built.flow) == told
        assert not events and not log.begun
        assert [record.body for record in inside_memory.records(world.data, RUN)] == before
        assert not told.missing and told.compat.verdict == "continues"
        now = world.clock.now()
        host.resume(RUN, built.flow)
        waits = {w.id: w.status.value for w in host.waits(RUN, status=None, limit=1000)}
    told_of = [e for e in events if e.kind == "step_started" and not is_flow(built.flow.plan, e.node or "")]
    started = [(e.node, e.visit, e.attempt) for e in told_of]
    planned = [(step.path, step.visit, step.attempt) for step in told.starts]
    assert started[: len(planned)] == planned
    ripe = [w for w in told.waits if w.status == "settled" or (w.due_at is not None and w.due_at <= now)]
    for wait in told.waits:
        # An answer is taken in; what was not answered is waited for still, or was called off.
        assert waits[wait.wait_id] == "closed" if wait in ripe else waits[wait.wait_id] != "settled"
    if not planned and not told.waits:
        # Everything that is due pauses, or nothing is.
        assert not started or started[0] in [(p.path, p.visit, p.attempt) for p in told.pending]
    skipped = {(step.path, visit) for step in told.recorded for visit in range(1, step.visits + 1)}
    for path, visit, _ in log.begun:
        again = skipped.intersection(around(path, visit))
        assert not again, f"{path} visit {visit} ran again"
    visits = {(path, visit): attempt for path, visit, attempt in reversed(started)}
    for step in told.pending:
        if (step.path, step.visit) in visits:
            assert visits[step.path, step.visit] == step.attempt
    return len(skipped), len(planned), len(told.waits)


def is_flow(plan: Plan, path: str) -> bool:
    """True if what is opened here is a flow or a map, which calls nothing by itself."""
    *outer, last = path.split("/")
    for segment in outer:
        plan = plan.children[plan.index[segment.partition("#")[0].partition("@")[0]]].plan
    return last in plan.index and plan.index[last] in plan.children


@examples(100)
@given(case=cases(SOME_WAITING), at=st.integers(1, 25), whim=WHIMS, keyframes=st.booleans())
def test_a_resume_does_what_was_explained(case: Case, at: int, whim: int, keyframes: bool) -> None:
    world, log = World(case, whim), Log()
    with every_put(keyframes=keyframes):
        assume(world.live(at=at) is None and is_under_way(world))
    skipped, planned, waits = check(world, Built(case, log), log)
    event(f"skipped {min(skipped, 5)}, started {min(planned, 3)}, {min(waits, 2)} waits")


@examples(40)
@given(case=cases(RENAMEABLE), at=st.integers(1, 25), whim=WHIMS)
def test_a_resume_with_another_version_does_what_was_explained(case: Case, at: int, whim: int) -> None:
    world, log = World(case, whim), Log()
    assume(world.live(at=at) is None and is_under_way(world))
    built = Built(case, log, tag=TAG)
    built.flow.migrations = tuple(renames(Built(case).flow.plan, built.flow.plan))
    check(world, built, log)


@examples(40)
@given(case=cases(SOME_WAITING), broken=st.integers(0, 30), whim=WHIMS)
def test_a_resume_of_a_failed_run_does_what_was_explained(case: Case, broken: int, whim: int) -> None:
    fragile = Built(case).fragile
    world, log = World(case, whim), Log()
    failed = world.live(Log(broken=fragile[broken % len(fragile)]))
    assume(failed is not None and failed["status"] == "failed")
    check(world, Built(case, log), log)
