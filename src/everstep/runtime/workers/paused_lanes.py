"""What a worker leaves out of its claims as it is paused. Apart: most fleets have nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from everstep.model.leases import LanePause, Quota


def unpaused(lanes: Iterable[LanePause], flows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the flows that are not paused as a whole."""
    paused = {lane.flow_id for lane in lanes if not lane.group}
    return [key for key in flows if key[0] not in paused]


def with_paused(
    quotas: Mapping[str, Quota], lanes: Iterable[LanePause], flows: Iterable[tuple[str, str]]
) -> dict[str, Quota]:
    """Return quotas that let no run of a paused group be claimed."""
    merged = dict(quotas)
    groups = [lane for lane in lanes if lane.group]
    for name in {name for name, _ in flows}:
        paused = tuple(sorted({lane.group for lane in groups if lane.flow_id in ("", name)}))
        if paused:
            merged[name] = msgspec.structs.replace(merged.get(name, Quota()), paused=paused)
    return merged
