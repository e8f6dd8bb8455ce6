"""`results.as_json` takes whatever a call of a host returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everstep import Breaker, Flow, Host, node, report, validate, wait
from everstep.results import WaitInfo, as_json


@node(output="pair")
def double(x: int) -> tuple[int, int]:
    return x, 2 * x


@node(output="never")
def explode(x: int) -> int:
    raise RuntimeError("boom")


inner = Flow("inner", [double])
asking = Flow("asking", [inner.as_node(), wait.approval("ok")])
fragile = Flow("fragile", [explode], breakers=[Breaker("mail", failures=1, shared=True)])


def returned_by(host: Host) -> dict[str, Any]:
    """What many calls return for a run that waits and one that failed."""
    result = host.run(asking, {"x": 1}, run_id="A1", channel={"note": b"bytes"})
    failed = host.run(fragile, {"x": 1}, run_id="A2")
    return {
        "run": result,
        "failed": failed,
        "state": host.state("A1"),
        "part": host.state("A1/inner").part,
        "runs": host.runs(labels=True),
        "info": host.info("A1"),
        "waits": host.waits(),
        "history": host.history("A1"),
        "checkpoints": host.checkpoints("A1"),
        "latest": host.latest("A1"),
        "channel": host.channel("A1"),
        "events": list(host.events("A1", live=False)),
        "workers": host.fleet.workers(),
        "counts": host.fleet.counts(),
        "breakers": host.fleet.breakers(),
        "doctor": host.storage.doctor(),
        "verify": host.storage.verify(),
        "schemes": host.storage.schemes,
        "nodes": host.debug.nodes("A1"),
        "diff": host.debug.diff("A1", "A2"),
        "compat": host.versions.compat("A1", asking),
        "validate": validate(asking, host),
        "report": report(asking),
        "inner": result["inner"],
        "delivery": host.deliver({"wait_id": result.waits[0].id, "answer": {"approved": True}}, [asking]),
        "cancelled": host.cancel("A1"),
        "none": None,
    }


def test_everything_that_calls_return_becomes_json(tmp_path: Path) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        told = {name: json.loads(json.dumps(as_json(found))) for name, found in returned_by(host).items()}
    run = told["run"]
    assert (run["run_id"], run["status"], run["values"]["inner"]) == ("A1", "halted", {"pair": [1, 2]})
    assert run["channel"] == told["channel"] == {"note": {"$type": "bytes", "base64": "Ynl0ZXM="}}
    assert [w["id"] for w in run["waits"]] == [w["id"] for w in told["waits"]]
    assert told["failed"]["error"]["message"] == "boom"
    assert (told["state"]["checkpoint"], told["state"]["values"]["x"]) == (told["latest"]["sequence"], 1)
    assert {line["run_id"] for line in told["runs"]} >= {"A1", "A2"}
    assert told["info"] in told["runs"]
    assert told["breakers"]["mail"]["state"] == "open"
    assert told["delivery"]["result"]["status"] == told["cancelled"] == "completed"
    assert (told["inner"], told["none"]) == ({"pair": [1, 2]}, None)


def test_what_holds_no_data_is_refused_in_words(tmp_path: Path) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        for found in (host.durability, host.offers, host.values, host, WaitInfo):
            with pytest.raises(TypeError, match="as_json takes what a call of a host returns"):
                as_json(found)
