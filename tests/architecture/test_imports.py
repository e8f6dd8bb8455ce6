"""What is loaded when: the core alone for `import everstep`, and nothing that is not used."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import everstep
from everstep import Flow

MOST_AT_IMPORT = 52
"""How many modules of its own `import everstep` may load."""

OUTSIDE = (
    "frontends",
    "pipelines",
    "backends",
    "checkpoints",
    "notify",
    "client",
    "runtime",
    "stores",
    "cli",
)
"""What `import everstep` loads nothing of."""
FOREIGN = {
    *("asyncio", "http", "email", "ssl", "click", "rich", "httpx2", "cryptography", "apsw"),
    *("logging", "concurrent", "pathlib", "urllib", "hashlib"),
}

ASIDE = (
    *("frontends", "pipelines", "backends", "checkpoints", "notify", "cli", "server", "testing"),
    *(
        "runtime.bundles",
        "runtime.retention",
        "runtime.integrity",
        "runtime.travel",
        "runtime.waits.webhooks",
    ),
    *("runtime.rekey", "runtime.doctor", "runtime.reader", "runtime.rehydrate", "runtime.lineage"),
    *("runtime.guards.budgets", "runtime.waits.open", "runtime.waits.answers", "runtime.workers.worker"),
    *("runtime.drive.channel", "runtime.drive.streams", "runtime.drive.subflows", "runtime.outage.outbox"),
    *("engine.verdict", "engine.keyframe", "codec.classes", "codec.forms", "codec.frames", "graph.ir"),
    *("client.exports", "client.groups", "client.sync_groups"),
)
"""What a run on SQLite loads nothing of."""
MOST_FOR_A_RUN = 150
A_RUN = """
from everstep import Flow, Host, node

@node(output="y")
def work(x: int) -> int:
    return x + 1

with Host("sqlite:///runs.db") as host:
    assert host.run(Flow("f", [work]), {"x": 1})["y"] == 2
"""

ASIDE_IN_A_RESUME = (
    *("runtime.bundles", "runtime.integrity", "runtime.travel", "runtime.waits.tokens", "runtime.waits.open"),
    *("runtime.drive.external_channel", "runtime.drive.channel", "runtime.drive.subflows", "codec.notes"),
    *("model.address", "model.breakers", "graph.author.migrations", "engine.verdict", "graph.ir"),
)
"""What a resume on SQLite loads nothing of."""
A_RESUME = """
from everstep import Flow, Host, node

class Left(BaseException):
    pass

leaves = [True]

@node(output="y")
def work(x: int) -> int:
    if leaves.pop():
        leaves.append(False)
        raise Left
    return x + 1

flow = Flow("f", [work])
for given in ({"x": 1}, None):
    try:
        with Host("sqlite:///runs.db") as host:
            assert host.run(flow, given, run_id="r")["y"] == 2
    except Left:
        pass
assert not leaves
"""

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def loaded_by(program: str, folder: Path) -> set[str]:
    """Return the modules that a process has loaded when a program ends."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}\n{LOADED}"], cwd=folder, check=True, capture_output=True, text=True
    )
    return set(json.loads(ran.stdout.splitlines()[-1]))


def rooms_in(modules: set[str], rooms: tuple[str, ...]) -> list[str]:
    """Name the modules that lie in one of these rooms."""
    return sorted(m for m in modules if f"{m}.".startswith(tuple(f"everstep.{room}." for room in rooms)))


def test_import_everstep_loads_the_core_alone(tmp_path: Path) -> None:
    modules = loaded_by("import everstep", tmp_path)
    assert rooms_in(modules, OUTSIDE) == []
    assert sorted(FOREIGN & modules) == []
    assert len([m for m in modules if m.split(".")[0] == "everstep"]) <= MOST_AT_IMPORT


def test_a_run_on_sqlite_loads_no_front_end_and_no_rare_feature(tmp_path: Path) -> None:
    modules = loaded_by(A_RUN, tmp_path)
    assert rooms_in(modules, ASIDE) == []
    assert sorted({"http", "email", "click", "rich", "httpx2", "cryptography"} & modules) == []
    assert len([m for m in modules if m.split(".")[0] == "everstep"]) <= MOST_FOR_A_RUN


def test_a_resume_on_sqlite_loads_no_rare_feature(tmp_path: Path) -> None:
    modules = loaded_by(A_RESUME, tmp_path)
    assert "everstep.runtime.rehydrate" in modules
    assert rooms_in(modules, ASIDE_IN_A_RESUME) == []


def test_every_name_is_there_for_programs_that_list_them() -> None:
    assert set(everstep.__all__) <= set(dir(everstep))


def test_an_unknown_name_is_no_name_of_the_package() -> None:
    assert not hasattr(everstep, "no_such_name")


def test_what_front_ends_attach_to_flows_has_its_signature() -> None:
    assert list(inspect.signature(Flow.from_dot).parameters)[:3] == ["text", "handlers", "backend"]
    assert (Flow.from_dot.__doc__ or "").startswith("Return the flow of a pipeline written in DOT")
    assert Flow.__module__ == "everstep.graph.author.flow"
