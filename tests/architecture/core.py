"""The core: what it takes to run a flow on one store, and the tests that need no more than that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

from tests.architecture.sources import PACKAGE, ROOT

ROOMS = (
    *("__init__.py", "py.typed", "errors.py", "on_demand.py", "registry.py"),
    *("model", "codec", "ports", "graph", "engine", "runtime", "stores", "client", "testing"),
    *("migrate.py", "notify.py", "types.py", "wait.py"),
)
"""What the core is made of, but for the rooms inside these that it does without:"""
OUTSIDE = (
    *("runtime/bundles", "runtime/integrity", "runtime/retention", "runtime/travel"),
    *("runtime/operations/asking", "runtime/operations/bulk", "runtime/operations/schedules"),
    *("runtime/drive/timed", "runtime/drive/undo"),
    "runtime/rekey.py",
    *("stores/postgres", "stores/redis", "stores/apart.py"),
    *("stores/objects/cloud", "stores/objects/folder", "stores/objects/github"),
    *("client/exports", "client/looking"),
    *(
        f"client/groups/{name}.py"
        for name in ("debug", "retention", "schedules", "storage", "transfer", "versions")
    ),
    *(
        "client/diff.py",
        "client/documents.py",
        "client/looking/comparison.py",
        "client/looking/store_info.py",
    ),
)

HELPERS = (
    *(
        "conformance/conftest.py",
        "inside_memory.py",
        "keyframes.py",
        "unit/conftest.py",
        "unit/codec/fuzzing.py",
    ),
    *("integration/conftest.py", "integration/noise.py", "integration/runtime/waits/conftest.py"),
)
"""What these tests share."""
SOME_TESTS = (
    *("unit/model/test_address.py", "unit/model/test_durability.py", "unit/codec/test_records.py"),
    *("unit/graph/test_flow.py", "unit/engine", "unit/runtime/drive", "unit/testing/test_killing.py"),
    *(
        f"integration/runtime/drive/{name}.py"
        for name in ("test_drive_wakeups", "test_keyframes", "shapes/test_atomic_results")
    ),
    "integration/runtime/guards/test_guard_notifications.py",
)
"""Quick ones from each of the core's rooms."""
MORE_TESTS = (
    *("unit/model/test_amounts.py", "unit/testing/test_manual_clock.py"),
    *(
        f"unit/codec/test_{name}.py"
        for name in ("archive", "codecs", "compare", "fuzz_codec", "growth", "schema", "values")
    ),
    *(
        f"unit/graph/test_{name}.py"
        for name in ("channel", "hints", "loops", "methods", "profiles", "wiring")
    ),
    *("unit/properties/test_short_way.py", "unit/properties/test_simulation.py"),
    *(
        f"integration/runtime/drive/shapes/test_{name}.py"
        for name in ("cancelled_branches", "combined_shapes", "maps", "nested_maps", "subflows")
    ),
    *(
        f"integration/runtime/drive/test_{name}.py"
        for name in (
            *("commits_before_effects", "context_events_and_heartbeats", "effects_outlive_drives"),
            *("node_threads", "threads_and_abandoned_calls"),
        )
    ),
    *("integration/runtime/test_concurrent_resumes.py", "integration/runtime/waits/test_waits.py"),
    *(f"integration/runtime/waits/test_{name}.py" for name in ("custom_halt_nodes", "waits_in_loops")),
    "integration/runtime/workers/test_worker_claims.py",
    "integration/stores/sqlite/test_log_preallocation.py",
    *("conformance/test_memory.py", "conformance/test_sqlite.py"),
)
"""The others that need nothing outside the core."""

NEED_MORE = (
    "postgres or redis or s3 or github"
    " or a_fork_and or a_fork_interrupted or an_erased_run_takes or rules_leave_whole"
)
"""Which of them are about other stores, or travel and remove runs."""

EVERY_MODULE = """
from importlib import import_module
from pathlib import Path
import everstep

home = Path(everstep.__file__).parent
for file in sorted(home.rglob("*.py")):
    parts = file.relative_to(home).with_suffix("").parts
    if parts[0] != "testing":  # has suites for pytest, which take long to load
        import_module(".".join(["everstep", *parts]).removesuffix(".__init__"))
print(home)
"""
"""A program that loads each module of the core, and says where it found them."""


class Alone:
    """An environment with the core installed in it, and the rest of the package nowhere."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "env", symlinks=True)
        base = {"base": str(folder / "env"), "platbase": str(folder / "env")}
        site = Path(sysconfig.get_path("purelib", "venv", base))
        # Named in a file, a folder is searched, and what is installed there for editing is not found.
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        self.package = site / "everstep"
        self._folder = folder
        self._python = Path(sysconfig.get_path("scripts", "venv", base)) / Path(sys.executable).name
        copy(PACKAGE, ROOMS, self.package, without=OUTSIDE)

    def python(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run Python in it, in a folder of its own."""
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
        return subprocess.run(
            [self._python, *args],
            cwd=self._folder,
            env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            check=False,
            capture_output=True,
            text=True,
        )

    def test(self, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
        """Run these tests in it, on the stores of the core."""
        shutil.copy(ROOT / "pyproject.toml", self._folder)
        copy(ROOT / "tests", (*HELPERS, *tests), self._folder / "tests")
        return self.python(
            *("-m", "pytest", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider"),
            *("-q", "-m", "not soak", "-k", f"not ({NEED_MORE})", "tests"),
        )


def copy(start: Path, names: Iterable[str], to: Path, *, without: Iterable[str] = ()) -> None:
    """Copy these files and folders, with what was compiled of them, but for some of what is in them."""
    left_out = {start / name for name in without}

    def leave_out(folder: str, found: list[str]) -> set[str]:
        return {name for name in found if Path(folder, name) in left_out}

    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if (start / name).is_dir():
            shutil.copytree(start / name, to / name, ignore=leave_out)
        else:
            shutil.copy2(start / name, to / name)
