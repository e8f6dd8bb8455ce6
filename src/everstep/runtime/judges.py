"""Who says whether runs of one version of a flow may go over to another: kept, as many runs ask."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from everstep.graph.author.flow import Flow
from everstep.graph.compile.plan import Plan
from everstep.on_demand import on_demand
from everstep.ports.store import RunRow

if TYPE_CHECKING:
    from everstep.engine.verdict import Judge
    from everstep.graph.author.migrations import Migration
    from everstep.graph.compile.renaming import Renaming
else:
    Judge = on_demand("everstep.engine.verdict:Judge")
    Renaming = on_demand("everstep.graph.compile.renaming:Renaming")


def is_other(row: RunRow, flow: Flow) -> bool:
    """True if a run goes by another version of its flow, one that means something to it."""
    return row.flow_hash != flow.plan.hash or (bool(flow.migrations) and row.flow_version != flow.version)


class Judges:
    """One judge for each version of a flow that runs still go by, and each flow that they may go over to."""

    def __init__(self) -> None:
        self._flows: WeakKeyDictionary[Flow, _Bench] = WeakKeyDictionary()

    def of(self, row: RunRow, flow: Flow, old: Plan) -> Judge:
        """Return who judges runs that go by this version."""
        bench = self._flows.get(flow)
        if bench is None or bench.plan is not flow.plan or bench.rules is not flow.migrations:
            bench = self._flows[flow] = _Bench(flow.plan, flow.migrations, {})
        key = (row.flow_hash, row.flow_version)
        if key not in bench.judges:
            bench.judges[key] = Judge(Renaming(old, flow.plan, flow.migrations, row.flow_version))
        return bench.judges[key]


class _Bench(msgspec.Struct, frozen=True):
    plan: Plan
    rules: tuple[Migration, ...]
    judges: dict[tuple[str, str], Judge]
