"""What all parts of one drive work with, handed to each of them as one thing."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

from everstep.engine.flush import FlushPolicy
from everstep.engine.state import RunState
from everstep.graph.author.flow import Flow
from everstep.on_demand import on_demand
from everstep.runtime.drive.chain_writer import Journal
from everstep.runtime.drive.values import ValueSpace
from everstep.runtime.events import EventSender
from everstep.runtime.services import Services

if TYPE_CHECKING:
    from everstep.runtime.drive.channel import ChannelDesk
    from everstep.runtime.live.outlet import RunOutlet
    from everstep.runtime.live.step_logs import unlogged
else:
    RunOutlet = on_demand("everstep.runtime.live.outlet:RunOutlet")
    ChannelDesk = on_demand("everstep.runtime.drive.channel:ChannelDesk")
    unlogged = on_demand("everstep.runtime.live.step_logs:unlogged")


class RunContext:
    """One run while it is driven: flow, standing, values and writer, with the services of its host."""

    def __init__(
        self, services: Services, flow: Flow, journal: Journal, state: RunState, space: ValueSpace
    ) -> None:
        self.services = services
        self.clock = services.clock
        self.flow = flow
        self.journal = journal
        self.run_id = journal.run_id
        self.state = state
        self.space = space
        self.policy = FlushPolicy(flow.durability, flow.auto_checkpoint, record_bytes=services.record_bytes)
        listener = services.listener
        if flow.logs and listener is not None:
            listener = journal.listener = unlogged(listener)
        self._listener = listener
        is_streamed = listener is not None or (flow.streams and journal.lease is not None)
        outlet = self._open_outlet if is_streamed else None
        self.teller = EventSender(listener, services.clock, journal.run_id, outlet)
        self.loop = asyncio.get_running_loop()

    def _open_outlet(self) -> RunOutlet:
        """Make what takes what nodes emit: the host's listener, and a place beside the store if asked for."""
        services, lease = self.services, self.journal.lease
        writer = services.live.writes() if self.flow.streams and lease is not None else None
        epoch = lease.epoch if lease is not None else 0
        return RunOutlet(self.run_id, epoch, services.system, self.loop, self._listener, writer)

    @cached_property
    def desk(self) -> ChannelDesk:
        """Its channel, for the nodes that use it."""
        return ChannelDesk(self.state, self.space, self.services.system, self._plain_attributes)

    def _plain_attributes(self) -> Collection[str] | None:
        return self.flow.plain_attributes if self.services.codecs.encrypts else None

    def open_desk(self) -> ChannelDesk:
        """Return the desk, made now unless it is."""
        return self.desk
