"""Python programs that start in milliseconds: a process that has imported everything forks for each of them.

`run` and `Process` take what `subprocess.run` and `subprocess.Popen` take, for commands of this Python with
`-m MODULE` or `-c CODE`. What they start is a process like any other: with its own folder, environment, files
and exit code, and it can be killed. Only its imports are not its own: a test of what a program loads, or of
its memory, starts it with `subprocess`.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    "everstep.cli",
    "everstep.client",
    "everstep.stores.sqlite",
    "everstep.stores.objects",
    "everstep.testing",
)
"""Packages that are imported whole before anything starts."""
PROGRAMS = ("tests.acceptance.crash.lives", "tests.acceptance.crash.matrix_lives")
"""Modules that tests run as programs: what they import is there already, they themselves are run anew."""
LONGEST = 1 << 20
"""Bytes that a command with its environment may have."""


class Server:
    """The process that forks, as a test sees it: started for the first program, gone with the tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = 0

    def start(self, told: dict[str, Any], files: Sequence[int]) -> None:
        """Have a program started with these files: its input, its outputs, and where its end is told."""
        with self._lock:
            socket.send_fds(self._line(), [json.dumps(told).encode()], list(files))

    def line(self) -> int:
        """Return the file over which commands are sent, for `warm_command.py` in a process of its own."""
        with self._lock:
            return self._line().fileno()

    def _line(self) -> socket.socket:
        if self._socket is None or self._pid != os.getpid():
            self._socket, self._pid = self._begin(), os.getpid()
        return self._socket

    def _begin(self) -> socket.socket:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        command = [sys.executable, "-m", __name__, str(there.fileno())]
        # It ends by itself when the last socket to it is closed, and nothing waits for it.
        subprocess.Popen(
            ["sh", "-c", '"$@" & ', "sh", *command],
            cwd=ROOT,
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
        ).wait()
        there.close()
        atexit.register(here.close)
        return here


SERVER = Server()


class Process:
    """A program under way. It has the part of `subprocess.Popen` that the tests use."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        text: bool = False,
        start_new_session: bool = False,
    ) -> None:
        if command[0] != sys.executable:
            raise ValueError(f"{command[0]} is not this Python")
        self.args = list(command)
        self.returncode: int | None = None
        self._opened: list[int] = []
        self._is_text = text
        ends, given = os.pipe()
        self._ends = io.FileIO(ends)
        self._opened.append(given)
        mine: dict[str, IO[Any] | None] = {}
        files: list[int] = []
        for name, asked in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            theirs, mine[name] = self._file(name, asked, files)
            files.append(theirs)
        self.stdin, self.stdout, self.stderr = mine["stdin"], mine["stdout"], mine["stderr"]
        told = {
            "words": self.args[1:],
            "cwd": str(cwd if cwd is not None else Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "session": start_new_session,
        }
        try:
            SERVER.start(told, [*files, given])
        finally:
            for file in self._opened:
                os.close(file)
        self.pid = int(self._ends.readline() or self._lost())

    def _lost(self) -> NoReturn:
        raise RuntimeError(f"the process that forks is gone; it was to start {self.args}")

    def _file(self, name: str, asked: int | IO[Any] | None, before: list[int]) -> tuple[int, IO[Any] | None]:
        """Return what the program gets in one place, and our end if it is a pipe."""
        if asked is None:
            return {"stdin": 0, "stdout": 1, "stderr": 2}[name], None
        if asked == subprocess.STDOUT:
            return before[1], None
        if asked == subprocess.DEVNULL:
            null = os.open(os.devnull, os.O_RDWR)
            self._opened.append(null)
            return null, None
        if asked != subprocess.PIPE:
            return asked if isinstance(asked, int) else asked.fileno(), None
        read, write = os.pipe()
        theirs, ours = (read, write) if name == "stdin" else (write, read)
        self._opened.append(theirs)
        mode = "w" if name == "stdin" else "r"
        return theirs, os.fdopen(ours, mode, encoding="utf-8") if self._is_text else os.fdopen(
            ours, f"{mode}b"
        )

    def poll(self) -> int | None:
        """Return how it ended, or none while it is under way."""
        if self.returncode is None:
            os.set_blocking(self._ends.fileno(), False)
            self._note(self._ends.read())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            waiter = threading.Thread(target=self._hear_the_end, daemon=True)
            waiter.start()
            waiter.join(timeout)
            if self.returncode is None:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def _hear_the_end(self) -> None:
        os.set_blocking(self._ends.fileno(), True)
        self._note(self._ends.readline() or b"-9\n")

    def _note(self, said: bytes | None) -> None:
        if said:
            self._ends.close()
            self.returncode = int(said)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Write all of the input, read all of the outputs, and wait for the end."""
        found: dict[str, Any] = {}
        threads = [
            threading.Thread(target=lambda n=name, f=file: found.__setitem__(n, f.read()), daemon=True)
            for name, file in (("stdout", self.stdout), ("stderr", self.stderr))
            if file is not None and not file.closed
        ]
        for thread in threads:
            thread.start()
        if self.stdin is not None and not self.stdin.closed:
            try:
                if input:
                    self.stdin.write(input)
                self.stdin.close()
            except BrokenPipeError:
                pass
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()
        return found.get("stdout"), found.get("stderr")

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it may have ended since, and its parent have heard of it
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.communicate()


