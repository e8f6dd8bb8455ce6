"""Letting the starts of a key know of runs that were not started: forks, and those that are reopened."""

from __future__ import annotations

from typing import cast

from everstep.engine.limits.rates import micros_at
from everstep.engine.limits.slots import key_alone, push, slot_name
from everstep.ports.limits import LimitingStore
from everstep.runtime.services import Services


async def write_down(store: LimitingStore, name: str, run_id: str) -> None:
    """Write a run down under the name of a key, behind those that are."""
    await store.change_limit(name, lambda body, now: (push(body, run_id, micros_at(now)), None))


async def note_unfinished(services: Services, flow_id: str, group: str | None, run_id: str) -> None:
    """Let starts know of a run that is unfinished, if it has a key alone."""
    if (key := key_alone(group)) is not None and services.store.capabilities.limits:
        await write_down(cast(LimitingStore, services.store), slot_name(flow_id, key), run_id)
