"""The command line as a shell sees it: separate processes, exit codes, stdout and stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.architecture.sources import ROOT
from tests.servers import warm

ORDERS = """
import sys, os
from dataclasses import dataclass
from pathlib import Path
from everstep import Flow, Retry, ifelse, node

@dataclass
class Order:
    id: str
    items: int

@node(output="order")
def make(order_id: str, items: int = 2):
    print("a node prints")
    return Order(order_id, items)

@node(output="price", retry=Retry(2, first=0))
def price(order):
    tried = Path("tried")
    if not tried.exists():
        tried.touch()
        raise TimeoutError("no answer")
    return order.items * 1.5

@ifelse(when_true="big", when_false="small")
def is_big(price: float):
    return price > 10

@node(output="label")
def big(price: float):
    return "big"

@node(output="label")
def small(price: float):
    return "x" * 5000

@node(output="loaded")
def imports(order):
    return sorted({name.split(".")[0] for name in sys.modules} & {"rich", "click", "everstep"})

flow = Flow("orders", [make, price, is_big, big, small, imports], durability="strong")
"""

FAILING = """
from pathlib import Path
from everstep import Flow, node

@node(output="a")
def first(n: int):
    return n + 1

@node(output="b")
def second(a: int):
    if not Path("fixed").exists():
        raise ValueError("no\\nway")
    return a * 2

flow = Flow("failing", [first, second], durability="strong")
"""

SLOW = """
import time
from pathlib import Path
from everstep import Flow, node

@node(output="a")
def first(n: int):
    with open("calls", "a") as calls:
        calls.write("first ")
    return n + 1

@node(output="b")
def second(a: int):
    with open("calls", "a") as calls:
        calls.write("second ")
    if not Path("hurry").exists():
        time.sleep(60)
    return a * 2

flow = Flow("slow", [first, second], durability="strong")
"""

CHAT = """
from everstep import END, Flow, ifelse, node

@node(output="messages")
def say(messages: list = ()):
    k = len(messages)
    return [*messages, {"text": f"b{k}", "args": k}]

@ifelse(when_true="say", when_false=END)
def more(messages: list):
    return len(messages) < 3

