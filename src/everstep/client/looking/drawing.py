"""Where the nodes of a run's flow stand when it is drawn."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from everstep.graph.compile.plan import Plan
from everstep.graph.draw.picture import Picture, picture_of


class FlowDrawing(Picture, frozen=True, kw_only=True):
    """A flow as a picture: where its nodes and edges stand."""

    flow: str
    flow_version: str
    flow_hash: str
    """By which structure it was drawn."""


class RunDrawing(FlowDrawing, frozen=True, kw_only=True):
    """The flow of a run as a picture: where its nodes and edges stand."""

    run_id: str

    @classmethod
    def of(cls, run_id: str, drawing: FlowDrawing) -> RunDrawing:
        """Return the drawing of a flow as that of a run."""
        return cls(run_id=run_id, **{name: getattr(drawing, name) for name in FlowDrawing.__struct_fields__})


def drawn_flow(
    flow: str,
    version: str,
    plan: Plan,
    opened: Collection[str] | None,
    around: str | None,
    all_open: bool,
) -> FlowDrawing:
    """Draw a flow; the last pictures are kept in mind."""
    picture = _drawn(plan, None if opened is None else frozenset(opened), around, all_open)
    return FlowDrawing(
        flow=flow,
        flow_version=version,
        flow_hash=plan.hash,
        **{name: getattr(picture, name) for name in Picture.__struct_fields__},
    )


@lru_cache(maxsize=8)
def _drawn(plan: Plan, opened: frozenset[str] | None, around: str | None, all_open: bool) -> Picture:
    return picture_of(plan, opened=opened, around=around, all_open=all_open)
