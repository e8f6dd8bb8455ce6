"""The names that errors had in 0.1 work for one minor version, and say what the new ones are."""

from __future__ import annotations

import pytest

from everstep import errors, testing


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("InputNeverCame", errors.InputMissing, "node.input_never_came"),
        ("NoTime", errors.TimerUnset, "wait.no_time"),
        ("TwoTimes", errors.TimerAmbiguous, "wait.two_times"),
    ],
)
def test_an_old_name_is_the_new_error_with_its_old_code(
    old: str, new: type[errors.EverstepError], code: str
) -> None:
    with pytest.warns(DeprecationWarning, match=f"errors.{old} is {new.__name__} now"):
        found = getattr(errors, old)
    assert found is new and found.code == code


def test_the_old_mark_for_no_answer_is_the_new_one() -> None:
    old = "NO" + "BODY"
    with pytest.warns(DeprecationWarning, match="is UNANSWERED now"):
        assert getattr(testing, old) is testing.UNANSWERED


def test_other_names_are_unknown_as_ever() -> None:
    with pytest.raises(AttributeError, match="NoSuchError"):
        _ = errors.NoSuchError
