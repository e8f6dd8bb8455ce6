"""How much of what came before a stage is told: the modes, and the text they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

COMPACT: Final = "compact"
MODES: Final = ("full", "truncate", COMPACT, "summary:low", "summary:medium", "summary:high")
_ROOM: Final = {
    "truncate": 400,
    COMPACT: 1_600,
    "summary:low": 2_400,
    "summary:medium": 6_000,
    "summary:high": 12_000,
}
"""Characters that each mode may take."""
_LONGEST_VALUE: Final = {"summary:medium": 300, "summary:high": 800}


class Fidelity(NamedTuple):
    """The mode of a stage, and the one it would have had if its run had not been resumed there."""

    mode: str
    degraded_from: str = ""


def settle(edge: str, node: str, graph: str, *, is_resumed: bool) -> Fidelity:
    """Return the mode: the edge's, the node's, the graph's, or `compact`, and that right after a resume."""
    mode = next((m for m in (edge, node, graph) if m), COMPACT)
    if mode == "summary":
        mode = "summary:medium"
    if is_resumed and mode not in (COMPACT, "truncate"):
        return Fidelity(COMPACT, mode)
    return Fidelity(mode)


def preamble(
    mode: str, goal: str, history: Sequence[Mapping[str, Any]], context: Mapping[str, Any], run_id: str
) -> str:
    """Tell what came before, within the room of the mode; `full` tells nothing, it goes on in a thread."""
    room = _ROOM.get(mode)
    if room is None:
        return ""
    lines = [f"Goal: {goal}"] if goal else []
    lines.append(f"Run: {run_id}")
    if mode == "truncate":
        if history:
            lines.append(f"Last stage: {_told(history[-1], 0)}")
        return _cut("\n".join(lines), room)
    longest = _LONGEST_VALUE.get(mode, 80)
    values = [
        f"- {key}: {_short(context[key], longest)}" for key in context if not key.startswith(("graph.", "_"))
    ]
    if values:
        lines += ["Context:", *values]
    left = room - sum(len(line) + 1 for line in lines) - 20
    told: list[str] = []
    for entry in reversed(history):
        line = f"- {_told(entry, 0 if mode == COMPACT else longest)}"
        left -= len(line) + 1
        if left < 0:
            told.append(f"- … {len(history) - len(told)} stages before")
            break
        told.append(line)
    if told:
        lines += ["Stages so far:", *reversed(told)]
    return _cut("\n".join(lines), room)


def _told(entry: Mapping[str, Any], longest: int) -> str:
    said = f"{entry.get('node')}: {entry.get('status')}"
    notes = str(entry.get("notes") or entry.get("failure_reason") or entry.get("response") or "")
    return f"{said} ({_cut(notes, longest)})" if notes and longest else said


def _short(value: Any, longest: int) -> str:
    return _cut(" ".join((value if isinstance(value, str) else repr(value)).split()), longest)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: max(0, longest - 1)] + "…"
