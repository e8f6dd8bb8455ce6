"""Random bodies as they follow from a seed, and what goes wrong while they are driven."""

from __future__ import annotations

from everstep.testing.simulation.faults import Fault
from tests.simulation.bodies import async_bodies, sync_bodies
from tests.simulation.bodies.body_trial import BodyTrial
from tests.simulation.bodies.parts import kinds_of, random_body

KINDS = (Fault.CRASH, Fault.POWER_CUT, Fault.LOST_REPLY, Fault.OUTAGE)
"""None that stops time: a body has its own time limits then, in what it does beside its calls."""


def async_kinds(seed: int) -> set[str]:
    """Return what is in the body of an async node."""
    return {*kinds_of(random_body(seed, tuple(async_bodies.WAYS)))}


def sync_kinds(seed: int) -> set[str]:
    """Return what is in the body of a sync node."""
    return {*kinds_of(random_body(seed, tuple(sync_bodies.WAYS)))}


def async_trial(seed: int) -> BodyTrial:
    """Return an async node with a random body."""
    wrong: list[str] = []
    flow = async_bodies.flow_of(random_body(seed, tuple(async_bodies.WAYS)), wrong)
    is_strict = not async_kinds(seed) & {"trip", *async_bodies.CHANCY}
    return BodyTrial(flow, wrong, seed, is_strict=is_strict)


def sync_trial(seed: int) -> BodyTrial:
    """Return a sync node with a random body."""
    wrong: list[str] = []
    flow = sync_bodies.flow_of(random_body(seed, tuple(sync_bodies.WAYS)), wrong)
    return BodyTrial(flow, wrong, seed, is_strict="trip" not in sync_kinds(seed))
