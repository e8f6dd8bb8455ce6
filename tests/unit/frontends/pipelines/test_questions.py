"""What kind of question is asked, and what may be its default."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from everstep import wait
from everstep.errors import BadRequest


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "yes_no"),
        ({"answer_type": bool}, "yes_no"),
        ({"answer_type": int}, "text"),
        ({"options": ["a", "b"]}, "choice"),
        ({"answer_type": Literal[1, 2]}, "choice"),
        ({"answer_type": Literal["yes", "no"], "kind": "text"}, "text"),
        ({"kind": "confirm"}, "confirm"),
    ],
)
def test_the_kind_follows_from_what_is_asked_for_unless_it_is_said(
    options: dict[str, Any], kind: str
) -> None:
    assert wait.question("q", **options).kind == kind


def test_a_literal_gives_the_options() -> None:
    assert wait.question("q", answer_type=Literal[1, 2, 3]).arguments["options"] == [1, 2, 3]


def test_no_answer_at_all_may_be_the_default_of_a_choice_but_no_stranger() -> None:
    assert wait.question("q", options=[1, 2], default=None, timeout="1w").arguments["default"] is None
    with pytest.raises(BadRequest, match="no option"):
        wait.question("q", options=[1, 2], default=3)
