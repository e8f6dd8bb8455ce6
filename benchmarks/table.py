"""The table of the comparison: ratios within a round, and what moved since the last committed one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

COMMITTED = Path(__file__).parent / "results.json"
PEERS = ("langgraph", "dbos", "burr")
NOISE = 0.05
"""A ratio that leaves the range of the committed rounds by less than this share has not moved."""


RESUMES = (63, 850, 900, 901, 937, 999, 99_937)


class Line(NamedTuple):
    """One line of the table: some work, and what of it is compared."""

    id: str
    work: str
    field: str = "seconds"
    unit: str = "ms"
    scale: float = 1e3
    over_units: bool = False
    """True if it is told for one step or run."""
    has_raw: bool = True


LINES = [
    Line("w1.full", "w1: chain of 1,000 steps, FULL", "seconds", "µs a step", 1e6, True),
    Line("w1.normal", "w1, NORMAL", "seconds", "µs a step", 1e6, True),
    Line("w1.effects", "w1, committed before effects", "seconds", "µs a step", 1e6, True),
    Line("cpu", "w1, no syncs: processor", "cpu_seconds", "µs a step", 1e6, True),
    Line("w2", "w2: 800 × 1 KiB appended", "seconds", "µs a step", 1e6, True),
    Line("w3.one", "w3: 1,000 runs, one at a time, FULL", "seconds", "µs a run", 1e6, True),
    Line("w3.one.normal", "w3, one at a time, NORMAL", "seconds", "µs a run", 1e6, True),
    Line("w3.many", "w3, 50 at once, FULL", "seconds", "µs a run", 1e6, True),
    *(Line(f"w4.{at}", f"w4: resume after {at:,} steps") for at in RESUMES),
    *(Line(f"w4.warm.{at}", f"w4, warm process: after {at:,}") for at in RESUMES),
    Line("w5", "w5: 500 branches and a join"),
    Line("w6", "w6: 10 values of 10 MiB"),
    Line("w7", "w7: one step in a fresh process"),
    Line("import", "import"),
    Line("import.memory", "memory after the import", "memory_mb", "MB", 1),
    Line("runs", "everstep runs", has_raw=False),
    Line("w1.bytes", "kept on disk, w1", "bytes", "bytes a step", 1),
    Line("w1.memory", "memory of the process, w1", "memory_mb", "MB", 1),
    Line("pg.w1", "PostgreSQL, w1", "seconds", "µs a step", 1e6, True),
    Line("pg.w3.one", "PostgreSQL, w3 one at a time", "seconds", "µs a run", 1e6, True),
    Line("pg.w3.many", "PostgreSQL, w3 50 at once", "seconds", "µs a run", 1e6, True),
    Line("pg.w4.900", "PostgreSQL, w4: resume after 900 steps"),
]
SOURCES = {"w1.bytes": "w1.full", "w1.memory": "w1.full", "import.memory": "import"}
"""Lines that tell another field of what was measured for one above."""

Measured = Mapping[str, Any]
"""A result of one system in one round: `line`, `system`, `variant`, `round`, and its fields."""


class Ratio(NamedTuple):
    """How many times as much as raw, over the rounds."""

    middle: float
    least: float
    greatest: float

    def __str__(self) -> str:
        if self.least == self.greatest:
            return f"{self.middle:.2f}"
        return f"{self.middle:.2f} ({self.least:.2f} to {self.greatest:.2f})"


class Side(NamedTuple):
    """What one system took for one line."""

    value: float
    unit: str
    ratio: Ratio | None

    def __str__(self) -> str:
        return f"{self.value:,.0f} {self.unit}" if self.value >= 100 else f"{self.value:.3g} {self.unit}"


Table = dict[str, dict[str, Side]]
"""The sides of each line, by the line's id and the system's name."""


def table_of(results: Sequence[Measured]) -> Table:
    """Gather results; a ratio is formed within a round, before the rounds are looked at together."""
    table: Table = {}
    for line in LINES:
        rows = [row for row in results if row["line"] == SOURCES.get(line.id, line.id) and line.field in row]
        raw = {row["round"]: _value(line, row) for row in rows if row["system"] == "raw"}
        sides = {}
        for name in dict.fromkeys(_label(row) for row in rows):
            own = [row for row in rows if _label(row) == name]
            ratios = [_value(line, row) / raw[row["round"]] for row in own if row["round"] in raw]
            ratio = Ratio(median(ratios), min(ratios), max(ratios)) if ratios and name != "raw" else None
            sides[name] = Side(median(_value(line, row) for row in own) * line.scale, line.unit, ratio)
        if sides:
            table[line.id] = sides
    return table


def _label(row: Measured) -> str:
    return f"{row['system']} {row['peer']}" if row.get("peer") else str(row["system"])


def _value(line: Line, row: Measured) -> float:
    value = float(row[line.field])
    return value / row["units"] if line.over_units else value


def shown(table: Table) -> Iterator[str]:
    """Yield the table in Markdown; what the peers took is told as a multiple of raw, as everstep's is."""
    yield "| work | raw | everstep | everstep, × raw | LangGraph | DBOS | Burr |"
    yield "|---|---|---|---|---|---|---|"
    for line in LINES:
        if (sides := table.get(line.id)) is not None:
            ours = sides.get("everstep")
            told = [line.work, str(sides.get("raw", "–")), str(ours or "–")]
            told.append(str(ours.ratio) if ours is not None and ours.ratio is not None else "–")
            yield "| " + " | ".join([*told, *(_best(sides, peer) for peer in PEERS)]) + " |"


