"""What it costs to read a DOT file by its size, beside pydot and Graphviz.

    python benchmarks/dot.py [--sizes 100,1000,10000] [--largest-for-pydot 1000] [--json]

Times are of the processor, the best of some runs, all in one process. `us per node` is everstep's time over
the nodes; if it does not grow with the size, the time is linear. pydot is measured up to a size, as it takes
minutes beyond; `times faster` compares it on the same text.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import pydot
import pygraphviz

from everstep.frontends.dot.resolve import read


def pipeline(count: int) -> str:
    """Return a pipeline of so many nodes in a row, each with a prompt, each edge with a condition."""
    lines = ["digraph big {", "  node [shape=box, timeout=900];", "  edge [weight=1];"]
    for i in range(count):
        lines.append(
            f'  n{i} [label="Node {i}", prompt="Do the step \\"{i}\\".\\nThen stop.", max_retries=2];'
        )
    for i in range(1, count):
        lines.append(f'  n{i - 1} -> n{i} [condition="outcome=success && context.step != {i}"];')
    return "\n".join([*lines, "}"])


def seconds(call: Callable[[str], Any], text: str, runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        began = time.process_time()
        call(text)
        best = min(best, time.process_time() - began)
    return best


def measured(size: int, with_pydot: bool) -> dict[str, Any]:
    text = pipeline(size)
    ours = seconds(read, text, 5)
    row: dict[str, Any] = {
        "nodes": size,
        "kilobytes": len(text) // 1000,
        "everstep_ms": round(ours * 1000, 2),
        "us_per_node": round(ours / size * 1e6, 1),
        "graphviz_ms": round(seconds(lambda t: pygraphviz.AGraph(string=t), text, 3) * 1000, 2),
    }
    if with_pydot:
        theirs = seconds(pydot.graph_from_dot_data, text, 1 if size > 500 else 3)
        row |= {"pydot_ms": round(theirs * 1000, 1), "times_faster": round(theirs / ours, 1)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--largest-for-pydot", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # of pyparsing, in pydot
    pydot.graph_from_dot_data("digraph {}")  # loads its grammar
    rows = [measured(size, size <= options.largest_for_pydot) for size in map(int, options.sizes.split(","))]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("nodes", "kilobytes", "everstep_ms", "us_per_node", "graphviz_ms", "pydot_ms", "times_faster")
    print("  ".join(f"{name:>12}" for name in columns))
    for row in rows:
        print("  ".join(f"{row.get(name, '-'):>12}" for name in columns))


if __name__ == "__main__":
    main()
