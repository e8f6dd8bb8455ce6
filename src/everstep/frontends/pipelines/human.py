"""A node that asks a person: it halts, and a gate behind it takes the answer. Apart from other nodes, as it
alone halts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from everstep.frontends.dot.judging import evaluate
from everstep.frontends.pipelines.choice import Way
from everstep.frontends.pipelines.interviewers import (
    Choice,
    Interviewer,
    Kind,
    Question,
    choices_of,
    default_of,
    kind_of,
    match,
    split_label,
)
from everstep.frontends.pipelines.layers import INTERNAL, LayeredContext
from everstep.frontends.pipelines.outcome import Outcome, StageStatus
from everstep.frontends.pipelines.reading import StageSpec, fill
from everstep.frontends.pipelines.stage import Stage
from everstep.frontends.pipelines.stages import StagePlace, StageRunner, Variables, lookup_of
from everstep.graph.author.context import Context
from everstep.graph.author.wait_options import NO_DEFAULT, Wait

TIMED_OUT: Final = "@timeout"
"""The answer of a question that timed out."""
SKIPPED: Final = "@skipped"
UNANSWERED: Final = "unanswered"
"""In what stands for the answer where any text may be one: no text, so that no person can give it."""
_MARK: Final = f"{INTERNAL}{UNANSWERED}."
_FREE: Final = ("freeform", "text", "free_text")
_LONGEST_PREFIX: Final = 40


class HumanRunner(StageRunner):
    """Asks, and once answered chooses the edge that the answer names."""

    def __init__(
        self, place: StagePlace, spec: StageSpec, *, backend: Mapping[str, Any], human: Interviewer | None
    ) -> None:
        super().__init__(place, spec, None, backend=backend)
        self._human = human
        open_ways = _chosen_among([way for way in spec.ways if way.target in place.enter])
        self._ways = open_ways
        self.choices = choices_of((way.label, way.target) for way in open_ways)
        said = spec.attributes.get("question_type", spec.attributes.get("human.type", "")).strip().lower()
        self.is_free = said in _FREE or (not said and len(self.choices) < 2 and not _has_labels(open_ways))

    # -- asking -------------------------------------------------------------------------------------------

    def asking(self) -> Callable[..., Any]:
        """Return the function of the node that halts, unless there is an answer at once."""
        if self._human is not None and inspect.iscoroutinefunction(self._human.ask):

            async def ask_async(ctx: Context) -> Any:
                asked: Any = self._human
                answer = await asked.ask(self._question(LayeredContext(ctx)))
                return self._wait(ctx) if answer is None else self._said(answer)

            return ask_async

        def ask(ctx: Context) -> Any:
            answer = self._human.ask(self._question(LayeredContext(ctx))) if self._human is not None else None
            return self._wait(ctx) if answer is None else self._said(answer)

        return ask

    def _question(self, context: LayeredContext) -> Question:
        return Question(
            prompt=self._prompt(context),
            choices=() if self.is_free else self.choices,
            kind=Kind.FREEFORM if self.is_free else kind_of(self.choices),
            node=self.spec.id,
            timeout=self.spec.timeout,
        )

    def _prompt(self, context: LayeredContext) -> str:
        goal = str(context.get("graph.goal", self.place.pipeline.goal))
        text = self.spec.prompt or self.spec.label
        return fill(text, Variables(context, self.place.pipeline.variables, goal))

    def _said(self, answer: Any) -> str:
        """Return an answer as the gate behind reads it."""
        if self.is_free:
            return str(answer)
        found = match(answer, self.choices)
        return found.label if found is not None else str(answer)

    def _wait(self, ctx: Context) -> Wait:
        context = LayeredContext(ctx)
        shown = {
            "pipeline": self.place.pipeline.name,
            "node": self.spec.id,
            "goal": context.get("graph.goal"),
            "last_stage": context.get("last_stage"),
            "last_response": str(context.get("last_response") or "")[:2000] or None,
        }
        timeout = self.spec.timeout
        default: Any = self._default() if timeout is not None else NO_DEFAULT
        if self.is_free and default in (TIMED_OUT, SKIPPED):
            default = {UNANSWERED: default}
            context.set(_MARK + self.spec.name, True)
        return Wait(
            kind="text" if self.is_free else "choice",
            prompt=self._prompt(context),
            context={key: value for key, value in shown.items() if value},
            options=None if self.is_free else [choice.label for choice in self.choices],
            spellings=None if self.is_free else spellings_of(self.choices),
            timeout=timedelta(seconds=timeout) if timeout is not None else None,
            default=default,
            notify=self._notified(),
        )

    def _notified(self) -> list[str] | None:
        named = self.spec.attributes.get("notify", "")
        return [alias.strip() for alias in named.split(",") if alias.strip()] or None

    def _default(self) -> str:
        """Return the answer that counts after a timeout."""
        wanted, action = self.spec.attributes.get("human.default_choice", ""), self.spec.timeout_action
        found = default_of(wanted, self.choices) if wanted and not self.is_free else None
        if wanted and self.is_free:
            return wanted
        if found is not None:
            return found.label
        if action == "first" and not self.is_free and self.choices:
            return self.choices[0].label
        return SKIPPED if action == "skip" or (action == "first" and self.is_free) else TIMED_OUT

    # -- the answer ---------------------------------------------------------------------------------------

    def answering(self) -> Callable[..., Any]:
        """Return the function of the gate behind: from the answer to what comes next."""

        def answered(ctx: Context, answer: Any) -> str:
            context = LayeredContext(ctx)
            stage, _ = self._begin(ctx, context)
            outcome = self._outcome(self._read(context, answer))
            settled = self._settled(ctx, outcome)
            self._note(ctx, context, stage, settled)
            return self._go_on(ctx, context, stage, settled)

        return answered

    def _read(self, context: LayeredContext, answer: Any) -> tuple[Any, str]:
        """Return an answer, and if there was none what stands for it."""
        is_marked = context.here(_MARK + self.spec.name) is not None
        context.drop(_MARK + self.spec.name)
        if isinstance(answer, dict) and UNANSWERED in answer:
            return None, str(answer[UNANSWERED])
        # A question that was asked by an older release has the text itself as its default.
        is_absent = answer in (TIMED_OUT, SKIPPED) and not is_marked
        return answer, str(answer) if is_absent else ""

    def _outcome(self, read: tuple[Any, str]) -> Outcome:
        answer, absent = read
        if absent == SKIPPED:
            return Outcome(status=StageStatus.SKIPPED, notes="no answer came in time")
        if absent:
            return Outcome.fail("no answer came in time", retryable=False, type="WaitTimeout")
        if self.is_free:
            return Outcome(context_updates={"human.response": answer}, notes=str(answer))
        found = match(answer, self.choices)
        if found is None:
            return Outcome.fail(f"{answer!r:.60} is no answer here", retryable=False)
        updates = {
            "human.gate.selected": found.key,
            "human.gate.label": found.text,
            "human.response": found.text,
        }
        return Outcome(
            context_updates=updates,
            preferred_label=found.text,
            suggested_next=(found.target,),
            notes=found.text,
            metadata={"choice": self.choices.index(found)},
        )

    def _way(self, context: LayeredContext, outcome: Outcome) -> tuple[Way | None, str]:
        if "choice" in outcome.metadata:
            return self._ways[outcome.metadata["choice"]], "answer"
        if outcome.status is StageStatus.SKIPPED and not self.choices:
            return None, ""
        return super()._way(context, outcome)

    def _asked(self, context: LayeredContext, stage: Stage) -> dict[str, Any]:
        return {"prompt": self._prompt(context)}


def _chosen_among(ways: Sequence[Way]) -> list[Way]:
    """Return the edges that a person chooses among, without those for a timeout.

    One that is labelled for failures is a choice if its label names a key, or if it is one of two labels.
    """
    usual = [way for way in ways if not _is_for_failure(way)]
    is_other_of_two = len(usual) == 1 and bool(usual[0].label)

    def is_choice(way: Way) -> bool:
        is_named = way.condition is None and (bool(split_label(way.label)[0]) or is_other_of_two)
        return way in usual or is_named

    by_choice: dict[tuple[str, str], Way] = {}
    for way in ways:
        if is_choice(way):
            by_choice.setdefault((way.label.strip() or way.target, way.target), way)
    return list(by_choice.values())


def _is_for_failure(way: Way) -> bool:
    """True for an edge that is there for failures, by its label or its condition."""
    if way.condition is None:
        return way.is_for_failure
    answered, late = lookup_of(Outcome(), {}), lookup_of(Outcome.fail(""), {})
    return evaluate(way.condition, late) and not evaluate(way.condition, answered)


def _has_labels(ways: Sequence[Way]) -> bool:
    return any(way.label for way in ways)


def spellings_of(choices: Sequence[Choice]) -> dict[str, str]:
    """Return other ways to say each choice: its key, its number, its target, the beginning of its label."""
    words: set[str] = {str(number) for number in range(1, len(choices) + 1)}
    for choice in choices:
        words |= {choice.key, choice.label, choice.text, choice.target}
        words |= {choice.text[:length] for length in range(1, min(len(choice.text), _LONGEST_PREFIX) + 1)}
    meant = {word.strip().lower(): match(word, choices) for word in words}
    return {word: choice.label for word, choice in sorted(meant.items()) if word and choice is not None}
