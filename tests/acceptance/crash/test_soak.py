"""Two dozen runs at once on one SQLite file, in a process that is killed at random until all have ended."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from everstep import (
    END,
    AsyncHost,
    Context,
    Durability,
    Flow,
    Host,
    ItemError,
    Node,
    Retry,
    Status,
    ifelse,
    node,
    parallel,
    route,
)
from everstep.model.enums import Flush, Mode
from everstep.testing.killing import Killer, read_trace

ROOT = Path(__file__).resolve().parents[3]
RUNS = 24
DURABILITIES = [
    Durability(Mode.STRONG, max_resume_attempts=1000),
    Durability(Mode.PARTIAL, max_resume_attempts=1000),
    Durability(Mode.STRONG, interval=3, max_resume_attempts=1000),
    Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS, max_resume_attempts=1000),
]


def note(killer: Killer, ctx: Context) -> None:
    with killer.body(ctx.path, run=ctx.run_id, visit=ctx.visit, key=ctx.idempotency_key):
        pass


def fan_nodes(killer: Killer) -> list[Node]:
    @node(output="words")
    def split(text: str, ctx: Context):
        note(killer, ctx)
        return text.split()

    @node(output="count")
    async def count(words: list[str], ctx: Context):
        note(killer, ctx)
        await asyncio.sleep(0)
        return len(words)

    @node(output="sent", effects="effectful", idempotency_key="auto", retry=Retry(2, first=0, jitter=0))
    def send(words: list[str], ctx: Context):
        note(killer, ctx)
        words.sort()
        if ctx.attempt == 1:
            raise ConnectionError("first attempts fail here")
        return words

    @node(output="report")
    def report(count: int, sent: list[str], ctx: Context):
        note(killer, ctx)
        return f"{count}: {' '.join(sent)}"

    return [split, count, send, report]


def loop_nodes(killer: Killer) -> list[Node]:
    @node(output="draft")
    def improve(draft: list[str], ctx: Context):
        note(killer, ctx)
        draft.append("x" * 1000 + str(ctx.visit))
        return draft

    @ifelse(when_true="improve", when_false=END)
    def is_short(draft: list[str], ctx: Context):
        note(killer, ctx)
        return len(draft) < 60

    @node(output="size", effects="effectful", idempotency_key="auto")
    def publish(draft: list[str], ctx: Context):
        note(killer, ctx)
        return sum(len(part) for part in draft)

    return [improve, is_short, publish]


def choice_nodes(killer: Killer) -> list[Node]:
    @node(output="kind")
    def classify(number: int, ctx: Context):
        note(killer, ctx)
        return "even" if number % 2 == 0 else "odd"

    @route("halve", "triple")
    def choose(kind: str, ctx: Context):
        note(killer, ctx)
        return "halve" if kind == "even" else "triple"

    @node(output="answer")
    def halve(number: int, ctx: Context):
        note(killer, ctx)
        return {"answer": number // 2, "bulk": b"h" * 600_000}

    @node(output="answer", effects="effectful", idempotency_key="auto")
    def triple(number: int, ctx: Context):
        note(killer, ctx)
        return {"answer": number * 3, "bulk": b"t" * 600_000}

    return [classify, choose, halve, triple]


def nested_nodes(killer: Killer) -> list[Node]:
    @node(output="grown")
    def grow(draft: list[str], ctx: Context):
        note(killer, ctx)
        draft.append("y" * 500)
        return draft

    @node(output="sent", effects="effectful", idempotency_key="auto", retry=Retry(2, first=0, jitter=0))
    async def send(grown: list[str], ctx: Context):
        note(killer, ctx)
        grown.append("sent")
        if ctx.attempt == 1:
            raise ConnectionError("first attempts fail here")
        return grown

    @node(output="scales")
    def calibrate(sent: list[str]):
        return sent, threading.Lock()

    @node(output="size")
    def weigh(scales: tuple[list[str], Any]):
        with scales[1]:
            return sum(len(part) for part in scales[0])

    weighing = Flow("weighing", [calibrate, weigh]).as_node(durability="atomic").lift("size")
    edit = Flow("edit", [grow, send, weighing]).as_node().lift("sent", "size").with_outputs(sent="draft")

    @ifelse(when_true="edit", when_false=END)
    def is_light(size: int, ctx: Context):
        note(killer, ctx)
        return size < 5000

    return [edit, is_light]


def map_nodes(killer: Killer) -> list[Node]:
    @node(output="vector", retry=Retry(1, first=0, jitter=0))
    async def embed(word: str, ctx: Context):
        note(killer, ctx)
        await asyncio.sleep(0)
        if word == "bad" or (word == "odd" and ctx.attempt == 1):
            raise ValueError(word)
        return [len(word)]

    @node(output="part")
    def cut(vector: list[int] | ItemError, ctx: Context):
        note(killer, ctx)
        return vector if isinstance(vector, list) else [vector.index]

    @node(output="total", effects="effectful", idempotency_key="auto")
    def add(part: list[int], ctx: Context):
        note(killer, ctx)
        part.append(1)
        return sum(part)

    @node(output="report")
    def report(total: list[int], ctx: Context):
        note(killer, ctx)
        return total

    inner = Flow("inner", [cut, add]).as_node().lift("total")
    embedded = embed.map_over("word", on_error="collect")
    return [embedded, inner.map_over("vector", max_concurrency=4), report]


def crawl_parts(killer: Killer) -> dict[str, Any]:
    @node
    def plan(pages: list[str], ctx: Context):
        note(killer, ctx)
        for k, page in enumerate(pages):
            ctx.next_task("fetch", page=[page], priority=k % 3)
        return len(pages)

    @node(retry=Retry(1, first=0, jitter=0))
    def fetch(page: list[str], ctx: Context):
        note(killer, ctx)
        page.append(str(ctx.visit))
        if page[0] == "odd" and ctx.attempt == 1:
            raise ConnectionError("first attempts fail here")
        ctx.channel.append("fetched", page)
        ctx.channel.atomic_add("count")
        if ctx.channel["count"] == 5:
            ctx.next_task("close")
        return page

    @node
    def close(ctx: Context):
        note(killer, ctx)
        if ctx.visit < 4:
            ctx.next_iteration()
        return [ctx.channel["fetched"], ctx.channel["count"], ctx.visit]

    @node
    def never(ctx: Context):
        note(killer, ctx)
        raise ValueError("this never works")

    return {
        "nodes": [parallel(plan, never, policy="best_effort")],
        "tasks": [fetch, close],
        "auto_checkpoint": 3,
    }


def orders(killer: Killer) -> list[tuple[str, Flow, dict[str, Any]]]:
    """Return what to run: (run id, flow, inputs)."""
    out: list[tuple[str, Flow, dict[str, Any]]] = []
    for k in range(RUNS):
        durability = DURABILITIES[k // 6 % len(DURABILITIES)]
        words = ["odd", "a", "bad", f"word-{k}", "another"]
        match k % 6:
            case 0:
                flow = Flow("fan", fan_nodes(killer), durability=durability)
                out.append((f"run-{k}", flow, {"text": f"the {k} quick brown foxes"}))
            case 1:
                flow = Flow("loop", loop_nodes(killer), entry="improve", durability=durability)
                out.append((f"run-{k}", flow, {"draft": [str(k)]}))
            case 2:
                flow = Flow("choice", choice_nodes(killer), durability=durability)
                out.append((f"run-{k}", flow, {"number": k}))
            case 3:
                flow = Flow("nested", nested_nodes(killer), entry="edit", durability=durability)
                out.append((f"run-{k}", flow, {"draft": [str(k)]}))
            case 4:
                flow = Flow("map", map_nodes(killer), durability=durability)
                out.append((f"run-{k}", flow, {"word": words}))
            case _:
                flow = Flow("crawl", **crawl_parts(killer), durability=durability)
                out.append((f"run-{k}", flow, {"pages": words}))
    return out


async def run_all(folder: Path) -> dict[str, Any]:
    """Run or resume every order at once."""
    killer = Killer(trace=folder / "trace.jsonl")
    async with AsyncHost(f"sqlite:///{folder}/runs.db") as host:
        results = await asyncio.gather(
            *(host.run(flow, inputs, run_id=run_id) for run_id, flow, inputs in orders(killer))
        )
        return {r.run_id: {"status": r.status.value, **{k: repr(v) for k, v in r.items()}} for r in results}


def main(folder: Path) -> None:
    print("ready", flush=True)
    outcome = asyncio.run(run_all(folder))
    (folder / "outcome.json").write_text(json.dumps(outcome))


def live(folder: Path, seconds: float | None) -> float | None:
    """Let a process work on the runs and return how long it took; none if it was killed before the end."""
    command = [sys.executable, "-m", "tests.acceptance.crash.test_soak", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        began = time.monotonic()
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            return None
    assert code == 0
    return time.monotonic() - began


def recorded_steps(folder: Path) -> set[tuple[str, str, int]]:
    """Return every finished step as (run, path, visit)."""
    if not (folder / "runs.db").exists():
        return set()
    with Host(f"sqlite:///{folder}/runs.db") as host:
        return {
            (info.run_id, step.path, step.visit)
            for info in host.runs(limit=1000)
            for record in host.history(info.run_id)
            for step in record.steps
            if step.status is Status.COMPLETED
        }


def soak(folder: Path, *, seed: int, kills: int, longest: float) -> int:
    """Kill the process at random moments, then let it finish; return how many deaths left work undone."""
    calm, stormy = folder / "calm", folder / "stormy"
    calm.mkdir()
    stormy.mkdir()
    whole = live(calm, None)
    assert whole is not None
    chance = random.Random(seed)
    interruptions, is_done = 0, False
    for left in reversed(range(kills + 1)):
        before, told = recorded_steps(stormy), len(read_trace(stormy / "trace.jsonl"))
        is_done = live(stormy, chance.uniform(0.0, longest) * whole if left else None) is not None
        begun = read_trace(stormy / "trace.jsonl")[told:]
        interruptions += bool(begun) and not is_done
        again = before & {(line["run"], line["node"], line["visit"]) for line in begun}
        assert not again, f"recorded steps ran again: {again}"
        if is_done:
            break
    assert is_done
    compare(calm, stormy)
    return interruptions


def compare(calm: Path, stormy: Path) -> None:
    """The storm changed no result, lost no step and gave no visit a second key."""
    outcomes = [json.loads((folder / "outcome.json").read_text()) for folder in (calm, stormy)]
    assert len(outcomes[0]) == RUNS
    assert outcomes[0] == outcomes[1]
    assert {o["status"] for o in outcomes[1].values()} == {"completed"}
    assert recorded_steps(calm) == recorded_steps(stormy)
    keys: dict[tuple[str, str, int], set[str]] = {}
    for line in read_trace(stormy / "trace.jsonl"):
        keys.setdefault((line["run"], line["node"], line["visit"]), set()).add(line["key"])
    assert all(len(found) == 1 for found in keys.values())
    with Host(f"sqlite:///{stormy}/runs.db") as host:
        for info in host.runs(limit=1000):
            chain = host.history(info.run_id)
            assert [r.sequence for r in chain] == list(range(1, len(chain) + 1))
            assert not info.is_driven


def test_runs_killed_at_random_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    interruptions = soak(tmp_path, seed=11, kills=8, longest=0.5)
    print(f"\nsoak: {RUNS} runs, interrupted {interruptions} times")
    assert interruptions > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_runs_killed_at_random_many_times_end_as_if_they_had_not_been(seed: int, tmp_path: Path) -> None:
    assert soak(tmp_path, seed=seed, kills=60, longest=0.2) > 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
