"""Waits as a shell sees them: separate processes list them, answer them, and go on."""

from __future__ import annotations

import getpass
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.acceptance.cli.terminal import Terminal, environment
from tests.servers import warm

FLOWS = """
from pathlib import Path
from everstep import Flow, node, wait

@node(output="summary")
def summarise(amount: int):
    return {"amount": amount, "who": "Ann"}

ok = wait.approval("ok", context="summary", prompt="May this be paid?", notify="desk", timeout="3d")

@node(output="done")
def finish(ok: wait.ApprovalOutput):
    return [ok.approved, ok.approver, ok.comment]

expenses = Flow("expenses", [summarise, ok, finish])

nap = wait.timer("nap", duration="90d")
colour = wait.question("colour", kind="choice", options=["red", 7], prompt="Which?")
sure = wait.question("sure", kind="yes_no")
name = wait.question("name", kind="text")
paid = wait.callback("paid")
many = Flow("many", [nap, colour, sure, name, paid])

soon = Flow("soon", [wait.timer("blink", duration="100ms")])

notifiers = {"desk": lambda notice: Path("told").write_text(f"{notice.node} {notice.link}")}
"""

KEY = "a key of at least sixteen characters"
SOON = "in (3d|2d 23h)"
Everstep = Callable[..., "subprocess.CompletedProcess[str]"]


