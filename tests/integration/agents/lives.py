"""Lives of a flow with an agent, each a process that may be killed: `python lives.py MODULE`.

The frameworks take seconds to load, so one process does, and forks for every life. It reads lines, each a
JSON object with a store, a flow, inputs and so on, and writes one for each: how the run stands, or why it
ended.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any


def main() -> None:
    flows = import_module(sys.argv[1])
    print(json.dumps(flows.VERSION), flush=True)
    for line in sys.stdin:
        said, code = live(flows, json.loads(line))
        if said is None:
            print(json.dumps({"killed": code}), flush=True)
            continue
        for name in said.pop("loaded"):  # at its first use: here, it is there for the lives to come
            if name not in sys.modules:
                with suppress(ImportError):
                    import_module(name)
        print(json.dumps(said), flush=True)


def live(flows: Any, told: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
    """Drive a run in a process of its own; returns what it said, if it did, and its exit code."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        said = {**flows.live(**told), "loaded": [*sys.modules]}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(data) if data else None, os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
