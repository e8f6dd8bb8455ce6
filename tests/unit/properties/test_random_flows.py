"""What must hold for any flow through crashes, folds, forks, comparisons and clean-up.

`EVERSTEP_SOAK=1` tries many more of them, others each time; `--hypothesis-seed=N` tries the same ones.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from everstep.codec.chain import Codecs
from everstep.codec.values import Values
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.graph.compile.blueprint import plan_of
from everstep.graph.compile.plan import Plan
from everstep.model.items import ItemError
from everstep.model.records import CheckpointRecord
from everstep.runtime.drive.apply import Lists
from everstep.runtime.drive.chain_writer import Journal
from everstep.runtime.drive.values import ValueSpace
from everstep.runtime.lineage import Link
from everstep.runtime.rehydrate import Rehydrated
from everstep.stores.memory import MemoryData
from tests import inside_memory
from tests.unit.properties.flows import Built, Case, Log, cases
from tests.unit.properties.worlds import RUN, World, around, plain, seen, without

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"


def examples(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=count * 20 if IS_SOAK else count * 2 // 5,
        derandomize=not IS_SOAK,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


# -- crashes ----------------------------------------------------------------------------------------------


@examples(150)
@given(case=cases(), deaths=st.lists(st.integers(1, 30), min_size=1, max_size=4), keyframes=st.booleans())
def test_a_flow_that_crashes_ends_like_one_that_does_not(
    case: Case, deaths: list[int], keyframes: bool
) -> None:
    expected = World(case).live()
    world = World(case)
    crashes = 0
    for at in [*deaths, None]:
        (done, retried), log = world.recorded(), Log()
        with every_put(keyframes=keyframes):
            outcome = world.live(log, at)
        crashes += outcome is None
        assert retried.isdisjoint(log.begun)
        for path, visit, _ in log.begun:
            assert done.isdisjoint(around(path, visit)), f"{path} visit {visit} ran again"
        assert outcome in (None, expected)
    assert outcome == expected
    event(f"{case.durability}: {crashes} crashes")


@examples(60)
@given(case=cases(), broken=st.integers(0, 30))
def test_a_run_that_failed_ends_after_a_resume_like_one_that_did_not(case: Case, broken: int) -> None:
    fragile = Built(case).fragile
    number = fragile[broken % len(fragile)]
    world = World(case)
    failed = world.live(Log(broken=number))
    assume(failed is not None and failed["status"] == "failed")
    with world.host() as host:
        built = Built(case)
        outcome = seen(host, RUN, host.resume(RUN, built.flow), built)
    assert outcome == World(case).live()


# -- folds ------------------------------------------------------------------------------------------------


def links(data: MemoryData, run_id: str = RUN) -> list[Link]:
    row = inside_memory.row(data, run_id)
    return [Link(row, stored, Codecs(bytes)) for stored in inside_memory.records(data, run_id)]


def fold(data: MemoryData, plan: Plan, chain: list[Link]) -> Rehydrated:
    return Rehydrated(plan, Values(), _Blobs(data), 1).fold(chain)


class _Blobs:
    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def get_checkpoint_blob(self, ref: Any) -> bytes:
        return inside_memory.blobs(self._data)[ref.key]

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> Any:
        raise AssertionError("a fold writes nothing")


def described(state: RunState, space: ValueSpace, now: datetime) -> dict[str, Any]:
    """Return all of a state that a resume goes on from.

    A flow that was opened and in which nothing was recorded yet is as good as one still to be opened; what
    is inside an atomic flow is gone after a crash; a pause that is over may be forgotten.
    """
    lists = Lists(space)
    shown = [s for s in state.scopes() if not s.is_hidden and (s is state or is_touched(s))]
    for scope in shown:
        if scope is not state:
            lists.fill(scope)
    scopes = {s.prefix: standing(s, now) for s in shown}
    inside = {
        v.prefix_of(k) for s in shown for v in s.opened.values() for k in range(v.count) if k not in v.done
    }
    values = {
        prefix + name: (slot.written.version, slot.written.expires_at, value_of(space, name, prefix))
        for prefix, area in space.areas.items()
        if prefix not in space.hidden and (prefix not in inside or prefix in scopes)
        for name, slot in area.items()
    }
    waits = {wait_id: (scope.prefix, i) for wait_id, (scope, i) in state.waits.items()}
    told = {"scopes": scopes, "values": values, "steps": state.total, "key_run": state.key_run}
    return copy.deepcopy({**told, "waits": waits})


def is_touched(scope: Scope) -> bool:
    return bool(any(scope.visits) or any(scope.attempts) or scope.keys or scope.error or shown_visits(scope))


def shown_visits(scope: Scope) -> dict[int, Any]:
    return {
        i: (v.base, v.visit, v.reads, v.count, v.is_map, v.done, v.failed, v.started_at)
        for i, v in scope.opened.items()
        if v.is_map or not scope.plan.children[i].is_atomic
    }


def standing(scope: Scope, now: datetime) -> dict[str, Any]:
    plain = ("versions", "missing", "visits", "attempts", "statuses", "reads", "chosen", "arrived", "keys")
    more = ("consumed", "due", "active", "queue", "won", "lost", "fired", "steps", "ended", "error")
    told: dict[str, Any] = {name: getattr(scope, name) for name in (*plain, *more)}
    told["due order"] = list(scope.due)
    told["pauses"] = {i: at for i, at in scope.retry_at.items() if at > now}
    told["visits under way"] = shown_visits(scope)
    told["waiting"] = {i: (s.wait, s.visit, s.attempts, s.key) for i, s in scope.waiting.items()}
    return told


def value_of(space: ValueSpace, name: str, prefix: str) -> Any:
    return "not kept" if space.areas[prefix][name].is_transient else space.peek(name, prefix)


@contextmanager
def every_put(check: Callable[[Journal], None] | None = None, *, keyframes: bool) -> Iterator[None]:
    """Call the check after every put; with keyframes, write one each time."""
    advance, record = Journal._advance, Journal._record

    def advance_and_check(self: Journal, *args: Any) -> None:
        advance(self, *args)
        if check is not None and not self.steps:
            check(self)

    def always_keyframe(self: Journal, *args: Any) -> CheckpointRecord:
        made = record(self, *args)
        return made if made.keyframe else self._keyframe(made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "_advance", advance_and_check)
        if keyframes:
            patch.setattr(Journal, "_record", always_keyframe)
        yield


@examples(150)
@given(case=cases(), keyframes=st.booleans())
def test_folding_the_records_gives_the_state_that_wrote_them(case: Case, keyframes: bool) -> None:
    check_folds(World(case), Built(case), keyframes=keyframes)


def check_folds(world: World, built: Built, *, keyframes: bool) -> None:
    """Run a flow, and compare its state with the fold of its records after every put."""
    plan, bare = built.flow.plan, plan_of(built.flow.plan.blueprint)
    assert bare.blueprint == plan.blueprint
    wrong: list[Any] = []

    def check(journal: Journal) -> None:
        now = world.clock.now()
        live = described(journal._state, journal._space, now)
        chain = links(world.data)
        tails = [chain, chain[-1:]] if chain[-1].stored.keyframe else [chain]
        for tail in tails:
            for wired in (plan, bare):
                folded = fold(world.data, wired, tail)
                told = described(folded.state, folded.space, now)
                if told != live:
                    wrong.append((len(tail), wired is bare, live, told))

    with world.host() as host, every_put(check, keyframes=keyframes):
        result = host.run(built.flow, world.inputs(), run_id=RUN, channel={"seed": 1})
        world.answer(host, result, built)
    assert not wrong, difference(*wrong[0])


def difference(length: int, is_bare: bool, live: Any, told: Any) -> str:
    """Say where two descriptions differ first."""
    path = ""
    while isinstance(live, dict) and isinstance(told, dict):
        keys = [k for k in dict.fromkeys([*live, *told]) if live.get(k, ...) != told.get(k, ...)]
        path, live, told = f"{path}.{keys[0]}", live.get(keys[0]), told.get(keys[0])
    return f"fold of {length} ({is_bare=}) at {path}: live {live!r}, folded {told!r}"


# -- forks ------------------------------------------------------------------------------------------------

DATAFLOW = ["plain", "spread", "sub", "over", "over_sub", "group"]


def bodies_of(data: MemoryData, run_id: str = RUN) -> list[bytes]:
    return [stored.body for stored in inside_memory.records(data, run_id)]


@examples(60)
@given(case=cases(), at=st.tuples(st.integers(0, 99), st.integers(0, 99)), keyframes=st.booleans())
def test_a_fork_without_edits_ends_like_its_original(
    case: Case, at: tuple[int, int], keyframes: bool
) -> None:
    world = World(case)
    with every_put(keyframes=keyframes):
        expected = world.live()
        assert expected is not None
        before = bodies_of(world.data)
        with world.host() as host:
            parent = RUN
            for k, number in enumerate(at):
                built = Built(case)
                sequence = 1 + number % host.info(parent).checkpoints
                fork_id = host.fork(parent, at=sequence, fork_id=f"fork-{k}").run_id
                assert seen(host, fork_id, host.resume(fork_id, built.flow), built) == expected
                racy = built.racy
                changed = without({c.path: c for c in host.debug.diff(RUN, fork_id).values}, racy)
                assert not {name for name in changed if not name.startswith("@channel/log")}
                parent = fork_id
    assert bodies_of(world.data) == before


@examples(60)
@given(case=cases(DATAFLOW), at=st.integers(0, 99), x=st.integers(6, 9))
def test_a_fork_with_an_edited_input_ends_like_a_run_with_that_input(case: Case, at: int, x: int) -> None:
    world, other = World(case), World(Case(case.design, case.durability, x))
    expected = other.live()
    assert world.live() is not None
    assert expected is not None
    with world.host() as host:
        built = Built(case)
        sequence = 1 + at % host.info(RUN).checkpoints
        host.fork(RUN, at=sequence, inputs={"x": x}, fork_id="fork")
        result = host.resume("fork", built.flow)
        assert without(plain(result), built.racy) == expected["result"]


# -- comparisons ------------------------------------------------------------------------------------------


@examples(60)
@given(case=cases(), at=st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_what_differs_between_two_checkpoints_leads_from_one_to_the_other(
    case: Case, at: tuple[int, int]
) -> None:
    world = World(case)
    world.live()
    with world.host() as host:
        last = host.info(RUN).checkpoints
        start, end = (1 + k % last for k in at)
        assert not host.debug.diff(RUN, RUN)
        assert not host.debug.diff(RUN, start=start, end=start)
        first, second = (apart(host.state(RUN, k)) for k in (start, end))
        for change in host.debug.diff(RUN, start=start, end=end).values:
            if change.path[0] == "@" or not re.search(r"@\d", change.path):  # not of an older visit
                put_change(first, change.path, change.kind, tree(change.after))
        assert first == second


def apart(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what there is; of a flow inside its last visit, whichever that is."""
    return {
        name if name[0] == "@" else re.sub(r"@\d+", "", name): tree(value) for name, value in state.items()
    }


