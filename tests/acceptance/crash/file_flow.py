"""A flow kept as files, in a process of its own: `python -m tests.acceptance.crash.file_flow FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from everstep import Context, Flow, Host, node
from everstep.errors import EverstepError

STEPS = 4


def flow_in(folder: Path) -> Flow:
    """Make a flow whose steps each note in a file that they ran."""

    @node(output="total", effects="effectful", idempotency_key="{run_id}-{node}-{visit}")
    def add(total: int, ctx: Context) -> int:
        with (folder / "effects").open("a") as file:
            file.write(f"{ctx.path}\n")
        return total + 1

    nodes = [
        add.with_name(f"add{k}").with_inputs(total=f"t{k}").with_outputs(f"t{k + 1}") for k in range(STEPS)
    ]
    return Flow("adding", nodes, durability="strong")


def main(where: str, run_id: str = "run-1") -> int:
    folder = Path(where)
    try:
        with Host(f"file://{folder}/runs") as host:
            result = host.run(flow_in(folder), {"t0": 0}, run_id=run_id)
    except EverstepError as error:
        print(json.dumps(error.to_wire()))
        return error.exit_code
    print(json.dumps({"status": result.status, "total": result[f"t{STEPS}"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
