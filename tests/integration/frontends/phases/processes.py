"""A process whose second phase is scored, and what is asked about its runs."""

from __future__ import annotations

from typing import Any

from everstep import Context, Flow, Host
from everstep.phases import Phase, ScoredGate, phases
from everstep.results import RunResult


def discover(topic: str) -> dict[str, Any]:
    return {"findings": [{"id": topic}]}


def process(*scores: float, **gate: Any) -> Flow:
    """Return a process whose second phase gets these scores, one after the other."""

    def synthesise(discovery: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"draft": ctx.visit}

    def score(synthesis: dict[str, Any]) -> float:
        return scores[int(synthesis["draft"]) - 1]

    def build(synthesis: dict[str, Any]) -> str:
        return f"built draft {synthesis['draft']}"

    return phases(
        "delivery",
        [
            Phase("discovery", discover, number=1),
            Phase("synthesis", synthesise, gate=ScoredGate(score, **gate)),
            Phase("build", build),
        ],
    )


def run(host: Host, flow: Flow, *answers: str, run_id: str = "A17", **inputs: Any) -> RunResult:
    """Run to the end, or to the first question that has no answer here."""
    result = host.run(flow, inputs or {"topic": "tea"}, run_id=run_id)
    for answer in answers:
        assert result.status == "halted", result.error
        host.answer(result.waits[0].id, answer)
        result = host.resume(run_id, flow)
    return result


def channel(host: Host, key: str, run_id: str = "A17") -> Any:
    state = host.state(run_id)
    return state.get("@channel/" + key)


def decisions(host: Host, run_id: str = "A17") -> list[tuple[Any, ...]]:
    kept = channel(host, "gate_history", run_id)
    return [(one["decision"], one["score"], one["iteration"], one["rule"]) for one in kept]


def triggers(host: Host, run_id: str = "A17") -> list[str]:
    return [str(info.trigger) for info in host.checkpoints(run_id)]
