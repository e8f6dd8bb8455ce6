"""How `everstep bench` shows what it measured. Apart from what measures, which knows no terminal."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click

from everstep.cli.bench.raw import flush_latencies
from everstep.cli.bench.values import Sample
from everstep.cli.view.table import Cell, layout
from everstep.cli.view.text import count, duration, size

HEAD = ("id", "work", "everstep", "raw", "ratio", "note")
NO_REAL_FLUSH = 20e-6
"""No disk is this fast; what answers sooner keeps the data in memory."""
UNEVEN = 1.5


class Machine(NamedTuple):
    """Where the numbers come from."""

    folder: str
    flush_p50: float
    """Seconds to append 4 KiB to a file and flush it, half of the time at most."""
    flush_p99: float
    python: str
    sqlite: str
    """The one that the raw store uses: Python's own."""
    apsw: str
    """The one that everstep uses; it is numbered after the SQLite in it."""
    cores: int

    @classmethod
    def probe(cls, folder: Path, flushes: int) -> Machine:
        taken = flush_latencies(folder, flushes)
        return cls(
            folder=str(folder.parent.absolute()),
            flush_p50=taken[len(taken) // 2],
            flush_p99=taken[len(taken) * 99 // 100],
            python=platform.python_version(),
            sqlite=sqlite3.sqlite_version,
            apsw=importlib.metadata.version("apsw"),
            cores=os.cpu_count() or 1,
        )

    def lines(self) -> list[str]:
        found = [
            f"{self.folder}: 4 KiB flushed in {duration(self.flush_p50)} (p50), "
            f"{duration(self.flush_p99)} (p99)",
            f"Python {self.python}, SQLite {self.sqlite} (raw), apsw {self.apsw} (everstep), "
            f"{count(self.cores, 'core')}",
        ]
        if self.flush_p50 < NO_REAL_FLUSH:
            found.append("This folder does not wait for a disk, so commits are cheaper here than on one.")
        return found


class Measured(NamedTuple):
    """One line of the table."""

    id: str
    work: str
    unit: str
    """`µs/step`, `runs/s` or `ms`."""
    note: str
    n: int
    pairs: Sequence[tuple[Sample, Sample]]
    """What everstep and the raw store took, measured one right after the other."""

    @property
    def everstep(self) -> float:
        return median(ours.seconds for ours, _ in self.pairs)

    @property
    def raw(self) -> float:
        return median(raw.seconds for _, raw in self.pairs)

    @property
    def ratios(self) -> list[float]:
        return [ours.seconds / raw.seconds for ours, raw in self.pairs]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def bytes(self) -> tuple[float, float] | None:
        """What a step takes on disk, everstep's and raw."""
        ours, raw = self.pairs[0]
        return None if ours.bytes is None or raw.bytes is None else (ours.bytes, raw.bytes)

    def show(self, seconds: float) -> str:
        if self.unit.startswith("µs/"):
            return f"{seconds * 1e6:,.0f} {self.unit}"
        if self.unit == "runs/s":
            return f"{1 / seconds:,.0f} runs/s"
        return f"{seconds * 1e3:,.1f} ms"

    def cells(self) -> list[str]:
        note = [self.note] if self.note else []
        if self.bytes is not None:
            note.append("{} a step on disk, raw {}".format(*(size(round(b)) for b in self.bytes)))
        low, high = min(self.ratios), max(self.ratios)
        if high > low * UNEVEN:
            note.append(f"uneven: {low:.2f} to {high:.2f}")
        shown = f"{self.ratio:.2f}"
        return [self.id, self.work, self.show(self.everstep), self.show(self.raw), shown, "; ".join(note)]

    def json(self) -> dict[str, Any]:
        ours, raw = self.bytes or (None, None)
        return {
            "id": self.id,
            "work": self.work,
            "unit": self.unit,
            "n": self.n,
            "everstep_seconds": self.everstep,
            "raw_seconds": self.raw,
            "ratio": self.ratio,
            "everstep_bytes": ours,
            "raw_bytes": raw,
            "pairs": [
                {"everstep_seconds": ours.seconds, "raw_seconds": raw.seconds} for ours, raw in self.pairs
            ],
            "note": self.note,
        }


def write_report(machine: Machine, measured: Sequence[Measured]) -> None:
    """Write the table on stdout, and below it where it was measured."""
    rows = [each.cells() for each in measured]
    if sys.stdout.isatty():
        _write_rich(rows)
    else:
        _write_plain(rows)
    click.echo()
    for line in machine.lines():
        click.echo(line)
    click.echo("ratio: everstep's time / raw's time, the median of pairs measured one after the other")


def _write_plain(rows: Sequence[Sequence[str]]) -> None:
    table = [HEAD, *rows]
    widths = [max(len(row[k]) for row in table) for k in range(len(HEAD))]
    for line in layout(
        [[Cell(_aligned(k, row[k], widths[k])) for k in range(len(HEAD))] for row in table], None
    ):
        click.echo(line)


def _aligned(column: int, text: str, width: int) -> str:
    return text.rjust(width) if HEAD[column] in ("everstep", "raw", "ratio") else text


def _write_rich(rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True, style="dim")
    table.add_column("work", no_wrap=True)
    table.add_column("everstep", justify="right", no_wrap=True, style="bold")
    table.add_column("raw", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True, style="bold cyan")
    table.add_column("note", style="dim")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)
