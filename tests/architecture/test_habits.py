"""The habits of this code that a parser can check, and proof that each check bites."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import pytest

from tests.architecture.sources import Source, everstep_sources

LONGEST_FUNCTION = 70

DRAWERS = {"utils", "helpers", "common", "shared"}

# Time, ids and chance come through ports, so that a test can move the clock and a replay decides alike.
# Everything in the module `random` counts too.
IMPLEMENTS_PORTS = "runtime/system.py"
TELLS_CLIENTS_APART = ("stores/objects/entries.py", "os.urandom")
"""A mark by which a client knows its own write again; nothing is decided by it."""
BEHIND_PORTS = {
    *("datetime.date.today", "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow"),
    *("time.sleep", "time.time", "time.time_ns", "asyncio.sleep"),
    *("uuid.uuid1", "uuid.uuid4", "os.urandom"),
    *("secrets.choice", "secrets.randbelow", "secrets.SystemRandom"),
    *("secrets.token_bytes", "secrets.token_hex", "secrets.token_urlsafe"),
}

LOADS_ON_DEMAND = {"registry.py", "compat.py"}
"""What joins stores and front ends to the core loads each when it is asked for."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def drawers(source: Source) -> Iterator[str]:
    """A module is named after what it holds."""
    for part in PurePosixPath(source.path).with_suffix("").parts:
        if part.strip("_") in DRAWERS:
            yield f"{source.at(1)}: {part} says nothing; name the module after what it holds"


def time_and_chance(source: Source) -> Iterator[str]:
    """Clocks, sleeps, fresh ids and random numbers stay in the implementations of the ports."""
    if source.path == IMPLEMENTS_PORTS or source.layer in {"cli", "testing"}:
        return
    origins = import_origins(source)
    # `asyncio.sleep(0)` passes no time: it only lets other tasks run.
    yields = [n.func for n in source.nodes if isinstance(n, ast.Call) and is_zero(n.args)]
    for node in source.nodes:
        if not isinstance(node, ast.Name | ast.Attribute) or isinstance(node.ctx, ast.Store):
            continue
        name = full_name(node, origins)
        if name == "asyncio.sleep" and node in yields:
            continue
        if (source.path, name) == TELLS_CLIENTS_APART:
            continue
        if name in BEHIND_PORTS or name.startswith("random."):
            yield f"{source.at(node.lineno)}: {name} belongs behind a port, in {IMPLEMENTS_PORTS}"


WITHOUT_A_HOST = ("runtime/waits/webhooks.py", "runtime/waits/notices/mail.py")
"""What users make themselves, before there is a host that could give it a system."""
NAMES_A_FILE = ("runtime/bundles/new_file.py", "os.getpid")
"""A file beside the one to be written; two processes that write the same one must not share it."""
THREADS = ("threading.", "queue.", "time.", "multiprocessing.", "_thread.")
ALSO_THREADS = {
    *("asyncio.to_thread", "asyncio.Runner", "asyncio.run", "asyncio.new_event_loop"),
    *("concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor"),
    *("os.getpid", "socket.gethostname", "platform.node"),
}


def threads(source: Source) -> Iterator[str]:
    """The runtime takes threads, locks, clocks and loops from its host's `System`: that can be simulated."""
    if source.layer != "runtime" or source.path == IMPLEMENTS_PORTS:
        return
    origins = import_origins(source)
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "everstep.runtime.system":
            if source.path not in WITHOUT_A_HOST:
                yield f"{source.at(node.lineno)}: ask services.system, not {node.module}"
        elif isinstance(node, ast.Name | ast.Attribute):
            name = full_name(node, origins)
            is_behind = name.startswith(THREADS) or name in ALSO_THREADS
            if is_behind and (source.path, name) != NAMES_A_FILE:
                yield f"{source.at(node.lineno)}: {name} belongs behind ports/system.py"
        elif isinstance(node, ast.Call) and is_default_pool(node):
            yield f"{source.at(node.lineno)}: run_in_executor(None) uses the loop's threads; give it a pool"


UNDERSTANDS = "model/shapes.py"


def half_understood(source: Source) -> Iterator[str]:
    """A type is handed to msgspec while a module loads, or by `understood`: threads may do so at once."""
    if source.path == UNDERSTANDS or source.layer in {"cli", "testing"}:
        return
    origins = import_origins(source)
    for function in source.nodes:
        if not isinstance(function, (*FUNCTIONS, ast.Lambda)):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            kind = handed_to_msgspec(node, origins)
            if isinstance(kind, ast.Name) and kind.id[:1] in "_ABCDEFGHIJKLMNOPQRSTUVWXYZ":
                yield f"{source.at(node.lineno)}: write understood({kind.id})"


