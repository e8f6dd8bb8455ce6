"""An effect that was begun and never reported: ask whether it happened, or leave that to an operator."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.errors import ProbeFailed
from everstep.graph.author.wait_options import Wait
from everstep.model.waits import SETTLE

if TYPE_CHECKING:
    from everstep.graph.author.node import Node


@dataclass(frozen=True, slots=True)
class Done:
    """What a probe returns if the effect has happened: the value that the node would have returned."""

    value: Any = None


def probing(node: Node, key: str) -> Node:
    """Return the node asking its probe first, and going to work only if that knows of nothing."""
    probe, fn = node.probe, node.fn
    assert probe is not None
    wanted = inspect.signature(probe).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted.values())

    def given(kwargs: dict[str, Any]) -> dict[str, Any]:
        known = {**kwargs, "idempotency_key": key}
        return known if takes_all else {name: value for name, value in known.items() if name in wanted}

    if node.is_async or inspect.iscoroutinefunction(probe):

        async def ask_async(**kwargs: Any) -> Any:
            try:
                found = await _settled(probe(**given(kwargs)))
            except Exception as error:
                raise _unanswered(node, error) from error
            return found.value if isinstance(found, Done) else await _settled(fn(**kwargs))

        return node._copy(fn=ask_async, is_async=True)

    def ask(**kwargs: Any) -> Any:
        try:
            found = probe(**given(kwargs))
        except Exception as error:
            raise _unanswered(node, error) from error
        return found.value if isinstance(found, Done) else fn(**kwargs)

    return node._copy(fn=ask)


def _unanswered(node: Node, error: Exception) -> ProbeFailed:
    return ProbeFailed(
        f"the probe of {node.name!r} failed: {type(error).__name__}: {error}",
        fix="The node was not called. It is asked again before the next attempt.",
    )


async def _settled(returned: Any) -> Any:
    return await returned if inspect.isawaitable(returned) else returned


def for_an_operator(path: str, key: str, attempt: int) -> Wait:
    """Return the wait in which an operator says what became of an effect."""
    return Wait(
        kind=SETTLE,
        prompt=f"{path} was begun and never reported. Did it happen?",
        context={"node": path, "idempotency_key": key, "attempt": attempt},
    )
