"""Which modules a program loads, besides those that Python itself begins with."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LOADED = "\nimport sys\nprint(*sys.modules)"
"""What tells which modules are loaded, and loads none: of what it loaded, it could not tell who needs it."""
PROGRAMS = {
    "import everstep": "import everstep",
    "open a host": "from everstep import Host\nHost('sqlite:///runs.db').close()",
    "run a step": (
        "from everstep import Flow, Host, node\n"
        "@node(output='greeting')\n"
        "def hello(name): return 'hello ' + name\n"
        "with Host('sqlite:///runs.db') as host:\n"
        "    host.run(Flow('hello', [hello], durability='strong'), {'name': 'world'}).raise_for_status()"
    ),
    "everstep runs": (
        "from contextlib import redirect_stdout, suppress\n"
        "from io import StringIO\n"
        "from everstep.cli.main import main\n"
        "import sys; sys.argv = ['everstep', 'runs', '--store', 'sqlite:///runs.db']\n"
        "with suppress(SystemExit), redirect_stdout(StringIO()):\n"
        "    main()"
    ),
}


def modules_of(program: str, folder: Path, **environment: str) -> list[str]:
    """Return what a program loads that a Python which does nothing has not."""
    own = Path(tempfile.mkdtemp(dir=folder))
    if program == "everstep runs":
        _loaded(PROGRAMS["run a step"], own, environment)  # so that there is a run to list
    return sorted(_loaded(PROGRAMS[program], own, environment) - _loaded("", own, environment))


def _loaded(code: str, folder: Path, environment: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code + LOADED],
        cwd=folder,
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stdout.splitlines()[-1].split())
