"""Admitting a run that a node has started, once, by no matter which process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from everstep.errors import BadRequest, ServiceMissing
from everstep.graph.author.flow import Flow
from everstep.graph.check.started_flows import startable
from everstep.graph.labels import tags_of
from everstep.model.commits import OnParentCancel
from everstep.on_demand import on_demand
from everstep.ports.store import Verdict
from everstep.runtime.drive.children.orders import ChildOrder
from everstep.runtime.inputs import draft_run
from everstep.runtime.preflight import preflight
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.engine.limits.slots import key_alone
    from everstep.graph.limits import limited_group, singleton_of
    from everstep.runtime.drive.timed.times import plain_times
    from everstep.runtime.guards.singletons import Key
else:
    key_alone = on_demand("everstep.engine.limits.slots:key_alone")
    limited_group = on_demand("everstep.graph.limits:limited_group")
    singleton_of = on_demand("everstep.graph.limits:singleton_of")
    plain_times = on_demand("everstep.runtime.drive.timed.times:plain_times")
    Key = on_demand("everstep.runtime.guards.singletons:Key")


async def admit(services: Services, flow: Flow, order: ChildOrder) -> bool:
    """Admit the run of an order, for others to drive; false if it was there, or was there and is erased.

    The put with the order is in the store by now, so a process that ends here leaves it to the next owner.
    """
    store = services.store
    if await store.run(order.run_id) is None:
        journal, _, _, drafts = await draft_run(services, flow, order.given, order.run_id)
        own = _key(services, flow, order) if flow.limits else None
        if own is not None and own[1]:
            await own[0].stop_others()
        if await journal.admit(drafts, None) is Verdict.ACCEPTED:
            if own is not None:
                await own[0].push()
            await services.ring(order.run_id, flow.name)
            return True
    row = await store.run(order.run_id)
    if row is not None and row.started_by is None:
        raise BadRequest(
            f"{order.path!r} starts run {order.run_id!r}, and there is one of that id that no node started.",
            fix="Erase that run, or give the start another key=.",
        )
    return False


def _key(services: Services, flow: Flow, order: ChildOrder) -> tuple[Key, bool] | None:
    """Return the key that a run has alone, and whether it replaces others.

    Where another start would be refused or join, this one queues: it is recorded.
    """
    rule = singleton_of(flow.limits)
    if rule is None or rule.on_conflict == "queue":
        return None
    group = limited_group(flow.limits, order.given.inputs or {}, encrypts=services.codecs.encrypts)
    key = key_alone(group)
    if key is None:
        return None
    return Key(services, flow.name, key, order.run_id), rule.on_conflict == "replace"


def wanted_flow(services: Services, around: Flow, path: str, wanted: object) -> Flow:
    """Return the flow that a node asks to have started, or raise unless it is declared."""
    found = startable(around, wanted)
    if found is None:
        name = wanted if isinstance(wanted, str) else getattr(wanted, "name", wanted)
        raise BadRequest(
            f"node {path!r} starts a run of {name!r:.60}, which flow {around.name!r} does not declare.",
            fix=f"Declare it, so that who takes over has it: Flow({around.name!r}, ..., starts=[...]).",
        )
    return preflight(found, services)


def ordered(
    flow: Flow,
    inputs: Mapping[str, Any],
    said: Mapping[str, Any],
    run_id: str,
    by: str,
    path: str,
    visit: int,
    *,
    encrypts: bool,
) -> ChildOrder:
    """Return what is to be started, or raise what is wrong with it."""
    mode = said["on_parent_cancel"]
    if mode not in tuple(OnParentCancel):
        known = " or ".join(repr(one.value) for one in OnParentCancel)
        raise BadRequest(f"on_parent_cancel of a start in {path!r} is {mode!r:.40}.", fix=f"Use {known}.")
    tags = tuple((tag.name, tag.value) for tag in tags_of(said["tags"])) if said["tags"] else ()
    given = {"priority": said["priority"], "group": said["group"], "tags": tags}
    if "times" in said:
        given["times"] = plain_times(*said["times"])
    order = ChildOrder(run_id, flow.name, by, path, visit, inputs, str(OnParentCancel(mode)), **given)
    order.given.check(flow, encrypts=encrypts)
    return order


def flow_of(services: Services, around: Flow, order: ChildOrder) -> Flow:
    """Return the flow of a recorded start as this host runs it."""
    found = startable(around, order.flow)
    if found is None:
        raise BadRequest(
            f"{order.path!r} has started a run of flow {order.flow!r}, which flow {around.name!r} no longer "
            "declares.",
            fix=f"Declare it again: Flow({around.name!r}, ..., starts=[{order.flow}]).",
        )
    return preflight(found, services)


def check_starts(services: Services, path: str, *, is_kept: bool) -> None:
    """Raise unless a run may start others here."""
    if not is_kept:
        raise BadRequest(
            f"node {path!r} starts a run, and its own run is kept nowhere (durability off).",
            fix="Use durability 'partial' or 'strong': a run is started once because it is recorded.",
        )
    if not services.store.capabilities.has_children:
        raise ServiceMissing(
            "no run of this store can start others.",
            fix="Use SQLite, PostgreSQL, Redis, files or a bucket.",
        )
