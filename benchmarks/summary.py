"""The table of docs/performance.md: `python benchmarks/summary.py results.jsonl`."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, int, int, str, str]
PEERS = ("langgraph", "dbos", "burr")


class Results:
    """Measurements by what was measured; ratios are formed within a round, then their median is taken."""

    def __init__(self, path: Path) -> None:
        self._rows: dict[Key, list[Row]] = defaultdict(list)
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "seconds" in row and row["system"] != "limit":
                key = (row["workload"], row["system"], row["conc"], row["n"], row["sync"], row["variant"])
                self._rows[key].append(row)

    def value(self, key: Key, field: str = "seconds") -> float | None:
        found = [row[field] for row in self._rows.get(key, ()) if row.get(field) is not None]
        return statistics.median(found) if found else None

    def ratio(self, ours: Key, theirs: Key) -> tuple[float, float, float] | None:
        """Return the median, the least and the greatest of the rounds' ratios."""
        base = {row["round"]: row["seconds"] for row in self._rows.get(theirs, ())}
        found = [
            row["seconds"] / base[row["round"]] for row in self._rows.get(ours, ()) if row["round"] in base
        ]
        return (statistics.median(found), min(found), max(found)) if found else None

    def best_peer(self, work: str, conc: int, n: int, ours: Key) -> str:
        """Say how many times the fastest peer of this work takes."""
        found = []
        for key in self._rows:
            if key[0] == work and key[1] in PEERS and key[2:4] == (conc, n) and key[4] == ours[4]:
                ratio = self.ratio(key, ours)
                if ratio is not None:
                    found.append((ratio[0], f"{key[1]}{' ' + key[5] if key[5] else ''}"))
        return f"{min(found)[0]:.1f} x ({min(found)[1]})" if found else "-"

    def exponent(self, field: str) -> float:
        sizes = (200, 800)
        low, high = (self.value(("w2", "everstep", 1, n, "default", ""), field) or 1 for n in sizes)
        return math.log(high / low) / math.log(sizes[1] / sizes[0])


def main() -> None:
    results = Results(Path(sys.argv[1]))

    def show(title: str, target: str, ours: Key, raw: Key, unit: float = 1e6, peers: bool = True) -> None:
        ratio = results.ratio(ours, raw)
        spent = results.value(ours)
        if ratio is None or spent is None:
            print(f"| {title} | {target} | not measured | | |")
            return
        count = ours[3] if ours[0] in ("w1", "w2", "w6") else 1
        peer = results.best_peer(ours[0], ours[2], ours[3], ours) if peers else "-"
        spread = f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})"
        print(f"| {title} | {target} | {spread} | {spent / count * unit:,.3g} | {peer} |")

    print("| work | wanted, x raw | measured, x raw (rounds) | everstep | fastest peer takes |")
    print("|---|---|---|---|---|")

    def key(work: str, n: int, conc: int = 1, sync: str = "default", variant: str = "") -> Key:
        return (work, "everstep", conc, n, sync, variant)

    def raw(work: str, n: int, conc: int = 1, sync: str = "full", variant: str = "") -> Key:
        return (work, "raw", conc, n, sync, variant)

    show("w1 chain, FULL, us a step", "1.3", key("w1", 1000, sync="full"), raw("w1", 1000))
    show("w1, NORMAL, us a step", "4", key("w1", 1000, sync="normal"), raw("w1", 1000, sync="normal"))
    show(
        "w1, before effects, us a step",
        "0.25",
        key("w1", 1000, variant="effects"),
        raw("w1", 1000),
        peers=False,
    )
    show("w2 800 x 1 KiB appended, us a step", "1.7", key("w2", 800), raw("w2", 800))
    show("w3 1,000 runs, 50 at once, ms in all", "5", key("w3", 1000, 50), raw("w3", 1000, 50), 1e3)
    show("w3 one at a time, ms in all", "2", key("w3", 1000), raw("w3", 1000), 1e3)
    show("w4 resume after 900 of 1,000, ms", "4", key("w4", 1000), raw("w4", 1000, sync="default"), 1e3)
    show("w5 500 branches and a join, ms", "8", key("w5", 500), raw("w5", 500), 1e3)
    show("w6 10 MiB values, ms each", "1.3", key("w6", 10), raw("w6", 10, variant="blobfile"), 1e3)
    show("w7 hello from a fresh process, ms", "2", key("w7", 1), raw("w7", 1, sync="default"), 1e3)
    size = results.value(key("w2", 800), "bytes_per_step") or 0
    growth = (
        f"time exponent {results.exponent('seconds'):.2f}, size exponent {results.exponent('db_bytes'):.2f}"
    )
    start, memory = (results.value(key("w7", 1), field) for field in ("import_wall_s", "import_rss_mb"))
    print(f"\nw2: {growth}, {size:,.0f} bytes a step. w7: import {start} s, {memory} MB.")


if __name__ == "__main__":
    main()