def run(
    command: Sequence[str],
    *,
    capture_output: bool = False,
    input: Any = None,
    timeout: float | None = None,
    check: bool = False,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, as `subprocess.run` does."""
    if capture_output:
        stdout = stderr = subprocess.PIPE
    if input is not None:
        stdin = subprocess.PIPE
    process = Process(command, stdin=stdin, stdout=stdout, stderr=stderr, **options)
    try:
        out, err = process.communicate(input, timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    done = subprocess.CompletedProcess(process.args, process.returncode or 0, out, err)
    if check:
        done.check_returncode()
    return done


# -- the process that forks ---------------------------------------------------------------------------------


def preload() -> None:
    """Import what programs import, run a flow, and forget the modules that are run as programs themselves.

    What is read, compiled and cached for the first run is there for all programs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in PRELOADED:
            for found in walk_packages(import_module(package).__path__, f"{package}."):
                import_module(found.name)
        for program in PROGRAMS:
            import_module(program)
    sys.modules[PROGRAMS[0]].warm_up()
    for program in PROGRAMS:
        del sys.modules[program]
    gc.collect()
    gc.freeze()


def serve(line: socket.socket) -> dict[str, Any]:
    """Fork for every command that comes in. Returns in a process that is to run one: what it was told."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for those that mind the programs
    while True:
        said, files, _, _ = socket.recv_fds(line, LONGEST, 4)
        if not said:
            os._exit(0)
        if os.fork() == 0:
            line.close()
            told: dict[str, Any] = json.loads(said)
            if told["session"]:
                os.setsid()
            mind(files)
            take(told, files)
            return told
        for file in files:
            os.close(file)


def mind(files: list[int]) -> None:
    """Fork the program and tell who it is and how it ended. Returns in the program alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return
    ends = files.pop()
    for file in {*files, 0, 1, 2}:
        os.close(file)
    os.write(ends, b"%d\n" % pid)
    status = os.waitpid(pid, 0)[1]
    os.write(ends, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def take(told: dict[str, Any], files: list[int]) -> None:
    """Become the process that was asked for: its files, its folder, its environment."""
    os.close(files.pop())
    for place, file in enumerate(files):
        os.dup2(file, place)
    for file in files:
        if file > 2:
            os.close(file)
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["env"])
    random.seed()
    is_unbuffered = "-u" in told["words"] or bool(told["env"].get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")
    sys.stdout = _written(1, is_unbuffered=is_unbuffered)
    sys.stderr = _written(2, is_unbuffered=is_unbuffered, errors="backslashreplace")
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))


def _written(file: int, *, is_unbuffered: bool, errors: str = "strict") -> io.TextIOWrapper:
    is_lines = file == 2 or os.isatty(file)
    raw = io.BufferedWriter(io.FileIO(file, "w", closefd=False))
    return io.TextIOWrapper(
        raw, "utf-8", errors, line_buffering=is_lines or is_unbuffered, write_through=is_unbuffered
    )


def execute(told: dict[str, Any]) -> None:
    """Run the words of a command as Python does."""
    words = [word for word in told["words"] if word != "-u"]
    option, what, *rest = words
    first = told["cwd"] if option == "-m" else ""
    named = told["env"].get("PYTHONPATH", "")
    sys.path[:] = [first, *(part for part in named.split(os.pathsep) if part), *sys.path[1:]]
    sys.argv = [option, *rest]
    if option == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.modules["__main__"] = program = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), program.__dict__)
    else:
        raise SystemExit(f"only -m and -c are known, not {option}")


def run_to_the_end(told: dict[str, Any]) -> NoReturn:
    """Run a program and do all that Python does at the end of one.

    Only the modules are not taken apart: every page of them would have to be copied for that, which takes
    longer than most programs do.
    """
    code: Any = 0
    is_interrupted = False
    try:
        try:
            execute(told)
        finally:
            threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    except SystemExit as left:
        code = left.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code, is_interrupted = 1, isinstance(error, KeyboardInterrupt)
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    sys.modules.pop("__main__", None)
    gc.collect()  # what the program left behind complains now, as it would at the end of Python
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    if is_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit((code or 0) & 0xFF)


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    preload()
    run_to_the_end(serve(line))


if __name__ == "__main__":
    main()
