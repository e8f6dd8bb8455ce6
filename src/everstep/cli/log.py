"""`everstep log`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from everstep import Host
from everstep.cli.family import draw, family_json, family_of, write_family
from everstep.cli.listing import STATUS_COLOURS
from everstep.cli.lookup import Lookup
from everstep.cli.options import find_run, json_option, load_option, looking_at, store_option
from everstep.cli.plain import clock_time, count, duration, error_json, one_line, preview, write_json
from everstep.cli.progress import chosen_of
from everstep.cli.table import Cell, write_table
from everstep.errors import BadRequest
from everstep.model.enums import Status, Trigger
from everstep.model.records import CheckpointRecord, StepRecord, Written

WIDTH, WIDE = 40, 72
SHOWN_ITEMS = 3


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="Only the last N checkpoints.")
@click.option("--graph", is_flag=True, help="Draw the run among its forks and those it comes from.")
@load_option
@store_option
@json_option
def log(
    run_id: str, last: int | None, graph: bool, modules: tuple[str, ...], store: str | None, as_json: bool
) -> None:
    """Show the checkpoints of a run in order: why each was taken, its steps, and what they wrote.

    \b
    Example:
      everstep log A17
      everstep log A17 --json | jq '.checkpoints[].trigger'
      everstep log A17 --graph
    """
    if graph and last is not None:
        raise BadRequest("--graph draws whole runs.", fix="Leave out --last.")
    with looking_at(store, modules, as_json=as_json) as host:
        run_id = find_run(host, run_id)
        if graph:
            _draw(host, run_id, as_json=as_json)
            return
        records = host.history(run_id)
        lookup = Lookup(host, run_id, records)
        chosen: Sequence[CheckpointRecord] = records[-last:] if last is not None else records
        if as_json:
            write_json({"run_id": run_id, "checkpoints": [record_json(r, lookup) for r in chosen]})
            return
        rows: list[list[Cell]] = []
        for record in chosen:
            if rows and record.base is not None and record.trigger is Trigger.FORK:
                shared = f"↑ shared with {record.parent_run_id}"
                rows.append([*[Cell("")] * 5, Cell(shared, dim=True)])
            rows += _rows(record, lookup, is_shared=record.run_id != run_id)
        write_table(["#", "time", "trigger", "step", "took", "result"], rows)


def _draw(host: Host, run_id: str, *, as_json: bool) -> None:
    family = family_of(host, run_id)
    if as_json:
        write_json({"run_id": run_id, "runs": family_json(family)})
    else:
        write_family(draw(host, family), run_id)


def _rows(record: CheckpointRecord, lookup: Lookup, *, is_shared: bool) -> list[list[Cell]]:
    head = [
        Cell(str(record.sequence), dim=is_shared),
        Cell(clock_time(record.created_at), dim=True),
        Cell(record.trigger.value, STATUS_COLOURS[record.status] if record.status.is_final else None),
    ]
    blank = [Cell("")] * len(head)
    steps = [_step_cells(step, lookup) for step in record.steps] or [[Cell("–", dim=True)]]
    return [[*(blank if k else head), *cells] for k, cells in enumerate(steps)]


def _step_cells(step: StepRecord, lookup: Lookup) -> list[Cell]:
    name = step_name(step)
    took = duration(step.ended_at - step.started_at) if step.ended_at and step.started_at else ""
    return [Cell(name, "cyan"), Cell(took, dim=True), _result(step, lookup)]


def step_name(step: StepRecord) -> str:
    """Name a step as people see it: `draft@2`, `inputs`, `fork`."""
    return step.path[1:] if step.path.startswith("@") else f"{step.path}@{step.visit}"


def _result(step: StepRecord, lookup: Lookup) -> Cell:
    tries = f"attempt {step.attempts}: " if step.attempts > 1 or step.status is Status.RETRYING else ""
    if step.error is not None:
        mark = "↻" if step.status is Status.RETRYING else "✗"
        text = f"{mark} {tries}{step.error.type}: {one_line(step.error.message)}"
        return Cell(text, STATUS_COLOURS[step.status])
    if step.status is Status.RUNNING:
        return Cell(f"announced, key {step.key}", dim=True)
    parts = [f"→ {chosen_of(step.decision)}"] if step.decision is not None else []
    width = WIDTH if len(step.writes) > 1 else WIDE
    parts += [_written(w, lookup, width) for w in step.writes]
    return Cell(tries + ", ".join(parts))


def _written(write: Written, lookup: Lookup, width: int) -> str:
    added = lookup.added(write)
    if added is None:
        return f"{write.name} = {preview(lookup.value(write.name, write.version), width)}"
    items = ", ".join(preview(item, max(width // max(len(added), 1), 24)) for item in added[:SHOWN_ITEMS])
    more = f", … ({len(added) - SHOWN_ITEMS:,} more)" if len(added) > SHOWN_ITEMS else ""
    return f"{write.name} + {count(len(added), 'item')}" + (f": {items}{more}" if added else "")


def record_json(record: CheckpointRecord, lookup: Lookup) -> dict[str, Any]:
    """Return a checkpoint as JSON shows it."""
    return {
        "sequence": record.sequence,
        "run_id": record.run_id,
        "checkpoint_id": record.checkpoint_id,
        "created_at": record.created_at.isoformat(),
        "trigger": record.trigger.value,
        "status": record.status.value,
        "keyframe": record.keyframe,
        "metadata": record.metadata,
        "error": error_json(record.error),
        "digest": record.digest,
        "steps": [step_json(step, lookup) for step in record.steps],
    }


def step_json(step: StepRecord, lookup: Lookup) -> dict[str, Any]:
    """Return a step as JSON shows it, with the values it wrote."""
    took = (step.ended_at - step.started_at).total_seconds() if step.ended_at and step.started_at else None
    return {
        "node": step.path,
        "visit": step.visit,
        "status": step.status.value,
        "attempts": step.attempts,
        "started_at": step.started_at.isoformat() if step.started_at is not None else None,
        "ended_at": step.ended_at.isoformat() if step.ended_at is not None else None,
        "seconds": took,
        "decision": list(step.decision) if step.decision is not None else None,
        "key": step.key,
        "retry_at": step.retry_at.isoformat() if step.retry_at is not None else None,
        "error": error_json(step.error),
        "reads": step.reads,
        "writes": [
            {
                "name": w.name,
                "version": w.version,
                "size": w.size,
                "form": w.form.value,
                "is_artifact": w.artifact is not None,
                "value": lookup.value(w.name, w.version),
            }
            for w in step.writes
        ],
    }