def tree(value: Any) -> Any:
    """Return a value with its parts under the names that paths give them."""
    if isinstance(value, list):
        return {f"[{k}]": tree(item) for k, item in enumerate(value)}
    if isinstance(value, ItemError):
        return {f".{name}": getattr(value, name) for name in ("index", "type", "message")}
    return value


def put_change(values: dict[str, Any], path: str, kind: str, after: Any) -> None:
    name = path if path in values else path.partition("[")[0]
    rest = re.findall(r"\[\d+\]|\.[a-z]+", path[len(name) :])
    here = values
    for part in [name, *rest][:-1]:
        here = here[part]
    if kind == "removed":
        del here[[name, *rest][-1]]
    else:
        here[[name, *rest][-1]] = after


# -- clean-up ---------------------------------------------------------------------------------------------


@examples(60)
@given(case=cases(), at=st.integers(1, 40), keep=st.integers(1, 3), number=st.integers(0, 99))
def test_a_run_goes_on_and_can_be_forked_after_a_clean_up(
    case: Case, at: int, keep: int, number: int
) -> None:
    expected = World(case).live()
    world = World(case)
    with every_put(keyframes=True):
        crashed = world.live(at=at) is None
        assume(inside_memory.has_run(world.data, RUN))
        with world.host() as host:
            removed = host.retention.clean_up(RUN, keep=keep)
            info, built = host.info(RUN), Built(case)
            assert removed == max(0, info.checkpoints - keep)
            oldest = max(1, info.trimmed_before)
            sequence = oldest + number % (info.checkpoints - oldest + 1)
            host.fork(RUN, at=sequence, fork_id="fork")
            assert seen(host, "fork", host.resume("fork", built.flow), built) == expected
        assert world.live() == expected
    event(f"{crashed=}, removed {removed > 0}")
