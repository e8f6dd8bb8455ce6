"""`everstep bench`: what durable steps cost on this disk, beside a raw store that does the same writing."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from everstep.cli.args.options import json_option
from everstep.cli.bench import flows as flows
from everstep.cli.bench import raw as raw
from everstep.cli.bench import shapes as shapes
from everstep.cli.bench.report import Machine, Measured, write_report
from everstep.cli.bench.values import Sample, measured_apart
from everstep.cli.view.text import write_json
from everstep.errors import StoreError

ROUNDS = 3
FLUSHES = 200
Measure = Callable[[Path, int], Sample]


class Workload(NamedTuple):
    """A piece of work and how each side does it."""

    id: str
    """`w1`, or `w1.normal` for a variant of it."""
    work: str
    unit: str
    everstep: Measure
    raw: Measure
    n: int
    quick: int
    """The n of `--quick`."""
    note: str = ""
    repeats: int = 1
    """How many pairs a round measures, for what is over too soon to be measured once."""
    tells_bytes: bool = True
    """False where the size says nothing new."""

    def is_named_by(self, name: str) -> bool:
        return name in (self.id, self.id.partition(".")[0])


WORKLOADS = [
    Workload(
        "w1",
        "chain, each step committed",
        "µs/step",
        flows.chain,
        raw.chain,
        1000,
        100,
        "synchronous=FULL",
        repeats=2,
    ),
    Workload(
        "w1.normal",
        "chain, not flushed",
        "µs/step",
        flows.chain_normal,
        raw.chain_normal,
        1000,
        1000,
        "synchronous=NORMAL: a power cut may take the last steps",
        tells_bytes=False,
    ),
    Workload(
        "w1.effects",
        "chain, committed before effects",
        "µs/step",
        flows.chain_before_effects,
        raw.chain,
        1000,
        100,
        "pure steps wait for the next effect; raw commits each",
        tells_bytes=False,
    ),
    Workload(
        "w1.files",
        "chain, kept as files",
        "µs/step",
        flows.chain_files,
        raw.chain_files,
        1000,
        100,
        "file:; raw: a file written, flushed, renamed, its folder flushed",
        repeats=2,
    ),
    Workload("w2", "append 1 KiB a step", "µs/step", flows.appended, raw.appended, 800, 100, repeats=2),
    Workload(
        "w3.many",
        "50 runs at once",
        "runs/s",
        flows.runs_at_once,
        raw.runs_at_once,
        1000,
        100,
        "5 steps a run; commits are shared",
    ),
    Workload(
        "w3.one",
        "one run at a time",
        "runs/s",
        flows.runs_in_turn,
        raw.runs_in_turn,
        1000,
        50,
        "5 steps a run",
    ),
    Workload(
        "w3.normal",
        "one run at a time, not flushed",
        "runs/s",
        flows.runs_in_turn_normal,
        raw.runs_in_turn_normal,
        1000,
        200,
        "5 steps a run; synchronous=NORMAL",
    ),
    Workload(
        "w4",
        "resume after 900 of 1,000 steps",
        "ms",
        flows.resumed,
        raw.resumed,
        1000,
        1000,
        "from opening the store to the next step; raw only reads the rows",
        repeats=3,
    ),
    Workload(
        "w5",
        "500 branches and a join",
        "ms",
        flows.branched,
        raw.branched,
        500,
        500,
        "raw commits 50 branches at a time",
        repeats=5,
    ),
    Workload(
        "w6",
        "10 MiB value",
        "ms",
        flows.large_values,
        raw.large_values,
        4,
        2,
        "raw: a file, written, flushed and renamed, and a row",
        repeats=3,
    ),
    Workload(
        "w7",
        "start-up",
        "ms",
        flows.started,
        raw.started,
        4,
        1,
        "a fresh process: import, one step; raw: sqlite3 and asyncio",
    ),
    Workload(
        "w8",
        "map of 10,000 items",
        "µs/item",
        shapes.mapped,
        shapes.mapped_raw,
        10_000,
        1000,
        "a trivial sync function; raw commits 50 rows at a time",
    ),
    Workload(
        "w9",
        "flow inside a flow",
        "µs/call",
        shapes.nested,
        flows.chain,
        500,
        100,
        "one node inside; raw here: everstep's plain step",
        repeats=2,
        tells_bytes=False,
    ),
    Workload(
        "w10",
        "fork after 100,000 steps",
        "µs/fork",
        shapes.forked,
        shapes.forked_short,
        100_000,
        2000,
        "raw here: a fork after 100 steps",
    ),
]


def chosen(ctx: click.Context, option: click.Parameter, value: str | None) -> list[Workload]:
    """Return the workloads that `--only` names, in the order of the table."""
    names = [name.strip() for name in value.split(",") if name.strip()] if value is not None else []
    if value is not None and not names:
        raise click.BadParameter("name at least one workload, such as w1.", ctx, option)
    for name in names:
        if not any(each.is_named_by(name) for each in WORKLOADS):
            known = ", ".join(dict.fromkeys(each.id.partition(".")[0] for each in WORKLOADS))
            raise click.BadParameter(f"there is no workload {name!r}; there are {known}.", ctx, option)
    return [each for each in WORKLOADS if not names or any(map(each.is_named_by, names))]


@click.command()
@click.option(
    "--dir",
    "parent",
    metavar="DIR",
    default=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Measure the disk that holds this folder. [default: the current folder]",
)
@click.option(
    "--rounds", metavar="N", type=click.IntRange(min=1), help=f"Measure N times. [default: {ROUNDS}]"
)
@click.option("--quick", is_flag=True, help="Less work, one round: half a minute, and a rough answer.")
@click.option(
    "--only",
    "workloads",
    metavar="W1,W3",
    callback=chosen,
    help="Measure only these: w1 chain, w2 appending, w3 many runs, w4 resume, w5 branches, w6 large values, "
    "w7 start-up, w8 map, w9 inner flows, w10 forks.",
)
@json_option
def bench(parent: Path, rounds: int | None, quick: bool, workloads: list[Workload], as_json: bool) -> None:
    """Measure what a durable step costs on this disk.

    Each piece of work is done twice, one right after the other and each in a fresh process: by everstep, and
    raw, by the least code that keeps the same steps in SQLite: a row of about 300 bytes and the value, one
    commit a step, the same journal and the same flushing. Where raw does something else, the note says so.

    RATIO is everstep's time divided by raw's, the median over all such pairs: at 1.00 everstep costs no more
    than raw, at 2.00 it takes twice as long, below 1 less. Compare ratios rather than times: a slow disk
    slows both sides.

    The database is kept in a temporary folder inside DIR and removed afterwards.

    \b
    Examples:
      everstep bench --quick
      everstep bench --dir /var/lib/app --only w1,w3
    """
    if rounds is None:
        rounds = 1 if quick else ROUNDS
    with scratch(parent) as folder, Progress() as progress:
        machine = Machine.probe(folder, FLUSHES)
        measured = [
            measure(folder, each, rounds=rounds, quick=quick, progress=progress) for each in workloads
        ]
    if as_json:
        write_json({"machine": machine._asdict(), "workloads": [each.json() for each in measured]})
    else:
        write_report(machine, measured)


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Make a folder for a while; the error of a place that cannot be written to says what to do."""
    try:
        made = tempfile.TemporaryDirectory(prefix="everstep-bench-", dir=parent)
    except OSError as error:
        raise StoreError(
            f"cannot make a folder in {parent}: {error.strerror}.", fix="Name another with --dir."
        ) from error
    with made as name:
        yield Path(name)