PLAIN = {"UUID", "Decimal", "Annotated", "Any"}


def handed_to_msgspec(node: ast.Call, origins: dict[str, str]) -> ast.expr | None:
    """Return the type that a call gives to msgspec to read."""
    name = full_name(node.func, origins)
    given = next((keyword.value for keyword in node.keywords if keyword.arg == "type"), None)
    if name.startswith("msgspec.") and name.endswith(".Decoder"):
        given = given or (node.args[0] if node.args else None)
    elif name == "msgspec.convert":
        given = given or (node.args[1] if len(node.args) > 1 else None)
    elif not (name.startswith("msgspec.") and name.endswith(".decode")):
        return None
    return None if isinstance(given, ast.Name) and given.id in PLAIN else given


def is_default_pool(node: ast.Call) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="run_in_executor"), args=[ast.Constant(value=None), *_]):
            return True
    return False


# A simulation brings its own loop, and that moves these timers (see ports/system.py). They may limit how long
# work of this process is waited for; when a run goes on is decided by the clock of its host.
LOOP_TIMERS: dict[str, set[str]] = {
    "runtime/drive/invoke.py": {"timeout", "wait", "time"},  # how long a node may take
    "runtime/drive/units/calls.py": {"timeout"},  # how long a durable call may take
    "runtime/drive/units/order.py": {"call_at", "time"},  # how long a call that came before is waited for
    "runtime/drive/channel.py": {"timeout"},  # how long a reader waits for a value
    "runtime/drive/rest.py": {"wait"},  # until a call ends; what is due is the clock's to say
    "runtime/drive/committer.py": {"wait"},  # a store that is slow with a caller that was cancelled
    "runtime/drive/parallel.py": {"call_later"},  # more threads for calls that take long
    # How long a run that ends waits for what it emitted and logged to be written.
    "runtime/live/side_writer.py": {"wait"},
    "runtime/stay.py": {"wait"},  # how often to look at the store
    "runtime/workers/worker.py": {"timeout", "wait"},  # how often to look, and how long to stop
    "runtime/waits/announce.py": {"timeout"},  # how long a notifier may take
    "runtime/waits/notices/send.py": {"timeout"},  # likewise
}


def loop_timers(source: Source) -> Iterator[str]:
    """Where the runtime waits by the timers of the event loop is listed, and why."""
    if source.layer != "runtime" or source.path == IMPLEMENTS_PORTS:
        return
    for line, name in timers(source):
        if name not in LOOP_TIMERS.get(source.path, ()):
            yield f"{source.at(line)}: {name} goes by the loop's clock; ask services.clock, or say why not"


def timers(source: Source) -> Iterator[tuple[int, str]]:
    """Yield each use of a timer or the clock of an event loop: its line and its last name."""
    origins = import_origins(source)
    for node in source.nodes:
        match node:
            case ast.Attribute(attr="call_later" | "call_at" as name):
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(attr="time", value=owner), args=[]) if is_loop(owner):
                yield node.lineno, "time"
            case ast.Call(func=func, keywords=keywords):
                match full_name(func, origins):
                    case "asyncio.timeout" | "asyncio.timeout_at" | "asyncio.wait_for" as full:
                        yield node.lineno, full.removeprefix("asyncio.")
                    case "asyncio.wait" if any(keyword.arg == "timeout" for keyword in keywords):
                        yield node.lineno, "wait"


def is_loop(owner: ast.expr) -> bool:
    return ast.unparse(owner).removesuffix("()").endswith("loop")


def test_the_list_of_loop_timers_has_those_in_use_and_no_more() -> None:
    used = {
        source.path: {name for _, name in timers(source)}
        for source in everstep_sources()
        if source.path in LOOP_TIMERS
    }
    assert used == LOOP_TIMERS


def import_origins(source: Source) -> dict[str, str]:
    """Map each imported name to what it stands for: `dt` to `datetime`, `sleep` to `time.sleep`."""
    origins: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            origins |= {a.asname or a.name: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            origins |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in source.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)) if other in origins:
                origins.setdefault(name, origins[other])
    return origins


def full_name(node: ast.expr, origins: dict[str, str]) -> str:
    """Spell `dt.datetime.now` out as `datetime.datetime.now`; empty for anything but an imported name."""
    if isinstance(node, ast.Name):
        return origins.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = full_name(node.value, origins)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def is_zero(args: list[ast.expr]) -> bool:
    return len(args) == 1 and isinstance(args[0], ast.Constant) and args[0].value == 0


