"""The context of a pipeline: keys of the run's channel, with a layer of its own for each branch.

A branch sees what was there when it began and writes to its own layer, so that each has its own copy of the
context though nothing is copied. While branches are under way, nothing is written below them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.graph.author.channel import Channel, check_key
from everstep.graph.author.context import Context
from everstep.model.address import unvisited

LAYER: Final = "~"
"""What the keys of a branch begin with: `~fan/lint/:key`."""
STAGES: Final = "stages."
"""The record of the newest visit to each stage, by path."""
UNROUTED: Final = "unrouted"
"""In the record of a stage: the visit after which no edge led on."""
INSIDE: Final = "inside"
"""In the record of a fork or an inner pipeline that failed: between which two numbers of stages those lie
that ended in it."""
PASSED: Final = "passed"
"""In the record of a stage: the flows around it when it was passed last, without being called again."""
GATES: Final = "gates."
"""How each goal gate stands, by id."""
STRICT: Final = "internal.strict"
"""There if a goal gate is satisfied by nothing less than success."""
PENDING: Final = "pending"
"""How a goal gate stands that was not reached."""
INTERNAL: Final = "internal."
BACKEND: Final = "internal.backend"
DONE: Final = "internal.done"
"""Branches that have ended, in that order."""
EDGE: Final = "internal.edge"
"""The edge that was taken last."""
END: Final = "internal.end"
"""How a pipeline or a branch ended."""
GIVEN: Final = "internal.given"
"""What a pipeline began with."""
ATTEMPTS: Final = "internal.attempts."
"""How the last attempt of a visit under way ended, by the node's name; there until the visit ends."""
COUNT: Final = "internal.count"
"""How many stages have ended."""
REDIRECTS: Final = "internal.redirects."
"""How often in a row a stage that failed sent the run back, by its id."""
MISSED: Final = "internal.missed."
"""How often in a row the run was sent back because a goal gate was not satisfied, by the gate's id."""
TRIES: Final = "internal.tries."
"""How often a fork or an inner pipeline that failed was gone through again."""
RESTARTS: Final = "internal.restarts"
RESUMED: Final = "internal.resumed"
"""There from a resume to the next stage that does work."""

AGAIN: Final = "internal.again"
"""The fork or inner pipeline, by path, that a resume goes through again because the run failed there; nothing
if a person said where the run begins."""

OWN: Final = ("outcome", "preferred_label", "current_node", "last_stage", "last_response")
"""What every stage writes."""
_KEPT: Final = (BACKEND, COUNT, GIVEN, RESTARTS, STRICT)
_IN_A_ROW: Final = (REDIRECTS, MISSED)
"""Counters that only a success takes back: a way back that begins the pipeline anew is one all the same."""
HIDDEN: Final = (LAYER, STAGES, GATES, INTERNAL)
"""What keys begin with that are no part of the context."""
_MISSING: Final = object()
_VISIT: Final = re.compile(r"(?:@(\d+))?/")
_NAMES: Final = {
    "_pipeline_name": "graph.name",
    "_goal": "graph.goal",
    "_branch_results": "parallel.results",
    "_human_response": "human.response",
}
"""Other names of what is in the context."""


def prefix_of(ctx: Context) -> str:
    """Return the flows around a node as a prefix: `fan@2/lint/`, or nothing at the top."""
    head, slash, _ = ctx.path.rpartition("/")
    return head + slash


def outer(prefix: str, levels: int) -> str:
    """Return the prefix so many flows further out."""
    for _ in range(levels):
        prefix = prefix[: prefix.rstrip("/").rfind("/") + 1]
    return prefix


