"""What is tried with bodies whose code changes, and what must hold of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from everstep.client.views import WaitInfo
from everstep.model.enums import Status
from everstep.model.records import WAITED, StepRecord
from everstep.runtime.drive.units.calls import TAKES
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.faults import Decider
from everstep.testing.simulation.played import ITSELF
from everstep.testing.simulation.trial import End, FlowTrial
from everstep.testing.simulation.world import World
from tests.simulation.bodies.edits import Ask, Edited, Entry, asks_of, digest

NODE = "agent"
LIVES = 8
"""So many versions; later lives have the last one."""


class EditedTrial(FlowTrial):
    """A node whose code is changed whenever its process dies."""

    def __init__(self, seed: int) -> None:
        self.edited = Edited(seed, LIVES)
        super().__init__(
            self.edited.flow(is_async=seed % 2 == 1),
            {"x": 1},
            doubles=ITSELF,
            is_chancy=True,
            is_remote=seed % 3 == 1,
            is_awaited=seed % 3 == 2,
        )

    def world(self, seed: int, decider: Decider) -> World:
        self.edited.entries.clear()
        return super().world(seed, decider)

    def _answer_to(self, wait: WaitInfo) -> object:
        said = f"answer to {wait.context}"
        return {"text": said, "approval": {"approved": True, "comment": said}}.get(wait.kind)

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        broken = [one for one in super().judge(world, reader, whole) if not self._is_meant(one)]
        for kept in Judge(world, reader).kept.values():
            broken += self._judged(kept, world)
        return broken

    def _is_meant(self, broken: Broken) -> bool:
        """True of what is to be expected if the code is another one in each life."""
        if broken.invariant == "effects":  # what was made and is not recorded is made as the code now says
            return "was made with" in broken.message or "knows nothing of it" in broken.message
        if broken.invariant in ("no step twice", "attempts"):  # a call that is made anew begins anew
            return any(ask.on_change == "again" for ask in asks_of(self.edited.versions))
        return "exception was never retrieved" in broken.message

    def _judged(self, kept: Kept, world: World) -> Iterator[Broken]:
        entries = self.edited.entries
        wrong = [f"life {entry.life}: {wrong}" for entry in entries for wrong in entry.wrong]
        made = [step for _, step in kept.steps if step.path.startswith(f"{NODE}/")]
        last = [step for _, step in kept.steps if step.path == NODE and step.status is Status.COMPLETED]
        if not last:
            wrong.append(f"the run is {kept.row.status}")
        elif whole := [entry for entry in entries if entry.is_whole]:  # not those of before a snapshot
            heard = "\n".join(text for _, text in world.ledger.story)
            wrong += [
                *_of_the_last(whole[-1], last[-1], made, heard),
                *_of_what_was_said(self.edited, last[-1], made),
            ]
        return (Broken("divergence", what) for what in wrong)


def _of_the_last(whole: Entry, last: StepRecord, made: list[StepRecord], heard: str) -> Iterator[str]:
    """Yield what is wrong with the entry that ended the node."""
    said = _changed([*made, last])
    for came in whole.came:
        if came.is_refused:
            if not _differs(came.label, came.ask, made):
                yield f"{came.label} is recorded as it was asked for, and was refused"
        elif came.given is not None and came.given != came.ask.argument:
            if came.ask.on_change != "warn":
                yield f"{came.label} was given what was made with {came.given}: not to {came.ask.on_change}"
            if came.label not in said:
                yield f"{came.label} was given what was made with {came.given}, and no record says so"
            if f"step {came.label[1:]!r} of node {NODE!r} is recorded with other arguments" not in heard:
                yield f"{came.label} was given what was made with {came.given}, and no log says so"
    ended = {_label_of(step) for step in made if step.status in (Status.COMPLETED, Status.FAILED)}
    begun = {_label_of(step) for step in made} - ended
    asked = {label for label, _ in whole.asked}
    unasked = set(() if last.unit is None else last.unit.unasked)
    if unasked - begun != ended - asked:
        yield f"recorded and not asked for are {sorted(ended - asked)}, and the record says {sorted(unasked)}"


def _of_what_was_said(edited: Edited, last: StepRecord, made: list[StepRecord]) -> Iterator[str]:
    """Yield which calls are said to differ, and never did."""
    asks = [*edited.with_keys(), *(asked for entry in edited.entries for asked in entry.asked)]
    for label in _changed([*made, last]):
        if not any(_differs(label, ask, made) for asked, ask in asks if asked == label):
            yield f"{label} is said to be recorded with other arguments, and was always asked for with these"


def _changed(steps: list[StepRecord]) -> set[str]:
    return {label for step in steps if step.unit is not None for label in step.unit.changed}


def _label_of(step: StepRecord) -> str:
    return f"{step.path.rpartition('/')[2]}@{step.visit}"


def _differs(label: str, ask: Ask, made: list[StepRecord]) -> bool:
    """True if a record of a call says something else than what is asked for."""
    return any(_form_of(step) != _asked_form(ask) for step in made if _label_of(step) == label)


def _asked_form(ask: Ask) -> str:
    return f"call {digest([ask.argument, {}])}" if ask.form == "call" else ask.form


def _form_of(step: StepRecord) -> str:
    """Return what a record says that was asked for."""
    assert step.unit is not None
    if step.unit.arguments == WAITED:
        assert step.wait is not None
        return {"timer": "sleep", "text": "ask", "approval": "approve"}[step.wait.kind]
    said = step.unit.arguments
    return {b"now": "now", TAKES: "inbox"}.get(said, f"call {said.hex()}")
