"""What must hold when any flow changes while a run of it is under way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import assume, event, given
from hypothesis import strategies as st

from everstep import Node, migrate
from everstep.graph.compile.plan import Plan
from everstep.model.compat import Compatibility
from everstep.testing.killing import Crashed, Killer, crash
from tests import inside_memory
from tests.unit.properties.flows import Built, Case, Log, cases
from tests.unit.properties.test_random_flows import every_put, examples
from tests.unit.properties.test_random_waits import SOME_WAITING, WHIMS
from tests.unit.properties.worlds import LEASE, RUN, TAG, World, around, seen

RENAMEABLE = [kind for kind in SOME_WAITING if kind != "iterate"]
"""A task brings its arguments by the names of parameters, and those no rule renames."""


def renames(old: Plan, new: Plan, prefix: str = "") -> Iterator[migrate.Migration]:
    """Yield the rules that lead from a plan to one of the same shape with other names, inner flows first."""
    for i, child in old.children.items():
        yield from renames(child.plan, new.children[i].plan, f"{prefix}{old.paths[i]}/")
    for before, after in zip(old.paths, new.paths, strict=True):
        if before != after:
            yield migrate.rename_node(prefix + before, after)
    values = zip(_values(old), _values(new), strict=True)
    for before, after in dict.fromkeys(values):
        if before != after and not before.endswith(".__result__"):
            yield migrate.rename_value(prefix + before, after)


def _values(plan: Plan) -> Iterator[str]:
    for node in plan.nodes:
        yield from node.outputs
        yield from (p.source for p in node.params)


def untagged(value: Any) -> Any:
    """Return what a run came to with the old names."""
    if isinstance(value, str):
        return value.replace(TAG, "")
    if isinstance(value, dict):
        return {untagged(k): untagged(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        told = [untagged(v) for v in value]
        return sorted(told) if told and all(isinstance(v, str) for v in told) else told
    return value


def resumed(world: World, built: Built, at: int | None = None) -> dict[str, Any] | None:
    with world.host(Killer(at, act=crash)) as host:
        try:
            return seen(host, RUN, world.answer(host, host.resume(RUN, built.flow), built), built)
        except Crashed:
            world.clock.advance(LEASE * 2)
            return None


def is_under_way(world: World) -> bool:
    return inside_memory.has_run(world.data, RUN) and not inside_memory.row(world.data, RUN).status.is_final


@examples(60)
@given(
    case=cases(RENAMEABLE),
    first=st.integers(1, 25),
    second=st.integers(1, 25) | st.none(),
    whim=WHIMS,
    keyframes=st.booleans(),
)
def test_a_run_whose_flow_got_other_names_ends_as_it_would_have(
    case: Case, first: int, second: int | None, whim: int, keyframes: bool
) -> None:
    expected = World(case).live()
    world = World(case, whim)
    with every_put(keyframes=keyframes):
        assume(world.live(at=first) is None and is_under_way(world))
    for at in (second, None):
        (done, retried), log = world.recorded(), Log()
        built = Built(case, log, tag=TAG)
        built.flow.migrations = tuple(renames(Built(case).flow.plan, built.flow.plan))
        outcome = resumed(world, built, at)
        done = {(untagged(path), visit) for path, visit in done}
        assert {(untagged(p), *rest) for p, *rest in retried}.isdisjoint(
            (untagged(p), *rest) for p, *rest in log.begun
        )
        for path, visit, _ in log.begun:
            again = done.intersection(around(untagged(path), visit))
            assert not again, f"{path} visit {visit} ran again"
        if outcome is not None:
            assert untagged(outcome) == untagged(expected)
    assert outcome is not None
    with world.host() as host:
        row = host.info(RUN)
        triggers = [record.trigger.value for record in host.history(RUN)]
        for sequence in range(1, row.checkpoints + 1):
            host.state(RUN, sequence)
    event(f"{triggers.count('migration')} migrations, {case.durability}")
    assert triggers.count("migration") == 1


@examples(40)
@given(case=cases(SOME_WAITING), first=st.integers(1, 25), whim=WHIMS, keyframes=st.booleans())
def test_a_run_whose_flow_got_a_node_more_ends_as_it_would_have_with_what_that_writes(
    case: Case, first: int, whim: int, keyframes: bool
) -> None:
    expected = World(case).live()
    world = World(case, whim)
    assert expected is not None
    with every_put(keyframes=keyframes):
        assume(world.live(at=first) is None and is_under_way(world))
    more = Node(lambda x: x + 1000, name="more", inputs=["x"], output="much")
    built = Built(case, more=[more])
    with world.host() as host:
        told = host.versions.compat(RUN, built.flow)
        assert told.verdict is Compatibility.CONTINUES
        has_ended = host.state(RUN).counters.visits and not told.starts
    outcome = resumed(world, built)
    assert outcome is not None
    for part in ("result", "values", "versions", "visits"):
        outcome[part] = {k: v for k, v in outcome[part].items() if k not in ("more", "much")}
    assert outcome == expected
    event(f"starts {told.starts}, {has_ended=}")


def test_the_tag_makes_every_name_another() -> None:
    found: list[Case] = []

    @examples(30)
    @given(case=cases())
    def look(case: Case) -> None:
        one, other = Built(case).flow.plan, Built(case, tag=TAG).flow.plan
        assert not set(one.paths) & set(other.paths)
        assert [re.sub(TAG, "", name) for name in other.paths] == list(one.paths)
        found.append(case)

    look()
    assert found