def hidden_imports(source: Source) -> Iterator[str]:
    """Imports stand at the top, except where a heavy module is loaded on demand."""
    if source.path in LOADS_ON_DEMAND or source.layer == "cli":
        return
    for function in functions(source):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield f"{source.at(node.lineno)}: import at the top of the file"
    for node in source.nodes:
        if isinstance(node, ast.Name) and node.id == "__import__":
            yield f"{source.at(node.lineno)}: import at the top of the file, not by __import__"


def prints(source: Source) -> Iterator[str]:
    """Only the command line talks to a terminal."""
    if source.layer == "cli":
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{source.at(node.lineno)}: only cli prints"


def long_functions(source: Source) -> Iterator[str]:
    """A long function is asking to be two."""
    for function in functions(source):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > LONGEST_FUNCTION:
            yield f"{source.at(function.lineno)}: {function.name} has {lines} lines; split it"


def swallowed_errors(source: Source) -> Iterator[str]:
    """No one catches everything and goes on as if nothing had happened."""
    for node in source.nodes:
        match node:
            case ast.ExceptHandler(type=caught, body=body) if is_broad(caught) and all(map(is_idle, body)):
                yield f"{source.at(node.lineno)}: an error is swallowed here"
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args):
                if any(map(is_broad, args)):
                    yield f"{source.at(node.lineno)}: an error is swallowed here"


def is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(is_broad, caught.elts))
    return caught is None or (isinstance(caught, ast.Name) and caught.id in {"Exception", "BaseException"})


def is_idle(statement: ast.stmt) -> bool:
    """`pass`, `continue`, `...` or a string: nothing that deals with the error."""
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in source.nodes if isinstance(node, FUNCTIONS))


Check = Callable[[Source], Iterator[str]]