flow = Flow("chat", [say, more], entry="say", durability="strong")
"""

Everstep = Callable[..., "subprocess.CompletedProcess[str]"]


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in {"EVERSTEP_STORE", "NO_COLOR", "PYTHONPATH"}}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def everstep(tmp_path: Path) -> Everstep:
    for name, text in {"orders": ORDERS, "failing": FAILING, "slow": SLOW}.items():
        (tmp_path / f"{name}.py").write_text(text)

    def call(*words: str, is_cold: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
        run = subprocess.run if is_cold else warm.run
        return run(
            [sys.executable, "-m", "everstep", *words],
            cwd=tmp_path,
            env=environment() | env,
            capture_output=True,
            text=True,
            timeout=30,
        )

    return call


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_run_puts_the_result_on_stdout_and_progress_on_stderr(everstep: Everstep) -> None:
    done = everstep("run", "orders.py", "--input", "order_id=17", "--run-id", "r1", "--all")
    assert done.returncode == 0, done.stderr
    assert "order = Order(id='17', items=2)\n" in done.stdout
    assert "price = 3.0\n" in done.stdout
    assert "(5,000 characters)\n" in done.stdout
    assert "✓ make" in done.stderr
    assert "↻ price  attempt 1 of 3 failed, will be tried again: TimeoutError: no answer" in done.stderr
    assert "(attempt 2 of 3)" in done.stderr
    assert "✓ is_big → small" in done.stderr
    assert "run r1 completed: 5 steps" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_run_prints_what_no_other_step_reads_unless_asked_for_all(everstep: Everstep) -> None:
    done = everstep("run", "orders.py", "-i", "order_id=1")
    names = [line.partition(" = ")[0] for line in done.stdout.splitlines() if " = " in line]
    assert names == ["loaded", "label"]
    assert "(and 2 values that other steps read: --all)" in done.stderr


def test_quiet_run_without_a_name_says_its_id_only(everstep: Everstep) -> None:
    done = everstep("run", "orders.py", "-i", "order_id=1", "-q")
    [said] = done.stderr.splitlines()
    run_id = said.removeprefix("run ")
    assert "completed" in everstep("show", run_id[:8]).stdout


def test_run_on_a_pipe_does_not_import_rich(everstep: Everstep) -> None:
    done = everstep("run", "orders.py", "-i", "order_id=1", "--json", "--quiet", is_cold=True)
    assert parsed(done)["values"]["loaded"] == ["click", "everstep"]
    assert done.stderr == "a node prints\n"


def test_json_of_a_run_is_one_object_even_if_nodes_print(everstep: Everstep) -> None:
    done = everstep("run", "orders.py:flow", "-i", "order_id=1", "-i", "items=9", "--run-id", "r1", "--json")
    shown = parsed(done)
    assert shown.keys() == {
        *("run_id", "status", "values", "error", "steps", "waits", "paused", "spooled", "fallback"),
    }
    assert shown["paused"] is False
    assert (shown["run_id"], shown["status"], shown["steps"], shown["error"]) == ("r1", "completed", 5, None)
    assert shown["values"]["order"] == {"$type": "orders.Order", "id": "1", "items": 9}
    assert shown["values"]["label"] == "big"


def test_run_of_a_finished_id_runs_nothing(everstep: Everstep) -> None:
    everstep("run", "orders.py", "-i", "order_id=1", "--run-id", "r1")
    again = everstep("run", "orders.py", "-i", "order_id=1", "--run-id", "r1")
    assert again.returncode == 0
    assert "run r1 had completed before; nothing was run" in again.stderr
    assert "label = " in again.stdout


def test_failed_run_exits_1_shows_the_users_traceback_and_can_be_resumed(
    everstep: Everstep, tmp_path: Path
) -> None:
    (tmp_path / "in.json").write_text('{"n": 4}')
    failed = everstep("run", "failing.py", "--inputs-file", "in.json", "--run-id", "f1")
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert 'raise ValueError("no\\nway")' in failed.stderr
    assert "site-packages" not in failed.stderr
    assert failed.stderr.count("way") == 2  # in its own source, and once as the error
    assert failed.stderr.endswith(
        "error [node.failed]: ValueError: no way\n  → Continue with: everstep resume f1 failing.py, "
        "or with other values: everstep fork f1 --input …\n"
    )
    shown = everstep("show", "f1", "second@1")
    assert "read      a = 5" in shown.stdout
    assert 'raise ValueError("no\\nway")' in shown.stdout
    (tmp_path / "fixed").touch()
    resumed = everstep("resume", "f1", "failing.py")
    assert resumed.returncode == 0
    assert "b = 10" in resumed.stdout
    assert "✓ first" not in resumed.stderr


def test_run_of_a_failed_id_says_that_nothing_was_run_and_how_to_try_again(
    everstep: Everstep, tmp_path: Path
) -> None:
    everstep("run", "failing.py", "-i", "n=4", "--run-id", "f1")
    (tmp_path / "fixed").touch()
    again = everstep("run", "failing.py", "-i", "n=4", "--run-id", "f1")
    assert again.returncode == 1
    assert again.stderr == (
        "error [node.failed]: run f1 failed before, at second: ValueError: no way. Nothing was run.\n"
        "  → To try second again: everstep resume f1 failing.py\n"
    )


def test_json_of_a_failed_run_holds_the_error(everstep: Everstep) -> None:
    done = everstep("run", "failing.py", "-i", "n=4", "--json", "-q")
    assert done.returncode == 1
    error = parsed(done)["error"]
    assert (error["type"], error["code"]) == ("ValueError", "node.failed")
    assert "ValueError" in error["traceback"]


def wait_for(path: Path, text: str) -> None:
    for _ in range(1000):
        if path.exists() and text in path.read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"{text!r} never came")


def start_slow_run(folder: Path) -> warm.Process:
    command = [sys.executable, "-m", "everstep", "run", "slow.py", "-i", "n=1", "--run-id", "s1"]
    process = warm.Process(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
    wait_for(folder / "calls", "second")
    return process


def test_killed_run_goes_on_in_another_process(everstep: Everstep, tmp_path: Path) -> None:
    process = start_slow_run(tmp_path)
    process.kill()
    process.communicate()
    assert "no live worker" in everstep("runs").stdout
    assert "· second" in " ".join(everstep("show", "s1").stdout.split())
    unreported = everstep("show", "s1", "second")
    assert "second has not reported yet; it is next." in unreported.stderr
    (tmp_path / "hurry").touch()
    resumed = everstep("resume", "s1", "slow.py")
    assert resumed.returncode == 0, resumed.stderr
    assert "run s1 of slow resumed at checkpoint 2, 1 step was already done" in resumed.stderr
    assert "b = 4" in resumed.stdout
    assert (tmp_path / "calls").read_text().split() == ["first", "second", "second"]


def test_interrupt_says_how_to_go_on(everstep: Everstep, tmp_path: Path) -> None:
    process = start_slow_run(tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert said.endswith("interrupted; continue with: everstep resume s1 slow.py\n")
    assert "Traceback" not in said


def test_cancel_stops_a_run_without_an_owner(everstep: Everstep, tmp_path: Path) -> None:
    process = start_slow_run(tmp_path)
    process.kill()
    process.communicate()
    cancelled = everstep("cancel", "s1")
    assert (cancelled.returncode, cancelled.stdout) == (0, "run s1 is cancelled\n")
    resumed = everstep("resume", "s1", "slow.py")
    assert resumed.returncode == 1
    assert "run s1 was cancelled before; nothing was run. Give another run id" in resumed.stderr
    assert parsed(everstep("runs", "--json"))["runs"][0]["status"] == "cancelled"


def test_cancel_of_a_finished_run_exits_1(everstep: Everstep) -> None:
    everstep("run", "orders.py", "-i", "order_id=1", "--run-id", "r1")
    done = everstep("cancel", "r1", "--json")
    assert (done.returncode, parsed(done)) == (1, {"run_id": "r1", "status": "completed"})


def test_log_show_and_state_agree_about_a_run(everstep: Everstep) -> None:
    everstep("run", "orders.py", "-i", "order_id=A", "--run-id", "r1")
    log = everstep("log", "r1", "--load", "orders.py")
    assert "order = Order(id='A', items=2)" in log.stdout
    assert "→ small" in log.stdout
    checkpoints = parsed(everstep("log", "r1", "--json"))["checkpoints"]
    assert [c["sequence"] for c in checkpoints] == list(range(1, len(checkpoints) + 1))
    steps = [(s["node"], s["status"]) for c in checkpoints for s in c["steps"]]
    assert ("price", "retrying") in steps
    assert ("price", "completed") in steps
    shown = parsed(everstep("show", "r1", "--json"))
    assert {n["node"]: n["attempts"] for n in shown["nodes"]}["price"] == 2
    state = parsed(everstep("state", "r1", "--at", "2", "--json"))
    assert state["checkpoint"] == 2
    assert state["values"].keys() == {"order_id", "order"}
    assert state["values"]["order"] == {"$type": "orders.Order", "id": "A", "items": 2}


def test_value_of_a_class_that_is_not_loaded_is_shown_by_its_fields(everstep: Everstep) -> None:
    everstep("run", "orders.py", "-i", "order_id=A", "--run-id", "r1")
    for command in (["log", "r1"], ["state", "r1"], ["show", "r1", "make"]):
        done = everstep(*command)
        assert done.returncode == 0
        assert "order = Order(id='A', items=2)" in done.stdout
        assert "shown by their stored fields: orders:Order (--load FILE.py loads the class)" in done.stderr
    loaded = everstep("state", "r1", "--load", "orders.py")
    assert "order = Order(id='A', items=2)" in loaded.stdout
    assert "stored fields" not in loaded.stderr


def test_show_lists_every_node_and_a_step_in_full(everstep: Everstep) -> None:
    everstep("run", "orders.py", "-i", "order_id=A", "--run-id", "r1")
    assert "· big not reached" in " ".join(everstep("show", "r1").stdout.split())
    assert "big was not reached." in everstep("show", "r1", "big").stderr
    assert "x" * 70 in everstep("show", "r1", "small").stdout
    assert everstep("show", "r1", "small").stdout.count("x") == 5000
    assert everstep("show", "r1", "inputs").stdout == everstep("show", "r1", "@inputs").stdout


def test_log_shows_what_a_step_added_to_a_list(everstep: Everstep, tmp_path: Path) -> None:
    (tmp_path / "chat.py").write_text(CHAT)
    everstep("run", "chat.py", "--run-id", "c1")
    results = [line.partition("messages ")[2] for line in everstep("log", "c1").stdout.splitlines()]
    assert [r for r in results if r] == [
        "= [{'text': 'b0', 'args': 0}]",
        "+ 1 item: {'text': 'b1', 'args': 1}",
        "+ 1 item: {'text': 'b2', 'args': 2}",
    ]
    assert "messages (version 3) + 1 item: {'text': 'b2', 'args': 2}" in everstep("show", "c1", "say").stdout


def test_state_takes_a_checkpoint_and_says_what_is_cut(everstep: Everstep) -> None:
    everstep("run", "orders.py", "-i", "order_id=A", "--run-id", "r1")
    assert everstep("state", "r1", "2").stdout == everstep("state", "r1", "--at", "2").stdout
    assert "--full or --json shows all of them" in everstep("state", "r1").stderr
    full = everstep("state", "r1", "--full")
    assert full.stdout.count("x") == 5000
    assert "--full" not in full.stderr


def test_run_is_found_by_the_beginning_of_its_id(everstep: Everstep) -> None:
    for run_id in ("order-1", "order-2", "other"):
        everstep("run", "failing.py", "-i", "n=1", "--run-id", run_id)
    assert everstep("show", "othe").stdout.startswith("other  failed")
    two = everstep("log", "orde")
    assert (two.returncode, "2 runs begin with 'orde'" in two.stderr) == (2, True)
    assert everstep("log", "oth").returncode == 2
    assert "run other is" not in everstep("cancel", "othe").stdout


def test_store_may_be_a_plain_path_and_stand_before_the_command(everstep: Everstep, tmp_path: Path) -> None:
    everstep("run", "failing.py", "-i", "n=1", "--run-id", "f1", "--store", "my runs.db")
    assert (tmp_path / "my runs.db").exists()
    absolute = str(tmp_path / "my runs.db")
    for words in (["--store", "my runs.db", "runs"], ["runs", "--store", absolute]):
        assert "f1" in everstep(*words).stdout
    none = everstep("runs")
    assert none.returncode == 0
    assert none.stdout.startswith("no runs yet: there is no .everstep/runs.db here.")
    assert "everstep runs --store 'my runs.db'" in none.stdout
    assert parsed(everstep("runs", "--json")) == {"runs": [], "next": None}
    assert "--store" in everstep("log", "f1").stderr


def test_store_is_taken_from_the_environment(everstep: Everstep, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'here.db'}"
    everstep("run", "failing.py", "-i", "n=1", "--run-id", "f1", EVERSTEP_STORE=url)
    assert not (tmp_path / ".everstep").exists()
    assert "f1" in everstep("runs", "--status", "failed", "--store", url).stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "nowhere.py"], "request.invalid", "there is no file nowhere.py"),
        (["run", "ordres.py"], "request.invalid", "Did you mean 'orders.py'?"),
        (["run", "empty.py"], "request.invalid", "empty.py has no flow"),
        (["run", "two.py"], "request.invalid", "Name one: two.py:one, two.py:other"),
        (["run", "broken.py"], "flow.invalid", "broken.py cannot be loaded: NameError"),
        (["run", "no.such.module:flow"], "request.invalid", "there is no module 'no.such.module'"),
        (["run", "failing.py", "-i", "n"], "request.invalid", "--input 'n' is not NAME=VALUE"),
        (["run", "failing.py", "-i", "n=x"], "run.bad_input", "--input n=x is not a whole number"),
        (["run", "failing.py", "-i", "m=1"], "run.bad_input", "Unknown input 'm'"),
        (["run", "failing.py"], "run.bad_input", "Input 'n' is missing"),
        (["run"], "usage", "Missing argument"),
        (["run", "failing.py", "--colour"], "usage", "No such option"),
        (["paint"], "usage", "No such command 'paint'"),
        (["ls"], "usage", "Did you mean 'runs'?"),
        (["stat"], "usage", "Did you mean 'state'?"),
        (["run", "."], "request.invalid", ". is a folder"),
        (["resume", "failing.py", "f1"], "request.invalid", "everstep resume f1 failing.py"),
    ],
)
def test_wrong_usage_exits_2_and_makes_no_database(
    everstep: Everstep, tmp_path: Path, words: list[str], code: str, message: str
) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("x = undefined\n")
    two = FAILING.replace("flow = ", "one = ") + '\nother = Flow("other", [first])\n'
    (tmp_path / "two.py").write_text(two)
    done = everstep(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error [{code}]: " in "".join(done.stderr.splitlines()[-2:])
    assert message in done.stderr
    assert "everstep/cli" not in done.stderr
    assert not (tmp_path / ".everstep").exists()


def test_error_with_json_is_one_object_and_keeps_its_exit_code(everstep: Everstep) -> None:
    done = everstep("run", "nowhere.py", "--json")
    assert (done.returncode, done.stderr) == (2, "")
    assert parsed(done)["error"].keys() >= {"code", "message", "fix"}


@pytest.mark.parametrize("command", [["runs"], ["log", "r"], ["show", "r"], ["state", "r"], ["cancel", "r"]])
def test_wrong_store_path_is_an_error_and_makes_no_file(
    everstep: Everstep, tmp_path: Path, command: list[str]
) -> None:
    done = everstep(*command, "--store", "sqlite:///typo.db", "--json")
    assert done.returncode == 1
    assert parsed(done)["error"]["code"] == "store.failed"
    assert not (tmp_path / "typo.db").exists()


def test_a_run_can_be_resumed_by_its_id_alone_from_any_folder(everstep: Everstep, tmp_path: Path) -> None:
    everstep("run", "failing.py", "-i", "n=1", "--run-id", "f1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store = str(tmp_path / ".everstep" / "runs.db")
    resumed = warm.run(
        [sys.executable, "-m", "everstep", "resume", "f1", "--store", store],
        cwd=elsewhere,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "resumed at checkpoint" in resumed.stderr, resumed.stderr


def test_unknown_run_newer_schema_and_missing_file_are_told_apart(everstep: Everstep, tmp_path: Path) -> None:
    everstep("run", "failing.py", "-i", "n=1", "--run-id", "f1")
    unknown = everstep("log", "f2")
    assert (unknown.returncode, unknown.stderr.split(":")[0]) == (2, "error [DAG-CKPT-006]")
    (tmp_path / "failing.py").rename(tmp_path / "moved.py")
    no_file = everstep("resume", "f1")
    assert no_file.returncode == 2
    assert "there is no file" in no_file.stderr and "failing.py" in no_file.stderr
    (tmp_path / "moved.py").rename(tmp_path / "failing.py")
    no_step = everstep("show", "f1", "third")
    assert no_step.returncode == 2
    assert "first, second" in no_step.stderr
    with_newer = apsw.Connection(str(tmp_path / ".everstep" / "runs.db"))
    with_newer.execute("PRAGMA user_version = 99")
    with_newer.close()
    newer = everstep("runs")
    assert (newer.returncode, newer.stderr.split(":")[0]) == (1, "error [DAG-CKPT-009]")


def test_stream_that_knows_only_ascii_breaks_nothing(everstep: Everstep) -> None:
    everstep("run", "orders.py", "-i", "order_id=é", "--run-id", "r1", PYTHONIOENCODING="ascii")
    log = everstep("log", "r1", "--load", "orders.py", PYTHONIOENCODING="ascii")
    assert log.returncode == 0, log.stderr
    assert parsed(everstep("state", "r1", "--json", PYTHONIOENCODING="ascii"))["values"]["order_id"] == "é"


def test_run_that_a_live_process_drives_is_not_taken_from_it(everstep: Everstep, tmp_path: Path) -> None:
    process = start_slow_run(tmp_path)
    try:
        refused = everstep("resume", "s1", "slow.py")
        assert (refused.returncode, refused.stderr.split(":")[0]) == (1, "error [DAG-CKPT-007]")
        assert "running  " in everstep("runs").stdout
        told = everstep("cancel", "s1")
        assert told.stdout == "run s1 is being cancelled: its owner stops at its next write\n"
        assert parsed(everstep("runs", "--json"))["runs"][0]["is_cancelling"] is True
    finally:
        process.kill()
        process.communicate()


def test_help_shows_every_command_without_importing_one(everstep: Everstep) -> None:
    shown = everstep("--help")
    assert shown.returncode == 0
    names = {"demo", "run", "resume", "runs", "log", "show", "state", "cancel", "bench"}
    assert names <= {line.split()[0] for line in shown.stdout.splitlines() if line.strip()}
    assert everstep("--version").stdout.startswith("everstep, version ")
