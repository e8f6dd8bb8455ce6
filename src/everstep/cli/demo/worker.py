"""The process that `everstep demo` starts and kills: drives the flow, and says what happens in JSON lines.
Apart as a process of its own.
"""

from __future__ import annotations

import json
import sys

from everstep import Host
from everstep.cli.demo.flow import flow
from everstep.runtime.events import Event


def tell(event: Event) -> None:
    """Write one event as one line."""
    line = {"kind": event.kind, "node": event.node, "attempt": event.attempt, **event.data}
    print(json.dumps(line), flush=True)


def main(store: str, run_id: str, order_id: str, cents: str) -> None:
    """Start the run, or go on with it if it was left unfinished."""
    with Host(store, on_event=tell) as host:
        host.run(flow, {"order_id": order_id, "cents": int(cents)}, run_id=run_id).raise_for_status()


if __name__ == "__main__":
    main(*sys.argv[1:])
