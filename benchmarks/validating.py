"""What it costs to build, validate, report and draw a flow, and to read it from its IR, by its size.

    python benchmarks/validating.py [--sizes 200,2000,20000] [--shape all] [--json]

Times are of the processor, the best of some runs. `us per part` is the time over nodes and edges; if it does
not grow with the size, the time is linear.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from everstep import END, Flow, Node, report, route, validate, wait
from everstep.graph.author.node import Gate
from everstep.graph.check.validate import Offers
from everstep.graph.compile.leaves import Leaves
from everstep.graph.draw.picture import picture_of

HOST = Offers(
    frozenset({"checkpoint_store", "resume_scheduler", "resume_signal_source", "checkpoint_blob_store"}),
    frozenset({""}),
)


def body(**given: Any) -> int:
    return 1


def made(name: str, output: str, *inputs: str, **options: Any) -> Node:
    return Node(body, name=name, output=output, inputs=inputs, **options)


def chain(count: int) -> list[Any]:
    """Each node reads the one before it, and one from half-way back."""
    return [made(f"n{i}", f"v{i}", *{f"v{i - 1}", f"v{i // 2 - 1}"}) for i in range(count)]


def fan(count: int) -> list[Any]:
    """Groups of a hundred nodes side by side, each behind the last."""
    nodes: list[Any] = []
    for g in range(count // 100):
        nodes += [made(f"n{g}_{i}", f"v{g}_{i}", f"sum{g - 1}") for i in range(99)]
        nodes.append(made(f"sum{g}", f"sum{g}", *(f"v{g}_{i}" for i in range(99))))
    return nodes


def gates(count: int) -> list[Any]:
    """Choices one after the other; both ways write the same name, some nodes further on."""
    nodes: list[Any] = []
    for g in range(count // 6):
        pick = route(f"a{g}", f"b{g}", name=f"pick{g}", inputs=[f"end{g - 1}"])
        nodes += [
            pick(lambda **given: END),
            made(f"a{g}", f"x{g}", f"end{g - 1}"),
            made(f"b{g}", f"y{g}", f"end{g - 1}"),
            made(f"a{g}_on", f"w{g}", f"x{g}"),
            made(f"b{g}_on", f"w{g}", f"y{g}"),
            made(f"end{g}", f"end{g}", f"w{g}"),
        ]
    return nodes


def loops(count: int) -> list[Any]:
    """Loops one after the other, each left by a gate."""
    nodes: list[Any] = []
    for g in range(count // 4):
        again = route(f"step{g}", END, name=f"again{g}", inputs=[f"n{g}"])
        begin = route(f"step{g}", name=f"begin{g}", inputs=[f"done{g - 1}"])
        nodes += [
            begin(lambda **given: END),
            made(f"step{g}", f"n{g}", f"done{g - 1}"),
            again(lambda **given: END),
            made(f"done{g}", f"done{g}", f"n{g}"),
        ]
    return nodes


def nested(count: int) -> list[Any]:
    """Inner flows of ten nodes."""
    inner = Flow("inner", [made(f"n{i}", f"v{i}", f"v{i - 1}") for i in range(10)])
    flows = []
    for g in range(count // 10):
        names = {f"v{i}": f"w{g}_{i}" for i in range(10)}
        part = inner.as_node(name=f"part{g}").with_inputs(**{"v-1": f"w{g - 1}_9"})
        flows.append(part.with_outputs(**names))
    return flows


def effects(count: int) -> list[Any]:
    """Effects with keys, and a wait every hundred nodes."""
    nodes: list[Any] = []
    for i in range(count):
        before = f"v{i - 1}"
        if i % 100 == 50:
            nodes.append(wait.approval(f"n{i}", context=wait.value(before), output=f"v{i}"))
        else:
            nodes.append(made(f"n{i}", f"v{i}", before, effects="effectful", idempotency_key="auto"))
    return nodes


KINDS = ("build", "validate", "report", "read", "draw")
SHAPES = {shape.__name__: shape for shape in (chain, fan, gates, loops, nested, effects)}


def best(work: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def measure(shape: str, count: int) -> dict[str, Any]:
    nodes = SHAPES[shape](count)
    flow = Flow(shape, nodes)
    leaves = Leaves(flow.plan)
    parts = len(leaves.nodes) + sum(1 for _ in leaves.edges())
    times = max(1, min(5, 20_000 // count))
    assert not validate(flow, HOST).errors
    ir, functions = flow.to_ir(), flow.functions()
    seconds = {
        "build": best(lambda: Flow(shape, nodes), times),
        "validate": best(lambda: validate(flow, HOST), times),
        "report": best(lambda: report(flow, HOST), times),
        "read": best(lambda: Flow.from_ir(ir, functions), times),
        "draw": best(lambda: picture_of(flow.plan, all_open=True), times),
    }
    return {
        "shape": shape,
        "nodes": len(leaves.nodes),
        "gates": sum(isinstance(n.node, Gate) for n in leaves.nodes),
        "parts": parts,
        **{f"{what} s": round(value, 4) for what, value in seconds.items()},
        **{f"{what} us per part": round(value / parts * 1e6, 2) for what, value in seconds.items()},
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sizes", default="200,2000,20000")
    options.add_argument("--shape", default="all", choices=["all", *SHAPES])
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    shapes = list(SHAPES) if given.shape == "all" else [given.shape]
    found = [measure(shape, int(size)) for shape in shapes for size in given.sizes.split(",")]
    if given.json:
        print(json.dumps(found, indent=2))
        return
    kinds = " ".join(f"{kind:>8}" for kind in KINDS)
    print(f"{'shape':8} {'nodes':>7} {'parts':>8}  {kinds}   us per part")
    for row in found:
        seconds = " ".join(f"{row[f'{what} s']:8.3f}" for what in KINDS)
        each = " ".join(f"{row[f'{what} us per part']:7.1f}" for what in KINDS)
        print(f"{row['shape']:8} {row['nodes']:7} {row['parts']:8}  {seconds}   {each}")


if __name__ == "__main__":
    main()
