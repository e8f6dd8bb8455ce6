"""What a host promises, on every store it ships with."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import END, AsyncHost, Context, Durability, Flow, Host, Node, Retry, Status, ifelse, node, route
from everstep.errors import (
    BadRequest,
    FlowChanged,
    FlowError,
    InputError,
    InputsDiffer,
    NodeFailed,
    RunAbandoned,
    RunNotFound,
)
from everstep.runtime.events import Event
from everstep.testing import ManualClock
from tests.integration.noise import noise

pytestmark = pytest.mark.stores("memory", "sqlite")


@dataclass
class Order:
    number: int
    lines: list[str]


@node(output="a")
def first(x: int) -> int:
    return x + 1


@node(output="b")
def second(a: int) -> int:
    return a * 2


CHAIN = Flow("chain", [first, second], durability="strong")


def triggers(host: Host, run_id: str) -> list[str]:
    return [c.trigger.value for c in host.history(run_id)]


def test_a_finished_run_is_returned_and_nothing_runs_again(host: Host) -> None:
    calls = []

    @node(output="a")
    def counted(x: int) -> int:
        calls.append(x)
        return x + 1

    flow = Flow("f", [counted], durability="strong")
    assert host.run(flow, {"x": 1}, run_id="r")["a"] == 2
    again = host.run(flow, {"x": 1}, run_id="r")
    assert again.status == "completed" and again["a"] == 2 and calls == [1]
    assert host.run(flow, run_id="r")["a"] == 2


def test_other_inputs_than_the_recorded_ones_are_refused(host: Host) -> None:
    host.run(CHAIN, {"x": 1}, run_id="r")
    with pytest.raises(InputsDiffer, match="different: x"):
        host.run(CHAIN, {"x": 2}, run_id="r")


def test_the_order_of_a_dicts_keys_is_no_other_input(host: Host) -> None:
    @node(output="n")
    def size(d: dict[str, int]) -> int:
        return len(d)

    flow = Flow("f", [size])
    host.run(flow, {"d": {"a": 1, "b": 2}}, run_id="r")
    assert host.run(flow, {"d": {"b": 2, "a": 1}}, run_id="r")["n"] == 2


def test_a_run_id_belongs_to_one_flow(host: Host) -> None:
    host.run(CHAIN, {"x": 1}, run_id="r")
    with pytest.raises(FlowChanged, match="belongs to flow 'chain'"):
        host.run(Flow("other", [first]), {"x": 1}, run_id="r")


def test_an_unfinished_run_of_a_changed_flow_is_refused_by_name(host: Host) -> None:
    @node(output="b", name="second")
    def dies(a: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host.run(Flow("chain", [first, dies], durability="strong"), {"x": 1}, run_id="r")
    with pytest.raises(FlowChanged, match="'first' is finished, and has changed: it reads y now, not x"):
        host.run(Flow("chain", [first.with_inputs(x="y"), second]), {"y": 1}, run_id="r")
    assert host.run(CHAIN, {"x": 1}, run_id="r")["b"] == 4


@pytest.mark.parametrize("run_id", ["", "../x", "a b", "x" * 129, "-a", "ä"])
def test_a_bad_run_id_is_refused(host: Host, run_id: str) -> None:
    with pytest.raises(BadRequest, match="not a run id"):
        host.run(CHAIN, {"x": 1}, run_id=run_id)


def test_an_unknown_run_is_named(host: Host) -> None:
    for ask in (host.history, host.state, host.cancel, host.info):
        with pytest.raises(RunNotFound, match="'nope'"):
            ask("nope")


def test_strong_commits_every_step_and_completion_rides_in_the_last(host: Host) -> None:
    host.run(CHAIN, {"x": 1}, run_id="r")
    assert triggers(host, "r") == ["admission", "step", "completed"]


def test_partial_commits_the_start_the_end_and_effects(host: Host) -> None:
    effect = node(output="b", effects="effectful", idempotency_key="auto")(second.fn)
    third = second.with_name("third").with_inputs(a="b").with_outputs("c")
    host.run(Flow("f", [first, second]), {"x": 1}, run_id="plain")
    assert triggers(host, "plain") == ["admission", "completed"]
    host.run(Flow("g", [first, effect, third]), {"x": 1}, run_id="effect")
    assert triggers(host, "effect") == ["admission", "before_effect", "effect", "completed"]


def test_off_writes_nothing(host: Host) -> None:
    assert host.run(Flow("f", [first], durability="off"), {"x": 1})["a"] == 2
    assert host.runs() == []


def test_a_checkpoint_without_a_store_warns(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    @node(output="a")
    def asks(x: int, ctx: Context) -> int:
        ctx.checkpoint()
        return x

    assert host.run(Flow("f", [asks], durability="off"), {"x": 1})["a"] == 1
    assert "asked for a checkpoint" in caplog.text


def chain_of(n: int, durability: Durability, **options: Any) -> Flow:
    link = node(output="v", **options)(first.fn)
    nodes = [link.with_name(f"n{k}").with_inputs(x=f"v{k}").with_outputs(f"v{k + 1}") for k in range(n)]
    return Flow("links", nodes, durability=durability)


def test_an_interval_counts_steps(host: Host) -> None:
    host.run(chain_of(10, Durability("strong", interval=4)), {"v0": 0}, run_id="r")
    assert [len(c.steps) for c in host.history("r")] == [1, 4, 4, 2]


def test_an_interval_counts_time(url: str) -> None:
    clock = ManualClock()

    @node(output="v")
    def slow(x: int) -> int:
        clock.advance(2)
        return x + 1

    nodes = [slow.with_name(f"n{k}").with_inputs(x=f"v{k}").with_outputs(f"v{k + 1}") for k in range(6)]
    flow = Flow("slow", nodes, durability=Durability("strong", interval=timedelta(seconds=5)))
    with Host(url, clock=clock) as host:
        host.run(flow, {"v0": 0}, run_id="r")
        assert [len(c.steps) for c in host.history("r")] == [1, 4, 2]


def test_pure_steps_ride_until_an_effect(host: Host) -> None:
    pure = chain_of(5, Durability("strong", flush="before_effects"), effects="pure")

    @node(output="done", effects="effectful", idempotency_key="auto", name="effect")
    def plain_effect(v5: int) -> int:
        return v5

    flow = Flow("f", [*pure.nodes, plain_effect], durability=Durability("strong", flush="before_effects"))
    host.run(flow, {"v0": 0}, run_id="r")
    assert [(c.trigger.value, len(c.steps)) for c in host.history("r")] == [
        ("admission", 1),
        ("before_effect", 5),
        ("completed", 1),
    ]


def test_undeclared_steps_do_not_ride(host: Host) -> None:
    host.run(chain_of(3, Durability("strong", flush="before_effects")), {"v0": 0}, run_id="r")
    assert [len(c.steps) for c in host.history("r")] == [1, 1, 1, 1]


def test_nondeterministic_steps_do_not_ride(host: Host) -> None:
    flow = chain_of(
        3, Durability("strong", flush="before_effects"), effects="pure", determinism="nondeterministic"
    )
    host.run(flow, {"v0": 0}, run_id="r")
    assert [len(c.steps) for c in host.history("r")] == [1, 1, 1, 1]


def test_riding_steps_are_written_while_a_node_holds_the_thread(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    clock = ManualClock()
    seen: list[int] = []

    @node(output="end", effects="pure")
    def long(v3: int) -> int:
        clock.advance(5)
        with Host(url) as other:
            deadline = time.monotonic() + 60
            while len(other.history("r")) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.extend(len(c.steps) for c in other.history("r"))
        return v3

    lagging = Durability("strong", flush="before_effects")
    flow = Flow("f", [*chain_of(3, lagging, effects="pure").nodes, long], durability=lagging)
    with Host(url, clock=clock) as host:
        assert host.run(flow, {"v0": 0}, run_id="r").status == "completed"
    assert seen == [1, 3]


def test_a_node_can_ask_for_a_checkpoint(host: Host) -> None:
    @node(output="b", name="second")
    def asks(a: int, ctx: Context) -> int:
        ctx.checkpoint({"stage": "half"})
        return a

    third = second.with_name("third").with_inputs(a="b").with_outputs("c")
    host.run(Flow("f", [first, asks, third]), {"x": 1}, run_id="r")
    manual = host.history("r")[1]
    assert manual.trigger == "manual" and [s.path for s in manual.steps] == ["first", "second"]
    assert manual.metadata is not None
    assert {"stage": "half", "node": "second", "visit": 1}.items() <= manual.metadata.items()
    assert host.state("r", at=2).frontier.pending == ("third",)


def test_a_failing_node_asks_for_no_checkpoint(host: Host) -> None:
    @node(output="b")
    def asks(a: int, ctx: Context) -> int:
        ctx.checkpoint()
        raise ValueError("no")

    host.run(Flow("f", [first, asks]), {"x": 1}, run_id="r")
    assert "manual" not in triggers(host, "r")


# -- retries, time-outs, failures ---------------------------------------------------------------------------


def test_a_retry_pauses_longer_each_time(url: str) -> None:
    clock = ManualClock(auto=True)
    at: list[float] = []

    @node(output="a", retry=Retry(3, first=1.0, factor=3.0, jitter=0))
    def flaky(x: int, ctx: Context) -> int:
        at.append(clock.monotonic())
        if ctx.attempt < 4:
            raise OSError("not yet")
        return x

    with Host(url, clock=clock) as host:
        result = host.run(Flow("f", [flaky]), {"x": 1}, run_id="r")
        assert result.status == "completed"
        assert [round(b - a, 6) for a, b in pairwise(at)] == [1, 3, 9]
        statuses = [(s.status.value, s.attempts) for c in host.history("r") for s in c.steps][1:]
        assert statuses == [("retrying", 1), ("retrying", 2), ("retrying", 3), ("completed", 4)]


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        (30, 30.0),
        (0.5, 1.0),
        (10**9, 3600.0),
        (-5, 1.0),
        (float("nan"), 1.0),
        ("30", 1.0),
        (True, 1.0),
        (None, 1.0),
    ],
)
def test_an_error_may_ask_for_a_longer_pause(asked: Any, pause: float) -> None:
    class Busy(Exception):
        def __init__(self) -> None:
            self.retry_after = asked

    @node(output="a", retry=Retry(1, first=1.0, jitter=0))
    def fetch(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise Busy
        return 1

    clock = ManualClock(auto=True)
    with Host("memory:", clock=clock) as host:
        assert host.run(Flow("f", [fetch])).status == "completed"
    assert clock.monotonic() == pause


def test_a_retry_does_not_wait_for_a_sibling_that_runs(host: Host) -> None:
    order = []

    @node(output="a", retry=Retry(1, first=0, jitter=0))
    async def flaky(x: int, ctx: Context) -> int:
        order.append(f"try {ctx.attempt}")
        if ctx.attempt == 1:
            raise OSError
        return x

    @node(output="b")
    async def slow(x: int) -> int:
        while "try 2" not in order:
            await asyncio.sleep(0)
        return x

    assert host.run(Flow("f", [flaky, slow]), {"x": 1}).status == "completed"


def test_only_the_named_errors_are_tried_again(host: Host) -> None:
    calls = []

    @node(output="a", retry=Retry(5, first=0, on=(OSError,)))
    def picky(x: int) -> int:
        calls.append(1)
        raise ValueError("for good")

    result = host.run(Flow("f", [picky]), {"x": 1})
    assert result.status == "failed" and len(calls) == 1
    assert result.error is not None and result.error.type == "ValueError"
    assert "for good" in result.error.traceback and "picky" in result.error.traceback
    assert str(Path(everstep.__file__).parent) not in result.error.traceback
    with pytest.raises(NodeFailed) as caught:
        result.raise_for_status()
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_failed_run_is_reopened_at_the_failed_node(host: Host) -> None:
    calls: list[str] = []
    broken = [True]

    @node(output="a")
    def good(x: int) -> int:
        calls.append("good")
        return x

    @node(output="b", retry=Retry(1, first=0))
    def bad(a: int) -> int:
        calls.append("bad")
        if broken:
            raise ValueError("broken")
        return a

    flow = Flow("f", [good, bad])
    assert host.run(flow, {"x": 1}, run_id="r").status == "failed"
    assert host.run(flow, {"x": 1}, run_id="r").status == "failed"
    assert calls == ["good", "bad", "bad"]
    assert host.resume("r", flow).status == "failed"
    assert calls == ["good", "bad", "bad", "bad", "bad"], "a reopened node has a fresh budget"
    broken.clear()
    assert host.resume("r", flow)["b"] == 1
    assert calls.count("good") == 1


def test_after_a_failure_nothing_new_starts_and_what_runs_is_recorded(host: Host) -> None:
    ran = []

    @node(output="a")
    async def fails(x: int) -> int:
        raise ValueError("early")

    @node(output="b")
    async def slow(x: int) -> int:
        await asyncio.sleep(0.01)
        return 7

    @node(output="c")
    async def after(b: int) -> int:
        ran.append(b)
        return b

    result = host.run(Flow("f", [fails, slow, after]), {"x": 1}, run_id="r")
    assert result.status == "failed" and result["b"] == 7 and ran == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_node_that_takes_too_long_is_timed_out_and_may_be_tried_again(host: Host, kind: str) -> None:
    release = threading.Event()

    def slow_sync(x: int, ctx: Context) -> int:
        if ctx.attempt == 1:
            release.wait(10)
        return x

    async def slow_async(x: int, ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.sleep(10)
        return x

    body = slow_sync if kind == "sync" else slow_async
    slow = node(output="a", timeout=0.02, retry=Retry(1, first=0), name="slow")(body)
    result = host.run(Flow("f", [slow]), {"x": 5}, run_id="r")
    release.set()
    assert result.status == "completed" and result["a"] == 5
    first_try = host.history("r")[1].steps[0]
    assert first_try.error is not None and first_try.error.code == "node.timeout"


def test_an_effectful_node_is_not_retried_before_its_thread_has_ended(host: Host) -> None:
    alive = 0
    most = 0
    lock = threading.Lock()

    @node(output="a", timeout=0.02, retry=Retry(2, first=0), effects="effectful", idempotency_key="auto")
    def effect(x: int, ctx: Context) -> int:
        nonlocal alive, most
        with lock:
            alive += 1
            most = max(most, alive)
        if ctx.attempt == 1:
            time.sleep(0.1)
        with lock:
            alive -= 1
        return x

    assert host.run(Flow("f", [effect]), {"x": 1}).status == "completed"
    assert most == 1


def test_limits_are_named_and_the_run_can_be_inspected(host: Host) -> None:
    @node(output="i")
    def step(i: int) -> int:
        return i + 1

    @ifelse(when_true="step", when_false=END)
    def forever(i: int) -> bool:
        return True

    result = host.run(Flow("f", [step, forever], entry="step", max_steps=20), {"i": 0}, run_id="r")
    assert result.status == "failed" and result.error is not None
    assert result.error.code == "run.limit_exceeded" and "20 steps" in result.error.message
    assert host.state("r")["i"] == 10
    limited = node(output="i", max_visits=3, name="step")(step.fn)
    result = host.run(Flow("g", [limited, forever], entry="step"), {"i": 0})
    assert result.error is not None and "visited 3 times" in result.error.message
    longer = Flow("f", [step, forever], entry="step", max_steps=30)
    assert host.resume("r", longer).steps == 30


def test_a_chosen_node_that_starves_fails_by_name(host: Host) -> None:
    @route("needs", "writes")
    def gate(x: int) -> str:
        return "needs"

    @node(output="z")
    def needs(y: int) -> int:
        return y

    @node(output="y")
    def writes(x: int) -> int:
        return x

    result = host.run(Flow("f", [gate, needs, writes]), {"x": 1})
    assert result.error is not None and result.error.code == "node.input_never_came"
    assert "'needs' waits for y" in result.error.message


def test_a_gate_must_choose_what_it_declares(host: Host) -> None:
    @route("first", END)
    def gate(x: int) -> str:
        return "elsewhere"

    @ifelse(when_true="first", when_false=END)
    def truthy(x: int) -> bool:
        return 1  # type: ignore[return-value]

    for bad in (gate, truthy):
        result = host.run(Flow("f", [bad, first]), {"x": 1})
        assert result.error is not None and result.error.code == "gate.bad_decision"


def test_a_node_must_return_its_outputs(host: Host) -> None:
    @node(output=("p", "q"), retry=3)
    def short() -> Any:
        return (1,)

    result = host.run(Flow("f", [short]))
    assert result.error is not None and result.error.code == "node.bad_output"


def test_a_value_that_cannot_be_kept_fails_its_node_by_name(host: Host) -> None:
    @node(output="o")
    def handle() -> Any:
        return {"deep": [1, threading.Lock()]}

    result = host.run(Flow("f", [handle]))
    assert result.error is not None and result.error.code == "value.not_storable"
    assert "o.deep[1]" in result.error.message


# -- keys -----------------------------------------------------------------------------------------------


def test_keys_are_stable_templated_or_of_the_users_making(host: Host) -> None:
    keys: dict[str, list[str]] = {"auto": [], "template": [], "callable": []}

    def noting(kind: str, rule: Any) -> Any:
        @node(output=kind, name=kind, effects="effectful", idempotency_key=rule, retry=Retry(2, first=0))
        def effect(x: int, ctx: Context) -> int:
            keys[kind].append(ctx.idempotency_key)
            if ctx.attempt < 3:
                raise OSError
            return x

        return effect

    rules = {"auto": "auto", "template": "order-{x}", "callable": lambda x: str(uuid.uuid4())}
    host.run(Flow("f", [noting(kind, rule) for kind, rule in rules.items()]), {"x": 7}, run_id="r")
    assert all(len(seen) == 3 and len(set(seen)) == 1 for seen in keys.values())
    assert keys["template"][0] == "order-7"
    consumed = host.state("r").idempotency.consumed
    assert consumed == {kind: [seen[0]] for kind, seen in keys.items()}


def test_a_key_template_that_cannot_be_filled_fails_its_node(host: Host) -> None:
    @node(output="a", effects="effectful", idempotency_key="{x.nope}")
    def effect(x: int) -> int:
        return x

    result = host.run(Flow("f", [effect]), {"x": 1})
    assert result.status == "failed" and result.error is not None and "'nope'" in result.error.message
    with pytest.raises(FlowError, match=r"flow\.bad_key"):
        host.run(
            Flow("f", [Node(effect.fn, output="a", effects="effectful", idempotency_key="{nope}")]), {"x": 1}
        )


# -- values ---------------------------------------------------------------------------------------------


def test_nodes_never_share_a_mutable_object(host: Host) -> None:
    seen: dict[str, Any] = {}

    @node(output="items")
    def make() -> list[int]:
        return [3, 1, 2]

    @node(output="s")
    def sorts(items: list[int]) -> int:
        items.sort()
        seen["sorts"] = items
        return 1

    @node(output="t")
    def appends(items: list[int]) -> int:
        items.append(9)
        seen["appends"] = items
        return 1

    result = host.run(Flow("f", [make, sorts, appends], durability="strong"))
    assert seen == {"sorts": [1, 2, 3], "appends": [3, 1, 2, 9]}
    assert result["items"] == [3, 1, 2]


def test_a_sole_reader_that_changes_its_input_does_not_change_the_record(host: Host) -> None:
    @node(output="items")
    def make() -> list[int]:
        return [3, 1, 2]

    @node(output="s", retry=Retry(1, first=0))
    def sorts(items: list[int], ctx: Context) -> list[int]:
        items.append(9)
        if ctx.attempt == 1:
            raise OSError
        return list(items)

    result = host.run(Flow("f", [make, sorts]), run_id="r")
    assert result["items"] == [3, 1, 2] and result["s"] == [3, 1, 2, 9]
    assert host.state("r")["items"] == [3, 1, 2]


def test_the_callers_own_objects_are_left_alone(host: Host) -> None:
    @node(output="n")
    def appends(items: list[int]) -> int:
        items.append(9)
        return len(items)

    mine = [1, 2]
    assert host.run(Flow("f", [appends]), {"items": mine})["n"] == 3
    assert mine == [1, 2]


def test_a_growing_list_costs_what_was_appended(host: Host) -> None:
    @node(output=("log", "i"))
    def grow(log: list[Any], i: int) -> Any:
        log.append({"i": i, "text": "x" * 100})
        return log, i + 1

    @ifelse(when_true="grow", when_false=END)
    def more(i: int, n: int) -> bool:
        return i < n

    flow = Flow("f", [grow, more], entry="grow", durability="strong")
    result = host.run(flow, {"log": [], "i": 0, "n": 200}, run_id="r")
    assert len(result["log"]) == 200
    sizes = [w.size for c in host.history("r") for s in c.steps for w in s.writes if w.name == "log"]
    assert max(sizes) < 250
    assert len(host.state("r", at=101)["log"]) == 50


def test_an_old_item_changed_in_place_is_written_whole(host: Host) -> None:
    @node(output=("log", "i"))
    def grow(log: list[Any], i: int) -> Any:
        if i == 3:
            log[0]["i"] = 0.0
        log.append({"i": i})
        return log, i + 1

    @ifelse(when_true="grow", when_false=END)
    def more(i: int) -> bool:
        return i < 5

    flow = Flow("f", [grow, more], entry="grow", durability="strong")
    host.run(flow, {"log": [], "i": 0}, run_id="r")
    recorded = host.state("r")["log"]
    assert (
        recorded == [{"i": 0.0}, {"i": 1}, {"i": 2}, {"i": 3}, {"i": 4}] and type(recorded[0]["i"]) is float
    )
    forms = [w.form.value for c in host.history("r") for s in c.steps for w in s.writes if w.name == "log"]
    assert forms == ["whole", "append", "append", "append", "whole", "append"]


def test_keyframes_keep_the_tail_short_and_change_nothing(host: Host) -> None:
    @node(output=("i", "pad"))
    def step(i: int) -> Any:
        return i + 1, noise(i, 1200)

    @ifelse(when_true="step", when_false=END)
    def more(i: int, n: int) -> bool:
        return i < n

    flow = Flow("f", [step, more], entry="step", durability="strong")
    host.run(flow, {"i": 0, "n": 120}, run_id="r")
    history = host.history("r")
    frames = [c.sequence for c in history if c.keyframe]
    assert len(frames) >= 2
    for at in (frames[0] - 1, frames[0], frames[0] + 1, frames[-1], len(history)):
        steps = [s for c in history[:at] for s in c.steps if s.path == "step"]
        state = host.state("r", at=at)
        assert state["i"] == len(steps) and state["pad"] == noise(len(steps) - 1, 1200)
        assert state.counters.steps == sum(len(c.steps) for c in history[:at]) - 1


def test_large_values_become_artifacts_and_come_back(host: Host) -> None:
    @node(output="big")
    def big() -> str:
        return "x" * 1_000_000

    @node(output="small", persist="ref")
    def small() -> str:
        return "y"

    @node(output="wide", persist="inline")
    def wide() -> str:
        return "z" * 1_000_000

    flow = Flow("f", [big, small, wide])
    assert len(host.run(flow, run_id="r")["big"]) == 1_000_000
    artifacts = {w.name: w.artifact for c in host.history("r") for s in c.steps for w in s.writes}
    assert artifacts["big"] is not None and artifacts["small"] is not None and artifacts["wide"] is None
    again = host.run(flow, run_id="r")
    assert again["big"] == "x" * 1_000_000 and again["small"] == "y" and len(again["wide"]) == 1_000_000


def test_values_that_are_not_kept_are_made_again_where_they_are_missed(host: Host) -> None:
    made = []

    @node(output="handle", persist="no")
    def connect(x: int) -> Any:
        made.append(x)
        return threading.Lock()

    @node(output="b")
    def early(handle: Any) -> int:
        return 1

    @node(output="c")
    def late(handle: Any, b: int) -> int:
        assert handle.acquire()
        if len(made) == 1:
            raise KeyboardInterrupt
        return b + 1

    flow = Flow("f", [connect, early, late], durability="strong")
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="r")
    result = host.run(flow, {"x": 1}, run_id="r")
    assert result["c"] == 2 and made == [1, 1]
    recorded = host.run(flow, {"x": 1}, run_id="r")
    assert "handle" not in recorded and made == [1, 1]
    assert recorded.get("handle") is None and "handle" not in host.state("r")
    with pytest.raises(KeyError, match="was not kept"):
        host.state("r")["handle"]


def test_types_of_the_users_making_come_back(host: Host) -> None:
    @node(output="order")
    def make() -> Order:
        return Order(7, ["a"])

    flow = Flow("f", [make])
    host.run(flow, run_id="r")
    assert host.run(flow, run_id="r")["order"] == Order(7, ["a"])


# -- concurrency, loops of others, events ------------------------------------------------------------------


def test_independent_nodes_run_at_the_same_time(host: Host) -> None:
    barrier = threading.Barrier(2, timeout=10)
    meeting = asyncio.Event()

    @node(output="a")
    def left(x: int) -> int:
        return barrier.wait()

    @node(output="b")
    def right(x: int) -> int:
        return barrier.wait()

    @node(output="c")
    async def sets(x: int) -> int:
        meeting.set()
        return x

    @node(output="d")
    async def waits(x: int) -> int:
        await asyncio.wait_for(meeting.wait(), 10)
        return x

    assert host.run(Flow("f", [left, right, waits, sets]), {"x": 1}).status == "completed"


def test_concurrency_can_be_limited(host: Host) -> None:
    alive = most = 0

    @node(output="v")
    async def counts(x: int) -> int:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        await asyncio.sleep(0)
        alive -= 1
        return x

    nodes = [counts.with_name(f"n{k}").with_outputs(f"v{k}") for k in range(20)]
    assert host.run(Flow("f", nodes, max_concurrency=3), {"x": 1}).status == "completed"
    assert most == 3


def test_a_finished_sibling_commits_by_itself(host: Host) -> None:
    release = threading.Event()
    seen: list[str] = []

    @node(output="a")
    def quick(x: int) -> int:
        return x

    @node(output="b")
    def slow(x: int) -> int:
        release.wait(10)
        return x

    def watch(event: Event) -> None:
        if event.kind == "checkpoint":
            seen.append(event.data["trigger"])
            release.set()

    with Host("memory:", on_event=watch) as watched:
        assert watched.run(Flow("f", [quick, slow], durability="strong"), {"x": 1}).status == "completed"
    assert seen == ["step", "completed"]


def test_what_start_says_of_a_run_is_what_the_store_keeps(url: str) -> None:
    async def go() -> None:
        async with AsyncHost(url) as host:
            plain = await host.start(Flow("f", [first]), {"x": 1})
            placed = await host.start(Flow("f", [first]), {"x": 1}, priority=3, group="a")
            again = await host.start(Flow("f", [first]), {"x": 1}, run_id=plain.run_id)
            kept = {info.run_id: info for info in await host.runs()}  # as here, without labels
            assert (plain, placed) == (kept[plain.run_id], kept[placed.run_id])
            assert again == plain

    asyncio.run(go())


def test_many_runs_share_a_host(url: str) -> None:
    @node(output="b")
    async def slow(a: int) -> int:
        await asyncio.sleep(0)
        return a * 2

    flow = Flow("f", [node(output="a")(first.fn), slow], durability="strong")

    async def go() -> list[Any]:
        async with AsyncHost(url) as host:
            results = await asyncio.gather(*(host.run(flow, {"x": k}, run_id=f"r{k}") for k in range(40)))
            for k in range(40):
                assert [c.sequence for c in await host.history(f"r{k}")] == [1, 2, 3]
            return [r["b"] for r in results]

    assert asyncio.run(go()) == [(k + 1) * 2 for k in range(40)]


def test_several_threads_share_a_host(host: Host) -> None:
    meeting = threading.Barrier(4, timeout=10)

    @node(output="a")
    def meets(x: int) -> int:
        meeting.wait()
        return x

    flow = Flow("f", [meets])
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda k=k: results.append(host.run(flow, {"x": k})["a"])) for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 1, 2, 3]


def test_a_host_works_where_a_loop_is_running(host: Host) -> None:
    async def notebook() -> int:
        return int(host.run(CHAIN, {"x": 1})["b"])

    assert asyncio.run(notebook()) == 4


def test_generators_are_collected_and_their_chunks_told(url: str) -> None:
    chunks = []

    @node(output="text")
    def stream(x: int) -> Any:
        yield "a"
        yield "b"

    @node(output="more")
    async def astream(text: list[str]) -> Any:
        for part in text:
            yield part * 2

    def listen(event: Event) -> None:
        if event.kind == "chunk":
            chunks.append(event.data["chunk"])

    with Host(url, on_event=listen) as host:
        result = host.run(Flow("f", [stream, astream]), {"x": 1})
    assert (
        result["text"] == ["a", "b"] and result["more"] == ["aa", "bb"] and chunks == ["a", "b", "aa", "bb"]
    )


def test_events_tell_the_story_in_order(url: str) -> None:
    kinds: list[tuple[str, str]] = []
    with Host(url, on_event=lambda e: kinds.append((e.kind, e.node))) as host:
        host.run(CHAIN, {"x": 1})
    assert kinds == [
        ("run_started", ""),
        ("step_started", "first"),
        ("step_completed", "first"),
        ("checkpoint", ""),
        ("step_started", "second"),
        ("step_completed", "second"),
        ("checkpoint", ""),
        ("run_ended", ""),
    ]


def test_a_resume_tells_what_it_takes_from_the_records_and_what_it_runs(url: str) -> None:
    told: list[tuple[str, str, int]] = []
    failing = [True]

    @node(output="c")
    def shaky(b: int) -> int:
        if failing.pop():
            raise ConnectionError("not yet")
        failing.append(False)
        return b

    one, two = (node(name=name, output=out)(lambda a: a) for name, out in (("one", "b"), ("other", "o")))
    inner = Flow("inner", [one, shaky]).as_node()
    flow = Flow("f", [two, inner], durability="strong")
    with Host(url, on_event=lambda e: told.append((e.kind, e.node, e.visit))) as host:
        host.run(flow, {"a": 1}, run_id="r")
        assert not any(kind == "step_replayed" for kind, _, _ in told)
        told.clear()
        failing.append(False)
        assert host.resume("r", flow).status == "completed"
    steps = [(kind, node) for kind, node, _ in told if kind in ("step_replayed", "step_completed")]
    assert steps == [
        ("step_replayed", "other"),
        ("step_replayed", "inner/one"),
        ("step_completed", "inner/shaky"),
        ("step_completed", "inner"),
    ]


# -- cancelling, listing, looking back ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_running_run_is_cancelled(host: Host, kind: str) -> None:
    started, release = threading.Event(), threading.Event()

    def wait_sync(a: int) -> int:
        started.set()
        release.wait(10)
        return a

    async def wait_async(a: int) -> int:
        started.set()
        await asyncio.sleep(10)
        return a

    waits = node(output="b", name="waits")(wait_sync if kind == "sync" else wait_async)
    after = second.with_name("after").with_inputs(a="b").with_outputs("c")
    flow = Flow("f", [first, waits, after], durability="strong")
    said: list[Status] = []

    def cancel() -> None:
        started.wait(10)
        if kind == "sync":
            threading.Timer(0.05, release.set).start()
        said.append(host.cancel("r"))

    thread = threading.Thread(target=cancel)
    thread.start()
    result = host.run(flow, {"x": 1}, run_id="r")
    thread.join()
    assert result.status == "cancelled" and "c" not in result
    assert host.run(flow, {"x": 1}, run_id="r").status == "cancelled"
    assert host.cancel("r") == "cancelled"


def test_a_run_without_an_owner_is_cancelled_at_once(host: Host) -> None:
    @node(output="b", name="second")
    def dies(a: int) -> int:
        raise KeyboardInterrupt

    flow = Flow("f", [first, dies], durability="strong")
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="r")
    assert not host.info("r").is_driven
    assert host.cancel("r") == "cancelled"
    assert triggers(host, "r") == ["admission", "step", "cancelled"]


def test_runs_are_listed_newest_first_and_filtered(host: Host) -> None:
    for k in range(5):
        host.run(CHAIN, {"x": k}, run_id=f"r{k}")
    host.run(Flow("other", [first]), {"x": 1}, run_id="o")
    assert [r.run_id for r in host.runs(limit=3)] == ["o", "r4", "r3"]
    assert [r.run_id for r in host.runs(flow="chain", before="r3")] == ["r2", "r1", "r0"]
    assert host.runs(status="failed") == []
    info = host.info("r1")
    assert info.flow == "chain" and info.checkpoints == 3 and info.duration is not None
    with pytest.raises(BadRequest, match="not a status"):
        host.runs(status="sleeping")


def test_any_past_moment_can_be_seen(host: Host) -> None:
    host.run(CHAIN, {"x": 1}, run_id="r")
    assert dict(host.state("r", at=1)) == {"x": 1}
    middle = host.state("r", at=2)
    assert dict(middle) == {"x": 1, "a": 2} and middle.frontier.pending == ("second",)
    by_id = host.state("r", at=host.history("r")[1].checkpoint_id)
    assert by_id.sequence == 2
    with pytest.raises(RunNotFound, match="It has 1 to 3"):
        host.state("r", at=4)
    history = host.history("r")
    assert [c.base for c in history] == [None, history[0].checkpoint_id, history[1].checkpoint_id]
    assert len({c.digest for c in history}) == 3 and history[0].flow_id == "chain"


def test_takeovers_without_progress_end_in_an_abandoned_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    flow = Flow("f", [first], durability=Durability("strong", max_resume_attempts=3))
    with Host(url) as host:

        @node(output="a", name="first")
        def interrupted(x: int) -> int:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            host.run(Flow("f", [interrupted], durability="strong"), {"x": 1}, run_id="r")

        async def die_often() -> None:
            store = host._host._services.store
            for k in range(5):
                await store.lease("r", owner=f"o{k}", ttl=timedelta(0), process=None)

        asyncio.run(die_often())
        with pytest.raises(RunAbandoned, match="without writing anything"):
            host.run(flow, {"x": 1}, run_id="r")
        assert host.info("r").status == "abandoned"
        assert host.run(flow, {"x": 1}, run_id="r").status == "abandoned"
        assert host.resume("r", flow)["a"] == 2


def test_a_listener_that_fails_does_not_break_the_run(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise ValueError("the screen is gone")

    with Host(url, on_event=broken) as host:
        assert host.run(CHAIN, {"x": 1}, run_id="r").status == "completed"
        assert not host.info("r").is_driven
    assert "the screen is gone" in caplog.text


def test_a_loop_that_begins_nowhere_is_refused(host: Host) -> None:
    @node(output="i")
    def step(i: int = 0) -> int:
        return i + 1

    @ifelse(when_true="step", when_false=END)
    def more(i: int) -> bool:
        return i < 3

    with pytest.raises(InputError, match="entry="):
        host.run(Flow("f", [step, more]))
    assert host.run(Flow("f", [step, more], entry="step"))["i"] == 3


def test_a_run_cancelled_during_its_last_step_does_not_complete(host: Host) -> None:
    @node(output="a")
    def cancels(x: int, ctx: Context) -> int:
        said.append(host.cancel(ctx.run_id))
        return x

    said: list[Status] = []
    result = host.run(Flow("f", [cancels], durability="strong"), {"x": 1}, run_id="r")
    assert said == ["running"] and result.status == "cancelled" and result["a"] == 1


def test_a_retry_on_timeouts_covers_the_nodes_own(host: Host) -> None:
    @node(output="a", timeout=0.02, retry=Retry(1, first=0, on=TimeoutError))
    async def slow(x: int, ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.sleep(10)
        return x

    assert host.run(Flow("f", [slow]), {"x": 1}).status == "completed"


def test_keys_see_defaults_and_only_what_they_ask_for(host: Host) -> None:
    keys: list[str] = []

    def body(x: int, ctx: Context, region: str = "eu") -> int:
        keys.append(ctx.idempotency_key)
        return x

    for rule in ("{region}-{x}", lambda x: f"only-{x}", lambda **all_: "-".join(sorted(all_))):
        effect = node(output="a", effects="effectful", idempotency_key=rule)(body)
        host.run(Flow("f", [effect]), {"x": 1})
    assert keys == ["eu-1", "only-1", "region-x"]


def test_a_value_that_cannot_be_made_again_as_it_was_fails_by_name(host: Host) -> None:
    dies = [True]

    @node(output="n")
    def step(n: int) -> int:
        return n + 1

    @route("connect", "use")
    def gate(n: int) -> str:
        return "connect" if n == 1 else "use"

    @node(output="handle", persist="no")
    def connect(n: int) -> Any:
        return ("handle", n)

    @route("step", END)
    def back(handle: Any) -> str:
        return "step"

    @node(output="out")
    def use(handle: Any, n: int) -> str:
        if dies:
            raise KeyboardInterrupt
        return f"{handle} {n}"

    flow = Flow("f", [step, gate, connect, back, use], entry="step", durability="strong")
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"n": 0}, run_id="r")
    dies.clear()
    result = host.run(flow, {"n": 0}, run_id="r")
    assert (
        result.error is not None and "'handle' was not kept and cannot be made again" in result.error.message
    )


def test_what_is_no_flow_is_told_how_to_become_one(host: Host) -> None:
    with pytest.raises(BadRequest, match=r"Flow\('first', \[first\]\)"):
        host.run(first, {"x": 1})  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="not a flow"):
        host.run(None)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="not a list"):
        Flow("f", first)


def test_an_interrupted_run_keeps_what_had_finished(host: Host) -> None:
    ran: list[str] = []

    @node(output="a", name="first")
    def counted(x: int) -> int:
        ran.append("first")
        return x

    @node(output="b", name="second")
    def interrupted(a: int) -> int:
        if ran == ["first"]:
            ran.append("interrupt")
            raise KeyboardInterrupt
        return a

    flow = Flow("f", [counted, interrupted])
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="r")
    assert triggers(host, "r") == ["admission", "interrupted"]
    assert host.run(flow, {"x": 1}, run_id="r")["b"] == 1 and ran.count("first") == 1


def test_a_cancelled_task_lets_go_of_its_run(url: str) -> None:
    async def go() -> None:
        started = asyncio.Event()
        tries = [1]

        @node(output="b", name="second")
        async def waits(a: int) -> int:
            started.set()
            if len(tries) == 1:
                await asyncio.sleep(60)
            return a

        flow = Flow("f", [first, waits])
        async with AsyncHost(url) as host:
            task = asyncio.create_task(host.run(flow, {"x": 1}, run_id="r"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not (await host.info("r")).is_driven
            tries.append(2)
            assert (await host.run(flow, {"x": 1}, run_id="r"))["b"] == 2

    asyncio.run(go())


def test_a_failure_survives_a_keyframe(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everstep.runtime.drive.chain_writer.KEYFRAME_BYTES", 0)
    monkeypatch.setattr(
        "everstep.runtime.drive.chain_writer._NODE_COST", -1_000_000
    )  # every checkpoint is a keyframe
    calls: list[str] = []
    alive = [True]

    @node(output="a", effects="effectful", idempotency_key="auto")
    async def pay(x: int) -> int:
        calls.append("pay")
        raise ValueError("card refused")

    @node(output="b")
    async def slow(x: int) -> int:
        await asyncio.sleep(0.01)
        return 1

    @node(output="c")
    async def slower(x: int) -> int:
        await asyncio.sleep(0.05)
        if alive:
            raise KeyboardInterrupt
        return 1

    flow = Flow("f", [pay, slow, slower], durability="strong")
    with pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="r")
    assert any(c.keyframe and "slow" in [s.path for s in c.steps] for c in host.history("r"))
    alive.clear()
    result = host.run(flow, {"x": 1}, run_id="r")
    assert result.status == "failed" and calls == ["pay"]


def test_a_key_made_of_values_is_durable_before_it_is_used(host: Host) -> None:
    keys: list[str] = []

    @node(output="order")
    def number(x: int) -> str:
        return uuid.uuid4().hex

    @node(output="paid", effects="effectful", idempotency_key="pay-{order}")
    def pay(order: str, ctx: Context) -> str:
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            raise SystemExit
        return "ok"

    flow = Flow("f", [number, pay])
    with pytest.raises(SystemExit):
        host.run(flow, {"x": 1}, run_id="r")
    assert host.run(flow, {"x": 1}, run_id="r").status == "completed"
    assert len(set(keys)) == 1


def test_a_sync_node_cancelled_from_within_fails_like_any_other(host: Host) -> None:
    @node(output="y")
    def cancelled(x: int) -> int:
        raise asyncio.CancelledError("inner")

    @node(output="w")
    def other(x: int) -> int:
        return 1

    for nodes in ([cancelled], [cancelled, other]):
        result = host.run(Flow("f", nodes, durability="strong"), {"x": 1})
        assert (
            result.status == "failed" and result.error is not None and "from within" in result.error.message
        )


def test_waiting_for_a_thread_does_not_count_as_time(url: str) -> None:
    calls: list[str] = []

    @node(output="o", timeout=0.6, effects="effectful", idempotency_key="auto", retry=Retry(2, first=0))
    def quick(x: int, ctx: Context) -> int:
        calls.append(ctx.node)
        time.sleep(0.15)
        return 1

    nodes = [quick.with_name(f"n{k}").with_outputs(f"o{k}") for k in range(10)]
    with Host(url, max_threads=2) as host:
        assert host.run(Flow("f", nodes), {"x": 1}).status == "completed"
    assert len(calls) == len(set(calls)) == 10


def test_one_object_under_two_names_is_two_values(host: Host) -> None:
    @node(output=("a", "b"))
    def two(x: int) -> Any:
        rows = ["x" * 100_000]
        return rows, rows

    @node(output="c")
    def left(a: list[Any]) -> int:
        a.append("A")
        return len(a)

    @node(output="d")
    def right(b: list[Any], c: int) -> int:
        return len(b)

    assert host.run(Flow("f", [two, left, right]), {"x": 1})["d"] == 1


def test_what_a_module_keeps_is_not_handed_out(host: Host) -> None:
    defaults: dict[str, list[int]] = {"tags": []}

    @node(output="settings")
    def load(x: int) -> dict[str, list[int]]:
        return defaults

    @node(output="out")
    def tag(settings: dict[str, list[int]], x: int) -> list[int]:
        settings["tags"].append(x)
        return settings["tags"]

    flow = Flow("f", [load, tag])
    assert [host.run(flow, {"x": k})["out"] for k in (1, 2)] == [[1], [2]] and defaults == {"tags": []}


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


ODD_ERRORS = [
    ValueError("name \udcff"),
    Unprintable(),
    ExceptionGroup("many", [ValueError("one"), TypeError("two")]),
]


@pytest.mark.parametrize("error", ODD_ERRORS, ids=["surrogate", "unprintable", "group"])
def test_any_exception_can_be_recorded(host: Host, error: Exception) -> None:
    @node(output="y")
    def raises(x: int) -> int:
        raise error

    flow = Flow("f", [raises], durability="strong")
    assert host.run(flow, {"x": 1}, run_id="r").status == "failed"
    again = host.run(flow, {"x": 1}, run_id="r")
    assert again.error is not None and again.error.type == type(error).__name__
    if isinstance(error, ExceptionGroup):
        assert "ValueError: one" in again.error.traceback and "TypeError: two" in again.error.traceback


def test_the_cause_of_an_error_is_kept(host: Host) -> None:
    @node(output="y")
    def raises(x: int) -> int:
        try:
            return int("x")
        except ValueError as error:
            raise KeyError("wrapped") from error

    result = host.run(Flow("f", [raises]), {"x": 1})
    assert result.error is not None and "invalid literal" in result.error.traceback


@pytest.mark.parametrize("metadata", [{1: "a"}, {"x": object()}, {"n": 2**70}])
def test_metadata_that_cannot_be_kept_fails_its_node(host: Host, metadata: Any) -> None:
    @node(output="y")
    def asks(x: int, ctx: Context) -> int:
        ctx.checkpoint(metadata)
        return x

    result = host.run(Flow("f", [asks]), {"x": 1}, run_id="r")
    assert result.status == "failed" and result.error is not None and "plain values" in result.error.message
    assert host.run(Flow("f", [asks]), {"x": 1}, run_id="r").status == "failed"


def test_checkpoints_asked_for_together_are_all_written(host: Host) -> None:
    def asking(name: str) -> Any:
        @node(output=name, name=name)
        async def asks(x: int, ctx: Context) -> int:
            ctx.checkpoint({"who": name})
            return x

        return asks

    names = [f"n{k}" for k in range(10)]
    host.run(Flow("f", [asking(name) for name in names]), {"x": 1}, run_id="r")
    told = [c.metadata["who"] for c in host.history("r") if c.metadata is not None]
    assert sorted(told) == names


def test_off_writes_no_artifacts(tmp_path: Path) -> None:
    @node(output="big")
    def big() -> str:
        return "x" * 2_000_000

    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        assert len(host.run(Flow("f", [big], durability="off"))["big"]) == 2_000_000
    assert not (tmp_path / "runs.db.artifacts").exists()


def test_leases_of_different_lengths_are_renewed(url: str) -> None:
    async def go() -> None:
        @node(output="y")
        async def slow(x: int) -> int:
            await asyncio.sleep(0.5)
            return x

        long = Flow("long", [slow], durability=Durability("strong", lease_ttl=timedelta(hours=1)))
        short = Flow("short", [slow], durability=Durability("strong", lease_ttl=timedelta(seconds=0.2)))
        async with AsyncHost(url) as host:
            first_run = asyncio.create_task(host.run(long, {"x": 1}))
            await asyncio.sleep(0.05)
            second_run = asyncio.create_task(host.run(short, {"x": 2}, run_id="short"))
            await asyncio.sleep(0.35)
            assert (await host.info("short")).is_driven
            assert [r.status for r in await asyncio.gather(first_run, second_run)] == [
                "completed",
                "completed",
            ]

    asyncio.run(go())


def test_a_closed_host_says_so(url: str) -> None:
    host = Host(url)
    host.close()
    host.close()
    with pytest.raises(BadRequest, match="closed"):
        host.runs()
