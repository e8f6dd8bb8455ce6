"""Flows as users write them, and the process that runs, kills and resumes them.

`python -m tests.acceptance.crash_flows matrix chain FOLDER` kills the flow at each of its points in a forked
child, resumes it in another, and prints what it saw as JSON; `test_crash_matrix.py` judges it.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
import subprocess
import sys
import threading
import traceback
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from everstep import END, Context, Durability, Flow, Host, Node, Retry, ifelse, node
from everstep.errors import RunNotFound
from everstep.model.enums import Flush, Mode
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.testing.killing import Killer, die, killing, lose_reply, read_trace

RUN = "run-1"
AT_ONCE = Retry(3, first=0, jitter=0)
Facts = dict[str, Any]


class Bodies:
    """What the nodes of these flows do besides their work: tell the killer where they are."""

    def __init__(self, killer: Killer, *, is_first_life: bool) -> None:
        self.killer = killer
        self.is_first_life = is_first_life
        self._both = threading.Barrier(2)

    def __call__(self, name: str, ctx: Context | None = None) -> AbstractContextManager[None]:
        if ctx is None:
            return self.killer.body(name, visit=1)
        return self.killer.body(name, visit=ctx.visit, attempt=ctx.attempt, key=ctx.idempotency_key)

    def meet(self) -> None:
        """Let two branches be in their bodies at the same time."""
        if self.is_first_life:
            self._both.wait(30)

    def wait_for(self, point: str) -> None:
        if self.is_first_life:
            self.killer.wait_for(point)


Program = Callable[[Host, Flow, Facts], Any]


def run_to_its_end(host: Host, flow: Flow, inputs: Facts) -> Any:
    return host.run(flow, inputs, run_id=RUN)


def run_after_an_interrupt(host: Host, flow: Flow, inputs: Facts) -> Any:
    try:
        return host.run(flow, inputs, run_id=RUN)
    except KeyboardInterrupt:
        return host.run(flow, inputs, run_id=RUN)


def cancel_after_an_interrupt(host: Host, flow: Flow, inputs: Facts) -> Any:
    try:
        host.run(flow, inputs, run_id=RUN)
    except KeyboardInterrupt:
        host.cancel(RUN)
    return host.run(flow, inputs, run_id=RUN)


class Scenario:
    """A flow, what it is given, and how it is run."""

    def __init__(
        self,
        nodes: Callable[[Bodies], list[Node]],
        inputs: Facts,
        durability: str | Durability | None = None,
        *,
        entry: str | tuple[str, ...] = (),
        program: Program = run_to_its_end,
    ) -> None:
        self.nodes = nodes
        self._inputs = inputs
        self.durability = durability
        self.entry = entry
        self.program = program

    @property
    def inputs(self) -> Facts:
        """The inputs as a new process would make them."""
        return copy.deepcopy(self._inputs)

    def flow(self, name: str, bodies: Bodies) -> Flow:
        if self.durability is None:
            return Flow(name, self.nodes(bodies), entry=self.entry)
        return Flow(name, self.nodes(bodies), entry=self.entry, durability=self.durability)


def chain_nodes(body: Bodies) -> list[Node]:
    @node(output="items")
    def split(text: str):
        with body("split"):
            return text.split()

    @node(output="longest")
    def sort_in_place(items: list[str]):
        with body("sort_in_place"):
            items.append("zebra-crossing")
            items.sort(key=len)
            return items[-1]

    @node(output="receipt", effects="effectful", idempotency_key="auto")
    def charge(longest: str, ctx: Context):
        with body("charge", ctx):
            return {"paid": len(longest)}

    @node(output="ticket", effects="effectful", idempotency_key=lambda receipt: str(uuid.uuid4()))
    def book(receipt: dict[str, Any], ctx: Context):
        with body("book", ctx):
            receipt["booked"] = True
            return sorted(receipt)

    @node(output="report", effects="pure")
    def report(ticket: list[str], longest: str):
        with body("report"):
            return f"{longest}: {', '.join(ticket)}"

    return [split, sort_in_place, charge, book, report]


def small_nodes(body: Bodies) -> list[Node]:
    @node(output="total")
    def add(prices: list[int]):
        with body("add"):
            prices.append(1)
            return sum(prices)

    @node(output="bill", effects="effectful", idempotency_key="auto")
    def send(total: int, ctx: Context):
        with body("send", ctx):
            return f"{total} EUR"

    return [add, send]


def diamond_nodes(body: Bodies) -> list[Node]:
    @node(output="words")
    def fetch(text: str):
        with body("fetch"):
            return text.split()

    @node(output="left")
    def count(words: list[str]):
        with body("count"):
            body.meet()
            words.clear()
            return "cleared"

    @node(output="right", effects="effectful", idempotency_key="auto")
    def publish(words: list[str], ctx: Context):
        with body("publish", ctx):
            body.meet()
            body.wait_for("after put 3")  # of `count`: no step waits for a running sibling
            words.reverse()
            return " ".join(words)

    @node(output="joined")
    def join(left: str, right: str, words: list[str]):
        with body("join"):
            return [left, right, len(words)]

    return [fetch, count, publish, join]


def loop_nodes(body: Bodies) -> list[Node]:
    @node(output="draft")
    def improve(draft: list[int], ctx: Context):
        with body("improve", ctx):
            draft.append(ctx.visit)
            return draft

    @ifelse(when_true="improve", when_false=END)
    def is_short(draft: list[int], ctx: Context):
        with body("is_short", ctx):
            return len(draft) < 5

    @node(output="title", effects="effectful", idempotency_key="{run_id}-{visit}")
    def publish(draft: list[int], ctx: Context):
        with body("publish", ctx):
            return f"{len(draft)} parts"

    return [improve, is_short, publish]


def album_nodes(body: Bodies) -> list[Node]:
    """A large value that is replaced and a list that grows, over several keyframes."""

    @node(output=("photo", "captions"))
    def shoot(captions: list[str], ctx: Context):
        with body("shoot", ctx):
            captions.append(f"photo {ctx.visit}")
            return f"{ctx.visit}" * 40_000, captions

    @ifelse(when_true="shoot", when_false=END)
    def wants_more(captions: list[str], ctx: Context):
        with body("wants_more", ctx):
            return len(captions) < 6

    return [shoot, wants_more]


def retry_nodes(body: Bodies) -> list[Node]:
    @node(output="order")
    def take(name: str):
        with body("take"):
            return [name]

    @node(
        output="answer",
        effects="effectful",
        idempotency_key=lambda order: str(uuid.uuid4()),
        retry=AT_ONCE,
    )
    def call(order: list[str], ctx: Context):
        with body("call", ctx):
            order.append("spoiled")
            if ctx.attempt < 3:
                raise ConnectionError(f"attempt {ctx.attempt}")
            return order

    @node(output="thanks")
    def thank(answer: list[str]):
        with body("thank"):
            return f"thanks, {answer[0]}"

    return [take, call, thank]


def exhausted_nodes(body: Bodies) -> list[Node]:
    @node(output="answer", retry=Retry(2, first=0, jitter=0))
    def call(name: str, ctx: Context):
        with body("call", ctx):
            raise ConnectionError(f"attempt {ctx.attempt}")

    return [call]


def large_nodes(body: Bodies) -> list[Node]:
    @node(output="video")
    def render(seed: int):
        with body("render"):
            return bytes((seed + k) % 256 for k in range(256)) * (5 * 4096)

    @node(output="size")
    def measure(video: bytes):
        with body("measure"):
            return len(video)

    @node(output="digest")
    def digest(video: bytes, size: int):
        with body("digest"):
            return f"{size} {hashlib.sha256(video).hexdigest()}"

    return [render, measure, digest]


def interrupted_nodes(body: Bodies) -> list[Node]:
    seen: list[int] = []

    @node(output="a")
    def first(x: int):
        with body("first"):
            return x + 1

    @node(output="b")
    def second(a: int):
        with body("second"):
            if not seen:
                seen.append(a)
                raise KeyboardInterrupt
            return a * 2

    return [first, second]


def stubborn_nodes(body: Bodies) -> list[Node]:
    @node(output="a")
    def first(x: int):
        with body("first"):
            return x + 1

    @node(output="b")
    def second(a: int):
        with body("second"):
            raise KeyboardInterrupt

    return [first, second]


def patient_nodes(body: Bodies) -> list[Node]:
    @node(output="answer")
    def wait(x: int):
        with body("wait"):
            body.killer.wait_for("after renew 1")
            return x + 1

    return [wait]


TEXT = {"text": "a quick brown fox jumps"}
SCENARIOS = {
    "chain": Scenario(chain_nodes, TEXT, "strong"),
    "small": Scenario(small_nodes, {"prices": [2, 3]}, "strong"),
    "diamond": Scenario(diamond_nodes, TEXT, "strong"),
    "loop": Scenario(loop_nodes, {"draft": [0]}, "strong", entry="improve"),
    "keyframes": Scenario(album_nodes, {"captions": []}, "strong", entry="shoot"),
    "retry": Scenario(retry_nodes, {"name": "Ada"}, "strong"),
    "exhausted": Scenario(exhausted_nodes, {"name": "Ada"}, "strong"),
    "large": Scenario(large_nodes, {"seed": 7}, "strong"),
    "interval": Scenario(chain_nodes, TEXT, Durability(Mode.STRONG, interval=2)),
    "interval-loop": Scenario(
        loop_nodes, {"draft": [0]}, Durability(Mode.STRONG, interval=3), entry="improve"
    ),
    "before-effects": Scenario(chain_nodes, TEXT, Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS)),
    "before-effects-retry": Scenario(
        retry_nodes, {"name": "Ada"}, Durability(Mode.STRONG, flush=Flush.BEFORE_EFFECTS)
    ),
    "partial": Scenario(chain_nodes, TEXT),
    "partial-loop": Scenario(loop_nodes, {"draft": [0]}, entry="improve"),
    "partial-retry": Scenario(retry_nodes, {"name": "Ada"}),
    "interrupted": Scenario(interrupted_nodes, {"x": 1}, "strong", program=run_after_an_interrupt),
    "cancelled": Scenario(stubborn_nodes, {"x": 1}, "strong", program=cancel_after_an_interrupt),
    "renewed": Scenario(
        patient_nodes, {"x": 1}, Durability(Mode.STRONG, lease_ttl=timedelta(milliseconds=60))
    ),
}


class Hurry(SystemClock):
    """The real time, without waiting for it."""

    async def sleep_until(self, at: datetime) -> None:
        await asyncio.sleep(0)


def live(name: str, folder: Path, killer: Killer, *, is_first_life: bool) -> Facts:
    """Run or resume the scenario in this process and tell how it ended."""
    scenario = SCENARIOS[name]
    flow = scenario.flow(name, Bodies(killer, is_first_life=is_first_life))
    clock = Hurry()
    store = killing(open_store(f"sqlite:///{folder}/runs.db", clock), by=killer)
    with Host(store, clock=clock) as host:
        (folder / "recorded.json").write_text(json.dumps(chain_of(host)))
        result = scenario.program(host, flow, scenario.inputs)
        bodies = sum("body" in point for point in killer.points)
        again = host.run(flow, scenario.inputs, run_id=RUN)
        return {
            "status": result.status,
            "result": {k: brief(v) for k, v in sorted(result.items())},
            "state": {k: brief(v) for k, v in sorted(host.state(RUN).items())},
            "again": {k: brief(v) for k, v in sorted(again.items())},
            "ran_again": sum("body" in point for point in killer.points) - bodies,
            "chain": chain_of(host),
            "is_driven": host.info(RUN).is_driven,
        }


def chain_of(host: Host) -> list[Facts]:
    """Return the checkpoints of the run, each with its steps as (path, visit, status, attempts, key)."""
    try:
        history = host.history(RUN)
    except RunNotFound:
        return []
    return [
        {
            "sequence": record.sequence,
            "keyframe": record.keyframe,
            "steps": [[s.path, s.visit, s.status.value, s.attempts, s.key] for s in record.steps],
        }
        for record in history
    ]


def brief(value: Any) -> str:
    """Return a value as text, or its digest if that is long."""
    if isinstance(value, bytes) and len(value) > 500:
        return hashlib.sha256(value).hexdigest()
    text = repr(value)
    return text if len(text) < 500 else hashlib.sha256(text.encode()).hexdigest()


def main(work: str, name: str, where: str, at: str | None = None) -> None:
    """Live once in a folder, dying at a point if one is given; `lost` loses that point's reply instead."""
    folder = Path(where)
    trace = folder / "trace.jsonl"
    killer = Killer(at, act=lose_reply if work == "lost" else die, trace=trace)
    facts = live(name, folder, killer, is_first_life=not (folder / "runs.db").exists())
    (folder / "outcome.json").write_text(json.dumps(facts))


