"""Every option in every place, in every mode, killed: as in a plain flow, or refused as the table says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from everstep.errors import EverstepError
from everstep.graph.author.options import INNER, TABLE, Of, Option, OptionVerdict, Place
from everstep.graph.check.diagnostics import Diagnostics
from everstep.graph.compile.plan import deep_nodes
from tests.unit.graph.options.option_samples import BEHIND, SAMPLES, Life, Sample
from tests.unit.graph.options.option_worlds import flow_in, seen_in

IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
GUARDS = {(option.of, option.name) for option in TABLE if option.of is Of.BREAKER and option.name != "nodes"}
"""What breakers count is shown with them; the places of what they guard are all that is asked here."""


class Cell(NamedTuple):
    """One option in one place, in one mode, with one kill."""

    option: Option
    place: Place
    mode: str
    kill: str | None

    @property
    def sample(self) -> Sample:
        return SAMPLES[self.option.of][self.option.name, self.option.form]

    def __str__(self) -> str:
        return f"{self.option.of} {self.option.name} {self.option.form} {self.place} {self.mode} {self.kill}"


def has_sample(option: Option) -> bool:
    return (option.name, option.form) in SAMPLES[option.of]


def cells(of: Of, place: Place) -> Iterator[Cell]:
    """Yield all cells, or so many that every two of option, place, mode and kill meet in one."""
    options = [o for o in TABLE if o.of is of and has_sample(o)]
    for k, option in enumerate(options):
        sample = SAMPLES[of][option.name, option.form]
        turn = k + list(Place).index(place)
        for j, mode in enumerate(sample.modes):
            kills = (None,) if mode == "off" else sample.kills
            for n, kill in enumerate(kills):
                if IS_SOAK or (j == turn % len(sample.modes) and n == (turn // 2 + j) % len(kills)):
                    yield Cell(option, place, mode, kill)


@cache
def plainly(of: Of, name: str, form: str, mode: str, kill: str | None) -> Counter[Any]:
    return seen_in(Place.PLAIN, SAMPLES[of][name, form], mode, kill)


def expected(cell: Cell) -> Counter[Any]:
    """Return what a plain flow shows. A loop goes round twice, and is killed in its first round or behind."""
    option = cell.option
    seen = plainly(option.of, option.name, option.form, cell.mode, cell.kill)
    if cell.place is not Place.LOOP or cell.sample.ends:
        return seen
    more = seen if cell.kill == BEHIND else plainly(option.of, option.name, option.form, cell.mode, None)
    return seen + more


def once(seen: Counter[Any]) -> Counter[Any]:
    """Leave out how often what comes at the end of a run, or behind a loop, was seen."""
    return Counter({what: 1 if not what.startswith("('work'") else times for what, times in seen.items()})


def refused_at_build(cell: Cell) -> str | None:
    """Return the code with which the flow is refused, or none if it is built."""
    try:
        flow_in(cell.place, cell.sample, Life(), cell.mode)
    except EverstepError as error:
        codes = {d.code for d in Diagnostics.of(error).errors}
        assert len(codes) == 1, codes
        return codes.pop()
    return None


def has_effect(cell: Cell) -> bool:
    flow, _ = flow_in(cell.place, cell.sample, Life(), cell.mode)
    return any(n.is_effectful for _, n in deep_nodes(flow.plan))


def problem_of(cell: Cell) -> str:
    """Return what is wrong with a cell; empty if it is as the table says."""
    verdict = cell.option.at(cell.place)
    refused = refused_at_build(cell)
    if verdict is OptionVerdict.AT_BUILD:
        wanted = cell.option.refused[cell.place].code
        return "" if refused == wanted else f"is to be refused with {wanted}, was {refused}"
    if refused is not None:
        return f"was refused with {refused}"
    if cell.option.form == "more than that":
        return ""  # an atomic flow asks for nothing, so there is nothing to compare
    seen = seen_in(cell.place, cell.sample, cell.mode, cell.kill)
    if verdict is OptionVerdict.AT_CALL:
        return "" if any("'NotInAtomic'" in what for what in seen) else f"was not refused: {seen}"
    wanted_ = expected(cell)
    if cell.place is Place.LOOP:
        seen, wanted_ = once(seen), once(wanted_)
    may_differ = cell.place is Place.ATOMIC or (cell.place is Place.LOOP and cell.kill == BEHIND)
    if may_differ and not has_effect(cell):
        # What is written on the way says how much is repeated: nothing inside an atomic flow, in a loop more.
        seen, wanted_ = Counter(set(seen)), Counter(set(wanted_))
    return (
        "" if seen == wanted_ else f"is seen as {dict(seen - wanted_)} where plain is {dict(wanted_ - seen)}"
    )


@pytest.mark.parametrize("place", INNER)
@pytest.mark.parametrize("of", Of)
def test_an_option_works_here_as_in_a_plain_flow_or_is_refused(of: Of, place: Place) -> None:
    wrong = [f"{cell}: {problem}" for cell in cells(of, place) if (problem := problem_of(cell))]
    assert not wrong, "\n".join(wrong)


def test_every_option_that_works_somewhere_has_a_sample() -> None:
    for option in TABLE:
        is_refused_everywhere = all(option.at(place) is OptionVerdict.AT_BUILD for place in Place)
        is_refused_inside = all(option.at(place) is OptionVerdict.AT_BUILD for place in INNER)
        if not is_refused_everywhere and not is_refused_inside:
            assert has_sample(option) or (option.of, option.name) in GUARDS, option
