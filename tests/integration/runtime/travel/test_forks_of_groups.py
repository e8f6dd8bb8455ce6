"""An edit starts members of a group again: the group meets anew, and what follows reads what is new."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from everstep import Flow, Host, at_least, node, parallel

JOINED = threading.Event()
"""What follows a group has begun: members that did not win need not be slow any more."""


@node
def quick(x: int) -> str:
    return f"quick{x}"


@node
def slow(x: int) -> str:
    JOINED.wait(10)
    return f"slow{x}"


@node
def other(y: int) -> str:
    return f"other{y}"


@node
def after(quick: str = "-", slow: str = "-", other: str = "-") -> str:
    JOINED.set()
    return f"{quick} {slow} {other}"


EARLY = Flow("early", parallel(quick, slow, join="any") >> after, durability="strong")
STRICT = Flow("strict", parallel(quick, other, policy=at_least(2)) >> after, durability="strong")


def ends(host: Host, flow: Flow, **edits: Any) -> set[str]:
    """Return what forks at every checkpoint of a run come to."""
    JOINED.clear()
    host.run(flow, {"x": 1, "y": 2} if flow is STRICT else {"x": 1}, run_id="r")
    found = set()
    for checkpoint in host.checkpoints("r"):
        if "quick" in checkpoint.nodes or checkpoint.sequence > 2:
            JOINED.clear()
            result = host.resume(host.fork("r", at=checkpoint.sequence, **edits).run_id, flow)
            assert result.error is None, (checkpoint.sequence, result.error)
            found.add(result["after.__result__"])
    return found


def test_an_edit_before_an_early_join_reaches_what_follows_it(host: Host) -> None:
    assert ends(host, EARLY, inputs={"x": 7}) == {"quick7 - -"}


def test_an_edit_of_what_a_winner_gave_reaches_what_follows_the_join(host: Host) -> None:
    assert ends(host, EARLY, state={"quick.__result__": "edited"}) == {"edited - -"}


@pytest.mark.parametrize(("edits", "end"), [({"x": 7}, "quick7 - other2"), ({"y": 7}, "quick1 - other7")])
def test_members_that_an_edit_does_not_reach_still_count(host: Host, edits: dict[str, int], end: str) -> None:
    assert ends(host, STRICT, inputs=edits) == {end}
