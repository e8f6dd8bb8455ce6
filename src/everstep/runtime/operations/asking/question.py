"""What a worker is asked about a flow, and how it says what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from everstep.codec.plain_json import jsonable
from everstep.errors import EverstepError, NoAnswer
from everstep.model.shapes import understood
from everstep.runtime.runs import Runs
from everstep.runtime.services import Services

ANSWER = "answer"
"""The value of the run that has it."""


class About(StrEnum):
    """What is asked."""

    EXPLAIN = "explain"
    """What a resume of a run would do."""
    COMPAT = "compat"
    """Which runs can go on with the flow as it is now."""
    REPORT = "report"
    """What of the flow is durable."""
    FINDINGS = "findings"
    """What is wrong or odd about the flow."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a flow."""

    about: About
    flow: str
    until: datetime
    """Until when the asker waits, by the store's clock."""
    runs: tuple[str, ...] = ()
    """The run that is to be explained, or those that are to be judged."""

    def told(self) -> dict[str, Any]:
        """Return it as the input of a run."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def question_of(told: Mapping[str, Any]) -> Question:
    """Return the question that `told` gave."""
    return msgspec.convert(told, understood(Question))


def quiet(services: Services, runs: Runs) -> tuple[Services, Runs]:
    """Return services for the runs of questions: no listener hears of them, and nothing counts them."""
    found = copy(services)
    found.listener = found.tracing = found.meter = found.after_run = found.telling = None
    return found, Runs(found, runs.keeper)


def refusal(error: EverstepError) -> dict[str, Any]:
    """Return an error as an answer."""
    return {"error": jsonable(error.to_wire())}


def check_refusal(answer: Mapping[str, Any]) -> None:
    """Raise the error that an answer is, if it is one."""
    told = answer.get("error")
    if told is None:
        return
    kind = next((kind for kind in _kinds(EverstepError) if kind.code == told["code"]), NoAnswer)
    raise kind(told["message"], fix=told["fix"], **told["details"])


def _kinds(base: type[EverstepError]) -> Iterator[type[EverstepError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)
