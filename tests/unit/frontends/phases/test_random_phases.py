"""Random processes do what the rules say, and go on from any checkpoint as if nothing had been."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep import Context, Flow, Host, node
from everstep.frontends.phases.deciding import Decision, Thresholds, decide
from everstep.phases import Phase, ScoredGate, phases
from everstep.results import RunResult

NAMES = ("alpha", "beta", "gamma")


@dataclass(frozen=True)
class Stage:
    """A phase: whether it is a flow, and the scores that its gate gives in turn, if it has one."""

    is_flow: bool
    scores: tuple[int, ...] | None
    by: Thresholds
    answers: tuple[str, ...]
    """What people say when they are asked; the last one from then on."""


STAGES = st.builds(
    Stage,
    is_flow=st.booleans(),
    scores=st.none() | st.lists(st.integers(40, 95), min_size=1, max_size=5).map(tuple),
    by=st.builds(
        Thresholds,
        max_iterations=st.integers(0, 3),
        critical=st.booleans(),
        oscillation=st.integers(3, 4),
    ),
    answers=st.lists(st.sampled_from(["proceed", "iterate"]), max_size=2).map(lambda said: (*said, "proceed"))
    | st.just(("iterate", "abort")),
)
PROCESSES = st.lists(STAGES, min_size=1, max_size=3)


def flow_of(stages: list[Stage]) -> Flow:
    def phase(name: str, stage: Stage) -> Phase:
        def work(ctx: Context) -> str:
            return ctx.path

        def score(ctx: Context) -> int:
            assert stage.scores is not None
            return stage.scores[min(ctx.visit, len(stage.scores)) - 1]

        by = stage.by
        gate = ScoredGate(
            score, max_iterations=by.max_iterations, critical=by.critical, oscillation=by.oscillation
        )
        run: Any = Flow(name, [node(output=name, name="work")(work)]) if stage.is_flow else work
        return Phase(name, run, gate=gate if stage.scores is not None else None)

    return phases("random", [phase(*pair) for pair in zip(NAMES, stages, strict=False)])


def model(stages: list[Stage]) -> tuple[list[str], str]:
    """Say which nodes are visited, in order, and how it ends."""
    trace: list[str] = []
    for k, (name, stage) in enumerate(zip(NAMES, stages, strict=False)):
        scores: list[float] = []
        asked = 0
        while True:
            trace += [name, f"{name}.done"] if stage.is_flow else [name]
            if stage.scores is None:
                has_gate = k + 1 < len(stages) and stages[k + 1].scores is not None
                trace += [f"{name}.next"] if has_gate else []
                break
            score = stage.scores[min(len(scores) + 1, len(stage.scores)) - 1]
            chosen = decide(score, stage.by, iteration=len(scores), earlier=scores).decision.value
            scores.append(score)
            trace.append(f"{name}.gate")
            if chosen == Decision.ESCALATE:
                chosen = stage.answers[min(asked, len(stage.answers) - 1)]
                asked += 1
                if chosen == Decision.ABORT:
                    return trace, "failed"
                trace.append(f"{name}.review")
            if chosen == Decision.PROCEED:
                break
            trace.append(f"{name}.again")
    return trace, "completed"


def drive(host: Host, flow: Flow, stages: list[Stage], run_id: str) -> RunResult:
    result = host.run(flow, {} if run_id == "whole" else None, run_id=run_id)
    while result.status == "halted":
        (asked,) = result.waits
        answers = stages[NAMES.index(asked.node.partition(".")[0])].answers
        host.answer(asked.id, answers[min(asked.visit, len(answers)) - 1])
        result = host.resume(run_id, flow)
    return result


def visited(host: Host, run_id: str) -> list[str]:
    steps = [step for record in host.history(run_id) for step in record.steps]
    return [s.path for s in steps if s.status == "completed" and s.path[0] != "@" and "/" not in s.path]


def kept(host: Host, run_id: str) -> dict[str, Any]:
    return {name: value for name, value in host.state(run_id).items() if not name.startswith("@wait/")}


@settings(max_examples=40, deadline=None)
@given(PROCESSES, st.integers(0, 1000))
def test_a_process_does_what_the_rules_say_and_goes_on_from_any_checkpoint(
    stages: list[Stage], chance: int
) -> None:
    flow = flow_of(stages)
    trace, status = model(stages)
    with Host("memory:") as host:
        result = drive(host, flow, stages, "whole")
        assert (result.status, visited(host, "whole")) == (status, trace)
        at = 1 + chance % (host.info("whole").checkpoints - 1)
        host.fork("whole", at=at, fork_id="fork")
        assert drive(host, flow, stages, "fork").status == status
        assert visited(host, "fork") == trace and kept(host, "fork") == kept(host, "whole")
        assert (
            host.transfer.checkpoint_as("fork", "phases")["state_snapshot"]["gate_history"]
            == host.transfer.checkpoint_as("whole", "phases")["state_snapshot"]["gate_history"]
        )
