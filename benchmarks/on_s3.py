"""What a flush costs on S3, beside the least that any engine must do: one conditional put of 300 bytes.

    python benchmarks/on_s3.py 's3://bucket/prefix?endpoint=...' [--steps 50] [--rounds 20] [--json]

Both sides take turns on the same server, with the same driver. Given are the fastest round of each, so that
whatever else runs on the machine counts least, the median of the ratios of neighbours, and how many requests
a strong run of so many steps makes. What it wrote is removed in the end.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

from everstep import Flow, Host, node
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.stores.objects.cloud.address import read_address
from everstep.stores.objects.cloud.bucket import Cloud
from everstep.stores.objects.store import ObjectStore

REST = "x" * 200


def small(k: int) -> dict[str, Any]:
    return {"id": k, "name": f"item {k}", "ok": True, "score": k * 0.5}


@node(output="out")
def step(previous: Any) -> dict[str, Any]:
    return small(1)


def chain(n: int) -> Flow:
    nodes = [
        step.with_name(f"s{k}").with_inputs(previous=f"v{k}").with_outputs(f"v{k + 1}") for k in range(n)
    ]
    return Flow("chain", nodes, durability="strong", max_steps=n + 10)


def ours(host: Host, flow: Flow, n: int) -> float:
    began = perf_counter()
    assert host.run(flow, {"v0": 0}).status == "completed"
    return (perf_counter() - began) / n


def raw(bucket: Cloud, n: int) -> float:
    name, began = f"raw/{uuid4()}", perf_counter()
    for k in range(n):
        assert bucket.create(f"{name}/{k:010d}", json.dumps(["run", k, "step", REST, small(k)]).encode())
    return (perf_counter() - began) / n


def measure(url: str, steps: int, rounds: int) -> dict[str, float]:
    address = read_address(url)
    address = address._replace(prefix=f"{address.root}bench-{uuid4()}")
    opened, flow = open_store(address.url, SystemClock()), chain(steps)
    assert isinstance(opened.store, ObjectStore) and isinstance(opened.store.bucket, Cloud)
    bucket = opened.store.bucket
    with Host(opened) as host:
        ours(host, flow, steps)
        mine, least = [], []
        for _ in range(rounds):
            mine.append(ours(host, flow, steps))
            least.append(raw(bucket, steps))
        before = bucket.requests
        ours(host, flow, steps)
        requests = bucket.requests - before
        bucket.delete(bucket.names(""))
    return {
        "flush_us": round(min(mine) * 1e6),
        "raw_put_us": round(min(least) * 1e6),
        "ratio_of_the_fastest": round(min(mine) / min(least), 2),
        "median_ratio": round(median(a / b for a, b in zip(mine, least, strict=True)), 2),
        f"requests_of_{steps}_steps": requests,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("url")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    found = measure(given.url, given.steps, given.rounds)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:>28}  {value}")


if __name__ == "__main__":
    main()
