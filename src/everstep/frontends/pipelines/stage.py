"""What a handler of a pipeline's node is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from everstep.frontends.pipelines.outcome import Outcome
from everstep.graph.author.context import Context

Returned = Outcome | Mapping[str, Any] | str | bool | None
Handler = Callable[["Stage"], Returned | Awaitable[Returned]]
"""Does the work of a stage; sync or async. A backend is the handler of task nodes."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One visit of a run to a node of a pipeline."""

    node: str
    """Its id in the digraph."""
    kind: str
    """`task`, `tool`, `conditional` and so on, or the node's own `type`."""
    label: str = ""
    prompt: str = ""
    """What the node asks for, with `$variables` filled in."""
    goal: str = ""
    """What the whole pipeline is for."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Everything the node says of itself."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """The run's context as it is now. Change it by what you return."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """What style sheet and node say of the model: `llm_model`, `llm_provider`, `temperature` and so on."""
    choices: tuple[str, ...] = ()
    """Labels of the edges that lead on."""
    fidelity: str = "compact"
    """How much of what came before goes along."""
    degraded_from: str = ""
    """The fidelity it would have, if its run had not been resumed here."""
    tell: Callable[[], str] | None = field(default=None, repr=False)
    thread_id: str = ""
    timeout: float | None = None
    """Seconds that it may take."""
    pipeline: str = ""
    run_id: str = ""
    path: str = ""
    visit: int = 1
    attempt: int = 1
    idempotency_key: str = ""
    """The same on every attempt of this visit, also after a crash."""
    _told: list[str] = field(default_factory=list, repr=False, compare=False)
    ctx: Context | None = None
    """For `spend`, `emit` and `heartbeat`; none if the handler is called by hand."""

    @property
    def preamble(self) -> str:
        """What came before, told at that fidelity; empty for `full`, where `thread_id` names the thread."""
        if self.tell is None:
            return ""
        if not self._told:
            self._told.append(self.tell())
        return self._told[0]

    @property
    def told(self) -> str:
        """What the handler was told of what came before, if it asked; that is kept with the stage."""
        return self._told[0] if self._told else ""
