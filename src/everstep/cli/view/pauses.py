"""What is said on a terminal of runs that are paused: each by itself, or with its flow or group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everstep import Host
from everstep.cli.args.options import command_line
from everstep.cli.view.text import act_said, moment, one_line
from everstep.errors import BadRequest, StoreError
from everstep.results import PauseInfo, RunInfo


def pauses_of(host: Host, infos: Iterable[RunInfo]) -> dict[str, PauseInfo]:
    """Return by run what keeps it from going on: its own pause, or that of its flow or group."""
    found: dict[str, PauseInfo] = {}
    left = []
    for info in infos:
        if info.paused_at is not None:
            found[info.run_id] = PauseInfo(
                run_id=info.run_id,
                flow=info.flow,
                group=info.group,
                since=info.paused_at,
                by=info.paused_by,
            )
        elif not info.status.is_final:
            left.append(info)
    lanes = _lanes(host) if left else ()
    for info in left:
        holding = (lane for lane in lanes if _is_in(info, lane))
        if (lane := next(holding, None)) is not None:
            found[info.run_id] = lane
    return found


def pause_of(host: Host, info: RunInfo) -> PauseInfo | None:
    """Return what keeps one run from going on."""
    return pauses_of(host, [info]).get(info.run_id)


def _lanes(host: Host) -> Sequence[PauseInfo]:
    try:
        return host.fleet.pauses(runs=False)
    except (BadRequest, StoreError):  # on this store nothing is paused, or it cannot be asked
        return ()


def _is_in(info: RunInfo, lane: PauseInfo) -> bool:
    return lane.flow in (None, info.flow) and lane.group in (None, info.group)


def paused_name(pause: PauseInfo) -> str:
    """Name what is paused: `run A17`, `flow orders`, `group acme`, `group acme of flow orders`."""
    if pause.run_id is not None:
        return f"run {pause.run_id}"
    parts = (("group", pause.group), ("flow", pause.flow))
    return " of ".join(f"{what} {one_line(name)}" for what, name in parts if name is not None)


def paused_by(pause: PauseInfo) -> str:
    """Say of a run who paused it or its flow or group, why and since when."""
    return (
        why_paused(pause) if pause.run_id is not None else f"with {paused_name(pause)}, {why_paused(pause)}"
    )


def why_paused(pause: PauseInfo) -> str:
    """Say who paused it and why, if that was said, and since when."""
    return ", ".join(filter(None, (act_said(pause.by), f"since {moment(pause.since)}")))


def unpause_line(pause: PauseInfo, store: str | None) -> str:
    """Return the command that lets it go on."""
    if pause.run_id is not None:
        return command_line("unpause", pause.run_id, store=store)
    flow = () if pause.flow is None else ("--flow", pause.flow)
    group = () if pause.group is None else ("--group", pause.group)
    return command_line("unpause", *flow, *group, store=store)


def held_back(run_id: str, pause: PauseInfo, store: str | None) -> str:
    """Say that a run does not go on, and what to do about it."""
    return f"run {run_id} is paused {paused_by(pause)}. Let it go on: {unpause_line(pause, store)}"