class LayeredContext(Mapping[str, Any]):
    """The context as one stage sees it; what it sets lies in its own layer."""

    def __init__(self, ctx: Context, prefix: str | None = None) -> None:
        self.channel: Channel = ctx.channel
        self._ctx = ctx
        self.prefix = prefix_of(ctx) if prefix is None else prefix
        self.node = ""
        """The id of the node that looks, once it is known."""

    @property
    def visit(self) -> int:
        """The visit to the node that looks, in the flow around it."""
        return self._ctx.visit

    def __getitem__(self, key: str) -> Any:
        prefix = self.prefix
        while True:
            found = self.channel.get(layer_key(prefix, key), _MISSING)
            if found is not _MISSING:
                return found
            if not prefix:
                break
            prefix = outer(prefix, 1)
        if key in _NAMES:
            return self[_NAMES[key]]
        return self._told(key)

    def _told(self, key: str) -> Any:
        ctx = self._ctx
        if key == "_current_node":
            return self.node or self["current_node"]
        if key == "_previous_node":
            return self[EDGE]["from"]
        if key == "_run_id":
            return ctx.run_id
        if key == "_retry_count":
            return ctx.attempt - 1
        if key == "_branch_id" and self.prefix:
            return unvisited(self.prefix).rstrip("/").rpartition("/")[2]
        if key == "_goal_gates":
            return {k.removeprefix(GATES): self.channel.get(k) for k in self.channel.keys(GATES)}
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        found = {key for key in self.channel if not key.startswith(HIDDEN)}
        prefix = self.prefix
        while prefix:
            found.update(self.own(prefix))
            prefix = outer(prefix, 1)
        return iter(sorted(found))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def own(self, prefix: str) -> list[str]:
        """Return the keys of a branch's own layer that are part of the context."""
        start = layer_key(prefix, "")
        keys = (key.removeprefix(start) for key in self.channel.keys(start))
        return [key for key in keys if not key.startswith(HIDDEN)]

    def at(self, prefix: str) -> LayeredContext:
        """Return the context of another layer."""
        return LayeredContext(self._ctx, prefix)

    def set(self, key: str, value: Any) -> None:
        """Set a key in this layer; a text that is there already is not written again."""
        whole = layer_key(self.prefix, key)
        if not (type(value) is str and self.channel.get(whole) == value):
            self.channel.set(whole, value)

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise what setting these keys in this layer would end in."""
        for key, value in values.items():
            self.channel.check(layer_key(self.prefix, check_key(key)), value)

    def drop(self, key: str) -> None:
        whole = layer_key(self.prefix, key)
        if self.channel.exists(whole):
            self.channel.delete(whole)

    def here(self, key: str) -> Any:
        """Return what this layer itself has; none if it has nothing."""
        return self.channel.get(layer_key(self.prefix, key))

    def add(self, key: str, item: Any) -> None:
        self.channel.append(layer_key(self.prefix, key), item)

    def newest(self, path: str, visit: int) -> str:
        """Return the prefix of the newest visit to a flow that left something; else of this one."""
        layers = self.channel.keys(LAYER + path)
        seen = [_VISIT.match(key, len(LAYER + path)) for key in layers]
        found = max((int(match[1] or 1) for match in seen if match is not None), default=visit)
        return f"{path}/" if found == 1 else f"{path}@{found}/"

    def forget(self, prefix: str) -> None:
        """Remove a layer, and those on top of it."""
        for key in self.channel.keys(LAYER + prefix):
            self.channel.delete(key)

    def restart(self) -> None:
        """Take the context back to what the run began with."""
        start = layer_key(self.prefix, "")
        for whole in self.channel.keys(start):
            key = whole.removeprefix(start)
            if key.startswith(GATES):
                self.set(key, PENDING)
            elif not key.startswith((LAYER, STAGES, *_IN_A_ROW)) and key not in _KEPT:
                self.channel.delete(whole)
        for key, value in (self.here(GIVEN) or {}).items():
            self.set(key, value)
        self.set(RESTARTS, (self.here(RESTARTS) or 0) + 1)


def reader_at(prefix: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return how a pipeline reads its own layer, from how the channel is read; the records of stages, and how
    many have ended, are those of the whole run."""
    return lambda key: read(key if key == COUNT or key.startswith(STAGES) else layer_key(prefix, key))


def is_satisfied(status: Any, *, is_strict: bool) -> bool:
    """Say whether a goal gate that ended so is satisfied; a strict one not by a partial success."""
    return status == "success" or (status == "partial_success" and not is_strict)


def check_updates(updates: Mapping[str, Any], node: str) -> str:
    """Return what is wrong with names that a handler adds to the context, or nothing."""
    for key in updates:
        if not isinstance(key, str):
            return f"{node} has the name {key!r:.80} for the context, which is no text."
        if key.startswith(HIDDEN):
            return f"{node} set {key!r:.80} in the context, which is not for handlers to set."
    return ""


def layer_key(prefix: str, key: str) -> str:
    """Return the key of the run's channel that holds a key of a layer."""
    whole = f"{LAYER}{prefix}:{key}" if prefix else key
    if len(whole) > 256:
        raise BadRequest(
            f"the context key {key!r:.80} is too long here.", fix="Use a shorter key, or nest fewer branches."
        )
    return whole
