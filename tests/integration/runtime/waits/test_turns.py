"""A turn: something is said to a run in one call, which drives it to its next wait or its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_until
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everstep import AsyncHost, Context, Flow, Host, Status, chain, node, route, wait
from everstep.errors import (
    AnswerInvalid,
    BadRequest,
    FlowChanged,
    FlowError,
    RunEnded,
    RunErased,
    RunNotFound,
    WaitNotFound,
    WaitSettled,
)
from everstep.inbox import append
from everstep.model.waits import WaitRow
from everstep.ports.store import CheckpointStore
from everstep.results import RunResult
from everstep.runtime.events import Event
from everstep.runtime.waits.answers import open_waits
from tests.servers import warm

pytestmark = pytest.mark.servers


@node(output="said")
def reply(message: str, said: list[str] | None = None) -> list[str]:
    if message == "fail":
        raise ValueError("no")
    return [*(said or []), f"re: {message}"]


@route("message", "bye")
def again(said: list[str]) -> str:
    return "bye" if said[-1] == "re: bye" else "message"


@node(output="last")
def bye(said: list[str]) -> int:
    return len(said)


chat = Flow("chat", [chain(wait.signal("message"), reply, again), bye], entry="message")


def say(host: Host, text: str, **how: Any) -> RunResult:
    return host.send("r", "message", text, drive=chat, inputs={}, **how)


def test_a_turn_sends_drives_and_returns_the_result(host: Host) -> None:
    first = say(host, "one", by="ann", comment="hi")
    assert (first.status, first["said"]) == (Status.HALTED, ["re: one"])
    assert [(asked.node, asked.visit) for asked in first.waits] == [("message", 2)]
    assert say(host, "two")["said"] == ["re: one", "re: two"]
    last = say(host, "bye")
    assert (last.status, last["last"], last.waits) == (Status.COMPLETED, 3, [])
    [who] = [step.act for record in host.history("r") for step in record.steps if step.act]
    assert (who.by, who.comment) == ("ann", "hi")
    assert host.storage.verify("r")[0].is_sound


def test_the_same_id_makes_no_second_turn_and_says_how_the_run_stands(host: Host) -> None:
    say(host, "one", id="a")
    before = host.info("r").checkpoints
    repeated = say(host, "else", id="a")
    assert (repeated["said"], repeated.status, len(repeated.waits)) == (["re: one"], Status.HALTED, 1)
    assert host.info("r").checkpoints == before
    say(host, "bye", id="b")
    ended = say(host, "bye", id="b")
    assert (ended.status, ended["last"]) == (Status.COMPLETED, 2)


def test_a_run_that_is_not_there_is_started_by_inputs_alone(host: Host) -> None:
    with pytest.raises(RunNotFound, match="there is no run 'r' to send 'message' to") as refused:
        host.send("r", "message", "one", drive=chat)
    assert "inputs=" in refused.value.fix
    with pytest.raises(RunNotFound):
        host.info("r")
    with pytest.raises(BadRequest, match="inputs start a run that is driven"):
        host.send("r", "message", "one", inputs={})
    host.send("r", "message", "one", drive=chat, inputs={"said": ["began"]})
    assert host.send("r", "message", "two", drive=chat, inputs={"said": ["other"]})["said"][0] == "began"
    host.cancel("r")
    host.retention.erase("r")
    with pytest.raises(RunErased):
        host.send("r", "message", "three", drive=chat)


def test_a_run_that_ended_is_refused_by_name(host: Host) -> None:
    say(host, "bye")
    with pytest.raises(RunEnded, match="run 'r' has ended") as refused:
        say(host, "more")
    assert "Fork it" in refused.value.fix


def test_a_run_that_failed_is_resumed_by_its_operator_and_then_takes_messages(host: Host) -> None:
    failed = say(host, "fail", id="a")
    assert failed.status is Status.FAILED and failed.error is not None
    assert say(host, "fail", id="a").status is Status.FAILED, "the same id reopens nothing"
    with pytest.raises(RunEnded, match=r"run 'r' has ended.*it failed") as refused:
        say(host, "two")
    assert "host.resume('r', flow)" in refused.value.fix
    host.fork("r", at=2, fork_id="f")
    assert host.send("f", "message", "fine", drive=chat)["said"] == ["re: fine"]


def test_what_was_sent_and_not_driven_is_taken_first(host: Host) -> None:
    host.start(chat, {}, run_id="r")
    host.send("r", "message", "one")
    host.send("r", "message", "two")
    assert say(host, "three")["said"] == ["re: one", "re: two", "re: three"]


# -- the path of a wait ------------------------------------------------------------------------------------


@node(output="sent", halts=True)
def publish(draft: str, ctx: Context) -> bool:
    return bool(ctx.wait(wait.approval("ok")).approved)


@node(output="draft")
def write(topic: str) -> str:
    return f"on {topic}"


asking = Flow("asking", [wait.question("topic", kind="text", prompt="About?"), write, publish])
inner = Flow("inner", [wait.question("topic", kind="text", prompt="About?"), write])
outer = Flow("outer", [inner.as_node(name="part"), publish])


@pytest.mark.parametrize(("flow", "first"), [(asking, "topic"), (outer, "part/topic")], ids=["top", "nested"])
def test_a_name_that_is_the_path_of_a_wait_answers_it(host: Host, flow: Flow, first: str) -> None:
    asked = host.send("r", first, "tea", id="a", by="ann", drive=flow, inputs={})
    assert [one.node for one in asked.waits] == ["publish/$ok"], "the run was driven to where it asks, and on"
    with pytest.raises(AnswerInvalid):
        host.send("r", "publish/$ok", "perhaps", drive=flow)
    done = host.send("r", "publish/$ok", {"approved": True}, id="b", drive=flow)
    assert (done.status, done["sent"]) == (Status.COMPLETED, True)
    assert host.inbox("r") == []
    assert host.send("r", "publish/$ok", {"approved": False}, id="b", drive=flow)["sent"] is True
    answered = host.waits("r", status="closed")
    assert [(one.node, one.act.by if one.act else "") for one in answered] == [
        (first, "ann"),
        ("publish/$ok", ""),
    ]


def test_an_answer_to_a_wait_that_is_not_asked_any_more_is_refused(host: Host) -> None:
    host.send("r", "topic", "tea", drive=asking, inputs={})
    with pytest.raises(WaitNotFound, match="run 'r' does not wait for 'topic'") as refused:
        host.send("r", "topic", "milk", drive=asking)
    assert refused.value.fix == "It waits for publish/$ok."
    host.cancel("r")
    with pytest.raises(RunEnded):
        host.send("r", "topic", "milk", drive=asking)


@node(output="lines")
def note(line: str, lines: list[str] | None = None) -> list[str]:
    return [*(lines or []), line]


@route("line")
def next_line(lines: list[str]) -> str:
    return "line"


lined = Flow(
    "lined",
    [chain(wait.question("line", kind="text", prompt="?"), note, next_line)],
    entry="line",
)


def test_an_answer_of_the_same_id_does_not_answer_the_next_question(host: Host) -> None:
    host.send("r", "line", "one", id="a", drive=lined, inputs={})
    host.send("r", "line", "two", id="b", drive=lined)
    assert host.send("r", "line", "one", id="a", drive=lined)["lines"] == ["one", "two"]
    assert host.send("r", "line", "three", drive=lined)["lines"] == ["one", "two", "three"]


def test_a_wait_for_a_signal_of_another_name_gets_what_is_sent_to_its_path(host: Host) -> None:
    flow = Flow("named", [wait.signal("next", signal="message")])
    assert host.send("r", "next", 7, drive=flow, inputs={})["next"] == 7


def test_one_of_several_waits_has_to_be_named_in_full(host: Host) -> None:
    @node(output="answers", halts=True)
    def ask(who: str) -> Any:
        return wait.Wait(kind="text", prompt=who)

    flow = Flow("each", [ask.map_over("who")])
    host.run(flow, {"who": ["ann", "bob"]}, run_id="r")
    with pytest.raises(BadRequest, match="run 'r' waits for 'ask' 2 times") as refused:
        host.send("r", "ask", "x", drive=flow)
    assert "ask@1#0, ask@1#1" in refused.value.fix
    host.send("r", "ask#1", "b", drive=flow)
    assert host.send("r", "ask#0", "a", drive=flow)["answers"] == ["a", "b"]


def test_signals_that_become_part_of_a_value_need_no_wait(host: Host) -> None:
    flow = Flow("taking", [wait.question("ok", kind="yes_no", prompt="?"), note_all], inbox={"notes": append})
    first = host.send("r", "notes", "a", drive=flow, inputs={"notes": []})
    assert (first.status, [one.node for one in first.waits]) == (Status.HALTED, ["ok"])
    host.send("r", "notes", "b", drive=flow)
    assert host.send("r", "ok", True, drive=flow)["seen"] == ["a", "b"]


@node(output="seen")
def note_all(ok: bool, notes: list[str]) -> list[str]:
    return notes


def test_a_flow_that_the_run_does_not_go_by_sends_nothing(host: Host) -> None:
    say(host, "one")
    with pytest.raises((FlowChanged, FlowError, BadRequest)):
        host.send("r", "message", "two", drive=asking)
    assert host.inbox("r") == []


# -- others drive ------------------------------------------------------------------------------------------


class Gate:
    """Lets a node be under way for as long as a test wants it."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    def flow(self) -> Flow:
        @node(output="said")
        def slow(message: str, said: list[str] | None = None) -> list[str]:
            self.begun.set()
            assert self.opened.wait(30)
            return [*(said or []), message]

        return Flow("slow", [chain(wait.signal("message"), slow, on)], entry="message")