def caller(folder: Path) -> Everstep:
    """Return what runs commands in a folder with the flows."""
    (folder / "flows.py").write_text(FLOWS)

    def call(*words: str, typed: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return warm.run(
            [sys.executable, "-m", "everstep", *words],
            cwd=folder,
            env=environment() | env,
            capture_output=True,
            text=True,
            timeout=30,
            input=typed or "",
        )

    return call


@pytest.fixture
def everstep(tmp_path: Path) -> Everstep:
    return caller(tmp_path)


HALT_MANY = """
import json
from everstep import Host
from flows import many

with Host() as host:
    halted = [host.run(many, run_id=f"M{k}") for k in range(12)]
print(json.dumps([{wait.node: wait.id for wait in run.waits} for run in halted]))
"""


class Halted(NamedTuple):
    """A folder with runs of `many` that wait for everything, each with the ids of its waits."""

    everstep: Everstep
    runs: list[dict[str, str]]


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Halted:
    folder = tmp_path_factory.mktemp("halted")
    everstep = caller(folder)
    found = subprocess.check_output([sys.executable, "-c", HALT_MANY], cwd=folder, env=environment())
    return Halted(everstep, json.loads(found))


def halt(everstep: Everstep, run_id: str = "A", **env: str) -> Any:
    """Bring a run to its approval and return the wait."""
    done = everstep("run", "flows.py:expenses", "-i", "amount=5", "--run-id", run_id, "--json", **env)
    assert done.returncode == 3, done.stderr
    [wait] = json.loads(done.stdout)["waits"]
    return wait


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


# -- halting ---------------------------------------------------------------------------------------------


def test_a_run_that_halts_exits_with_3_and_says_how_to_answer(everstep: Everstep) -> None:
    done = everstep("run", "flows.py:expenses", "-i", "amount=5", "--run-id", "A")
    assert done.returncode == 3
    assert "‖ ok  waits for an approval until" in done.stderr
    assert "run A halted: 1 step in" in done.stderr
    assert re.search(rf"ok  an approval, due {SOON}  May this be paid\?", done.stdout)
    command = re.search(r"everstep (answer [0-9a-f]{8} --approve)  or --reject", done.stdout)
    assert command is not None
    answered = everstep(*command[1].split())
    assert answered.stdout == f"ok of run A: approved by {getpass.getuser()}\n"
    assert "or: everstep resume A" in answered.stderr
    resumed = everstep("resume", "A")
    assert resumed.returncode == 0
    assert f"done = [True, {getpass.getuser()!r}, None]" in resumed.stdout


def test_tokens_are_shown_only_if_asked_for(everstep: Everstep) -> None:
    assert "token" not in halt(everstep)
    done = everstep("run", "flows.py:expenses", "-i", "amount=5", "--tokens")
    [token] = re.findall(r"et_[\w-]{43}", done.stdout)
    assert "et_" not in everstep("waits").stdout
    assert everstep("answer", "-", "--approve", typed=f"{token}\n").returncode == 0


def test_a_notifier_of_the_file_is_told_with_the_link(everstep: Everstep, tmp_path: Path) -> None:
    done = everstep(
        *("run", "flows.py:expenses", "-i", "amount=5", "--base-url", "https://pay.test"),
        "--tokens",
        "--json",
    )
    [wait] = parsed(done)["waits"]
    assert wait["link"].startswith("https://pay.test/")
    assert (tmp_path / "told").read_text() == f"ok {wait['link']}"


def test_what_is_no_notifier_is_refused(everstep: Everstep, tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOWS + "\nnotifiers = {'desk': 7}\nschedulers = 'of my own'\n")
    done = everstep("run", "flows.py:expenses", "-i", "amount=5")
    assert done.returncode == 2
    assert "notifier 'desk' of flows.py cannot be called" in done.stderr


# -- listing ---------------------------------------------------------------------------------------------


def test_waits_lists_what_is_open_and_what_became_of_the_rest(everstep: Everstep) -> None:
    assert everstep("waits").stdout == "nothing is waited for\n"
    first, second = halt(everstep, "A"), halt(everstep, "B")
    everstep("answer", "A", "--reject", "--by", "bob", "--comment", "too much")
    listed = everstep("waits").stdout
    assert first["id"] not in listed
    assert re.search(rf"{second['id']}  B +ok +approval .* {SOON} +May this be paid\?  {{'amount': 5", listed)
    assert "settled: rejected by bob: too much" in everstep("waits", "--status", "all").stdout
    assert everstep("waits", "--kind", "timer").stdout == "nothing is waited for\n"
    assert everstep("waits", "--flow", "other", "--json").stdout == '{\n  "waits": []\n}\n'
    everstep("resume", "A")
    [closed] = parsed(everstep("waits", "A", "--status", "closed", "--json"))["waits"]
    assert closed["answer"] == {"approved": False, "approver": "bob", "comment": "too much"}
    assert closed["settled_by"] == "answer"


def test_a_long_listing_goes_on_after_its_last_wait(everstep: Everstep) -> None:
    everstep("run", "flows.py:many", "--run-id", "M", "-q")
    page = everstep("waits", "--limit", "3")
    assert len(page.stdout.splitlines()) == 4
    again = re.search(r"waits --after ([0-9a-f]{8})", page.stderr)
    assert again is not None
    rest = parsed(everstep("waits", "--after", again[1], "--json"))["waits"]
    assert [wait["node"] for wait in rest] == ["name", "paid"]


def test_one_wait_is_shown_whole_by_the_beginning_of_its_id(everstep: Everstep) -> None:
    wait = halt(everstep)
    shown = everstep("waits", "--show", wait["id"][:6])
    assert shown.stdout.startswith(f"{wait['id']}  open\n")
    assert "context   {'amount': 5, 'who': 'Ann'}" in shown.stdout
    assert f"everstep answer {wait['id'][:8]} --approve" in shown.stderr
    assert parsed(everstep("waits", "--show", "A", "--json"))["id"] == wait["id"]
    missing = everstep("waits", "--show", wait["id"][:5])
    assert missing.returncode == 2
    assert "wait.not_found" in missing.stderr


def test_tokens_are_shown_to_who_has_the_key(everstep: Everstep, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    halt(everstep, EVERSTEP_KEY=KEY)
    assert "token unknown here; for a new one: everstep answer" in everstep("waits", "--tokens").stdout
    [token] = re.findall(r"et_[\w-]{43}", everstep("waits", "--tokens", "--key-file", "key").stdout)
    assert everstep("answer", token, "--approve").returncode == 0
    empty = everstep("waits", "--tokens", "--key-file", "nowhere")
    assert "--key-file nowhere cannot be read: No such file" in empty.stderr


# -- answering -------------------------------------------------------------------------------------------


ANSWERS: list[tuple[str, list[str], object]] = [
    ("colour", ["--choose", "red"], "red"),
    ("colour", ["7"], 7),
    ("sure", ["--no"], False),
    ("sure", ["yes"], True),
    ("name", ["--text", "7"], "7"),
    ("name", ["[1]"], "[1]"),
    ("paid", ['{"cents": 100}'], {"cents": 100}),
    ("paid", ["thanks"], "thanks"),
    ("paid", ["--text", "7"], "7"),
    ("nap", ["--fire"], None),
]


@pytest.mark.parametrize("case", range(len(ANSWERS)))
def test_each_kind_is_answered_in_its_own_way(halted: Halted, case: int) -> None:
    node, words, value = ANSWERS[case]
    done = parsed(halted.everstep("answer", halted.runs[case + 1][node], *words, "--json"))
    assert (done["status"], done["answer"], done["resume"]) == (
        "settled",
        value,
        f"everstep resume M{case + 1}",
    )
    assert done["settled_by"] == ("clock" if node == "nap" else "answer")


@pytest.mark.parametrize(
    ("node", "words", "complaint"),
    [
        ("colour", ["--choose", "green"], "Choose one of red, 7."),
        ("colour", ["--approve"], "Use --choose with one of red, 7."),
        ("sure", ["--text", "yes"], "Use --yes or --no."),
        ("sure", ["12"], "cannot take this answer"),
        ("nap", ["--yes"], "Use --fire."),
        ("nap", ["--reissue"], "a timer has no token"),
        ("name", ["--text", "a", "--yes"], "--yes and --text are two answers."),
        ("name", ["a", "--fire"], "--fire and ANSWER do not go together."),
        ("name", ["--ttl", "2d"], "go with --reissue"),
        ("paid", [], "Give one: everstep answer"),
        ("paid", ["--json-file", "none.json"], "cannot be read: No such file"),
    ],
)
def test_what_does_not_fit_is_refused(halted: Halted, node: str, words: list[str], complaint: str) -> None:
    done = halted.everstep("answer", halted.runs[0][node], *words)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_what_was_refused_has_used_nothing_up(halted: Halted) -> None:
    node = halted.runs[11]["sure"]
    assert halted.everstep("answer", node, "12").returncode == 2
    assert halted.everstep("answer", node, "--yes").returncode == 0


def test_a_run_with_several_waits_names_them(halted: Halted) -> None:
    done = halted.everstep("answer", "M0", "--yes")
    assert "'M0' may mean 5 waits." in done.stderr
    assert re.search(r"Name one: [0-9a-f]{8} \(nap\), ", done.stderr)


def test_a_second_answer_is_refused(everstep: Everstep) -> None:
    halt(everstep)
    assert everstep("answer", "A", "--approve").returncode == 0
    again = everstep("answer", "A", "--reject")
    assert again.returncode == 2
    assert "was settled by an answer" in again.stderr
    everstep("resume", "A")
    assert "run 'A' waits for nothing" in everstep("answer", "A", "--reject").stderr


def test_a_token_is_read_from_stdin_and_never_said(everstep: Everstep) -> None:
    halt(everstep)
    token = everstep("answer", "A", "--reissue", "--ttl", "2d").stdout.strip()
    wrong = everstep("answer", "-", '{"approved": 1}', typed=token)
    assert wrong.returncode == 2
    right = everstep("answer", "-", '{"approved": true, "approver": "ann"}', typed=f"{token}\n")
    assert right.returncode == 0
    used = everstep("answer", "-", "--approve", typed=token)
    assert "token.used" in used.stderr
    assert not any("et_" in said(done) for done in (wrong, right, used))
    assert "there is no token on stdin" in everstep("answer", "-", "--approve").stderr
    both = everstep("answer", "-", "--json-file", "-", typed=token)
    assert "stdin cannot hold both" in both.stderr


def test_a_revoked_token_is_worthless_and_the_wait_stays_open(everstep: Everstep) -> None:
    halt(everstep)
    first = everstep("answer", "A", "--reissue").stdout.strip()
    second = everstep("answer", "A", "--reissue", "--multi-use").stdout.strip()
    assert "token.invalid" in everstep("answer", first, "--approve").stderr
    assert "the wait stays open" in everstep("answer", "A", "--revoke").stdout
    assert "token.invalid" in everstep("answer", second, "--approve").stderr
    assert everstep("answer", "A", "--approve").returncode == 0


def test_an_answer_may_come_from_a_file_or_from_stdin(everstep: Everstep, tmp_path: Path) -> None:
    halt(everstep, "A")
    halt(everstep, "B")
    (tmp_path / "answer.json").write_text('{"approved": true}')
    done = everstep("answer", "A", "--json-file", "answer.json", "--by", "ann")
    assert done.stdout == "ok of run A: approved by ann\n"
    done = everstep("answer", "B", "--json-file", "-", typed='{"approved": false}')
    assert done.stdout == f"ok of run B: rejected by {getpass.getuser()}\n"


# -- looking ---------------------------------------------------------------------------------------------


def test_halted_runs_and_steps_are_shown_with_what_they_wait_for(everstep: Everstep) -> None:
    wait = halt(everstep)
    assert re.search(rf"A +expenses +halted  .*ok: an approval, due {SOON}", everstep("runs").stdout)
    assert parsed(everstep("runs", "--status", "halted", "--json"))["runs"][0]["waits"][0]["id"] == wait["id"]
    shown = everstep("show", "A").stdout
    assert "‖  ok" in shown
    assert f"everstep answer {wait['id'][:8]} --approve" in shown
    assert "next" not in shown
    log = everstep("log", "A").stdout
    assert re.search(r"‖ waits for an approval until [-\d]+ [:\d]+: May this be paid\? {'amount': 5", log)
    state = everstep("state", "A", "--full").stdout
    assert "waits for\n  ok: an approval until " in state
    assert "@wait" not in state
    assert parsed(everstep("state", "A", "--json"))["waits"][0]["id"] == wait["id"]
    step = everstep("show", "A", "ok").stdout
    assert "waits for an approval" in step
    assert "@wait" not in step
    assert "(A, halted)" in everstep("log", "A", "--graph").stdout


def test_an_answered_step_says_by_whom(everstep: Everstep) -> None:
    halt(everstep, "A")
    halt(everstep, "B")
    everstep("answer", "A", "--approve", "--by", "ann")
    everstep("answer", "B", "--fire", "--as", "bob")
    assert "ok: approved by ann, not taken in yet" in everstep("runs").stdout
    for run_id in "AB":
        assert everstep("resume", run_id).returncode == 0
    assert "approved by ann; ok = ApprovalOutput(approved=True" in everstep("log", "A").stdout
    assert re.search(r"✓  ok .* approved by ann, writes ok", everstep("show", "A").stdout)
    assert "became    approved by ann" in everstep("show", "A", "ok").stdout
    assert "timed out early by bob; ok = ApprovalOutput(approved=False" in everstep("log", "B").stdout
    steps = [step for c in parsed(everstep("log", "B", "--json"))["checkpoints"] for step in c["steps"]]
    waits = [(step["status"], step["wait"]["settled_by"]) for step in steps if step["wait"]]
    assert waits == [("halted", None), ("completed", "clock")]


def test_a_fork_tells_of_the_answer_that_its_parent_got(everstep: Everstep) -> None:
    halt(everstep, "A")
    everstep("answer", "A", "--approve", "--by", "ann")
    everstep("resume", "A")
    everstep("fork", "A", "--as", "F")
    assert "approved by ann; ok =" in everstep("log", "F").stdout


def test_runs_with_waits_are_compared_and_a_wait_is_not_replayed(everstep: Everstep) -> None:
    halt(everstep, "A")
    halt(everstep, "B")
    same = everstep("diff", "A", "B")
    assert (same.returncode, "@wait" in same.stdout) == (0, False)
    assert everstep("bisect", "A", "B").returncode == 0
    everstep("answer", "A", "--approve")
    everstep("answer", "B", "--reject")
    for run_id in "AB":
        everstep("resume", run_id)
    found = everstep("bisect", "A", "B").stdout
    assert "ok@1 is the first that differs" in found
    assert "the difference is what ok was told" in found
    assert "everstep replay" not in found
    refused = everstep("replay", "A", "ok", "--effects")
    assert refused.returncode == 2
    assert "'ok' waited for an answer, so there is nothing to run again." in refused.stderr
    assert everstep("replay", "A", "finish").returncode == 0


# -- starting and staying --------------------------------------------------------------------------------


def test_start_accepts_a_run_and_returns_at_once(everstep: Everstep) -> None:
    words = ("run", "flows.py:expenses", "-i", "amount=5", "--run-id", "S", "--start")
    done = everstep(*words)
    assert (done.returncode, done.stdout) == (0, "S\n")
    assert "a worker drives it, or: everstep resume S" in done.stderr
    assert parsed(everstep("show", "S", "--json"))["status"] == "running"
    assert "was accepted before; it is running" in everstep(*words).stderr
    again = parsed(everstep(*words, "--json"))
    assert (again["run_id"], again["is_new"]) == ("S", False)
    assert everstep("resume", "S").returncode == 3
    assert "--start returns at once, and --wait stays." in everstep(*words, "--wait").stderr


def begin(tmp_path: Path, *words: str) -> warm.Process:
    return warm.Process(
        [sys.executable, "-m", "everstep", *words],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(process: warm.Process, wanted: str) -> str:
    assert process.stderr is not None
    lines = ""
    while wanted not in lines:
        line = process.stderr.readline()
        assert line, lines
        lines += line
    return lines


def test_wait_stays_with_a_run_until_it_is_answered(everstep: Everstep, tmp_path: Path) -> None:
    staying = begin(tmp_path, "run", "flows.py:expenses", "-i", "amount=5", "--run-id", "A", "--wait")
    seen = read_until(staying, "everstep answer")
    assert "‖ ok  waits for an approval until" in seen
    assert everstep("answer", "A", "--approve").returncode == 0
    out, err = staying.communicate(timeout=20)
    assert staying.returncode == 0, err
    assert f"done = [True, {getpass.getuser()!r}, None]" in out


def test_wait_goes_on_when_a_time_has_come(everstep: Everstep) -> None:
    done = everstep("run", "flows.py:soon", "--wait", "--json")
    assert (done.returncode, parsed(done)["status"], parsed(done)["waits"]) == (0, "completed", [])


def test_ctrl_c_leaves_a_run_halted_and_says_how_to_go_on(everstep: Everstep, tmp_path: Path) -> None:
    halt(everstep)
    staying = begin(tmp_path, "resume", "A", "--wait")
    read_until(staying, "everstep answer")
    staying.send_signal(signal.SIGINT)
    _, err = staying.communicate(timeout=20)
    assert staying.returncode == 130
    assert "run A stays halted and can be answered." in err
    assert re.search(r"everstep resume A \S+flows.py:expenses --wait", err)
    assert parsed(everstep("show", "A", "--json"))["status"] == "halted"


# -- a terminal ------------------------------------------------------------------------------------------


def test_a_terminal_shows_the_context_and_asks_for_an_approval(everstep: Everstep, tmp_path: Path) -> None:
    halt(everstep)
    terminal = Terminal(tmp_path, "answer", "A")
    terminal.read("Approve or reject?")
    assert "amount" in terminal.shown
    assert "May this be paid?" in terminal.shown
    terminal.type("maybe\n")
    terminal.read("is not one of")
    terminal.type("approve\n")
    terminal.read("Comment")
    terminal.type("fine\n")
    terminal.read("Your name")
    terminal.type("ann\n")
    assert terminal.wait() == 0
    assert "approved by ann: fine" in terminal.shown


def test_a_terminal_asks_for_a_choice_by_number_until_it_fits(everstep: Everstep, tmp_path: Path) -> None:
    everstep("run", "flows.py:many", "--run-id", "M", "-q")
    ids = {wait["node"]: wait["id"] for wait in parsed(everstep("waits", "--json"))["waits"]}
    terminal = Terminal(tmp_path, "answer", ids["colour"])
    terminal.read("Choose 1 to 2")
    terminal.type("9\n")
    terminal.read("is no option")
    terminal.type("2\n")
    assert terminal.wait() == 0
    assert "answered: 7" in terminal.shown


def test_a_token_that_is_typed_is_not_shown(everstep: Everstep, tmp_path: Path) -> None:
    halt(everstep)
    token = everstep("answer", "A", "--reissue").stdout.strip()
    terminal = Terminal(tmp_path, "answer", "-", "--approve")
    terminal.read("Token")
    terminal.type(f"{token}\n")
    assert terminal.wait() == 0
    assert token not in terminal.shown


def test_a_timer_is_left_alone_unless_a_person_says_yes(everstep: Everstep, tmp_path: Path) -> None:
    everstep("run", "flows.py:many", "--run-id", "M", "-q")
    [timer] = parsed(everstep("waits", "--kind", "timer", "--json"))["waits"]
    terminal = Terminal(tmp_path, "answer", timer["id"])
    terminal.read("Let it fire now?")
    terminal.type("\n")
    assert terminal.wait() == 130
    assert "nothing was answered" in terminal.shown
    assert len(parsed(everstep("waits", "--kind", "timer", "--json"))["waits"]) == 1
