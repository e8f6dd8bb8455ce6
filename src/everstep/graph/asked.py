"""What keys and probes ask for, and whether their node has it."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Collection, Iterator
from typing import Any

from everstep.graph.node import Node

ABOUT_THE_VISIT = frozenset({"run_id", "visit", "node", "path"})
"""What a template may name beside the inputs."""


def key_problem(node: Node) -> str:
    """Say why the key of a node can never be made; empty if it may be."""
    rule = node.idempotency_key
    if rule is None or rule == "auto":
        return ""
    known = _inputs(node)
    return _missing(rule, known) if callable(rule) else _unfilled(rule, known | ABOUT_THE_VISIT)


def probe_problem(node: Node) -> str:
    """Say why the probe of a node can never be called; empty if it may be."""
    return "" if node.probe is None else _missing(node.probe, _inputs(node) | {"idempotency_key"})


def _inputs(node: Node) -> frozenset[str]:
    return frozenset({p.name for p in node.params} | (node.defaults.keys() - {node.context_param}))


def _unfilled(template: str, known: Collection[str]) -> str:
    try:
        fields = list(_fields(template))
    except ValueError as error:
        return f"{template!r} is no template: {error}"
    for field in fields:
        name = re.split(r"[.\[]", field, maxsplit=1)[0]
        if name not in known:
            return f"{template!r} asks for {name!r}; there is {_listed(known)}"
        if "._" in field:
            return f"{template!r} asks for what is private: {field!r}"
    return ""


def _fields(template: str) -> Iterator[str]:
    for _, field, spec, conversion in string.Formatter().parse(template):
        if field is None:
            continue
        if conversion not in (None, "s", "r", "a"):
            raise ValueError(f"unknown conversion {conversion!r}")
        yield field
        yield from _fields(spec or "")


def _missing(fn: Callable[..., Any], known: Collection[str]) -> str:
    try:
        params = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # nobody knows what it takes
        return ""
    for p in params:
        is_needed = p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if is_needed and (p.name not in known or p.kind is p.POSITIONAL_ONLY):
            return f"{getattr(fn, '__name__', fn)} asks for {p.name!r}; there is {_listed(known)}"
    return ""


def _listed(known: Collection[str]) -> str:
    return ", ".join(sorted(known)) or "nothing"