@route("message")
def on(said: list[str]) -> str:
    return "message"


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def test_two_that_say_something_at_once_are_two_turns(host: Host, gate: Gate) -> None:
    flow = gate.flow()

    def turn(text: str) -> list[str]:
        return list(host.send("r", "message", text, drive=flow, inputs={})["said"])

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(turn, "one")
        assert gate.begun.wait(30)
        others = [pool.submit(turn, text) for text in ("two", "three")]
        wait_for(lambda: {"two", "three"} <= unread(host))
        gate.opened.set()
        results = [one.result(30) for one in (first, *others)]
    assert sorted(host.state("r")["said"]) == ["one", "three", "two"]
    assert all("one" in result for result in results)
    assert "two" in results[1] and "three" in results[2], "a turn is over when what it said was taken"


@pytest.mark.stores("sqlite", "postgres", "redis")
def test_a_turn_whose_run_another_process_goes_on_with_is_followed_to_its_end(url: str, gate: Gate) -> None:
    flow = gate.flow()
    turns: list[Future[RunResult]] = []

    def other() -> RunResult:
        with Host(url) as beside:
            return beside.send("r", "message", "two", drive=flow)

    def halting(event: Event) -> None:
        # What was said is paired with the wait that is opened: another may take the run up before we do.
        if event.kind == "checkpoint" and event.data["trigger"] == "halt" and not turns:
            turns.append(pool.submit(other))
            assert gate.begun.wait(30)

    with ThreadPoolExecutor(2) as pool, Host(url, on_event=halting) as host:
        mine = pool.submit(lambda: host.send("r", "message", "one", drive=flow, inputs={}))
        assert not wait_until([mine], timeout=0.5).done, "its turn is not over"
        gate.opened.set()
        assert mine.result(30)["said"][0] == "one"
        assert turns[0].result(30)["said"] == ["one", "two"]


