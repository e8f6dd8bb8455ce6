"""Commands as backends and tools: real processes, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everstep.backends import Shell, Tools
from everstep.errors import BadRequest
from everstep.frontends.pipelines.outcome import Outcome, StageStatus
from everstep.frontends.pipelines.stage import Stage
from tests.architecture.sources import PACKAGE


def stage(**fields: Any) -> Stage:
    return Stage(**{"node": "plan", "kind": "task", "prompt": "Plan it.", **fields})


def ask(backend: Any, **fields: Any) -> Outcome:
    outcome = asyncio.run(backend(stage(**fields)))
    assert isinstance(outcome, Outcome)
    return outcome


def tool(command: str, backend: Tools | None = None, **fields: Any) -> Outcome:
    attributes = {"tool_command": command, **fields.pop("attributes", {})}
    return ask(backend or Tools(), kind="tool", attributes=attributes, **fields)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def pid_in(file: Path) -> int:
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def test_prompt_goes_to_stdin_and_stdout_is_the_response() -> None:
    outcome = ask(Shell("tr a-z A-Z"))
    assert (outcome.status, outcome.response) == (StageStatus.SUCCESS, "PLAN IT.")
    assert outcome.metadata == {"exit_code": 0}


def test_list_of_words_is_run_without_a_shell_reading_it() -> None:
    assert ask(Shell(["printf", "%s", "$HOME; a b"])).response == "$HOME; a b"


def test_command_is_told_of_its_stage() -> None:
    told = ask(
        Shell('env | grep ^EVERSTEP_ | sort; cat "$EVERSTEP_CONTEXT_FILE" "$EVERSTEP_PROMPT_FILE"'),
        run_id="A17",
        visit=3,
        attempt=2,
        idempotency_key="k-1",
        choices=("yes", "no"),
        context={"graph.goal": "ship"},
    )
    assert told.response is not None
    for line in (
        "RUN_ID=A17",
        "NODE=plan",
        "VISIT=3",
        "ATTEMPT=2",
        "IDEMPOTENCY_KEY=k-1",
        'CHOICES=["yes", "no"]',
    ):
        assert f"EVERSTEP_{line}\n" in told.response
    assert told.response.endswith('{"graph.goal": "ship"}Plan it.')


def test_secrets_of_the_host_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_KEY", "hush")
    monkeypatch.setenv("MY_OWN", "seen")
    outcome = ask(Shell("env", env={"ADDED": "too"}))
    assert "hush" not in str(outcome)
    assert "MY_OWN=seen" in str(outcome.response) and "ADDED=too" in str(outcome.response)


def test_private_folder_is_only_for_its_owner_and_is_gone_afterwards() -> None:
    outcome = ask(Shell('d=$(dirname "$EVERSTEP_STATUS_FILE"); stat -c %a "$d"; printf %s "$d"'))
    mode, _, folder = str(outcome.response).partition("\n")
    assert mode == "700"
    assert folder and not Path(folder).exists()


@pytest.mark.parametrize(
    ("written", "status"),
    [
        ({"status": "success"}, StageStatus.SUCCESS),
        ({"outcome": "partial_success", "suggested_next_ids": ["ship"]}, StageStatus.PARTIAL),
        (
            {"status": "FAILURE", "error": {"type": "X", "message": "no", "retryable": False}},
            StageStatus.FAIL,
        ),
        ({"outcome": "retry", "preferred_next_label": "Again", "failure_reason": "flaky"}, StageStatus.RETRY),
    ],
)
def test_status_file_says_how_the_stage_ended_in_either_dialect(
    written: dict[str, Any], status: StageStatus
) -> None:
    outcome = ask(Shell(f"echo answer; printf %s '{json.dumps(written)}' > $EVERSTEP_STATUS_FILE; exit 7"))
    assert (outcome.status, outcome.response) == (status, "answer\n")
    assert outcome.suggested_next == tuple(written.get("suggested_next_ids", ()))
    assert outcome.preferred_label == written.get("preferred_next_label", "")
    assert outcome.metadata["exit_code"] == 7


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("echo nonsense >", "not JSON"),
        ("printf '[1]' >", "no object"),
        (r"""printf '{"notes": "\\ud800"}' >""", "not JSON"),
        ("printf '\\377' >", "not JSON"),
        ("""printf '{"context_updates": {"a": NaN}}' >""", "not JSON"),
        ("head -c 1999 /dev/zero | tr '\\0' '[' >", "not JSON"),
        ("""printf '{"status": "great"}' >""", "'great'"),
        ("""printf '{"staus": "success"}' >""", "staus"),
        ("head -c 3000 /dev/zero >", "larger than 2000"),
        ("ln -s /etc/passwd", "no file"),
        ("mkdir", "no file"),
        ("mkfifo", "no file"),
    ],
)
def test_bad_status_file_is_a_failure_that_says_why(written: str, why: str) -> None:
    outcome = ask(Shell(f"{written} $EVERSTEP_STATUS_FILE", output_limit=2000))
    assert outcome.status is StageStatus.FAIL
    assert outcome.failure_reason.startswith("the status file cannot be taken: ")
    assert why in outcome.failure_reason
    assert outcome.error is not None and outcome.error.retryable is False


def test_exit_code_without_a_status_file_is_a_failure_that_may_be_tried_again() -> None:
    outcome = ask(Shell("echo so far; echo it broke >&2; exit 3"))
    assert outcome.status is StageStatus.FAIL
    assert outcome.failure_reason == "it ended with exit code 3: it broke"
    assert outcome.response == "so far\n"
    assert outcome.error is not None and outcome.error.retryable is True


def test_missing_status_file_is_a_failure_where_one_is_needed_unless_the_node_says_otherwise() -> None:
    backend = Shell("echo done", needs_status=True)
    assert "without a status file" in ask(backend).failure_reason
    assert ask(backend, attributes={"auto_status": "true"}).status is StageStatus.SUCCESS
    failing = Shell("exit 1", needs_status=True)
    assert ask(failing, attributes={"auto_status": True}).status is StageStatus.FAIL


def test_command_that_cannot_be_started_is_a_failure() -> None:
    assert "exit code 127" in ask(Shell(["no-such-program-here"])).failure_reason
    outcome = ask(Shell("true", cwd="/no/such/folder"))
    assert "could not be started" in outcome.failure_reason
    assert outcome.error is not None and outcome.error.retryable is False


@pytest.mark.parametrize("command", ["", [], ["a", "b\0"], ["a", 3]])
def test_what_is_no_command_is_refused(command: Any) -> None:
    with pytest.raises(BadRequest, match="no command"):
        Shell(command)


@pytest.mark.parametrize(
    "limits", [{"timeout": 0}, {"timeout": "5"}, {"output_limit": 0}, {"env": {"A=": "b"}}]
)
def test_limits_that_mean_nothing_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        Shell("true", **limits)
    with pytest.raises(BadRequest):
        Tools(**limits)


def test_names_show_no_secrets() -> None:
    shown = (
        repr(Shell("/opt/agent --key hush")) + repr(Shell(["agent", "hush"])) + repr(Tools(env={"K": "hush"}))
    )
    assert "agent" in shown and "hush" not in shown


def test_output_above_the_limit_is_cut_and_said_so_and_memory_stays() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = ask(Shell("head -c 300000000 /dev/zero | tr '\\0' x", output_limit=1000))
    assert outcome.status is StageStatus.SUCCESS
    assert outcome.response == "x" * 1000 + "\n[cut: 299999000 bytes more]"
    assert outcome.metadata["cut"] == 299_999_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_endless_stderr_keeps_its_end_only() -> None:
    outcome = ask(Shell("head -c 5000000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 1"))
    assert outcome.failure_reason.endswith("xthe end")
    assert len(outcome.failure_reason) < 1000


@pytest.mark.parametrize("command", ["cat", "head -c 1 >/dev/null; echo enough", "echo never reads"])
def test_prompt_of_ten_megabytes_does_not_get_stuck(command: str) -> None:
    prompt = "é" * 5_000_000
    outcome = ask(Shell(command, timeout=30, output_limit=20_000_000), prompt=prompt)
    assert outcome.status is StageStatus.SUCCESS
    assert command != "cat" or outcome.response == prompt


def test_prompt_too_large_for_anybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everstep.frontends.backends.shell.LARGEST_PROMPT", 100)
    outcome = ask(Shell("cat"), prompt="x" * 101)
    assert "101 bytes is larger than 100" in outcome.failure_reason


def test_timeout_kills_the_command_and_what_it_started(tmp_path: Path) -> None:
    command = f"sleep 60 & echo $! > {tmp_path}/pid; trap '' TERM; sleep 60"
    outcome = ask(Shell(command, timeout=2))  # long enough to write what it started
    assert outcome.failure_reason == "it took longer than 2 s."
    assert outcome.error is not None and (outcome.error.type, outcome.error.retryable) == ("Timeout", True)
    until(lambda: not is_alive(pid_in(tmp_path / "pid")))


def test_stage_with_less_time_than_the_backend_has_less_time() -> None:
    assert ask(Shell("sleep 60", timeout=60), timeout=0.1).failure_reason == "it took longer than 0.1 s."
    assert ask(Shell("sleep 60", timeout=0.1), timeout=60).failure_reason == "it took longer than 0.1 s."


def test_what_a_command_leaves_running_is_ended_with_it(tmp_path: Path) -> None:
    began = time.monotonic()
    outcome = ask(Shell(f"sleep 60 & echo $! > {tmp_path}/pid; echo done"))
    assert (outcome.response, outcome.status) == ("done\n", StageStatus.SUCCESS)
    assert time.monotonic() - began < 40
    until(lambda: not is_alive(pid_in(tmp_path / "pid")))


def test_process_that_left_the_group_and_holds_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    outcome = ask(Shell(f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & sleep 0.2; echo done"))
    assert outcome.response == "done\n"
    assert time.monotonic() - began < 40
    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)


def test_cancelled_stage_leaves_no_process(tmp_path: Path) -> None:
    async def cancel_it() -> None:
        task = asyncio.create_task(Shell(f"sleep 60 & echo $! > {tmp_path}/pid; sleep 60")(stage()))
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    until(lambda: not is_alive(pid_in(tmp_path / "pid")))


KILLED = """
import asyncio, sys
from everstep.backends import Shell, Tools
from everstep.frontends.pipelines.stage import Stage
command = f"echo $$ > {sys.argv[2]}/one; sh -c 'echo $$ > {sys.argv[2]}/two; sleep 60' ; sleep 60"
stage = Stage(node="a", kind="tool", attributes={"tool_command": command})
asyncio.run((Shell(command) if sys.argv[1] == "shell" else Tools())(stage))
"""


@pytest.mark.parametrize("which", ["shell", "tools"])
def test_killed_process_leaves_no_command_behind(which: str, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    driver = subprocess.Popen([sys.executable, "-c", KILLED, which, str(tmp_path)], env=env)
    pids = [pid_in(tmp_path / name) for name in ("one", "two")]
    assert all(map(is_alive, pids))
    driver.kill()
    driver.wait()
    until(lambda: not any(map(is_alive, pids)))


def test_many_commands_run_at_once(tmp_path: Path) -> None:
    """Each of them goes on when all are there."""
    together = f"touch {tmp_path}/$$; while [ $(ls {tmp_path} | wc -l) -lt 30 ]; do sleep 0.05; done; cat"

    async def all_of_them() -> list[Outcome]:
        return await asyncio.gather(*(Shell(together)(stage(prompt=str(n))) for n in range(30)))

    assert [outcome.response for outcome in asyncio.run(all_of_them())] == [str(n) for n in range(30)]


def test_no_descriptor_is_left_open() -> None:
    ask(Shell("true"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for command in ("true", "exit 1", "cat", "sleep 60"):
        ask(Shell(command, timeout=0.2))
    ask(Shell("true", cwd="/no/such/folder"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_tool_writes_its_output_and_exit_code_into_the_context() -> None:
    good = tool("echo built; exit 0")
    assert good.status is StageStatus.SUCCESS
    assert good.context_updates == {"tool.output": "built\n", "tool.exit_code": 0}
    bad = tool("echo half; echo no space >&2; exit 4")
    assert bad.context_updates == {"tool.output": "half\n", "tool.exit_code": 4}
    assert bad.failure_reason == "it ended with exit code 4: no space"


def test_tool_reads_nothing_and_has_the_time_of_its_node() -> None:
    assert tool("cat; echo end").response == "end\n"
    late = tool("sleep 60", timeout=0.1)
    assert late.failure_reason == "it took longer than 0.1 s."
    assert late.context_updates["tool.exit_code"] is None


@pytest.mark.parametrize("attributes", [{}, {"tool_command": "  "}])
def test_tool_node_without_a_command_fails_for_good(attributes: dict[str, Any]) -> None:
    outcome = ask(Tools(), attributes=attributes)
    assert outcome.failure_reason == "the node has no tool_command."
    assert outcome.error is not None and outcome.error.retryable is False


def test_tool_with_a_nul_in_its_command_cannot_be_started() -> None:
    assert "could not be started" in tool("echo a\0b").failure_reason


def test_hook_before_a_tool_may_forbid_it(tmp_path: Path) -> None:
    hooks = {"tool_hooks.pre": "echo not today >&2; exit 1"}
    outcome = tool(f"touch {tmp_path}/ran", attributes=hooks)
    assert outcome.failure_reason == "tool_hooks.pre forbade it: it ended with exit code 1: not today"
    assert not (tmp_path / "ran").exists()


def test_hook_after_a_tool_knows_how_it_ended_and_changes_nothing(tmp_path: Path) -> None:
    hooks = {"tool_hooks.post": f"printf %s $EVERSTEP_TOOL_EXIT_CODE > {tmp_path}/code; exit 9"}
    outcome = tool("exit 3", attributes=hooks)
    assert (tmp_path / "code").read_text() == "3"
    assert outcome.context_updates["tool.exit_code"] == 3
    assert outcome.notes == "tool_hooks.post: it ended with exit code 9."
