"""Idempotency keys: the same on every attempt of a visit, on every machine, after every crash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from everstep.errors import BadRequest
from everstep.graph.author.node import Node

_NAMES = "@"
"""What the names that an inner flow began with are told by; no name has it, and no automatic key."""


def automatic_key(run_id: str, path: str, visit: int) -> str:
    """Return the key of one visit: a hash of the run that executes it, the node's path and the visit."""
    return hashlib.sha256(f"{run_id}\0{path}\0{visit}".encode()).hexdigest()[:32]


def child_id(run_id: str, path: str, visit: int, name: str) -> str:
    """Return what the run is called that a visit starts under this name, or with this key: the same always.

    `run_id` is the run that keys are made of, so that a fork finds what was started before its base.
    """
    return hashlib.sha256(f"child\0{run_id}\0{path}\0{visit}\0{name}".encode()).hexdigest()[:32]


def declared_key(
    node: Node, run_id: str, path: str, visit: int, inputs: Mapping[str, Any], *, fork: str | None = None
) -> str | None:
    """Return the key a node declares, or none if it declares none.

    `run_id` is the run that keys are made of. If that is a fork, a key of the user's making gains its id.
    """
    if node.idempotency_key == "auto":
        return automatic_key(run_id, path, visit)
    key = _own_key(node, run_id, path, visit, inputs)
    return f"{key}:{fork}" if key is not None and fork is not None else key


def _own_key(node: Node, run_id: str, path: str, visit: int, inputs: Mapping[str, Any]) -> str | None:
    rule = node.idempotency_key
    if rule is None:
        return None
    inputs = {**{k: v for k, v in node.defaults.items() if k != node.context_param}, **inputs}
    if isinstance(rule, str):
        try:
            return rule.format(
                **{"run_id": run_id, "visit": visit, "node": node.name, "path": path, **inputs}
            )
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            known = sorted([*inputs, "run_id", "visit", "node", "path"])
            raise BadRequest(
                f"idempotency_key {rule!r} of node {node.name!r} cannot be filled: {error!r}.",
                fix=f"Use {known}.",
            ) from error
    wanted = node.key_reads
    key = rule(**(inputs if wanted is None else {k: v for k, v in inputs.items() if k in wanted}))
    if not isinstance(key, str) or not key:
        raise BadRequest(f"the idempotency_key function of node {node.name!r} returned {key!r}, not text.")
    return key


def names_text(names: Mapping[str, str]) -> str | None:
    """Return what stands as the key of an inner flow under way: which nodes had other names when it began.

    Names are by today's paths without visits, such as `wrap` or `wrap/charge`. An inner flow has no key of
    its own, for it is not called; what is inside makes its keys with these names.
    """
    return _NAMES + " ".join(f"{path}={old}" for path, old in names.items()) if names else None


def names_in(text: str | None) -> dict[str, str]:
    """Return the names that an inner flow under way began with; none in a key as 0.1.0 wrote it."""
    if text is None or not text.startswith(_NAMES):
        return {}
    return dict(pair.split("=") for pair in text.removeprefix(_NAMES).split(" "))


def path_of_keys(path: str, names: Mapping[str, str]) -> str:
    """Return a path as keys are made of it: with the names that the inner flow around it began with."""
    parts: list[str] = []
    plain = ""
    for segment in path.split("/"):
        name = segment.partition("#")[0].partition("@")[0]
        plain = f"{plain}/{name}" if plain else name
        parts.append(names.get(plain, name) + segment[len(name) :])
    return "/".join(parts)


def must_announce(node: Node) -> bool:
    """True if the key might come out differently when asked again, so it is recorded before the call."""
    return callable(node.idempotency_key)