def _best(sides: Mapping[str, Side], peer: str) -> str:
    """Return the better one of a peer's ways."""
    found = [side for name, side in sides.items() if name.partition(" ")[0] == peer]
    if not found:
        return "–"
    best = min(found, key=lambda side: side.value)
    return f"{best.ratio.middle:.1f}" if best.ratio is not None else str(best)


def moved(table: Table, committed: Table) -> Iterator[str]:
    """Say which of everstep's ratios left the range of the committed rounds."""
    for line in LINES:
        now, then = (each.get(line.id, {}).get("everstep") for each in (table, committed))
        if now is None or then is None:
            continue
        is_ratio = now.ratio is not None and then.ratio is not None
        new, old = (now.ratio, then.ratio) if is_ratio else (_alone(now), _alone(then))
        assert new is not None and old is not None
        if not old.least * (1 - NOISE) <= new.middle <= old.greatest * (1 + NOISE):
            what = "× raw" if is_ratio else now.unit
            change = new.middle / old.middle - 1
            yield f"{line.work}: {new.middle:.2f} {what}, {old} before ({change:+.0%})"


def _alone(side: Side) -> Ratio:
    return Ratio(side.value, side.value, side.value)


def read(file: Path = COMMITTED) -> Table:
    """Return the committed table, or an empty one."""
    if not file.exists():
        return {}
    told = json.loads(file.read_text(encoding="utf-8"))["table"]
    return {
        line: {
            name: Side(value, unit, Ratio(*ratio) if ratio else None)
            for name, (value, unit, ratio) in sides.items()
        }
        for line, sides in told.items()
    }


def read_about(file: Path = COMMITTED) -> str:
    """Say where the committed table comes from."""
    told = json.loads(file.read_text(encoding="utf-8"))["about"]
    return f"Python {told['python']}, {told['rounds']} rounds, {told['machine']}"


def write(table: Table, about: Mapping[str, Any], file: Path = COMMITTED) -> None:
    """Commit a table; lines that were not measured this time stay as they were."""
    kept = read(file) | table
    told = {line.id: kept[line.id] for line in LINES if line.id in kept}
    rounded = {
        line: {
            name: [
                _rounded(side.value),
                side.unit,
                [_rounded(part) for part in side.ratio] if side.ratio else None,
            ]
            for name, side in sides.items()
        }
        for line, sides in told.items()
    }
    lines = ",\n".join(
        f"  {json.dumps(line)}: {{\n"
        + ",\n".join(
            f"   {json.dumps(name)}: {json.dumps(side, ensure_ascii=False)}" for name, side in sides.items()
        )
        + "\n  }"
        for line, sides in rounded.items()
    )
    file.write_text(
        f'{{\n "about": {json.dumps(about, ensure_ascii=False)},\n "table": {{\n{lines}\n }}\n}}\n',
        encoding="utf-8",
    )


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")
