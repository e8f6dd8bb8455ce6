"""The backend that needs nothing: every pipeline runs with it, and always alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from everstep.errors import BadRequest
from everstep.frontends.pipelines.outcome import Outcome, StageStatus
from everstep.frontends.pipelines.stage import Returned, Stage

_WORDS = 12
Script = Returned | Sequence[Returned | Sequence[Returned]]


class Simulation:
    """Answers each prompt with its first words.

    `script` says what nodes return instead, by id: one answer for every visit, or a list with one for each,
    the last of which holds from then on; a list inside it goes by attempts. A node may say so itself:
    `simulate="fail,success"`, or `"retry/success"` for two attempts.
    """

    name = "simulation"

    def __init__(self, script: Mapping[str, Script] | None = None) -> None:
        self._script = dict(script or {})
        for node, told in self._script.items():
            lists = [told, *told] if isinstance(told, Sequence) and not isinstance(told, str) else []
            if any(isinstance(one, Sequence) and not one for one in lists):
                raise BadRequest(f"the script of {node!r} is empty.", fix="Give it an answer.")

    def __repr__(self) -> str:
        return f"Simulation({', '.join(sorted(self._script))})"

    async def __call__(self, stage: Stage) -> Outcome:
        """Return what the script says of this visit, or an answer made of the prompt."""
        if stage.node not in self._script:
            return _simulated(stage)
        told = self._script[stage.node]
        return Outcome.of(_told(_told(told, stage.visit), stage.attempt), stage.node)


def _told(told: Any, number: int) -> Any:
    """Return one of what is told, the last if there are fewer; what is no list is told every time."""
    if not isinstance(told, Sequence) or isinstance(told, str):
        return told
    return told[min(number, len(told)) - 1]


def _simulated(stage: Stage) -> Outcome:
    words = (stage.prompt or stage.label or stage.node).split(None, _WORDS + 1)
    more = " …" if len(words) > _WORDS else ""
    response = f"[simulated] {stage.node}: {' '.join(words[:_WORDS])[:400]}{more}"
    wanted = [part.split("/") for part in str(stage.attributes.get("simulate", "")).split(",")]
    said = _told(_told(wanted, stage.visit), stage.attempt).strip()
    if not said:
        return Outcome(response=response, metadata={"simulated": True})
    status = StageStatus.read(said)
    if status is None:
        known = ", ".join(one.value for one in StageStatus)
        return Outcome.fail(f"simulate={said!r} is no status; known are {known}.", retryable=False)
    if status in (StageStatus.FAIL, StageStatus.RETRY):
        failed = Outcome.fail(f"[simulated] {stage.node}: {status.value}", type="Simulated")
        return failed.but(status=status, response=response, metadata={"simulated": True})
    return Outcome(status=status, response=response, metadata={"simulated": True})
