"""Commands that runs of pipelines have started: they end with their stage, whatever ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everstep import Flow, Host
from everstep.backends import Shell, Tools
from everstep.results import RunResult

TEXT = """digraph g {
  start [shape=Mdiamond]; exit [shape=Msquare]
  make [prompt="Make it." %s]
  start -> make -> exit
}"""
SLEEPS = "sh -c 'echo $$ > pid; exec sleep 60'; true"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.chdir(tmp_path)
    with Host(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.005)


def pid() -> int:
    until(lambda: Path("pid").exists() and Path("pid").read_text().endswith("\n"))
    return int(Path("pid").read_text())


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.parametrize("more", ["", ', shape=parallelogram, tool_command="%s"'])
def test_command_dies_with_the_time_of_its_node(host: Host, more: str) -> None:
    tool = more % SLEEPS if more else ""
    flow = Flow.from_dot(TEXT % f', timeout="2s"{tool}', backend=Shell(SLEEPS), tools=Tools())
    result = host.run(flow)
    assert result.error is not None and "took longer than 2 s" in result.error.message
    until(lambda: not is_alive(pid()))


def test_command_dies_when_its_run_is_cancelled(host: Host) -> None:
    flow = Flow.from_dot(TEXT % "", backend=Shell(SLEEPS))
    ended: list[RunResult] = []
    thread = threading.Thread(target=lambda: ended.append(host.run(flow, run_id="A17")))
    thread.start()
    assert is_alive(pid())
    host.cancel("A17")
    thread.join(10)
    assert [result.status for result in ended] == ["cancelled"]
    until(lambda: not is_alive(pid()))


def test_failed_attempts_are_made_again_with_the_same_key(host: Host) -> None:
    command = 'echo "$EVERSTEP_ATTEMPT $EVERSTEP_IDEMPOTENCY_KEY" >> keys; [ "$EVERSTEP_ATTEMPT" = 3 ]'
    flow = Flow.from_dot(TEXT % ", max_retries=2, retry_backoff=none", backend=Shell(command))
    assert host.run(flow).status == "completed"
    attempts, keys = zip(*(line.split() for line in Path("keys").read_text().splitlines()), strict=True)
    assert attempts == ("1", "2", "3") and len(set(keys)) == 1


def test_failure_for_good_is_not_tried_again(host: Host) -> None:
    command = "echo x >> calls; echo nonsense > $EVERSTEP_STATUS_FILE"
    result = host.run(Flow.from_dot(TEXT % ", max_retries=5", backend=Shell(command)))
    assert result.error is not None and "the status file cannot be taken" in result.error.message
    assert Path("calls").read_text() == "x\n"


def test_a_tool_whose_time_is_over_leaves_what_it_said_until_then(tmp_path: Path) -> None:
    text = """digraph p {
      start [shape=Mdiamond]; exit [shape=Msquare]
      first [shape=parallelogram, tool_command="echo before"]
      slow [shape=parallelogram, tool_command="echo half; sleep 60", timeout="300ms"]
      start -> first -> slow -> exit
      slow -> exit [condition="outcome=fail"]
    }"""
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        result = host.run(Flow.from_dot(text, tools=Tools()), run_id="a")
        assert result.status == "completed" and host.channel("a")["tool.output"] == "half\n"
        assert host.channel("a")["stages.slow"]["failure_reason"] == "it took longer than 0.3 s."
