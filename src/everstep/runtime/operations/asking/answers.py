"""Answers that take the code of a flow: the same where the flow is loaded and in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from everstep.errors import IncompatibleVersion, RunNotFound, StateCorrupted, ValueUnreadable
from everstep.graph.author.flow import Flow
from everstep.graph.check.report import report
from everstep.graph.check.validate import validate
from everstep.model.compat import Compat, Compatibility, FlowCompat
from everstep.model.enums import Mode
from everstep.model.shapes import Count, understood
from everstep.ports.store import RunRow
from everstep.runtime.outage.spooled_view import ahead
from everstep.runtime.reader import RunReader
from everstep.runtime.services import Services
from everstep.runtime.travel.migrate import rehearse


class FlowSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Durable nodes that hang together."""

    nodes: list[str]
    points: list[str]
    """Those behind which a run could go on."""


class FlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a crash would cost the runs of a flow, as `everstep report --json` says it."""

    flow: str
    mode: Mode
    coverage: float
    """Checkpointable nodes among all nodes, from 0.0 to 1.0."""
    nodes: list[str]
    incompatible_nodes: list[str]
    reasons: dict[str, str]
    """Why each of those is."""
    resumable_segments: list[FlowSegment]
    halt_nodes: list[str]
    expensive_nodes: list[str]
    destructive_nodes: list[str]
    undo_nodes: list[str]
    budgets: list[dict[str, Any]]
    """As the Flow IR has them."""
    breakers: list[dict[str, Any]]


class FlowFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong or odd about a flow."""

    code: str
    severity: str
    node: str
    edge: tuple[str, str] | None
    message: str
    fix: str
    services: list[str]
    file: str | msgspec.UnsetType = msgspec.UNSET
    line: int | msgspec.UnsetType = msgspec.UNSET
    column: int | msgspec.UnsetType = msgspec.UNSET


class FlowFindings(msgspec.Struct, frozen=True, kw_only=True):
    """All that is wrong or odd about a flow, as `everstep validate --json` says it."""

    flow: str
    errors: Count
    warnings: Count
    diagnostics: list[FlowFinding]


def report_on(services: Services, flow: Flow) -> FlowReport:
    """Say what of a flow is durable on this host."""
    return msgspec.convert(report(flow, services.offers).to_json(), understood(FlowReport))


def findings_on(services: Services, flow: Flow) -> FlowFindings:
    """Say what is wrong or odd about a flow on this host."""
    return msgspec.convert(validate(flow, services.offers).to_json(), understood(FlowFindings))


async def compat_on(
    services: Services,
    runs: RunReader,
    flow: Flow,
    run_ids: Sequence[str],
    *,
    is_whole: bool,
    until: datetime | None = None,
) -> FlowCompat:
    """Say which of these runs can go on with a flow, as far as there is time for it."""
    groups: dict[tuple[str, Compat], list[str]] = {}
    for run_id in run_ids:
        if until is not None and services.time.now() >= until:
            is_whole = False
            break
        row = await services.store.run(run_id)
        if row is not None and not row.status.is_final:
            groups.setdefault((row.flow_version, await _judged(services, runs, row, flow)), []).append(run_id)
        await asyncio.sleep(0)  # others have their turn on this loop
    return FlowCompat.of(flow.name, flow.version, groups, is_whole=is_whole)


async def _judged(services: Services, runs: RunReader, row: RunRow, flow: Flow) -> Compat:
    """Judge a run; one that is damaged cannot go on either, and keeps no other from being judged."""
    try:
        services, runs = await ahead(services, runs, row.run_id)
        return (await rehearse(services, runs, await runs.row(row.run_id), flow)).compat
    except RunNotFound as error:
        return Compat(verdict=Compatibility.REFUSED, reason=error.message, fix=error.fix, code=error.code)
    except (StateCorrupted, IncompatibleVersion, ValueUnreadable) as error:
        return Compat(
            verdict=Compatibility.REFUSED, reason=error.message, fix=error.fix, code=type(error).code
        )
