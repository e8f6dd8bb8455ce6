"""A virtual environment for each system of the comparison, with the versions that the project pins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SYSTEMS = ROOT / "benchmarks" / "systems"
HOME = ROOT / ".bench"


class System(NamedTuple):
    """What takes part."""

    name: str
    script: Path
    imports: str
    """What a program that uses it imports."""


ALL = {
    system.name: system
    for system in (
        System("raw", SYSTEMS / "raw_store.py", "sqlite3, orjson, asyncio"),
        System("everstep", ROOT / "benchmarks" / "peers.py", "everstep"),
        System("langgraph", SYSTEMS / "with_langgraph.py", "langgraph.graph, langgraph.checkpoint.sqlite"),
        System("dbos", SYSTEMS / "with_dbos.py", "dbos"),
        System("burr", SYSTEMS / "with_burr.py", "burr.core"),
    )
}


class Environments:
    """Pythons that have a system installed, made when they are first wanted."""

    def __init__(self, python: str | None) -> None:
        self._is_other = python is not None
        self._base = python or sys.executable
        self.version = self._ask(self._base, "import platform; print(platform.python_version())")
        self._folder = HOME / f"python-{'.'.join(self.version.split('.')[:2])}"

    @staticmethod
    def _ask(python: str, code: str) -> str:
        return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    def python_of(self, system: str) -> str:
        """Return the Python of a system; everstep's is the project's own unless another was asked for."""
        if system == "everstep" and not self._is_other:
            return sys.executable
        wanted = self._wanted(system)
        place = self._folder / system
        stamp = place / "installed"
        told = "\n".join([*wanted, *(Path(each).read_text() for each in wanted if each.endswith(".txt"))])
        if not stamp.exists() or stamp.read_text() != told:
            print(f"installing {system} into {place}", file=sys.stderr, flush=True)
            self._make(place, wanted)
            stamp.write_text(told)
        return str(place / "bin" / "python")

    def _wanted(self, system: str) -> list[str]:
        if system == "everstep":
            return ["-e", f"{ROOT}[postgres]"]
        return ["-r", str(SYSTEMS / f"requirements-{system}.txt")]

    def _make(self, place: Path, wanted: list[str]) -> None:
        shutil.rmtree(place, ignore_errors=True)
        if (uv := shutil.which("uv")) is not None:
            subprocess.run([uv, "venv", "--quiet", "--python", self._base, str(place)], check=True)
            install = [uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python")]
        else:
            subprocess.run([self._base, "-m", "venv", str(place)], check=True)
            install = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *wanted], check=True)
