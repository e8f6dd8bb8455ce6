"""Real servers for tests that ask for one, and a loud word about those that were missing."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from everstep.runtime.services import Services
from tests.servers.github import GithubServer, fresh_token, new_repository
from tests.servers.postgres import PostgresServer, emptying, fresh_schema
from tests.servers.running import NOT_HERE, shared
from tests.servers.seaweed import SeaweedServer, key_in_the_environment
from tests.servers.seaweed import fresh_prefix as fresh_part
from tests.servers.valkey import ValkeyServer, prefixes

MEMORY = Path("/dev/shm")
ARCHITECTURE = "tests/architecture/"

# The first tier tries the same examples each time: it fails by a change, not by luck. Soaks try others.
SLOW_MACHINE = [HealthCheck.too_slow]
"""A busy machine makes and tries examples slowly; that says nothing about what is tested."""
settings.register_profile(
    "seeded", derandomize=True, database=None, deadline=None, suppress_health_check=SLOW_MACHINE
)
settings.register_profile("random", deadline=None, suppress_health_check=SLOW_MACHINE)
settings.load_profile("random" if os.environ.get("EVERSTEP_SOAK") == "1" else "seeded")

if not any(name.startswith("EVERSTEP_TEST_") for name in os.environ):
    # Our own servers speak plain HTTP. A client that reads all authorities of the world first takes 20 ms.
    os.environ.setdefault("SSL_CERT_FILE", str(Path(__file__).parent / "servers" / "authority.pem"))

if (searched := os.environ.get("PYTHONPATH")) is not None:
    # Tests start processes in folders of their own, which are to run this tree, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, searched.split(os.pathsep)))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs so, and their children inherit it: nothing could be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """Leave the log lines of this process as they were: a command that a test runs in it sets them up."""
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    level, showing = root.level, warnings.showwarning
    yield
    Services.notes_at_work = False
    if any(type(handler).__module__ == "everstep.logs" for handler in root.handlers):
        root.handlers[:] = [one for one in root.handlers if type(one).__module__ != "everstep.logs"]
        root.setLevel(level)
        for name in ("everstep.worker", "everstep.access", "stdout", "stderr"):
            logging.getLogger(name).setLevel(logging.NOTSET)
        warnings.showwarning, (sys.excepthook, threading.excepthook) = showing, hooks


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each process of a whole test run import another part of the tests first.

    All of them import all tests, and compile what was not compiled before. In step they would compile the
    same modules at the same time; so each compiles a part, and finds the others compiled.
    """
    told = getattr(session.config, "workerinput", None)
    if told is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    number, many = int(told["workerid"].removeprefix("gw")), told["workercount"]
    root = session.config.rootpath
    modules = sorted(path.relative_to(root) for path in (root / "tests").rglob("test_*.py"))
    for path in modules[number::many]:
        with suppress(Exception):  # whatever is wrong with it, the collection says it
            import_module(".".join(path.with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from walking over what lasts as long as the tests: thousands of them.

    Without this, every full collection that a test brings about looks at half a million objects, none of
    which is garbage; together that took a tenth of the processor time of the whole suite.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the architecture: its tests share the parsed sources of the package.

    The processes of a test run begin with a part each, and at the end take what is left from each other. In
    the middle of a part these tests would be spread over all processes, each of which would parse anew.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(ARCHITECTURE))


def pytest_collection_finish() -> None:
    """Keep what was compiled so far, and nothing that a test writes: it may change within the same second."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="session")
def server_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of this test session share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one, for tests that would sync a disk thousands of times."""
    with _in_memory() as folder:
        yield folder


@pytest.fixture(scope="module")
def quick_disk() -> Iterator[Path]:
    """The same for all tests of a module."""
    with _in_memory() as folder:
        yield folder


@contextmanager
def _in_memory() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="everstep-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def postgres_server(server_session: Path) -> Iterator[str]:
    """The URL of the session's PostgreSQL."""
    with shared(PostgresServer, server_session) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_schema(postgres_server: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a schema that only this process uses, and a call that empties it."""
    with fresh_schema(postgres_server) as url, emptying(url) as empty:
        yield url, empty


@pytest.fixture
def postgres_url(postgres_schema: tuple[str, Callable[[], None]]) -> str:
    """The URL of a schema that is empty, and that only this test uses until it ends."""
    url, empty = postgres_schema
    empty()
    return url


@pytest.fixture
def new_postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a schema that is not there yet."""
    with fresh_schema(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def redis_server(server_session: Path) -> Iterator[str]:
    """The URL of the session's Valkey."""
    with shared(ValkeyServer, server_session) as url:
        yield url


@pytest.fixture(scope="session")
def redis_prefixes(redis_server: str) -> Iterator[Callable[[], AbstractContextManager[str]]]:
    """A call that makes a prefix which no other uses."""
    with prefixes(redis_server) as fresh:
        yield fresh


@pytest.fixture
def redis_url(redis_prefixes: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """The URL of a prefix that only this test uses."""
    with redis_prefixes() as url:
        yield url


@pytest.fixture(scope="session")
def s3_server(server_session: Path) -> Iterator[str]:
    """The URL of the session's bucket, whose key is in the environment meanwhile."""
    is_ours = SeaweedServer.variable not in os.environ
    with shared(SeaweedServer, server_session) as url, key_in_the_environment() if is_ours else nullcontext():
        yield url


@pytest.fixture
def s3_keys(s3_server: str) -> None:
    """For tests that use the keys of our own server, each of which may do something else."""
    if SeaweedServer.variable in os.environ:
        pytest.skip(f"{SeaweedServer.variable} names a server whose other keys no one knows here.")


@pytest.fixture
def s3_url(s3_server: str) -> Iterator[str]:
    """The URL of a prefix that only this test uses."""
    with fresh_part(s3_server) as url:
        yield url


@pytest.fixture(scope="session")
def github_server(server_session: Path) -> Iterator[str]:
    """Where the API of the session's GitHub is."""
    with shared(GithubServer, server_session) as url:
        yield url


@pytest.fixture
def github_token() -> Iterator[str]:
    """A token with a quota of its own, which is in the environment."""
    with fresh_token() as token:
        yield token


@pytest.fixture
def github_url(github_server: str, github_token: str) -> str:
    """The URL of a folder in a repository that only this test uses."""
    return new_repository(github_server)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    texts = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    missing = Counter(text[text.index(NOT_HERE) :].rstrip("')\"") for text in texts if NOT_HERE in text)
    for reason, many in missing.items():
        terminalreporter.write_line(f"{many} tests did NOT run. {reason}", red=True, bold=True)