def in_child(work: str, name: str, folder: Path, at: str | None, *, afresh: bool = False) -> Facts:
    """Do `main` in a process of its own, forked or `afresh`; return how it ended and what it came across."""
    for stale in ("outcome.json", "recorded.json", "error.txt"):
        (folder / stale).unlink(missing_ok=True)
    arguments = [work, name, str(folder), *([at] if at is not None else [])]
    pid = started(arguments) if afresh else forked(arguments)
    _, status = os.waitpid(pid, 0)
    outcome, recorded, error = (folder / f for f in ("outcome.json", "recorded.json", "error.txt"))
    return {
        "at": at,
        "exit": os.waitstatus_to_exitcode(status),
        "trace": [line for line in read_trace(folder / "trace.jsonl") if line["pid"] == pid],
        "error": error.read_text() if error.exists() else None,
        "recorded": json.loads(recorded.read_text()) if recorded.exists() else [],
        **(json.loads(outcome.read_text()) if outcome.exists() else {}),
    }


def forked(arguments: list[str]) -> int:
    """Start `main` in a fork of this process, which has no threads; a hundred kills cost no imports."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            main(*arguments)
            code = 0
        except BaseException:
            Path(arguments[2], "error.txt").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return pid


def started(arguments: list[str]) -> int:
    """Start `main` in a new interpreter."""
    child = subprocess.Popen([sys.executable, "-m", "tests.acceptance.crash_flows", *arguments])
    child.returncode = 0  # the caller waits for it by its id
    return child.pid


def lives(work: str, name: str, folder: Path, *deaths: str | None, afresh: bool = False) -> list[Facts]:
    """Let one run live and die in a place of its own."""
    with TemporaryDirectory(dir=folder) as place:
        return [in_child(work, name, Path(place), at, afresh=afresh) for at in deaths]


def matrix(name: str, folder: Path, *, deep: str) -> list[list[Facts]]:
    """Kill at every point of the first life; after some of those also at every point of the second.

    `deep` says after which: `none`, `middle` or `every`. Each case is the list of lives a run had; nobody
    kills the last of them.
    """
    cases = [lives("run", name, folder, None)]
    points = points_of(cases[0][0])
    middle = points[len(points) // 2] if points else None
    for at in points:
        case = lives("run", name, folder, at, None)
        cases.append(case)
        if deep == "every" or (deep == "middle" and at == middle):
            cases += [lives("run", name, folder, at, then, None) for then in points_of(case[-1])]
    cases.append(lives("run", name, folder, middle, None, afresh=True))
    return cases


def lost_replies(name: str, folder: Path) -> list[list[Facts]]:
    """Lose the reply of every write, one at a time."""
    [whole] = lives("run", name, folder, None)
    writes = [p for p in points_of(whole) if p.startswith("after") and "body" not in p]
    return [[whole], *(lives("lost", name, folder, at) for at in writes)]


def points_of(life: Facts) -> list[str]:
    """Return the points of a life that every such life reaches: how often a lease is renewed is chance."""
    points = [line["point"] for line in life["trace"]]
    return [p for p in points if " renew " not in p or p.endswith(" renew 1")]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["matrix", name, where, deep]:
            print(json.dumps(matrix(name, Path(where), deep=deep)))
        case ["replies", name, where]:
            print(json.dumps(lost_replies(name, Path(where))))
        case arguments:
            main(*arguments)
