"""Of any flow, verify finds nothing wrong: while it waits, after crashes, with forks, keyframes or without.

`EVERSTEP_SOAK=1` tries many more of them.
"""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from everstep import Host
from tests.unit.random_flows import Built, Case, cases
from tests.unit.random_worlds import RUN, World
from tests.unit.test_random_flows import every_put, examples
from tests.unit.test_random_waits import DEATHS, SOME_WAITING, WHIMS


def check_sound(host: Host) -> None:
    for one in host.verify():
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
