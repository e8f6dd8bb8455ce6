"""What is checked before a flow runs on a host: everything that `validate` finds."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple
from weakref import WeakKeyDictionary

from everstep.errors import BadRequest
from everstep.graph.author.flow import Flow
from everstep.graph.author.node import Node
from everstep.graph.check.validate import Offers, is_judged_by_others, validate
from everstep.model.durability import Durability
from everstep.model.enums import Mode
from everstep.runtime.services import Cleared, Services


def preflight(flow: Flow, services: Services) -> Flow:
    """Return the flow as this host runs it, or raise for its errors and for what the host lacks.

    Without a store nothing can be kept, so the flow runs with durability off. A flow without errors is not
    examined again.
    """
    check_flow(flow)
    cleared = services.cleared.get(flow)
    if cleared is None or cleared.durability is not flow.durability:
        if not _is_sound_on(flow, services.offers):
            validate(flow, services.offers).raise_for_errors()
            _note_sound(flow, services.offers)
        ready = None
        if flow.limits or flow.plan.has_limits:
            _check_limits(flow, services)
        if flow.plan.has_undo:
            check_undoes(services, f"flow {flow.name!r} has nodes that say how they are undone")
        if services.max_mode is Mode.OFF and flow.durability.mode is not Mode.OFF:
            ready = copy(flow)
            ready.durability = Durability("off")
        cleared = services.cleared[flow] = Cleared(flow.durability, ready)
    return cleared.ready or flow


def _check_limits(flow: Flow, services: Services) -> None:
    """Refuse limits on a store that judges none."""
    if services.max_mode is not Mode.OFF and not services.store.capabilities.limits:
        raise BadRequest(
            f"flow {flow.name!r} has limits, and this store judges none.",
            fix="Use another store, or drop limits=.",
        )


def check_undoes(services: Services, what: str) -> None:
    """Refuse what is to be undone on a store whose runs cannot say that they undo."""
    if services.max_mode is not Mode.OFF and not services.store.capabilities.undoes:
        raise BadRequest(
            f"{what}, and this store does not keep that a run undoes what it did.",
            fix="Use a store that does, as all of everstep's own do, or drop undo=.",
        )


class _Sound(NamedTuple):
    """A flow that a host has found to be without errors."""

    durability: Durability
    offers: Offers


_sound: WeakKeyDictionary[Flow, _Sound] = WeakKeyDictionary()
"""By flow, the newest. A host that offers the same would find the same, so a program that opens one after the
other does not examine its flows each time."""


def _is_sound_on(flow: Flow, offers: Offers) -> bool:
    """True if such a host has examined the flow before, and nothing else counts than what both offer."""
    known = _sound.get(flow)
    return known is not None and known.durability is flow.durability and known.offers[:-1] == offers[:-1]


def _note_sound(flow: Flow, offers: Offers) -> None:
    """Note that a flow has no errors, unless others than we decide that: rules and serializers of users."""
    if not (offers.rules or is_judged_by_others(flow)):
        _sound[flow] = _Sound(flow.durability, offers._replace(objection=None))


def check_flow(flow: object) -> None:
    """Raise if this is no flow; a node passed by mistake is told how to become one."""
    if isinstance(flow, Node):
        raise BadRequest(f"{flow.name!r} is a node.", fix=f"Run a flow: Flow({flow.name!r}, [{flow.name}]).")
    if not isinstance(flow, Flow):
        raise BadRequest(f"{flow!r} is not a flow.", fix="Build one with Flow(name, nodes).")
