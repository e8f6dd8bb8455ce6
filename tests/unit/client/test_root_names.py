"""What `from everstep import ...` gives: few names, which do not grow unnoticed, and for now all of 0.1's."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path

import pytest

import everstep
from everstep import Host, node
from everstep.phases import Phase

NAMES = {
    *(
        "node",
        "step",
        "current",
        "ifelse",
        "route",
        "END",
        "Node",
        "Context",
        "AsyncContext",
        "Chunk",
        "Done",
        "ItemError",
    ),
    *("Flow", "chain", "parallel", "at_least", "critical", "quorum"),
    *("Durability", "Retry", "Budget", "Breaker", "Limit", "Singleton", "Debounce", "Retention", "KeyRing"),
    "Schedule",
    *("Host", "AsyncHost", "Status", "EverstepError", "validate", "report", "__version__"),
    *("wait", "migrate", "notify"),
}
"""What most programs import. What a call returns is in `everstep.results`, what only annotations and
extensions name in `everstep.types`."""
MODULES = {"backends", "checkpoints", "errors", "phases", "pipelines", "results", "testing", "types"}

OF_0_1 = {
    *("AsyncHost", "Breaker", "Budget", "Change", "Channel", "CheckpointInfo", "Chunk", "Codec"),
    *("Collected", "Compat", "Context", "Delivery", "Diagnosis", "Diagnostic", "Diagnostics", "Diff"),
    *("Divergence", "Done", "Durability", "DurabilityReport", "END", "Erased", "Event"),
    *("EverstepError", "Explanation", "Flow", "Gate", "Host", "ItemError", "KeyRing", "LeaveOut"),
    *("Node", "Offers", "Phase", "Profile", "Registry", "Removal", "RemovedRun", "Replay", "Retention"),
    *("Retry", "RunInfo", "RunResult", "RunState", "RunSummary", "ScoredGate", "Segment", "Status"),
    *("WaitInfo", "__version__", "at_least", "backends", "chain", "checkpoints", "critical", "ifelse"),
    *("migrate", "node", "notify", "parallel", "phases", "pipelines", "quorum", "report", "route"),
    *("validate", "wait"),
}


def test_the_root_has_these_names() -> None:
    assert set(everstep.__all__) == NAMES
    assert everstep.__all__ == sorted(everstep.__all__)


@pytest.mark.parametrize("name", sorted(NAMES | MODULES))
def test_each_is_there(name: str) -> None:
    found = getattr(everstep, name)
    assert isinstance(found, types.ModuleType) == (name in {*MODULES, "wait", "migrate", "notify"})


@pytest.mark.parametrize("module", sorted(MODULES - {"testing", "errors", "backends", "checkpoints"}))
def test_modules_list_their_names_in_order(module: str) -> None:
    listed = import_module(f"everstep.{module}").__all__
    assert listed == sorted(listed) and len(listed) == len(set(listed))


def test_no_name_is_in_two_modules() -> None:
    homes = [
        set(everstep.__all__) - {"Status"},
        *(set(m.__all__) for m in (everstep.results, everstep.types)),
    ]
    assert not homes[0] & homes[1] and not homes[0] & homes[2] and not homes[1] & homes[2]


@pytest.mark.parametrize("name", sorted(OF_0_1 - NAMES - MODULES))
def test_names_of_0_1_work_and_say_where_they_are_now(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"everstep\.{name} is everstep\.\w+\.{name} now") as caught:
        old = getattr(everstep, name)
    assert caught[0].filename == __file__
    home = str(caught[0].message).split(" is ")[1].split(" now")[0].rpartition(".")[0]
    assert getattr(import_module(home), name) is old
    assert name in import_module(home).__all__


def test_an_import_of_an_old_name_warns_at_its_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom everstep import RunInfo, Phase\nassert RunInfo.__name__ == 'RunInfo'\n"
    )
    command = [sys.executable, "-W", "default", str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "program.py:2: DeprecationWarning: everstep.RunInfo is everstep.results.RunInfo now" in ran.stderr


def test_phases_can_be_called_as_in_0_1() -> None:
    @node
    def write() -> str:
        return "done"

    with pytest.warns(DeprecationWarning, match=r"everstep\.phases is everstep\.phases\.phases now"):
        flow = everstep.phases("book", [Phase("write", write)])  # type: ignore[operator]
    with Host("memory:") as host:
        assert host.run(flow).status == "completed"
