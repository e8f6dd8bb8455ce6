"""Addresses of steps: what they mean, and what a recorded path is called."""

from __future__ import annotations

import pytest

from everstep.model.address import (
    Address,
    Part,
    find,
    item_of,
    map_of,
    maps_around,
    part_of,
    plain_of,
    unvisited,
)

STEPS = [
    ("rag", 1),
    ("rag/embed", 1),
    ("rag/embed", 2),
    ("rag@2/embed", 1),
    ("rag", 2),
    ("check#7", 1),
    ("check#7/score", 1),
    ("check@2#7/score", 1),
    ("embed#0", 1),
    ("embed#0", 2),
    ("@inputs", 1),
    ("a.b-c", 1),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("rag", ("rag", 2)),
        ("rag@1", ("rag", 1)),
        ("rag/embed", ("rag@2/embed", 1)),
        ("rag@1/embed", ("rag/embed", 2)),
        ("rag@1/embed@1", ("rag/embed", 1)),
        ("rag@2/embed@1", ("rag@2/embed", 1)),
        ("check#7", ("check#7", 1)),
        ("check#7/score", ("check@2#7/score", 1)),
        ("check@1#7/score", ("check#7/score", 1)),
        ("embed#0", ("embed#0", 2)),
        ("embed#0@1", ("embed#0", 1)),
        ("embed@1#0@2", ("embed#0", 2)),
        ("a.b-c", ("a.b-c", 1)),
    ],
)
def test_a_visit_that_is_left_out_is_the_last(wanted: str, found: tuple[str, int]) -> None:
    assert find(STEPS, wanted) == found


@pytest.mark.parametrize(
    "wanted",
    [
        *("rag@3", "rag@2/embed@2", "check/score", "check#8", "embed", "@inputs", "", "/", "rag/", "rag@x"),
        *("rag#", "rag@1@2", "check#7@2/score", "rag@99999999999999999999"),
    ],
)
def test_what_leads_nowhere_is_not_found(wanted: str) -> None:
    assert find(STEPS, wanted) is None


@pytest.mark.parametrize(("path", "visit"), [s for s in STEPS if s[0][0] != "@" and s != ("embed#0", 1)])
def test_an_address_in_full_finds_its_own_step(path: str, visit: int) -> None:
    assert find(STEPS, str(Address.of(path, visit))) == (path, visit)


def test_steps_are_called_by_their_address_in_full() -> None:
    names = [str(Address.of(*step)) for step in STEPS if step[0][0] != "@"]
    assert names[:4] == ["rag@1", "rag@1/embed@1", "rag@1/embed@2", "rag@2/embed@1"]
    assert names[5:10] == ["check@1#7", "check@1#7/score@1", "check@2#7/score@1", "embed@1#0", "embed@1#0@2"]


def test_a_path_is_taken_apart() -> None:
    path = "a@2/rag@3#7/b#1/c"
    assert (map_of(path), item_of(path)) == ("a@2/rag@3", "a@2/rag@3#7")
    assert (map_of("a/b"), item_of("a/b")) == (None, None)
    assert plain_of(path) == "a/rag/b/c"
    assert unvisited(path) == "a/rag#7/b#1/c"


@pytest.mark.parametrize(
    ("wanted", "step", "found"),
    [
        ("rag", ("rag", 2), Part("rag", 2)),
        ("rag", ("rag@2/embed", 1), Part("rag", 2)),
        ("rag@1", ("rag/embed", 2), Part("rag", 1)),
        ("rag@1", ("rag@2/embed", 1), None),
        ("rag/embed", ("rag@2/embed", 1), Part("rag@2/embed", 1)),
        ("rag/embed", ("rag", 1), None),
        ("check", ("check@2#7/score", 1), Part("check", 2)),
        ("check#7", ("check@2#7/score", 1), Part("check@2#7", 0)),
        ("check#7", ("check#8/score", 1), None),
        ("check#7/score", ("check#7/score", 3), Part("check#7/score", 3)),
        ("check/score", ("check#7/score", 1), None),
        ("embed#0", ("embed#0", 2), Part("embed#0", 0)),
        ("embed#0@2", ("embed#0", 2), Part("embed#0", 2)),
        ("embed#0@1", ("embed#0", 2), None),
        ("a.b-c", ("a.b-c", 1), Part("a.b-c", 1)),
        ("rag", ("ragged", 1), None),
    ],
)
def test_an_address_means_the_part_that_a_step_is_or_lies_in(
    wanted: str, step: tuple[str, int], found: Part | None
) -> None:
    address = Address.parse(wanted)
    assert address is not None
    assert part_of(address, *step) == found
    assert found is None or found.holds(*step)


def test_a_part_holds_its_own_visit_and_what_is_inside() -> None:
    second = Part("rag", 2)
    assert [step for step in STEPS if second.holds(*step)] == [("rag@2/embed", 1), ("rag", 2)]
    item = Part("check@2#7", 0)
    assert item.holds("check@2#7", 3)
    assert item.holds("check@2#7/score", 1)
    assert not item.holds("check@2#70/score", 1)
    assert not Part("rag", 1).has_inside("rag")
    assert (second.within("docs"), second.within("")) == ("rag@2/docs", "rag@2")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("rag", []),
        ("rag@2/inner", []),
        ("rag#7", [("rag", "rag#7")]),
        ("rag#7/inner", [("rag", "rag#7")]),
        ("rag@2#7/inner@3", [("rag@2", "rag@2#7")]),
        ("rag#7@2/$search", [("rag", "rag#7")]),
        ("rag@2#7/each#1/inner", [("rag@2", "rag@2#7"), ("rag@2#7/each", "rag@2#7/each#1")]),
    ],
)
def test_the_maps_around_a_path(path: str, found: list[tuple[str, str]]) -> None:
    assert maps_around(path) == found
