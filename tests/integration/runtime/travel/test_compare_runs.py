"""Compare runs, find where they part, and run a step again, on every store a host ships with."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep import END, AsyncHost, Context, Durability, Flow, Host, Status, ifelse, node, wait
from everstep.codec.values import Values
from everstep.errors import (
    BadRequest,
    FlowChanged,
    NodeTimeout,
    RunNotFound,
    ValueNotStorable,
    ValueUnreadable,
)
from everstep.model.durability import DurabilityMode
from everstep.results import Unreadable
from everstep.runtime.travel.recall import chain_of
from tests.integration.noise import noise

pytestmark = pytest.mark.stores("memory", "sqlite")


class Knobs:
    """What a test turns to make a node come out differently."""

    factor = 1
    raises: Exception | None = None
    seen: list[Any]


KNOBS = Knobs()


@pytest.fixture(autouse=True)
def knobs() -> Iterator[Knobs]:
    KNOBS.__dict__.clear()
    KNOBS.seen = []
    yield KNOBS
    KNOBS.__dict__.clear()


@node(output="order")
def make(order_id: str, lines: int = 2) -> dict[str, Any]:
    return {"id": order_id, "lines": [{"price": k} for k in range(lines)]}


@node(output=("total", "note"))
def price(order: dict[str, Any]) -> tuple[int, str]:
    KNOBS.seen.append(order)
    if KNOBS.raises is not None:
        raise KNOBS.raises
    order["lines"].append("a node may change what it was given")
    return sum(line["price"] for line in order["lines"][:-1]) * KNOBS.factor, order["id"]


@ifelse(when_true="big", when_false="small")
def is_big(total: int) -> bool:
    return total > 5


@node(output="label")
def big(total: int) -> str:
    return f"big {total}"


@node(output="label")
def small(total: int) -> str:
    return f"small {total}"


def shop(durability: DurabilityMode | Durability = "strong") -> Flow:
    return Flow("shop", [make, price, is_big, big, small], durability=durability)


def run(host: Host, run_id: str, flow: Flow | None = None, **inputs: Any) -> None:
    host.run(flow or shop(), inputs or {"order_id": "A", "lines": 3}, run_id=run_id)


def changed(diff: Any) -> list[tuple[str, str, Any, Any]]:
    return [(c.path, c.kind, c.before, c.after) for c in diff.values]


# -- diff -------------------------------------------------------------------------------------------------


def test_a_run_does_not_differ_from_itself(host: Host) -> None:
    run(host, "r")
    found = host.debug.diff("r", "r")
    assert not found
    assert (found.values, found.nodes, found.status) == ((), (), ("completed", "completed"))
    assert not host.debug.diff("r", start=3, end=3)


def test_one_run_is_compared_with_its_beginning(host: Host) -> None:
    run(host, "r")
    found = host.debug.diff("r")
    assert (found.before.sequence, found.after.sequence) == (1, 5)
    assert found.status == ("running", "completed")
    assert [(path, kind) for path, kind, _, _ in changed(found)] == [
        ("order", "added"),
        ("total", "added"),
        ("note", "added"),
        ("label", "added"),
    ]
    assert {n.path: (n.visits, n.status) for n in found.nodes}["price"] == ((0, 1), (None, "completed"))


def test_two_checkpoints_of_a_run_are_compared_by_sequence_or_id(host: Host) -> None:
    run(host, "r")
    third, fourth = host.history("r")[2:4]
    found = host.debug.diff("r", start=third.checkpoint_id, end=4)
    assert found.values == ()
    assert [n.path for n in found.nodes] == ["is_big"]
    assert bool(found)
    assert [n.visits for n in host.debug.diff("r", start=fourth.sequence, end=3).nodes] == [(1, 0)]


def test_two_runs_are_compared_into_their_values(host: Host, knobs: Knobs) -> None:
    run(host, "one")
    knobs.factor = 2
    run(host, "two", order_id="A", lines=4)
    assert changed(host.debug.diff("one", "two")) == [
        ("lines", "changed", 3, 4),
        ("order.lines[3]", "added", None, {"price": 3}),
        ("total", "changed", 3, 12),
        ("label", "changed", "small 3", "big 12"),
    ]
    assert [(n.path, n.visits) for n in host.debug.diff("one", "two").nodes] == [
        ("small", (1, 0)),
        ("big", (0, 1)),
    ]
    assert (
        changed(host.debug.diff("one", "two", start=2, end=2)) == changed(host.debug.diff("one", "two"))[:2]
    )


def test_runs_that_failed_with_other_errors_differ(host: Host, knobs: Knobs) -> None:
    knobs.raises = ValueError("no")
    run(host, "one")
    run(host, "two")
    assert not host.debug.diff("one", "two")
    knobs.raises = ValueError("never")
    run(host, "three")
    assert host.debug.diff("one", "three")
    assert host.debug.diff("one", "three").values == ()


def test_a_checkpoint_or_run_that_is_not_there_is_refused(host: Host) -> None:
    run(host, "r")
    for bad in ({"start": 9}, {"end": 0}, {"start": "no-such-id"}):
        with pytest.raises(RunNotFound):
            host.debug.diff("r", **bad)
    with pytest.raises(RunNotFound):
        host.debug.diff("r", "unknown")


@node(output="large", persist="ref")
def large(n: int) -> list[int]:
    return [n] * 1000


@node(output="little")
def little(large: list[int]) -> int:
    return KNOBS.factor


def test_unchanged_artifacts_are_never_fetched(tmp_path: Path, knobs: Knobs) -> None:
    flow = Flow("large", [large, little], durability="strong")
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        run(host, "one", flow, n=1)
        knobs.factor = 2
        run(host, "two", flow, n=1)
        run(host, "three", flow, n=2)
        [folder] = [p for p in tmp_path.iterdir() if p.is_dir()]
        shutil.rmtree(folder)
        assert changed(host.debug.diff("one", "two")) == [("little", "changed", 1, 2)]
        lost, other = host.debug.diff("one", "three").values[-1], host.debug.diff("one", "three").values
        assert [c.path for c in other] == ["n", "large", "little"]
        assert lost.path == "little"
        assert isinstance(other[1].before, Unreadable)


def test_a_value_that_cannot_be_decoded_is_shown_as_such_and_the_diff_goes_on(host: Host) -> None:
    class Token:
        def __init__(self, text: str) -> None:
            self.text = text

    @node(output=("token", "after"))
    def issue(n: int) -> tuple[Token, int]:
        return Token(str(n)), n

    flow = Flow("issue", [issue], durability="strong")
    host.values.register(Token, name="token", encode=lambda t: t.text, decode=Token)
    run(host, "one", flow, n=1)
    run(host, "two", flow, n=2)
    assert [c.path for c in host.debug.diff("one", "two").values] == ["n", "token", "after"]
    host.values._by_name.clear()
    unknown = host.debug.diff("one", "two").values[1]
    assert isinstance(unknown.before, Unreadable)
    assert "no serializer named" in unknown.before.why
    assert [c.path for c in host.debug.diff("one", "two").values] == ["n", "token", "after"]


@node(output="log")
def grow(log: list[int] = ()) -> list[int]:  # type: ignore[assignment]
    return [*log, len(log) * KNOBS.factor]


@ifelse(when_true="grow", when_false=END)
def more(log: list[int]) -> bool:
    return len(log) < 5


def loop(durability: DurabilityMode = "strong") -> Flow:
    return Flow("loop", [grow, more], entry="grow", durability=durability)


def test_a_list_that_grew_differs_by_what_was_added(host: Host) -> None:
    run(host, "r", loop(), log=[])
    assert changed(host.debug.diff("r", start=4, end=8)) == [
        ("log[2]", "added", None, 2),
        ("log[3]", "added", None, 3),
    ]


def test_lists_that_grew_alike_are_equal_by_digest_alone(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    run(host, "one", loop(), log=[])
    run(host, "two", loop(), log=[])
    decoded: list[str] = []
    monkeypatch.setattr(Values, "decode", lambda self, data, where="": decoded.append(where))
    assert not host.debug.diff("one", "two")
    assert decoded == []


def test_values_that_were_not_kept_are_no_difference_but_their_coming_is(host: Host) -> None:
    @node(output="secret", persist="no")
    def secret(n: int) -> int:
        return n

    @node(output="shown")
    def show(secret: int) -> int:
        return 1

    flow = Flow("secrets", [secret, show], durability="strong")
    run(host, "one", flow, n=1)
    run(host, "two", flow, n=1)
    assert not host.debug.diff("one", "two")
    came = next(c for c in host.debug.diff("one").values if c.path == "secret")
    assert came.kind == "added"
    assert repr(came.after) == "<unreadable: it was not kept>"


@node(output="said", halts=True)
def agent(topic: str, ctx: Context) -> str:
    ctx.now()
    ctx.step("draft", str.upper, topic)
    try:
        ctx.step("check", int, topic)
    except ValueError:
        ctx.uuid()
    said: str = ctx.wait(wait.question("why", kind="text"))
    ctx.step("send", str, said)
    more: str = ctx.wait(wait.question("more", kind="text"))
    return more


def test_durable_calls_of_a_node_under_way_are_compared(host: Host) -> None:
    flow = Flow("agents", [agent], durability="strong")
    for run_id, topic in (("one", "a"), ("two", "b"), ("like", "a")):
        [asked] = host.run(flow, {"topic": topic}, run_id=run_id).waits
        host.answer(asked.id, "so")
        host.resume(run_id, flow)
    assert not host.debug.diff("one", "like"), "neither the time nor an id is a difference"
    values = changed(host.debug.diff("one", "two"))
    assert ("agent/$draft@1", "changed", "A", "B") in values
    [(_, kind, before, after)] = [found for found in values if found[0] == "agent/$check@1"]
    assert (kind, before) == ("changed", "ValueError: invalid literal for int() with base 10: 'a'")
    assert after.endswith("'b'")
    assert len(values) == 3, "the input and two calls"
    first = next(c.sequence for c in host.checkpoints("one") if c.status is Status.HALTED)
    assert changed(host.debug.diff("one", start=first)) == [
        ("agent/$why@1", "added", None, "so"),
        ("agent/$send@1", "added", None, "so"),
    ]
    inside = host.debug.diff("one/agent", "two/agent")
    assert ("agent/$draft@1", "changed", "A", "B") in changed(inside)
    assert [found.name for found in host.debug.compare("one", "two").values if "$" in found.name] == [
        "agent/$draft@1",
        "agent/$check@1",
    ]


# -- bisect -----------------------------------------------------------------------------------------------


def test_runs_that_went_alike_do_not_part(host: Host) -> None:
    run(host, "good")
    run(host, "bad")
    assert host.debug.bisect("good", "bad") is None
    assert host.debug.bisect("good", "good") is None


def test_the_first_step_that_differs_on_equal_values_is_the_culprit(host: Host, knobs: Knobs) -> None:
    run(host, "good")
    knobs.factor = 7
    run(host, "bad")
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.visit, found.is_culprit) == ("price", 1, True)
    assert found.good is not None
    assert (found.good.run_id, found.good.sequence) == ("good", 3)
    assert (found.bad.run_id, found.bad.sequence) == ("bad", 3)
    assert [(p.name, p.is_equal) for p in found.reads] == [("order", True)]
    assert found.reads[0].after["id"] == "A"
    assert [(p.name, p.before, p.after) for p in found.outputs] == [("total", 3, 21), ("note", "A", "A")]
    assert [p.is_equal for p in found.outputs] == [False, True]


def test_a_step_that_differs_on_other_inputs_is_not_the_culprit(host: Host) -> None:
    run(host, "good")
    run(host, "bad", order_id="A", lines=2)
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.is_culprit) == ("make", False)
    assert [(p.name, p.is_equal) for p in found.reads] == [("order_id", True), ("lines", False)]
    assert [c.path for c in found.outputs[0].changes] == ["order.lines[2]"]


def test_a_step_that_failed_where_it_had_succeeded_is_found(host: Host, knobs: Knobs) -> None:
    run(host, "good")
    knobs.raises = ValueError("no")
    run(host, "bad")
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.bad.status, found.is_culprit) == ("price", "failed", True)
    assert found.bad.error is not None
    assert found.bad.error.message == "no"
    assert [(p.name, p.after) for p in found.outputs] == [("total", None), ("note", None)]
    knobs.raises = None
    host.resume("bad", shop())
    assert host.debug.bisect("good", "bad") is None


def test_another_decision_is_a_difference(host: Host) -> None:
    turn = [False, True]

    @ifelse(when_true="big", when_false="small", name="is_big")
    def coin(total: int) -> bool:
        return turn.pop(0)

    flow = Flow("shop", [make, price, coin, big, small], durability="strong")
    run(host, "good", flow)
    run(host, "bad", flow)
    found = host.debug.bisect("good", "bad")
    assert found is not None and found.good is not None
    assert (found.path, found.good.decision, found.bad.decision) == ("is_big", ("small",), ("big",))


def test_a_step_that_the_good_run_lacks_is_found(host: Host, knobs: Knobs) -> None:
    @ifelse(when_true="grow", when_false=END, name="more", determinism="nondeterministic")
    def enough(log: list[int]) -> bool:
        return len(log) < 3

    run(host, "good", Flow("loop", [grow, enough], entry="grow", durability="strong"), log=[])
    run(host, "bad", loop(), log=[])
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.visit) == ("more", 3)
    knobs.raises = ValueError("stops here")
    run(host, "short")
    knobs.raises = None
    run(host, "long")
    found = host.debug.bisect("short", "long")
    assert found is not None
    assert found.path == "price"


def test_a_step_after_the_end_of_the_good_run_has_no_counterpart(host: Host) -> None:
    run(host, "good", Flow("loop", [grow, more], entry="grow", durability="strong", max_steps=4), log=[])
    run(host, "bad", loop(), log=[])
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.visit, found.good, found.is_culprit) == ("grow", 3, None, False)
    assert [(p.name, p.after) for p in found.reads] == [("log", [0, 1])]
    assert [(p.name, p.after) for p in found.outputs] == [("log", [0, 1, 2])]


def test_the_visit_at_which_a_loop_went_wrong_is_found(host: Host, knobs: Knobs) -> None:
    run(host, "good", loop(), log=[])

    @node(output="log", name="grow")
    def slips(log: list[int]) -> list[int]:
        return [*log, -1 if len(log) == 3 else len(log)]

    run(host, "bad", Flow("loop", [slips, more], entry="grow", durability="strong"), log=[])
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.visit, found.is_culprit) == ("grow", 4, True)
    assert [(c.path, c.before, c.after) for c in found.outputs[0].changes] == [("log[3]", 3, -1)]


def test_a_list_written_whole_equals_one_that_was_appended_to(host: Host) -> None:
    @node(output="log", name="grow", persist="inline")
    def whole(log: list[int]) -> list[int]:
        return [*log, len(log)]

    run(host, "grown", loop(), log=[])
    run(host, "whole", Flow("loop", [whole, more], entry="grow", durability="strong"), log=[])
    for run_id, form in (("grown", "append"), ("whole", "whole")):
        steps = [s for c in host.history(run_id) for s in c.steps if s.path == "grow"]
        assert [w.form for s in steps for w in s.writes] == [form] * 5
    assert host.debug.bisect("grown", "whole") is None
    assert host.debug.bisect("whole", "grown") is None


def test_lists_that_append_the_same_to_other_beginnings_differ(host: Host) -> None:
    @node(output="log", name="grow")
    def one_more(log: list[int]) -> list[int]:
        return [*log, 7]

    flow = Flow("loop", [one_more, more], entry="grow", durability="strong")
    run(host, "good", flow, log=[1])
    run(host, "bad", flow, log=[2])
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.visit, found.is_culprit) == ("grow", 1, False)


def test_another_order_of_a_dicts_keys_is_no_difference_between_runs(host: Host) -> None:
    turn = [("a", "b"), ("b", "a")]

    @node(output="d")
    def shuffled(n: int) -> dict[str, int]:
        return dict.fromkeys(turn.pop(), n)

    flow = Flow("f", [shuffled], durability="strong")
    run(host, "good", flow, n=1)
    run(host, "bad", flow, n=1)
    assert host.debug.bisect("good", "bad") is None
    assert not host.debug.diff("good", "bad")


def test_steps_of_one_checkpoint_are_told_apart(host: Host) -> None:
    run(host, "good", loop("partial"), log=[])

    @node(output="log", name="grow")
    def slips(log: list[int]) -> list[int]:
        return [*log, -1 if len(log) == 2 else len(log)]

    run(host, "bad", Flow("loop", [slips, more], entry="grow", durability="partial"), log=[])
    assert len(host.history("bad")) == 2
    found = host.debug.bisect("good", "bad")
    assert found is not None
    assert (found.path, found.visit) == ("grow", 3)
    assert found.reads[0].before == found.reads[0].after == [0, 1]
    assert (found.outputs[0].before, found.outputs[0].after) == ([0, 1, 2], [0, 1, -1])


def test_only_values_of_the_step_found_are_read(host: Host, knobs: Knobs, monkeypatch: Any) -> None:
    run(host, "good")
    run(host, "same")
    knobs.factor = 7
    run(host, "bad")
    decoded: set[str] = set()
    decode = Values.decode

    def spy(self: Values, data: bytes | memoryview, where: str = "value") -> Any:
        decoded.add(where)
        return decode(self, data, where)

    monkeypatch.setattr(Values, "decode", spy)
    assert host.debug.bisect("good", "same") is None
    assert decoded == set()
    assert host.debug.bisect("good", "bad") is not None
    assert decoded == {"order", "total", "note"}


# -- replay -----------------------------------------------------------------------------------------------


def test_a_step_runs_again_on_what_it_read_and_comes_out_as_recorded(host: Host, knobs: Knobs) -> None:
    run(host, "r")
    knobs.seen.clear()
    again = host.debug.replay("r", "price", shop())
    assert again.is_equal is True
    assert (again.path, again.visit, again.sequence) == ("price", 1, 3)
    assert again.inputs == {"order": {"id": "A", "lines": [{"price": 0}, {"price": 1}, {"price": 2}]}}
    assert [(p.name, p.before, p.after) for p in again.outputs] == [("total", 3, 3), ("note", "A", "A")]
    assert len(knobs.seen) == 1


def test_a_step_that_comes_out_differently_is_compared_output_by_output(host: Host, knobs: Knobs) -> None:
    run(host, "r")
    knobs.factor = 5
    again = host.debug.replay("r", "price@1", shop())
    assert again.is_equal is False
    assert [(p.name, p.is_equal) for p in again.outputs] == [("total", False), ("note", True)]


def test_a_replay_writes_nothing(url: str, tmp_path: Path) -> None:
    flow = Flow("large", [large, little], durability="strong")
    with Host(url) as host:
        run(host, "r", flow, n=1)
        files = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
        before = host.history("r"), host.info("r"), len(host.runs())

        @node(output="large", persist="ref", name="large")
        def larger(n: int, ctx: Context) -> list[int]:
            ctx.checkpoint({"wanted": True})
            return [n] * 5000

        again = host.debug.replay("r", "large", Flow("large", [larger, little], durability="strong"))
        assert len(again.outputs[0].changes) == 4000
        assert (host.history("r"), host.info("r"), len(host.runs())) == before
        assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == files


def test_every_visit_reads_the_version_it_read_then(host: Host) -> None:
    for durability in ("strong", "partial"):
        run(host, durability, loop(durability), log=[])
        for visit in range(1, 6):
            again = host.debug.replay(durability, f"grow@{visit}", loop())
            assert again.is_equal is True
            assert again.inputs["log"] == list(range(visit - 1))
        assert host.debug.replay(durability, "grow", loop()).visit == 5


def test_versions_overwritten_long_before_are_found_where_they_were_written(url: str) -> None:
    async def read() -> dict[tuple[str, int], Any]:
        async with AsyncHost(url) as host:
            for durability in ("strong", "partial"):
                await host.run(loop(durability), {"log": []}, run_id=durability)
                chain = await chain_of(host._runs.reader, durability)
                last = chain.records[-1].sequence
                found = await chain.values(last, [("log", k) for k in range(1, 8)])
                assert [found["log", k] for k in range(1, 7)] == [list(range(k - 1)) for k in range(1, 7)]
                assert "wrote version 7 of 'log'" in found["log", 7].why
            return await chain.values(1, [("log", 1), ("log", 2)])

    first = asyncio.run(read())
    assert first["log", 1] == []
    assert isinstance(first["log", 2], Unreadable)


def test_a_step_whose_record_is_a_keyframe_reads_what_was_there_before_it(host: Host) -> None:
    @node(output=("pages", "scratch"))
    def write(pages: list[str], n: int) -> tuple[list[str], str]:
        return [*pages, str(len(pages)) * 1000], noise(len(pages), 30_000)

    @ifelse(when_true="write", when_false=END)
    def go_on(pages: list[str], n: int) -> bool:
        return len(pages) < n

    flow = Flow("book", [write, go_on], entry="write", durability="strong")
    run(host, "r", flow, pages=[], n=8)
    run(host, "longer", flow, pages=[], n=12)
    keyframes = [c for c in host.history("r") if c.keyframe and any(s.path == "write" for s in c.steps)]
    assert keyframes
    for visit in range(1, 9):
        again = host.debug.replay("r", f"write@{visit}", flow)
        assert (again.is_equal, len(again.inputs["pages"])) == (True, visit - 1)
    assert {w.form for c in keyframes for s in c.steps for w in s.writes if w.name == "pages"} == {"append"}
    assert [c.path for c in host.debug.diff("r", "longer").values] == [
        *(f"pages[{k}]" for k in range(8, 12)),
        "n",
        "scratch",
    ]
    found = host.debug.bisect("r", "longer")
    assert found is not None
    assert (found.path, found.visit, found.is_culprit) == ("go_on", 8, False)


def test_a_node_that_raises_is_reported_with_its_error(host: Host, knobs: Knobs) -> None:
    run(host, "r")
    knobs.raises = KeyError("gone")
    again = host.debug.replay("r", "price", shop())
    assert again.is_equal is False
    assert again.error is not None
    assert again.error.type == "KeyError"
    assert "raise KNOBS.raises" in again.error.traceback
    assert [(p.name, p.before, p.after) for p in again.outputs] == [("total", 3, None), ("note", "A", None)]


def test_a_step_that_failed_can_be_tried_alone_with_fixed_code(host: Host, knobs: Knobs) -> None:
    knobs.raises = ValueError("no")
    run(host, "r")
    assert host.debug.replay("r", "price", shop()).is_equal is True
    knobs.raises = None
    fixed = host.debug.replay("r", "price", shop())
    assert fixed.is_equal is False
    assert fixed.error is None
    assert [(p.name, p.after) for p in fixed.outputs] == [("total", 3), ("note", "A")]
    assert host.info("r").status == "failed"


def test_a_gate_is_replayed_by_its_decision(host: Host) -> None:
    run(host, "r")
    again = host.debug.replay("r", "is_big", shop())
    assert (again.decision, again.recorded_decision, again.is_equal) == (("small",), ("small",), True)

    @ifelse(when_true="big", when_false="small", name="is_big")
    def always(total: int) -> bool:
        return True

    other = host.debug.replay("r", "is_big", Flow("shop", [make, price, always, big, small]))
    assert (other.decision, other.is_equal) == (("big",), False)


def test_an_effect_is_refused_unless_it_is_allowed(host: Host) -> None:
    sent: list[int] = []

    @node(output="receipt", effects="effectful", idempotency_key="auto")
    def send(n: int) -> int:
        sent.append(n)
        return n

    flow = Flow("send", [send], durability="strong")
    run(host, "r", flow, n=1)
    with pytest.raises(BadRequest, match=r"effectful.*allow_effects=True"):
        host.debug.replay("r", "send", flow)
    assert sent == [1]
    assert host.debug.replay("r", "send", flow, allow_effects=True).is_equal is True
    assert sent == [1, 1]


def test_a_value_that_was_not_kept_is_named(host: Host) -> None:
    @node(output="secret", persist="no")
    def secret(n: int) -> int:
        return n

    @node(output="shown")
    def show(secret: int) -> int:
        return secret

    flow = Flow("secrets", [secret, show], durability="strong")
    run(host, "r", flow, n=1)
    with pytest.raises(ValueUnreadable, match="'show' cannot be replayed: secret was not kept"):
        host.debug.replay("r", "show", flow)
    again = host.debug.replay("r", "secret", flow)
    assert again.is_equal is None
    assert (again.outputs[0].after, again.outputs[0].is_equal) == (1, None)


def test_a_node_is_given_the_context_of_its_visit(host: Host) -> None:
    given: list[tuple[Any, ...]] = []

    @node(output="k", retry=2, idempotency_key="order-{n}")
    def keyed(n: int, ctx: Context) -> str:
        given.append((ctx.run_id, ctx.node, ctx.visit, ctx.attempt, ctx.idempotency_key))
        if len(given) == 1:
            raise TimeoutError
        return ctx.idempotency_key

    @node(output="auto")
    def automatic(n: int, ctx: Context) -> str:
        return ctx.idempotency_key

    flow = Flow("keys", [keyed, automatic], durability="strong")
    run(host, "r", flow, n=4)
    with pytest.raises(BadRequest, match="'keyed' is effectful"):  # what has a key is meant for the world
        host.debug.replay("r", "keyed", flow)
    assert host.debug.replay("r", "keyed", flow, allow_effects=True).is_equal is True
    assert given[-1] == ("r", "keyed", 1, 2, "order-4") == given[-2]
    assert host.debug.replay("r", "automatic", flow).is_equal is True


def test_async_nodes_generators_and_time_limits_are_called_as_in_a_run(host: Host) -> None:
    slow: list[bool] = []

    @node(output="a")
    async def waits(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @node(output="chunks", replayable=True)
    def streams(n: int) -> Iterator[int]:
        yield from range(n)

    @node(output="late", timeout=0.02)
    async def limited(n: int) -> int:
        if slow:
            await asyncio.Event().wait()
        return n

    flow = Flow("kinds", [waits, streams, limited], durability="strong")
    run(host, "r", flow, n=3)
    assert host.debug.replay("r", "waits", flow).is_equal is True
    assert host.debug.replay("r", "streams", flow).outputs[0].after == [0, 1, 2]
    slow.append(True)
    late = host.debug.replay("r", "limited", flow)
    assert late.error is not None
    assert late.error.code == NodeTimeout.code


def test_an_output_that_a_run_would_refuse_is_an_error_of_the_node(host: Host) -> None:
    run(host, "r", loop(), log=[])

    @node(output="log", name="grow")
    def bad(log: list[int]) -> object:
        return object()

    again = host.debug.replay("r", "grow", Flow("loop", [bad, more], entry="grow"))
    assert again.error is not None
    assert again.error.code == ValueNotStorable.code


def test_a_step_or_flow_that_does_not_fit_is_refused(host: Host) -> None:
    run(host, "r")
    for wanted in ("unknown", "price@2", "@inputs", "price@x", "big"):
        with pytest.raises(RunNotFound, match="no finished step"):
            host.debug.replay("r", wanted, shop())
    with pytest.raises(FlowChanged, match="belongs to flow 'shop'"):
        host.debug.replay("r", "price", loop())
    with pytest.raises(FlowChanged, match="has no node 'price'"):
        host.debug.replay("r", "price", Flow("shop", [make]))

    @node(output=("total", "note"), name="price")
    def wider(order: dict[str, Any], lines: int) -> tuple[int, str]:
        return 0, ""

    with pytest.raises(FlowChanged, match="reads 'lines' now"):
        host.debug.replay("r", "price", Flow("shop", [make, wider, is_big, big, small]))
    with pytest.raises(BadRequest, match="is a node"):
        host.debug.replay("r", "price", price)  # type: ignore[arg-type]


def test_the_async_host_says_the_same(url: str) -> None:
    async def compare() -> None:
        async with AsyncHost(url) as host:
            for run_id in ("one", "two"):
                await host.run(shop(), {"order_id": run_id}, run_id=run_id)
            assert [c.path for c in (await host.debug.diff("one", "two")).values] == [
                "order_id",
                "order.id",
                "note",
            ]
            found = await host.debug.bisect("one", "two")
            assert found is not None
            assert found.path == "make"
            assert (await host.debug.replay("one", "price", shop())).is_equal is True

    asyncio.run(compare())
