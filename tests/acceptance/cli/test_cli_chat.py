"""`everstep chat`: many turns with one run, at a terminal and from a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everstep import Host
from tests.acceptance.cli.terminal import Terminal, environment
from tests.servers import warm

FLOWS = """
import time
from pathlib import Path
from everstep import Context, Flow, chain, node, route, wait
from everstep.inbox import append

@node(output="reply")
def think(message: str, ctx: Context):
    ctx.emit("thinking", about=message)
    if message == "fail" and not Path("fixed").exists():
        raise ValueError("no idea")
    yield "you said "
    if message == "slow" and not Path("quick").exists():
        time.sleep(30)
    yield message

@node(output="loud")
def shout(message: str) -> str:
    return message.upper()

@route("message", "part")
def again(message: str) -> str:
    return "part" if message == "bye" else "message"

@node(output="last")
def part(message: str) -> str:
    return "see you"

chat = Flow("chat", [chain(wait.signal("message"), think, shout, again), part], entry="message")

@node(output="thought")
def agent(messages: list[str]) -> str:
    return f"thought about {messages}"

@node(output="history")
def remember(message: str, reply: list[str], history: list[str] | None = None) -> list[str]:
    return [*(history or []), message, "".join(reply)]

@route("message", "part")
def goes_on(history: list[str]) -> str:
    return "part" if history[-2] == "bye" else "message"

notes = Flow("notes", [chain(wait.signal("message"), think, remember, goes_on), part], entry="message")

@node(output="said", halts=True)
def bot(ctx: Context) -> str:
    while (message := ctx.wait(wait.signal("message"))) != "bye":
        def model(message):
            if message == "aloud":
                for word in ("I ", "say ", "it"):
                    ctx.emit("token", text=word)
            return f"heard {message} at {ctx.visit}"
        ctx.step("model", model, message)
        ctx.inbox("aside")
    return "see you"

inside = Flow("inside", [bot])

@node(output="bought")
def buy(ok: wait.ApprovalOutput) -> str:
    return "bought" if ok.approved else "not bought"

shop = Flow("shop", [chain(wait.signal("message"), wait.approval("ok"), buy, again), part], entry="message")

