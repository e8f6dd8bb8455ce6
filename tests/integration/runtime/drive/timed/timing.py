"""What tests of the times of runs share."""

from __future__ import annotations

from everstep import Flow, Host, node, wait
from everstep.model.enums import Status

ask = wait.approval(name="ask", prompt="Go on?")


@node(output="done")
def act() -> str:
    return "done"


def slow(**options: object) -> Flow:
    """Return a flow that waits for a person, then acts."""
    return Flow("slow", [ask >> act], **options)  # type: ignore[arg-type]


def work(host: Host, *flows: Flow) -> None:
    host.work(flows, until_idle=True)


def check_ended(host: Host, run_id: str, *, at: str = "") -> None:
    """Raise unless a run was ended by its deadline, once, and nothing of it is left open."""
    state = host.state(run_id)
    assert state.status is Status.FAILED
    assert state.error is not None
    assert (state.error.type, state.error.code) == ("DeadlineExceeded", "run.deadline_exceeded")
    assert at in state.error.message
    assert host.waits(run_id) == []
    check_sound(host, run_id)


def check_sound(host: Host, run_id: str) -> None:
    """Raise if rows and records of a run disagree."""
    [checked] = host.storage.verify(run_id)
    assert not checked.flaws
