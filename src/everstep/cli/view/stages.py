"""Stages of a pipeline, as far as their steps say more than other steps do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from everstep import Host
from everstep.cli.view.lookup import Lookup
from everstep.cli.view.text import one_line, printable
from everstep.frontends.pipelines.layers import LAYER, OWN, STAGES
from everstep.model.enums import Status, ValueForm
from everstep.model.records import CHANNEL, StepRecord, Written
from everstep.results import RunResult

_KEPT = ("stages.", "gates.", "internal.")
_LAST_LINES = 10
_TOLD = ("outcome", "last_response")
"""What of a stage's notes is told of a run that has ended."""


def is_stage(step: StepRecord) -> bool:
    """True if a step is a visit to a node of a pipeline."""
    return any(write.name.startswith(CHANNEL + STAGES) for write in step.writes)


def is_of_interest(write: Written) -> bool:
    """False for what every stage notes for the next one."""
    key = write.name.removeprefix(CHANNEL)
    if key.startswith(LAYER):
        if write.form is ValueForm.DELETED:  # merged where branches meet
            return False
        key = key.partition("/:")[2]
    return not key.startswith(_KEPT) and key not in OWN


def of_interest(step: StepRecord, changes: Iterable[Written]) -> list[Written]:
    """Return what a step changed in the channel, without what every stage notes for the next one."""
    return [write for write in changes if is_of_interest(write)] if is_stage(step) else list(changes)


def told(step: StepRecord, lookup: Lookup) -> Iterator[str]:
    """Say how a stage ended, and why it went on as it did."""
    record = next((lookup.written(step, w) for w in step.writes if w.name.startswith(CHANNEL + STAGES)), None)
    if not isinstance(record, Mapping):
        return
    status = record.get("status")
    if status not in (None, "success"):
        why = record.get("failure_reason") or record.get("notes")
        yield f"{status}: {one_line(str(why))}" if why else str(status)
    edge = record.get("edge")
    if isinstance(edge, Mapping) and edge.get("reason") != "lexical":
        yield f"by {reason_of(edge)}"


def reason_of(edge: Mapping[str, Any]) -> str:
    """Say by which rule an edge was chosen."""
    reason = str(edge.get("reason", "")).replace("_", " ")
    detail = edge.get("condition") or edge.get("label")
    return f"{reason} {one_line(str(detail))}" if detail and reason not in ("lexical", "weight") else reason


def context_of(host: Host, run_id: str) -> dict[str, Any]:
    """Return what a pipeline has come to: how it ended, and its context."""
    channel = host.channel(run_id)
    hidden = (LAYER, *_KEPT, "graph.")
    left = {k: v for k, v in channel.items() if not k.startswith(hidden) and k not in OWN}
    return {key: channel[key] for key in _TOLD if key in channel} | left


def said_last(result: RunResult) -> list[str]:
    """Return the last lines of what the stage said, or printed, that failed a pipeline."""
    if result.status is not Status.FAILED or result.error is None:
        return []
    channel = result.channel
    record = channel.get(f"{STAGES}{channel.get('current_node')}")
    said = record.get("response") if isinstance(record, Mapping) and record.get("status") == "fail" else None
    lines = printable(str(said or "")).rstrip().splitlines()
    return [one_line(line) for line in lines[-_LAST_LINES:]]
