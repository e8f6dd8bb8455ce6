"""Whether a run can go on with a flow that is not the one it began with."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

import msgspec


class Compatibility(StrEnum):
    """What becomes of a run under way when its flow has changed."""

    CONTINUES = "continues"
    """It goes on, by the rules of the flow where it needs them."""
    NEEDS_MIGRATION = "needs_migration"
    """It goes on once the flow has rules for what changed."""
    REFUSED = "refused"
    """No rule would help."""


class Compat(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict for one run and one flow, and what it rests on."""

    verdict: Compatibility
    nodes: tuple[str, ...] = ()
    """Finished or pending nodes that are gone, changed, or would run again, by path."""
    values: tuple[str, ...] = ()
    """Values that are missing, or that nodes no longer write or read under that name."""
    reason: str = ""
    fix: str = ""
    migrations: tuple[str, ...] = ()
    """The rules of the flow that apply to the run."""
    starts: tuple[str, ...] = ()
    """Nodes that the new flow starts at once when the run goes on."""
    warnings: tuple[str, ...] = ()
    """Recorded values that are not what a node to come says it takes; the run goes on all the same."""
    is_same: bool = False
    """True if the flow is the one that the run goes by already."""
    code: str = ""
    """The code of the error that a resume raises."""


class CompatGroup(Compat, frozen=True, kw_only=True):
    """Runs of one version that can, or cannot, go on in the same way."""

    flow_version: str
    runs: list[str]


class CompatDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Which unfinished runs can go on with a flow."""

    flow: str
    version: str
    runs: dict[str, int]
    """How many, by verdict."""
    groups: list[CompatGroup]

    @classmethod
    def of(
        cls, flow: str, version: str, groups: Mapping[tuple[str, Compat], list[str]], **more: bool
    ) -> Self:
        """Describe groups of runs, by the version that they began with and what is told of them."""
        counts = {verdict.value: 0 for verdict in Compatibility}
        for (_, told), runs in groups.items():
            counts[told.verdict.value] += len(runs)
        listed = [
            CompatGroup(**msgspec.structs.asdict(told), flow_version=began, runs=found)
            for (began, told), found in groups.items()
        ]
        return cls(flow=flow, version=version, runs=counts, groups=listed, **more)


class FlowCompat(CompatDocument, frozen=True, kw_only=True):
    """Which of the newest unfinished runs can go on with a flow."""

    is_whole: bool
    """False if there are more than were looked at."""