talk = Flow("talk", [agent], inbox={"messages": append})
two = Flow("two", [wait.signal("message"), wait.signal("stop")])
deaf = Flow("deaf", [shout])
number = Flow("number", [wait.signal("count", answer_type=int), wait.signal("more", signal="count")])
"""


@pytest.fixture(autouse=True)
def flows(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOWS)


def chat(folder: Path, flow: str, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, "-m", "everstep", "chat", f"flows.py:{flow}", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        input=typed,
    )


def replies(folder: Path, run_id: str) -> list[str]:
    with Host(f"sqlite:///{folder}/.everstep/runs.db") as host:
        steps = [step for record in host.history(run_id) for step in record.steps]
        return [f"{step.path}@{step.visit}" for step in steps if step.path == "shout"]


def test_lines_of_a_pipe_are_turns_and_what_is_streamed_is_not_shown_again(tmp_path: Path) -> None:
    done = chat(tmp_path, "chat", "--run-id", "A", typed="hello\n\nthere\n")
    assert (done.returncode, done.stdout) == (0, "you said hello\nHELLO\nyou said there\nTHERE\n")
    assert "think  thinking  about=hello" in done.stderr
    assert "go on with: everstep chat flows.py:chat --run-id A" in done.stderr
    done = chat(tmp_path, "chat", "--run-id", "A", typed="bye\nunheard\n")
    assert (done.returncode, done.stdout) == (0, "you said bye\nloud = BYE\nlast = see you\n")
    assert replies(tmp_path, "A") == ["shout@1", "shout@2", "shout@3"]


def test_of_a_turn_that_was_heard_only_what_no_node_reads_is_shown(tmp_path: Path) -> None:
    done = chat(tmp_path, "notes", "--run-id", "A17", typed="hello\nbye\n")
    assert done.stdout.splitlines() == ["you said hello", "you said bye", "see you"]


def test_what_different_visits_say_in_one_turn_stands_in_lines_of_its_own(tmp_path: Path) -> None:
    chat(tmp_path, "notes", "--run-id", "A17")
    with Host(f"sqlite:///{tmp_path}/.everstep/runs.db") as host:
        host.send("A17", "message", "from elsewhere")
        host.send("A17", "message", "and again")
    done = chat(tmp_path, "notes", "--run-id", "A17", typed="hello\n")
    assert done.stdout.splitlines() == ["you said from elsewhere", "you said and again", "you said hello"]


def test_a_run_of_another_flow_is_refused_without_how_to_go_on(tmp_path: Path) -> None:
    chat(tmp_path, "chat", "--run-id", "A17")
    done = chat(tmp_path, "notes", "--run-id", "A17")
    assert done.returncode == 2
    assert "belongs to flow 'chat', not 'notes'" in done.stderr
    assert "go on with" not in done.stderr


def test_json_is_a_line_for_each_event_and_a_result_for_each_turn(tmp_path: Path) -> None:
    done = chat(tmp_path, "chat", "--json", typed='"two\\nlines"\nbye\n')
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    results = [event["data"] for event in events if event["kind"] == "result"]
    assert [result["status"] for result in results] == ["halted", "halted", "completed"]
    assert (results[1]["values"]["loud"], results[2]["values"]["last"]) == ("TWO\nLINES", "see you")
    assert results[0]["waits"][0]["listens_for"] == "message"
    chunks = [event["data"]["chunk"] for event in events if event["kind"] == "chunk"]
    assert chunks == ["you said ", "two\nlines", "you said ", "bye"]
    assert len({event["run_id"] for event in events}) == 1


def test_a_flow_that_takes_messages_in_begins_with_the_first(tmp_path: Path) -> None:
    done = chat(tmp_path, "talk", typed="hello\n")
    assert done.returncode == 0, done.stderr
    assert "thought about ['hello']" in done.stdout


def test_a_loop_inside_one_node_is_talked_with_as_its_run_waits(tmp_path: Path) -> None:
    done = chat(tmp_path, "inside", "--run-id", "A", typed="hello\naloud\nbye\n")
    assert (done.returncode, done.stdout) == (0, "heard hello at 1\nI say it\nsee you\n"), done.stderr
    assert "token" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deaf"], "flow 'deaf' listens for nothing"),
        (["two"], "Give --signal message or --signal stop."),
        (["chat", "--signal", "massage"], "It listens for message."),
        (["inside", "--signal", ""], "the name of a signal is ''"),
        (["chat", "--inputs-file", "-"], "inputs cannot come from it"),
        (["deaf", "--json"], '"code": "request.invalid"'),
    ],
)
def test_what_cannot_be_talked_with_is_refused_by_name(tmp_path: Path, words: list[str], said: str) -> None:
    done = chat(tmp_path, *words, typed="hello\n")
    assert done.returncode == 2
    assert said in done.stdout + done.stderr
    assert not (tmp_path / ".everstep").exists(), "no run was begun"


def test_a_failed_turn_ends_a_pipe_and_says_how_it_is_tried_again(tmp_path: Path) -> None:
    done = chat(tmp_path, "chat", "--run-id", "A", typed="fail\nmore\n")
    assert done.returncode == 1
    assert "ValueError: no idea" in done.stderr and "everstep resume A" in done.stderr
    assert replies(tmp_path, "A") == []


def test_a_turn_that_was_killed_is_finished_when_the_conversation_goes_on(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "chat", "flows.py:chat", "--run-id", "A")
    terminal.read("> ")
    terminal.type("slow\n")
    terminal.read("you said ")
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait() == -signal.SIGKILL
    (tmp_path / "quick").touch()
    done = chat(tmp_path, "chat", "--run-id", "A", typed="next\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("slow\nSLOW\nyou said next\nNEXT\n")
    assert replies(tmp_path, "A") == ["shout@1", "shout@2"]


def test_a_run_that_speaks_first_says_why(tmp_path: Path) -> None:
    chat(tmp_path, "chat", "--run-id", "A17")
    with Host(f"sqlite:///{tmp_path}/.everstep/runs.db") as host:
        host.send("A17", "message", "hello")
    terminal = Terminal(tmp_path, "chat", "flows.py:chat", "--run-id", "A17")
    terminal.read("> ")
    terminal.type("\x04")
    assert terminal.wait() == 0, terminal.shown
    said = ["Ctrl-D leaves", "the last turn was not finished; it goes on", "you said hello", "> "]
    places = [terminal.shown.index(words) for words in said]
    assert places == sorted(places), terminal.shown


def test_ctrl_c_stops_a_turn_an_empty_line_goes_on_and_ctrl_d_leaves(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "chat", "flows.py:chat", "--run-id", "A")
    terminal.read("> ")
    terminal.type("slow\n")
    terminal.read("you said ")
    terminal.type("\x03")
    terminal.read("stopped; an empty line goes on with it")
    (tmp_path / "quick").touch()
    terminal.type("\n")
    terminal.read("SLOW")
    terminal.type("fail\n")
    terminal.read("an empty line tries it again")
    (tmp_path / "fixed").touch()
    terminal.type("\n")
    terminal.read_past("FAIL\r\n")
    terminal.read("> ")
    terminal.interrupt("Ctrl-D leaves")
    terminal.type("\x04")
    assert terminal.wait() == 0, terminal.shown
    assert "go on with: everstep chat flows.py:chat --run-id A" in terminal.shown
    assert replies(tmp_path, "A") == ["shout@1", "shout@2"]


def test_what_is_said_after_a_failed_turn_is_taken_once_that_was_tried_again(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "chat", "flows.py:chat", "--run-id", "A")
    terminal.read("> ")
    terminal.type("fail\n")
    terminal.read("so does what you say next")
    terminal.type("too early\n")
    terminal.read("what you said was not sent")
    (tmp_path / "fixed").touch()
    terminal.type("go on\n")
    terminal.read("FAIL\r\n")
    assert "TOO EARLY" not in terminal.shown
    terminal.read_past("GO ON\r\n")
    terminal.read("> ")
    terminal.interrupt("Ctrl-D leaves")
    terminal.type("\x04")
    assert terminal.wait() == 0, terminal.shown
    with Host(f"sqlite:///{tmp_path}/.everstep/runs.db") as host:
        assert host.inbox("A") == []


def test_a_conversation_goes_on_behind_an_approval_that_another_process_gives(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "chat", "flows.py:shop", "--run-id", "A")
    terminal.read("> ")
    terminal.type("one\n")
    terminal.read("what you say is kept until then; an empty line looks whether it goes on")
    with Host(f"sqlite:///{tmp_path}/.everstep/runs.db") as host:
        [wait] = host.waits("A")
        host.answer(wait.id, {"approved": False})
        terminal.type("\n")
        terminal.read("not bought")
        terminal.type("bye\n")
        terminal.shown = ""
        terminal.read("an empty line looks")
        [wait] = host.waits("A")
        host.answer(wait.id, {"approved": True})
    terminal.type("\n")
    assert terminal.wait() == 0, terminal.shown
    assert "see you" in terminal.shown and "run A completed" in terminal.shown


def test_a_conversation_that_is_over_asks_for_nothing(tmp_path: Path) -> None:
    chat(tmp_path, "chat", "--run-id", "A", typed="bye\n")
    terminal = Terminal(tmp_path, "chat", "flows.py:chat", "--run-id", "A")
    assert terminal.wait() == 0
    assert "run A completed" in terminal.shown and "> " not in terminal.shown
