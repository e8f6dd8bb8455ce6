"""What must hold for any flow with nodes that halt, answered at any moment, through crashes, folds and forks.

`EVERSTEP_SOAK=1` tries many more of them.
"""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from tests.unit.properties.flows import AWAKE, Built, Case, Log, cases
from tests.unit.properties.test_random_flows import check_folds, every_put, examples
from tests.unit.properties.worlds import RUN, World, around, seen

WAITING = [*AWAKE, *["wait"] * 2 * len(AWAKE)]
"""Two of three parts halt."""
SOME_WAITING = [*AWAKE, *["wait"] * (len(AWAKE) // 3)]
"""One of four does."""
WHIMS = st.integers(0, 10_000)
DEATHS = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@examples(100)
@given(case=cases(WAITING), deaths=DEATHS, whim=WHIMS, keyframes=st.booleans())
def test_a_flow_that_waits_and_crashes_ends_like_one_that_does_not(
    case: Case, deaths: list[int], whim: int, keyframes: bool
) -> None:
    expected = World(case).live()
    world = World(case, whim)
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
    with world.host() as host:
        waits = host.waits(RUN, status=None, limit=1000)
    assert {w.status.value for w in waits} <= {"closed"}
    places = [(w.node, w.visit) for w in waits]
    assert len(places) == len(set(places)), "a visit waited twice"
    event(f"{len(waits)} waits, {crashes} crashes")


@examples(100)
@given(case=cases(WAITING), whim=WHIMS, keyframes=st.booleans())
def test_folding_the_records_gives_the_state_that_waits(case: Case, whim: int, keyframes: bool) -> None:
    check_folds(World(case, whim), Built(case), keyframes=keyframes)


@examples(50)
@given(case=cases(WAITING), at=st.integers(0, 99), whim=WHIMS, keyframes=st.booleans())
def test_a_fork_of_a_run_that_waited_ends_like_its_original(
    case: Case, at: int, whim: int, keyframes: bool
) -> None:
    world = World(case, whim)
    with every_put(keyframes=keyframes):
        expected = world.live()
        with world.host() as host:
            built = Built(case)
            sequence = 1 + at % host.info(RUN).checkpoints
            before = [(w.id, w.status) for w in host.waits(RUN, status=None, limit=1000)]
            host.fork(RUN, at=sequence, fork_id="fork")
            result = world.answer(host, host.resume("fork", built.flow), built)
            assert seen(host, "fork", result, built) == expected
            assert [(w.id, w.status) for w in host.waits(RUN, status=None, limit=1000)] == before