class Progress:
    """Says on a terminal what is being measured, in one line that goes away."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.say("")

    def say(self, text: str) -> None:
        if self._is_shown:
            click.echo(f"\r{text}\x1b[K", err=True, nl=False)


def measure(folder: Path, work: Workload, *, rounds: int, quick: bool, progress: Progress) -> Measured:
    """Measure both sides in turn."""
    n, repeats = (work.quick, 1) if quick else (work.n, work.repeats)
    pairs = []
    for turn in range(rounds * repeats):
        progress.say(f"{work.id} {work.work}: round {turn // repeats + 1} of {rounds}")
        pairs.append(pair_of(folder, work, n, everstep_first=turn % 2 == 1))
    return Measured(work.id, work.work, work.unit, work.note, n, pairs)


def pair_of(folder: Path, work: Workload, n: int, *, everstep_first: bool) -> tuple[Sample, Sample]:
    """Measure both sides once, each in an empty folder. The order changes, as the first may pay for both."""
    sides = (work.everstep, work.raw) if everstep_first else (work.raw, work.everstep)
    first, second = (in_own_folder(folder, side, n, work.tells_bytes) for side in sides)
    return (first, second) if everstep_first else (second, first)


def in_own_folder(folder: Path, side: Measure, n: int, tells_bytes: bool) -> Sample:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        found = measured_apart(side, Path(name), n)
    return found if tells_bytes else Sample(found.seconds)