@pytest.mark.stores("sqlite", "postgres", "redis")
def test_a_turn_that_is_overtaken_while_it_halts_returns_what_became_of_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own drive has not seen what it said taken, and finds what another waits for by now."""
    look, overtaken = open_waits, list[RunResult]()

    async def look_late(store: CheckpointStore, run_id: str) -> list[WaitRow]:
        if threading.current_thread() is threading.main_thread() and not overtaken:
            with ThreadPoolExecutor(1) as pool, Host(url) as beside:
                overtaken.append(pool.submit(beside.send, "r", "message", "two", drive=chat).result(30))
        return await look(store, run_id)

    monkeypatch.setattr("everstep.runtime.runs.open_waits", look_late)
    with Host(url) as host:
        result = host.send("r", "message", "one", drive=chat, inputs={})
    assert result["said"] == overtaken[0]["said"] == ["re: one", "re: two"]


@pytest.mark.stores("sqlite")
def test_an_answer_that_came_second_is_refused(host: Host, gate: Gate) -> None:
    host.run(lined, {}, run_id="r")
    barrier = threading.Barrier(2)

    def turn(text: str) -> str:
        barrier.wait(30)
        try:
            host.send("r", "line", text, drive=lined)
        except (WaitSettled, WaitNotFound):
            return "refused"
        return text

    with ThreadPoolExecutor(2) as pool:
        results = [one.result(30) for one in [pool.submit(turn, "a"), pool.submit(turn, "b")]]
    said = host.state("r")["lines"]
    assert set(said) == {one for one in results if one != "refused"}


def test_a_run_that_another_process_goes_on_with_is_told_as_it_stood(url: str) -> None:
    async def look() -> None:
        async with AsyncHost(url) as host:
            await host.run(chat, run_id="r")
            before = await host._runs.reader.row("r")
            await host.send("r", "message", "bye", drive=chat)
            told = await host._runs.reader.recorded(before)
            assert (told.status, (await host.info("r")).status) == (Status.HALTED, Status.COMPLETED)

    asyncio.run(look())


def test_a_turn_whose_task_is_cancelled_leaves_a_run_that_goes_on(url: str) -> None:
    begun: list[str] = []

    @node(output="said")
    async def think(message: str, said: list[str] | None = None) -> list[str]:
        begun.append(message)
        if len(begun) == 1:
            await asyncio.sleep(3600)
        return [*(said or []), message]

    flow = Flow("stopped", [chain(wait.signal("message"), think, on)], entry="message")

    async def main() -> None:
        async with AsyncHost(url) as host:
            turn = asyncio.ensure_future(host.send("r", "message", "one", drive=flow, inputs={}))
            while not begun:
                await asyncio.sleep(0.01)
            turn.cancel()
            await asyncio.wait([turn])
            assert turn.cancelled()
            info = await host.info("r")
            assert (info.status, info.is_driven) == (Status.RUNNING, False)
            result = await host.send("r", "message", "two", drive=flow)
            assert result["said"] == ["one", "two"]

    asyncio.run(main())


CHILD = """
import sys, time
from pathlib import Path
from everstep import Context, Flow, Host, chain, node, route, wait

