"""A model on this machine, and processes that run agents against it.

The frameworks are the newest that `constraints.txt` knows, and in the long tier also the oldest that
`pyproject.toml` allows, in environments of their own below `.cache`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import PACKAGE, ROOT
from tests.integration.agents.fake_model import FakeModel

EXTRAS = {"openai": "openai-agents", "pydantic": "pydantic-ai"}
"""What the frameworks are called in pyproject.toml."""
Live = Callable[..., dict[str, Any]]


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as running:
        yield running


@pytest.fixture(scope="session", params=EXTRAS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session", params=["newest", pytest.param("oldest", marks=pytest.mark.soak)])
def python(request: pytest.FixtureRequest, framework: str) -> str:
    """The interpreter that has the framework, in one of its versions."""
    if request.param == "newest":
        return sys.executable
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extra,) = project["optional-dependencies"][EXTRAS[framework]]
    oldest = extra.replace(">=", "==").replace("pydantic-ai-slim", "pydantic-ai-slim[mcp,openai]")
    folder = ROOT / ".cache" / f"oldest-{framework}-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(folder)], check=True)
    found = str(folder / "bin" / "python")
    wanted = [*project["dependencies"], oldest, "httpx"]  # which old MCP clients use without asking for it
    subprocess.run([*uv, "pip", "install", "--python", found, *wanted], check=True)
    return found


@pytest.fixture(scope="session")
def process(framework: str, python: str) -> Iterator[subprocess.Popen[str]]:
    """What has loaded the framework, and forks for each life."""
    module = f"tests.integration.agents.{framework}_flows"
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        [python, str(Path(__file__).with_name("lives.py")), module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as started:
        assert started.stdin is not None and started.stdout is not None
        assert started.stdout.readline(), "the framework cannot be loaded"
        yield started
        started.stdin.close()
        started.wait(30)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def live(process: subprocess.Popen[str], store: str, model: FakeModel) -> Live:
    """Have a run driven in a process of its own: `live(flow, script, run_id)`; says how it stands then."""

    def one_life(flow: str, script: str, run_id: str = "A", **inputs: Any) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        inputs = {"script": script, "question": "why?", **inputs}
        told = {"store": store, "url": model.url, "flow": flow, "run_id": run_id, "inputs": inputs}
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
        said: dict[str, Any] = json.loads(process.stdout.readline())
        return said

    return one_life
