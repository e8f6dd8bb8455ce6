"""Of any flow, verify finds nothing wrong: while it waits, after crashes, with forks, keyframes or without.

`EVERSTEP_SOAK=1` tries many more of them.
"""

from __future__ import annotations

import threading

from hypothesis import event, given
from hypothesis import strategies as st

from everstep import END, Flow, Host, Node, ifelse
from everstep.graph.author.subflow import Subflow
from everstep.model.durability import DurabilityMode
from tests.unit.properties.flows import Built, Case, cases
from tests.unit.properties.test_random_flows import every_put, examples
from tests.unit.properties.test_random_waits import DEATHS, SOME_WAITING, WHIMS
from tests.unit.properties.worlds import RUN, World


def check_sound(host: Host) -> None:
    for one in host.storage.verify():
        assert not one.flaws, one.flaws
        assert one.is_sound and one.newest_valid == one.checkpoints


@examples(30)
@given(case=cases(SOME_WAITING), deaths=DEATHS, whim=WHIMS, keyframes=st.booleans())
def test_nothing_is_wrong_with_a_run_after_any_crash(
    case: Case, deaths: list[int], whim: int, keyframes: bool
) -> None:
    world = World(case, whim)
    for at in [*deaths, None]:
        with every_put(keyframes=keyframes):
            world.live(None, at)
        with world.host() as host:
            check_sound(host)


@examples(25)
@given(case=cases(SOME_WAITING), at=st.integers(0, 99), whim=WHIMS, keyframes=st.booleans())
def test_nothing_is_wrong_with_forks_and_what_they_share(
    case: Case, at: int, whim: int, keyframes: bool
) -> None:
    world = World(case, whim)
    with every_put(keyframes=keyframes):
        world.live()
        with world.host() as host:
            built = Built(case)
            host.fork(RUN, at=1 + at % host.info(RUN).checkpoints, fork_id="fork")
            check_sound(host)
            host.resume("fork", built.flow)
            host.fork("fork", fork_id="again")
            host.resume("again", built.flow)
            check_sound(host)
            event(f"{len(host.runs())} runs")


class Beside:
    """Branches beside a loop. They end, with a put for each of their nodes, before the held nodes go on."""

    def __init__(self, lengths: list[int]) -> None:
        self._left = sum(lengths)
        self._are_over = threading.Event()
        self._lock = threading.Lock()
        self.nodes = [self._node(b, k) for b, length in enumerate(lengths) for k in range(length)]

    def _node(self, branch: int, k: int) -> Node:
        def work(**values: int) -> int:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._are_over.set()
            return k

        source = f"v{branch}_{k - 1}" if k else "x"
        return Node(work, name=f"b{branch}_{k}", inputs=[source], output=f"v{branch}_{k}")

    def wait(self) -> None:
        assert self._are_over.wait(30)


def loop_inside(rounds: int, depth: int, beside: Beside, held: list[bool]) -> Subflow:
    """Return a loop that its flow begins with, inside other flows; it holds where it is told to."""

    def head(n: int) -> int:
        if held and held.pop():
            beside.wait()
        return n + 1

    def more(n: int) -> bool:
        return n < rounds

    again = ifelse(when_true="head", when_false=END, name="more", inputs=["n"])(more)
    flow = Flow("loop", [Node(head, name="head", inputs=["n"], output="n"), again], entry="head")
    inside = flow.as_node().lift("n").with_outputs(n="m0")
    for level in range(depth):
        outer = Flow(f"around{level}", [inside])
        inside = outer.as_node().lift(f"m{level}").with_outputs(**{f"m{level}": f"m{level + 1}"})
    return inside


@examples(25)
@given(
    rounds=st.integers(1, 3),
    depth=st.integers(0, 2),
    items=st.none() | st.integers(1, 3),
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    held=st.lists(st.booleans(), min_size=1, max_size=4),
    keyframes=st.booleans(),
    durability=st.sampled_from(["strong", "partial"]),
)
def test_nothing_is_wrong_with_a_loop_inside_that_had_only_begun_when_others_wrote(
    rounds: int,
    depth: int,
    items: int | None,
    lengths: list[int],
    held: list[bool],
    keyframes: bool,
    durability: DurabilityMode,
) -> None:
    beside = Beside(lengths)
    inside = loop_inside(rounds, depth, beside, held)
    if items is not None:
        inside = inside.map_over("n").with_inputs(n="ns")
    given = {"x": 1, **({"n": 0} if items is None else {"ns": [0] * items})}
    with every_put(keyframes=keyframes), Host("memory:") as host:
        done = host.run(Flow("f", [inside, *beside.nodes], durability=durability), given, run_id=RUN)
        assert done[f"m{depth}"] == (rounds if items is None else [rounds] * items)
        check_sound(host)