url, folder, text = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


@node(output="said", idempotency_key="auto")
def slow(message: str, ctx: Context, said: list | None = None) -> list:
    (folder / f"{text}-drives-").write_text(message)
    (folder / f"{text}-drives-").rename(folder / f"{text}-drives")
    with open(folder / "keys", "a") as keys:
        keys.write(ctx.idempotency_key + chr(10))
    while not (folder / "go").exists():
        time.sleep(0.01)
    return [*(said or []), message]


@route("message")
def on(said: list) -> str:
    return "message"


flow = Flow("slow", [chain(wait.signal("message"), slow, on)], entry="message")
with Host(url) as host:
    print(*host.send("r", "message", text, id=text, drive=flow, inputs={})["said"])
"""


@contextmanager
def sender(url: str, folder: Path, text: str) -> Iterator[warm.Process]:
    """A process that takes a turn."""
    command = [sys.executable, "-c", CHILD, url, str(folder), text]
    process = warm.Process(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def unread(host: Host) -> set[Any]:
    return {sent.value for sent in host.inbox("r")}


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.stores("sqlite", "postgres", "redis")
@pytest.mark.parametrize("is_killed", [False, True], ids=["driven", "killed"])
def test_what_two_processes_say_is_taken_once_whichever_of_them_drives(
    url: str, host: Host, tmp_path: Path, is_killed: bool
) -> None:
    with sender(url, tmp_path, "one") as one, sender(url, tmp_path, "two") as two:
        by_text = {"one": one, "two": two}
        wait_for(lambda: len(list(tmp_path.glob("*-drives"))) == 1)
        [driving] = [text for text in by_text if (tmp_path / f"{text}-drives").exists()]
        [other] = by_text.keys() - {driving}
        first = (tmp_path / f"{driving}-drives").read_text()  # it may be what the other one said
        [second] = by_text.keys() - {first}
        wait_for(lambda: second in unread(host))
        if is_killed:
            os.kill(by_text[driving].pid, signal.SIGKILL)  # in the middle of its turn, and the other one's
            wait_for(lambda: (tmp_path / f"{other}-drives").exists())
        (tmp_path / "go").touch()
        said = by_text[other].communicate(timeout=60)[0].split()
        assert said == [first, second]
        if not is_killed:
            assert by_text[driving].communicate(timeout=60)[0].split()[0] == first
    keys = (tmp_path / "keys").read_text().split()
    assert len(keys) == 2 + is_killed and len(set(keys)) == 2, "what was cut off was made again, with its key"
    assert host.state("r")["said"] == [first, second] and host.inbox("r") == []
    assert host.storage.verify("r")[0].is_sound
