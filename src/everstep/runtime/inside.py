"""Finding a value inside an open flow, for an edit: which flow it is in, and why it cannot be edited."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import NoReturn

from everstep.engine.opened import Opened
from everstep.engine.scope import Scope
from everstep.engine.state import RunState
from everstep.errors import BadRequest
from everstep.model.address import Address, Segment


def find_inside(state: RunState, name: str, sequence: int) -> tuple[Scope, str]:
    """Return the open flow that a name such as `rag/embedding` leads into, and the local name.

    A visit that is left out is the one that is open.
    """
    head, _, local = name.rpartition("/")
    address = Address.parse(head)
    if address is None or address.visit is not None:
        raise BadRequest(f"{name!r} is not the name of a value.", fix="Write rag/NAME, or check#7/NAME.")
    scope: Scope = state
    for segment in address.segments:
        scope = _enter(scope, segment, sequence)
    _check_known("value", local, scope.plan.readers.keys() | scope.plan.writers.keys(), f"flow {head!r}")
    return scope, local


def _enter(scope: Scope, segment: Segment, sequence: int) -> Scope:
    plan, path = scope.plan, scope.prefix + segment.name
    i = plan.index.get(segment.name)
    if i is None or i not in plan.children:
        flows = [plan.paths[k] for k in plan.children]
        _check_known(
            "flow", segment.name, flows, f"flow {scope.prefix[:-1]!r}" if scope.prefix else "the flow"
        )
    assert i is not None
    child, visit = plan.children[i], scope.opened.get(i)
    if child.is_atomic and child.over is None:
        raise BadRequest(
            f"{path} is atomic: nothing inside it is kept.",
            fix=f"Edit what it gave: {_listed(child.exports)}.",
        )
    if visit is None:
        _say_closed(scope, i, path, sequence)
    if segment.visit is not None and segment.visit != visit.visit:
        raise BadRequest(
            f"at checkpoint {sequence}, visit {visit.visit} of {path} was open, not {segment.visit}.",
            fix=f"Edit {path}@{visit.visit}/NAME, or fork where the other was open.",
        )
    return scope.enter(i, _item(visit, segment, path, sequence))


def _item(visit: Opened, segment: Segment, path: str, sequence: int) -> int:
    item = segment.item
    if not visit.is_map:
        if item is not None:
            raise BadRequest(f"{path} has no items.", fix=f"Write {path}/NAME.")
        return 0
    if item is None:
        raise BadRequest(f"{path} goes over {visit.count} items.", fix=f"Name one of them: {path}#0/NAME.")
    if item >= visit.count:
        raise BadRequest(f"{path} has no item {item}.", fix=f"It has 0 to {visit.count - 1}.")
    if item in visit.done or item in visit.failed:
        raise BadRequest(
            f"item {item} of {path} had ended at checkpoint {sequence}.",
            fix="Fork earlier, or edit what the map gave once it has ended.",
        )
    return item


def _say_closed(scope: Scope, i: int, path: str, sequence: int) -> NoReturn:
    if not scope.visits[i]:
        raise BadRequest(
            f"{path} had not begun at checkpoint {sequence}.", fix="Edit its inputs, or fork later."
        )
    gave = _listed(scope.plan.children[i].exports.values())
    raise BadRequest(
        f"{path} had ended at checkpoint {sequence}.", fix=f"Edit what it gave: {gave}; or fork earlier."
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _check_known(what: str, name: str, known: Collection[str], where: str) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise BadRequest(f"{where} has no {what} {name!r}.{guess}", fix=f"It has {_listed(known)}.")
