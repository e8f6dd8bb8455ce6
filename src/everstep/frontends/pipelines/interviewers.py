"""Who answers for people: what a human node asks, what may be answered, and answers known beforehand."""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from everstep.errors import BadRequest

_ACCELERATORS: Final = (
    re.compile(r"\[(?P<key>[^\]\s]{1,8})\]\s*(?P<text>.*)", re.DOTALL),
    re.compile(r"(?P<key>[A-Za-z0-9]{1,8})\)\s*(?P<text>.*)", re.DOTALL),
    re.compile(r"(?P<key>[A-Za-z0-9]{1,8})\s+-\s+(?P<text>.*)", re.DOTALL),
)
_YES: Final = ("yes", "y", "true", "ok", "approve", "confirm")
_NO: Final = ("no", "n", "false", "reject", "cancel")


class Kind(StrEnum):
    """What kind of answer a question wants."""

    YES_NO = "yes_no"
    MULTIPLE_CHOICE = "choice"
    FREEFORM = "text"
    CONFIRMATION = "confirm"


@dataclass(frozen=True)
class Choice:
    """One thing to choose, which is one edge to take."""

    key: str
    """What chooses it by itself: `A` of `[A] Approve`."""
    label: str
    """The edge's label, as it is written."""
    target: str = ""
    """The node that it leads to."""

    @property
    def text(self) -> str:
        """The label without its key."""
        return split_label(self.label)[1]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a person is asked."""

    prompt: str
    choices: tuple[Choice, ...] = ()
    kind: Kind = Kind.FREEFORM
    node: str = ""
    timeout: float | None = None
    """Seconds until it is too late to answer."""

    @classmethod
    def about(
        cls, prompt: str, edges: Iterable[tuple[str, str]], *, node: str = "", timeout: float | None = None
    ) -> Question:
        """Return the question which of these edges to take, given by label and target."""
        choices = choices_of(edges)
        return cls(prompt=prompt, choices=choices, kind=kind_of(choices), node=node, timeout=timeout)


Answer = str | int | bool | Choice | None
"""What may be answered: a key, a label or its beginning, a place, a target; or nothing after a timeout."""


class Interviewer(Protocol):
    """Answers questions."""

    def ask(self, question: Question) -> Answer:
        """Return the answer, or none if the question is passed over."""
        ...


class AutoApprove:
    """Says yes to everything: the first choice, or yes."""

    def ask(self, question: Question) -> Answer:
        if question.choices:
            agreed = match(True, question.choices) if question.kind is Kind.YES_NO else None
            return agreed or question.choices[0]
        return "approved" if question.kind is Kind.FREEFORM else True

    def __repr__(self) -> str:
        return "AutoApprove()"


class Callback:
    """Asks a function."""

    def __init__(self, function: Callable[[Question], Answer]) -> None:
        if not callable(function):
            raise BadRequest(f"{function!r:.80} cannot be called.", fix="Give a function of a question.")
        self._function = function

    def ask(self, question: Question) -> Answer:
        answer = self._function(question)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise BadRequest("a Callback is called, not awaited.", fix="Give it a plain function.")
        return answer

    def __repr__(self) -> str:
        return f"Callback({getattr(self._function, '__name__', '…')})"


class Queue:
    """Gives answers that were put into it, one after the other; then none."""

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        if isinstance(answers, str):
            raise BadRequest(f"{answers!r:.80} is one answer.", fix="Give a list of answers.")
        self._answers = deque(answers)

    def put(self, answer: Answer) -> None:
        """Add an answer behind the others."""
        self._answers.append(answer)

    def ask(self, question: Question) -> Answer:
        return self._answers.popleft() if self._answers else None

    def __len__(self) -> int:
        return len(self._answers)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Queue({len(self._answers)} left)"


@dataclass
class Recording:
    """Asks another, and remembers what was asked and answered."""

    inner: Interviewer
    recorded: list[tuple[Question, Answer]] = field(default_factory=list)

    def ask(self, question: Question) -> Answer:
        answer = self.inner.ask(question)
        self.recorded.append((question, answer))
        return answer


def split_label(label: str) -> tuple[str, str]:
    """Return the key that a label names, or nothing, and the rest of it."""
    for pattern in _ACCELERATORS:
        found = pattern.fullmatch(label.strip())
        if found is not None:
            return found["key"], found["text"].strip() or found["key"]
    return "", label.strip()


def choices_of(edges: Iterable[tuple[str, str]]) -> tuple[Choice, ...]:
    """Return the choice of each edge, given by label and target; a label that is missing is the target.

    Each has a key of its own: the one that its label names, or else the first letter that is free, or else
    its place. Where two targets have one label, each is named with it.
    """
    given = [(label.strip() or target, target) for label, target in edges]
    taken: set[str] = set()
    keys: dict[int, str] = {}
    for number, (label, _) in enumerate(given):
        key = split_label(label)[0]
        if key and key.lower() not in taken:
            keys[number] = key
            taken.add(key.lower())
    for number, (label, _) in enumerate(given):
        if number not in keys:
            letters = [letter.upper() for letter in split_label(label)[1] if letter.isalnum()]
            free = (one for one in [*letters, str(number + 1)] if one.lower() not in taken)
            keys[number] = next(free, f"#{number + 1}")
            taken.add(keys[number].lower())
    targets: dict[str, set[str]] = {}
    for label, target in given:
        targets.setdefault(label, set()).add(target)
    labels = [f"{label} ({target})" if len(targets[label]) > 1 else label for label, target in given]
    return tuple(Choice(keys[n], label, given[n][1]) for n, label in enumerate(labels))


def kind_of(choices: Sequence[Choice]) -> Kind:
    """Return the kind of the question that has these choices."""
    if not choices:
        return Kind.FREEFORM
    if len(choices) == 1:
        return Kind.CONFIRMATION
    words = {choice.text.lower() for choice in choices}
    return Kind.YES_NO if words == {"yes", "no"} else Kind.MULTIPLE_CHOICE


def default_of(named: str, choices: Sequence[Choice]) -> Choice | None:
    """Return the choice that a default names: by its target first, else as an answer would."""
    exact = next((choice for choice in choices if choice.target == named.strip()), None)
    return exact if exact is not None else match(named, choices)


def match(answer: Any, choices: Sequence[Choice]) -> Choice | None:
    """Return the choice that an answer means, or none.

    It is meant by its key, its label, its place from 1 on, its target, or the beginning of its label if no
    other begins so; in any case of letters. Yes and no are also true and false.
    """
    if isinstance(answer, Choice):
        return answer if answer in choices else None
    if isinstance(answer, bool):
        words = _YES if answer else _NO
        named = [c for word in words for c in choices if word in (c.text.lower(), c.key.lower())]
        return named[0] if named else choices[0] if answer and len(choices) == 1 else None
    said = str(answer).strip().lower() if isinstance(answer, (str, int)) else ""
    if not said:
        return None
    for exact in (
        [c for c in choices if c.key.lower() == said],
        [c for c in choices if said in (c.label.lower(), c.text.lower())],
        [c for number, c in enumerate(choices, 1) if str(number) == said],
        [c for c in choices if c.target.lower() == said],
    ):
        if exact:
            return exact[0]
    begins = [c for c in choices if c.text.lower().startswith(said) or c.label.lower().startswith(said)]
    return begins[0] if len(begins) == 1 else None