CHECKS: list[Check] = [
    half_understood,
    drawers,
    time_and_chance,
    threads,
    loop_timers,
    hidden_imports,
    prints,
    long_functions,
    swallowed_errors,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_package_keeps_the_habit(check: Check) -> None:
    findings = sorted({finding for source in everstep_sources() for finding in check(source)})
    assert not findings, "\n".join([f"{check.__doc__}", *findings])


def function_of(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (drawers, "stores/utils.py", ""),
        (drawers, "stores/_helpers.py", ""),
        (drawers, "common/records.py", ""),
        (drawers, "shared/__init__.py", ""),
        (time_and_chance, "engine/a.py", "import datetime\nx = datetime.datetime.now()"),
        (time_and_chance, "engine/a.py", "from datetime import UTC, datetime\nx = datetime.now(UTC)"),
        (time_and_chance, "engine/a.py", "import datetime as dt\nx = dt.datetime.utcnow()"),
        (time_and_chance, "engine/a.py", "from uuid import uuid4\nx = uuid4()"),
        (time_and_chance, "engine/a.py", "import uuid\nmake_id = uuid.uuid4"),
        (time_and_chance, "engine/a.py", "import random\nx = random.random()"),
        (time_and_chance, "engine/a.py", "from random import choice as pick\nx = pick([1])"),
        (time_and_chance, "stores/a.py", "import time\ntime.sleep(1)"),
        (time_and_chance, "stores/a.py", "from time import time\nx = time()"),
        (time_and_chance, "runtime/a.py", "import asyncio\nasync def f(): await asyncio.sleep(1)"),
        (time_and_chance, "runtime/a.py", "import secrets\nx = secrets.token_hex()"),
        (threads, "runtime/a.py", "import threading\nx = threading.Lock()"),
        (half_understood, "codec/a.py", "import msgspec\ndef f(): return msgspec.convert(x, Act)"),
        (half_understood, "codec/a.py", "import msgspec\ndef f(): return msgspec.msgpack.Decoder(_Act)"),
        (half_understood, "codec/a.py", "import msgspec\ndef f(): return msgspec.json.decode(x, type=Act)"),
        (threads, "runtime/drive/a.py", "from threading import Thread\nThread(target=f).start()"),
        (threads, "runtime/a.py", "from queue import SimpleQueue\nx = SimpleQueue()"),
        (threads, "runtime/a.py", "import time\nx = time.monotonic()"),
        (threads, "runtime/a.py", "import asyncio\nasync def f(): await asyncio.to_thread(g)"),
        (threads, "runtime/a.py", "from concurrent.futures import ThreadPoolExecutor as P\nx = P(1)"),
        (threads, "runtime/a.py", "from everstep.runtime.system import pause"),
        (threads, "runtime/a.py", "import os\nx = os.getpid()"),
        (threads, "runtime/a.py", "from socket import gethostname\nx = gethostname()"),
        (threads, "runtime/a.py", "async def f(): await loop.run_in_executor(None, print)"),
        (time_and_chance, "runtime/a.py", "import secrets\nx = secrets.SystemRandom().random()"),
        (time_and_chance, "runtime/a.py", "from datetime import datetime as D\nkind = D\nx = kind.now()"),
        (loop_timers, "runtime/runs.py", "loop.call_later(3, print)"),
        (loop_timers, "runtime/runs.py", "import asyncio\nasync def f(): await asyncio.wait_for(g(), 5)"),
        (loop_timers, "runtime/runs.py", "import asyncio\nasync def f(): await asyncio.wait([], timeout=4)"),
        (
            loop_timers,
            "runtime/runs.py",
            "from asyncio import timeout as t\nasync def f():\n  async with t(1): x()",
        ),
        (loop_timers, "runtime/runs.py", "import asyncio\nx = asyncio.get_running_loop().time()"),
        (loop_timers, "runtime/drive/channel.py", "x = self._loop.time()"),
        (hidden_imports, "runtime/a.py", "x = __import__('threading').Lock()"),
        (hidden_imports, "client/host.py", "def f():\n    import os"),
        (hidden_imports, "client/host.py", "class A:\n    async def f(self):\n        from os import path"),
        (prints, "runtime/a.py", "print('hello')"),
        (long_functions, "model/a.py", function_of(LONGEST_FUNCTION + 1)),
        (long_functions, "model/a.py", "async " + function_of(LONGEST_FUNCTION + 1)),
        (swallowed_errors, "model/a.py", "try: f()\nexcept Exception: pass"),
        (swallowed_errors, "model/a.py", "try: f()\nexcept: ..."),
        (swallowed_errors, "model/a.py", "try: f()\nexcept (OSError, BaseException) as e: 'never mind'"),
        (swallowed_errors, "model/a.py", "for x in y:\n    try: f()\n    except Exception: continue"),
        (swallowed_errors, "model/a.py", "with contextlib.suppress(Exception): f()"),
    ],
)
def test_the_check_finds_what_breaks_the_habit(check: Check, path: str, text: str) -> None:
    [finding] = check(Source(path, text))
    assert finding.startswith(f"src/everstep/{path}:")


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (drawers, "stores/shared_cache.py", ""),
        (time_and_chance, "runtime/system.py", "import time\ntime.sleep(1)"),
        (threads, "runtime/system.py", "import threading\nx = threading.Lock()"),
        (threads, "stores/a.py", "import threading\nx = threading.Lock()"),
        (threads, "runtime/a.py", "from concurrent.futures import Future\nx = Future()"),
        (threads, "runtime/a.py", "from datetime import time\nlock = services.system.lock()"),
        (time_and_chance, "testing/clock.py", "import random\nx = random.random()"),
        (time_and_chance, "cli/main.py", "import time\nx = time.time()"),
        (time_and_chance, "runtime/a.py", "import asyncio\nasync def f(): await asyncio.sleep(0)"),
        (time_and_chance, "runtime/a.py", "import time\nx = time.monotonic()\nclock.sleep(1)"),
        (time_and_chance, "model/a.py", "from datetime import datetime\nx: datetime\ny = clock.now()"),
        (threads, "runtime/bundles/new_file.py", "import os\nx = os.getpid()"),
        (threads, "runtime/a.py", "async def f(): await loop.run_in_executor(pool, print)"),
        (loop_timers, "runtime/a.py", "import asyncio\nasync def f(): await asyncio.wait([g()])"),
        (loop_timers, "runtime/drive/parallel.py", "self._loop.call_later(1, f)"),
        (loop_timers, "server/a.py", "loop.call_later(1, f)"),
        (hidden_imports, "registry.py", "def f():\n    import apsw"),
        (hidden_imports, "cli/main.py", "def f():\n    import rich"),
        (hidden_imports, "model/a.py", "if TYPE_CHECKING:\n    import os"),
        (prints, "cli/main.py", "print('hello')"),
        (prints, "runtime/a.py", "console.print('hello')"),
        (long_functions, "model/a.py", function_of(LONGEST_FUNCTION)),
        (swallowed_errors, "model/a.py", "try: f()\nexcept OSError: pass"),
        (swallowed_errors, "model/a.py", "try: f()\nexcept Exception as e: raise E from e"),
        (swallowed_errors, "model/a.py", "with suppress(FileNotFoundError): f()"),
    ],
)
def test_the_check_leaves_good_code_alone(check: Check, path: str, text: str) -> None:
    assert list(check(Source(path, text))) == []
