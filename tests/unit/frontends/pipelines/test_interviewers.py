"""What human nodes ask, which answers mean which choice, and who answers for people."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.errors import BadRequest
from everstep.frontends.pipelines.interviewers import (
    AutoApprove,
    Callback,
    Choice,
    Interviewer,
    Kind,
    Question,
    Queue,
    Recording,
    choices_of,
    kind_of,
    match,
)

EDGES = [("[A] Approve", "ship"), ("R) Reject it", "fix"), ("S - Skip", "end"), ("Ask again", "review")]
CHOICES = choices_of(EDGES)


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        (["[A] Approve", "R) Reject", "S - Skip", "Later"], ["A", "R", "S", "L"]),
        (["[OK] Fine", "1) One", "42 - Many"], ["OK", "1", "42"]),
        (["Approve", "Abandon", "Add"], ["A", "B", "D"]),
        (["Approve", "[A] Abandon"], ["P", "A"]),
        (["[A] One", "[a] Two"], ["A", "T"]),
        (["A", "A", "A"], ["A", "2", "3"]),
        (["…", "!!"], ["1", "2"]),
        (["no-dash here", "well-known - fact"], ["N", "W"]),
        (["2", "", ""], ["2", "T", "3"]),
    ],
)
def test_every_choice_has_a_key_of_its_own(labels: list[str], keys: list[str]) -> None:
    found = choices_of([(label, f"t{n}") for n, label in enumerate(labels)])
    assert [choice.key for choice in found] == keys
    assert len({choice.key.lower() for choice in found}) == len(found)


def test_edge_without_a_label_is_called_as_its_target() -> None:
    assert choices_of([("", "ship")]) == (Choice("S", "ship", "ship"),)


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        ("A", "ship"),
        ("a", "ship"),
        (" approve ", "ship"),
        ("[A] Approve", "ship"),
        ("rej", "fix"),
        ("reject it", "fix"),
        ("r) rej", "fix"),
        ("3", "end"),
        (3, "end"),
        ("REVIEW", "review"),
        ("ask", "review"),
        (CHOICES[1], "fix"),
        (True, "ship"),
    ],
)
def test_answer_means_a_choice(answer: Any, target: str) -> None:
    found = match(answer, CHOICES)
    assert found is not None and found.target == target


def test_true_and_false_mean_yes_and_no() -> None:
    choices = choices_of([("No", "fix"), ("[Y] Yes", "ship")])
    assert [match(answer, choices) for answer in (True, False)] == [choices[1], choices[0]]
    assert match(False, CHOICES) is None
    assert match(True, choices_of([("Go on", "next")])) is not None


@pytest.mark.parametrize(
    "answer", ["", "  ", "x", "0", "5", 5, None, 1.0, ["A"], Choice("A", "x", "y"), "approved"]
)
def test_answer_that_means_nothing_chooses_nothing(answer: Any) -> None:
    assert match(answer, CHOICES) is None


def test_beginning_that_fits_two_labels_chooses_neither() -> None:
    choices = choices_of([("Ship now", "a"), ("Ship later", "b")])
    assert match("ship", choices) is None
    assert match("ship l", choices) == choices[1]


def test_key_goes_before_a_place_and_a_label_before_a_target() -> None:
    choices = choices_of([("2) Two", "x"), ("Other", "y"), ("x", "z")])
    assert match("2", choices) == choices[0]
    assert match("x", choices) == choices[2]


def test_no_choices_mean_nothing_is_chosen() -> None:
    assert match("yes", ()) is None
    assert match(True, ()) is None


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([], Kind.FREEFORM),
        (["Go on"], Kind.CONFIRMATION),
        (["[Y] Yes", "[N] No"], Kind.YES_NO),
        (["no", "YES"], Kind.YES_NO),
        (["Yes", "Maybe"], Kind.MULTIPLE_CHOICE),
        (["Yes", "No", "Maybe"], Kind.MULTIPLE_CHOICE),
    ],
)
def test_kind_of_a_question_follows_from_its_choices(labels: list[str], kind: Kind) -> None:
    assert kind_of(choices_of([(label, label) for label in labels])) is kind


def ask(interviewer: Interviewer, *labels: str) -> Any:
    return interviewer.ask(Question.about("Well?", [(label, label) for label in labels], node="gate"))


def test_auto_approve_says_yes_or_takes_the_first() -> None:
    assert ask(AutoApprove(), "No", "Yes").label == "Yes"
    assert ask(AutoApprove(), "Ship", "Fix").label == "Ship"
    assert ask(AutoApprove()) == "approved"
    assert AutoApprove().ask(Question(prompt="Sure?", kind=Kind.CONFIRMATION)) is True


def test_callback_is_given_the_question() -> None:
    assert ask(Callback(lambda question: question.choices[-1].key), "Ship", "Fix") == "F"


def test_callback_that_would_have_to_be_awaited_is_refused() -> None:
    async def later(question: Question) -> str:
        return "yes"

    with pytest.raises(BadRequest, match="not awaited"):
        ask(Callback(later))  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="cannot be called"):
        Callback("yes")  # type: ignore[arg-type]


def test_queue_gives_one_answer_after_the_other_and_then_none() -> None:
    queue = Queue(["a", 2])
    queue.put(True)
    assert [ask(queue) for _ in range(4)] == ["a", 2, True, None]
    assert len(queue) == 0 and queue
    with pytest.raises(BadRequest, match="one answer"):
        Queue("abc")


def test_recording_remembers_what_was_asked_and_answered() -> None:
    recording = Recording(Queue(["Ship"]))
    assert [ask(recording, "Ship"), ask(recording)] == ["Ship", None]
    assert [(q.node, q.kind, a) for q, a in recording.recorded] == [
        ("gate", Kind.CONFIRMATION, "Ship"),
        ("gate", Kind.FREEFORM, None),
    ]
