"""What encryption and compression add to a step that writes one value of 1 KiB.

    python benchmarks/codecs.py [--steps 200] [--rounds 30] [--json]

`record` is the time to make the bytes of one checkpoint and to read them back; `step` is a whole step of a
flow on `memory:` under `strong`. Rounds take turns, and the fastest of each counts, in processor time, so
that whatever else runs counts least.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from datetime import UTC, datetime
from time import process_time
from typing import Any

from everstep import Flow, Host, KeyRing, Node
from everstep.codec.chain import Codecs
from everstep.codec.payload import HEADER
from everstep.codec.records import seal, unseal
from everstep.codec.sealing import open_record, seal_closed
from everstep.codec.values import Values
from everstep.model.enums import Trigger
from everstep.model.records import CheckpointRecord, StepRecord, Written
from everstep.runtime.system import random_bytes

KEYS = KeyRing({"k": b"0" * 32})
KINDS: dict[str, dict[str, Any]] = {
    "off": {},
    "encrypted": {"keys": KEYS},
    "compressed": {"compress": True},
    "both": {"keys": KEYS, "compress": True},
}


def value() -> list[dict[str, Any]]:
    """Return a value that takes about 1 KiB, as an API would give it."""
    return [{"id": k, "name": f"customer {k}", "ok": k % 3 == 0, "score": k * 0.5} for k in range(21)]


def record() -> tuple[CheckpointRecord, bytes]:
    data = Values().encode(value(), "x")
    written = Written("x", 1, hashlib.sha256(data).digest(), len(data))
    made = CheckpointRecord(
        checkpoint_id="c" * 36,
        sequence=2,
        trigger=Trigger.STEP,
        created_at=datetime.now(UTC),
        steps=(StepRecord(path="node", writes=(written,)),),
    )
    return made, HEADER + data


def records(rounds: int) -> dict[str, dict[str, float]]:
    """Return the µs to write and read one record, the fastest of all rounds."""
    made, payload = record()
    best = {kind: {"write": 1e9, "read": 1e9} for kind in (*KINDS, "seal alone")}
    for _ in range(rounds):
        best["seal alone"]["write"] = min(
            best["seal alone"]["write"], timed(lambda: seal(made, b"", [payload]))
        )
        for kind, options in KINDS.items():
            codecs = Codecs(random_bytes, **options)
            body, _ = seal_closed(codecs, "run", made, b"", [payload])
            opened = unseal(body, "it", b"", made.checkpoint_id)
            write = timed(lambda c=codecs: seal_closed(c, "run", made, b"", [payload]))
            read = timed(lambda c=codecs, o=opened: open_record(o, "run", "it", c))
            best[kind] = {
                "write": min(best[kind]["write"], write),
                "read": min(best[kind]["read"], read),
                "bytes": len(body),
            }
    return best


def timed(work: Any, count: int = 200) -> float:
    begun = process_time()
    for _ in range(count):
        work()
    return (process_time() - begun) / count * 1e6


def steps(count: int, rounds: int) -> dict[str, float]:
    """Return the µs of a step in a chain of as many, the fastest of all rounds."""
    nodes = [Node(lambda x: value(), name="n0", inputs=["x"], output="v0")]
    for k in range(1, count):
        nodes.append(Node(lambda **_: value(), name=f"n{k}", inputs=[f"v{k - 1}"], output=f"v{k}"))
    flow, best = Flow("chain", nodes, durability="strong"), dict.fromkeys(KINDS, 1e9)
    for _ in range(rounds):
        for kind, options in KINDS.items():
            given = {"encrypt": options.get("keys", False), "compress": options.get("compress", False)}
            with Host("memory:", **given) as host:
                begun = process_time()
                host.run(flow, {"x": 1}).raise_for_status()
                best[kind] = min(best[kind], (process_time() - begun) / count * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = {"record": records(asked.rounds), "step": steps(asked.steps, asked.rounds)}
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for kind, took in found["record"].items():
        shown = ", ".join(f"{name} {number:.1f}" for name, number in took.items() if number < 1e9)
        print(f"record  {kind:12} {shown}")
    for kind, micros in found["step"].items():
        print(f"step    {kind:12} {micros:.1f} µs, {micros - found['step']['off']:+.1f}")


if __name__ == "__main__":
    main()
