"""What the flows of both frameworks share: a host that drives them, and tools that act somewhere else."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from everstep import Flow, Host
from everstep.errors import EverstepError
from everstep.results import Event


class Place:
    """Where the model and the tools of this life are, and which process it is."""

    url = ""
    pid = ""
    """Whom calls are made for, if not for this process."""

    @classmethod
    def key(cls) -> str:
        return cls.pid or str(os.getpid())

    @classmethod
    def mcp_arguments(cls) -> list[str]:
        """Return what to call Python with for an MCP server of this life."""
        return [str(Path(__file__).with_name("mcp_server.py")), cls.url, cls.key()]


def act(tool: str, n: int) -> str:
    """Do what a tool does, where it is seen."""
    request = urllib.request.Request(
        f"{Place.url}/tools/{tool}",
        json.dumps({"n": n}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {Place.key()}"},
    )
    with urllib.request.urlopen(request) as answer:
        said: str = json.load(answer)["said"]
        return said


def drive(store: str, flow: Flow, inputs: dict[str, Any], run_id: str) -> dict[str, Any]:
    """Drive a run as far as it goes, and say how it stands and what it emitted."""
    emitted: list[Any] = []

    def hear(event: Event) -> None:
        if event.kind == "emitted":
            emitted.append(event.data["data"])

    with Host(store, on_event=hear) as host:
        try:
            result = host.run(flow, inputs, run_id=run_id)
        except EverstepError as error:
            return {"status": error.code, "error": str(error), "emitted": emitted}
        said = dict(result).get("said")
        return {"status": result.status.value, "error": str(result.error), "said": said, "emitted": emitted}
