"""Where an address leads: to a run, one of its checkpoints, or a part of it.

`A17`, `A17@3`, `A17/rag` and `A17@3/rag@2#7/embed`. Every call that takes a run asks here what is meant. A
part shares the chain and the lease of its run: what looks at a run shows only what lies in the part, and what
is done to whole runs refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from everstep.codec.records import OpenRecord
from everstep.errors import BadRequest, RunNotFound, close_matches
from everstep.graph.compile.plan import deep_nodes
from everstep.model.address import Address, Part, part_of
from everstep.ports.store import RunRow
from everstep.runtime.reader import RunReader
from everstep.runtime.run_ids import split_address
from everstep.runtime.waits.tokens import without_tokens

_PAGE = 256
_LISTED = 12


class Addressed(NamedTuple):
    """What an address names."""

    run_id: str
    at: int | str | None
    """The checkpoint, if it names one."""
    part: Part | None
    """The part of the run, if it names one."""


async def addressed(runs: RunReader, address: str, at: int | str | None = None) -> Addressed:
    """Return what an address means, or raise if the run has no such part at that checkpoint.

    A visit that it leaves out is the last one. Only a part makes this read anything: the records back to it.
    """
    name, slash, path = address.partition("/") if isinstance(address, str) else (address, "", "")
    run_id, at = split_address(name, at)
    if not slash:
        return Addressed(run_id, at, None)
    row, sequence = await runs.find(run_id, at)
    wanted = Address.parse(path)
    if wanted is None:
        raise BadRequest(
            f"{without_tokens(path)!r:.80} is not the path of a step.",
            fix="Write A17/rag, A17/rag@2 or A17/check#7.",
        )
    part = await _find(runs, row, sequence, wanted)
    if part is None:
        raise await _missing(runs, row, sequence, path, wanted)
    return Addressed(run_id, at, part)


async def in_run(runs: RunReader, address: str) -> tuple[str, Part | None]:
    """Return the run and the part that an address names; a checkpoint in it is refused."""
    run_id, at, part = await addressed(runs, address)
    if at is not None:
        raise BadRequest(
            f"{address!r:.80} names a checkpoint, and this takes a run as it is now.",
            fix=f"Write {address.replace(f'@{at}', '', 1)}.",
        )
    return run_id, part


async def part_with(runs: RunReader, address: str, others: Iterable[tuple[str, int]]) -> Part | None:
    """Return the part that an address names of a run as it is now; a visit may be known from elsewhere alone.

    Such as from its log: the process of a step may have died before any record told of it.
    """
    path = address.partition("/")[2]
    wanted = Address.parse(path) if path else None
    newest = sorted(others, key=lambda other: -other[1])
    known = None if wanted is None else _first(wanted, newest)
    try:
        _, recorded = await in_run(runs, address)
    except RunNotFound:
        if known is None:
            raise
        return known
    if recorded is None or known is None or known.path != recorded.path:
        return recorded
    return max(known, recorded, key=lambda part: part.visit)


async def _find(runs: RunReader, row: RunRow, sequence: int, wanted: Address) -> Part | None:
    """Return the newest visit that an address may mean, reading the chain back from a checkpoint."""
    last, oldest = sequence, None
    while last >= 1:
        first = max(1, last - _PAGE + 1)
        page = [opened for _, opened in await runs.lineage.open(row, first, last) if opened is not None]
        steps = ((s.path, s.visit) for opened in reversed(page) for s in reversed(opened.record.steps))
        found = _first(wanted, steps)
        if found is not None:
            return found
        oldest = page[0] if page else oldest
        last = first - 1 if page else 0
    return None if oldest is None else _in_keyframe(wanted, oldest)


def _in_keyframe(wanted: Address, oldest: OpenRecord) -> Part | None:
    """Look where steps that were removed have left something: the keyframe after them."""
    state = oldest.record.state
    if state is None:
        return None
    nodes = ((path, node.visits or 1) for path, node in state.nodes.items())
    return _first(wanted, nodes) or _first(
        wanted, ((write.name, 1) for write in state.values if "/" in write.name)
    )


def _first(wanted: Address, steps: Iterable[tuple[str, int]]) -> Part | None:
    known = (part_of(wanted, path, visit) for path, visit in steps if path[0] != "@")
    return next((part for part in known if part is not None), None)


async def _missing(runs: RunReader, row: RunRow, sequence: int, path: str, wanted: Address) -> RunNotFound:
    nodes = dict(deep_nodes(await runs.plan_at(row, sequence)))
    plain = "/".join(wanted.names)
    if plain not in nodes:
        close = close_matches(plain, nodes, n=3)
        guess = f" Did you mean {_either(close)}?" if close else ""
        more = f", … ({len(nodes) - _LISTED:,} more)" if len(nodes) > _LISTED else ""
        listed = ", ".join(list(nodes)[:_LISTED]) + more
        return RunNotFound(
            f"run {row.run_id!r} has no part {without_tokens(path)!r}.{guess}", fix=f"Its flow has {listed}."
        )
    heads = ["/".join(wanted.names[: k + 1]) for k in range(len(wanted.segments) - 1)]
    maps = [
        head
        for k, head in enumerate(heads)
        if nodes[head].over is not None and wanted.segments[k].item is None
    ]
    if maps:
        named = maps[0] + "#0" + plain[len(maps[0]) :]
        return RunNotFound(
            f"{plain} runs once for each item of {maps[0]}.", fix=f"Name one, such as {row.run_id}/{named}."
        )
    return RunNotFound(
        f"run {row.run_id!r} has no step of {path!r} up to checkpoint {sequence}: it was not reached, or has "
        "no such visit or item.",
        fix=f"See how far it is: everstep show {row.run_id}",
    )


def _either(names: Sequence[str]) -> str:
    return " or ".join(repr(name) for name in names)
