"""What a step did, in one line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everstep.cli.view.guards import amounts_said, guarded_said
from everstep.cli.view.lookup import Lookup
from everstep.cli.view.stages import of_interest, told
from everstep.cli.view.text import act_said, chosen_of, count, moment, one_line, preview
from everstep.cli.view.waits import noun, settled
from everstep.client.projection import Maps, base_of
from everstep.frontends.phases.places import GATES
from everstep.model.address import item_of
from everstep.model.enums import Status, ValueForm
from everstep.model.records import (
    CHANNEL,
    SPENT,
    UNDO,
    UNDOING,
    WAIT,
    QueuedTask,
    StepRecord,
    StreamAt,
    Written,
)
from everstep.model.records import RESULT as CALL
from everstep.model.waits import WaitOpened

WIDTH, WIDE = 40, 72
SHOWN_ITEMS = 3
RESULT = ".__result__"
TASK = "@task/"
_SCORES = CHANNEL + GATES
MARKS = {Status.RETRYING: "↻", Status.FAILED: "✗", Status.CANCELLED: "⊘", Status.HALTED: "‖"}


def said(step: StepRecord, lookup: Lookup, maps: Maps, joined: str = "") -> str:
    """Say what became of a step: why it failed, what it chose, wrote, put into the channel and asked for."""
    tries = f"attempt {step.attempts}: " if step.attempts > 1 or step.status is Status.RETRYING else ""
    if step.status is Status.CANCELLED:
        why = f": {one_line(step.error.message)}" if step.error is not None else ""
        return f"{MARKS[step.status]} cancelled{why}"
    if step.path == UNDO:
        return _turns_back(step)
    if step.error is not None:
        guarded = f"; {guarded_said(step.guards)}" if step.guards is not None else ""
        guarded += f"; {act_said(step.act)}" if step.act is not None else ""
        return f"{MARKS[step.status]} {tries}{step.error.type}: {one_line(step.error.message)}{guarded}"
    if step.status is Status.RUNNING:
        return _begun(step)
    if step.status is Status.HALTED and step.wait is not None:
        return f"{MARKS[step.status]} {asks(step, step.wait, lookup)}"
    if step.path == SPENT:
        return f"{chosen_of(step.decision or ())} spends {amounts_said(step.spent or {})}"
    parts = [f"→ {chosen_of(step.decision)}"] if step.decision is not None else []
    parts += [joined] if joined else []
    parts += told(step, lookup)
    if step.wait is not None:
        wait = lookup.wait(step.wait.wait_id)
        parts.append(settled(wait) if wait is not None else act_said(step.act))
    parts.append(_of_call(step, lookup) if is_call(step) else ", ".join(_values(step, lookup, maps)))
    parts += _channel(step, lookup)
    if step.queued:
        asked = ", ".join(call_of(task, lookup) for task in step.queued)
        parts.append(f"{'goes to' if step.goto else 'queues'} {asked}")
    if step.ends:
        parts.append("ends the flow")
    if step.guards is not None:
        parts.append(guarded_said(step.guards))
    parts += _of_calls(step)
    text = "; ".join(part for part in parts if part)
    if step.path.endswith(UNDOING):
        return tries + "; ".join(filter(None, ("undone", text)))
    return tries + (text or ("completed" if step.path == item_of(step.path) else ""))


def _turns_back(step: StepRecord) -> str:
    """Say why a run undoes what it did."""
    ends, *asks = step.decision or ("",)
    why = f", as it {ends}" if step.error is None else f": {step.error.type}: {one_line(step.error.message)}"
    return f"{'asks whether to undo' if asks else 'undoes'} what the run did{why}"


def is_call(step: StepRecord) -> bool:
    """True of a durable call inside a node."""
    return step.path.rpartition("/")[2][:1] == CALL


def _of_call(step: StepRecord, lookup: Lookup) -> str:
    """Say what a durable call returned; what answered a wait is said with the wait."""
    if step.wait is not None or not step.writes:
        return ""
    return f"returns {preview(lookup.written(step, step.writes[0]), WIDE)}"


def _of_calls(step: StepRecord) -> Iterable[str]:
    """Say in what the durable calls of a node differ from those that are recorded."""
    facts = step.unit
    if facts is not None and facts.changed:
        yield f"recorded with other arguments: {', '.join(facts.changed)}"
    if facts is not None and facts.unasked:
        yield f"recorded and not asked for: {', '.join(facts.unasked)}"


def asks(step: StepRecord, opened: WaitOpened, lookup: Lookup) -> str:
    """Say what a step waits for, until when, and what it asks."""
    until = f" until {moment(opened.due_at)}" if opened.due_at is not None else ""
    request = request_of(step, lookup)
    asked = [one_line(str(request["prompt"]))] if request.get("prompt") else []
    asked += [preview(request["context"], WIDTH)] if request.get("context") is not None else []
    return f"waits for {noun(opened.kind)}{until}" + (f": {' '.join(asked)}" if asked else "")


def request_of(step: StepRecord, lookup: Lookup) -> dict[str, Any]:
    """Return what a step that halts asks for, as far as it can be read."""
    for write in step.writes:
        if write.name.startswith(WAIT):
            found = lookup.written(step, write)
            return found if isinstance(found, dict) else {}
    return {}


def so_far(stream: StreamAt) -> str:
    """Say how far a stream has come."""
    return f"{count(stream.chunks, 'chunk')} so far" + (f", cursor {stream.cursor}" if stream.cursor else "")


def _begun(step: StepRecord) -> str:
    if step.stream is not None:
        return so_far(step.stream)
    if step.spent is not None:
        return f"spends {amounts_said(step.spent)}"
    if step.items is not None:
        return f"goes over {count(step.items, 'item')}"
    return f"announced, key {step.key}" if step.key is not None else "begins"


def _values(step: StepRecord, lookup: Lookup, maps: Maps) -> Iterable[str]:
    own = [w for w in step.writes if w.name[0] != "@"]
    width = WIDTH if len(own) > 1 else WIDE
    items = maps.of(base_of(step))
    if items is not None:
        failed = len(items.failed)
        yield count(items.count, "item") + (f", {failed:,} failed" if failed else "")
    elif any(w.form is ValueForm.LIFTED for w in own):
        yield "gives " + ", ".join(_given(w) for w in own)
        return
    for write in own:
        if write.name.endswith(RESULT):
            value = lookup.written(step, write)
            if value is not None:
                yield f"returns {preview(value, WIDE)}"
        else:
            yield written(step, write, lookup, width)


def _given(write: Written) -> str:
    return write.name if write.source in ("", write.name) else f"{write.name} (its {write.source})"


def _channel(step: StepRecord, lookup: Lookup) -> Iterable[str]:
    told = scored(step, lookup)
    if told:
        yield told
    own = (w for w in step.writes if w.name.startswith(CHANNEL) and not (told and w.name == _SCORES))
    changes = of_interest(step, own)
    if changes:
        yield "channel: " + ", ".join(written(step, w, lookup, WIDTH) for w in changes)


def scored(step: StepRecord, lookup: Lookup) -> str:
    """Say what a scored gate decided, and by which rule; nothing for any other step."""
    kept = next((w for w in step.writes if w.name == _SCORES), None)
    if kept is None or step.decision is None:
        return ""
    added = lookup.added(step, kept)
    found = added if added is not None else lookup.written(step, kept)
    last = found[-1] if isinstance(found, list) and found else None
    if not isinstance(last, dict) or not {"score", "decision", "rule"} <= last.keys():
        return ""
    return f"scored {last['score']}, {last['decision']} ({str(last['rule']).replace('_', ' ')})"


def written(step: StepRecord, write: Written, lookup: Lookup, width: int) -> str:
    """Write one value of a step: whole, or what was added to it."""
    name = write.name.removeprefix(CHANNEL)
    if write.form is ValueForm.DELETED:
        return f"{name} deleted"
    added = lookup.added(step, write)
    if added is None:
        return f"{name} = {preview(lookup.written(step, write), width)}"
    items = ", ".join(preview(item, max(width // max(len(added), 1), 24)) for item in added[:SHOWN_ITEMS])
    more = f", … ({len(added) - SHOWN_ITEMS:,} more)" if len(added) > SHOWN_ITEMS else ""
    return f"{name} + {count(len(added), 'item')}" + (f": {items}{more}" if added else "")


def call_of(task: QueuedTask, lookup: Lookup) -> str:
    """Write a queued task as a call: `mail(to='a@b.c')`."""
    given = ", ".join(f"{name}={preview(value, 24)}" for name, value in lookup.arguments(task).items())
    return f"{task.node}({given})" + (f" with priority {task.priority}" if task.priority else "")
