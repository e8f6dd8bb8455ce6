"""Commands of the system: fed, read, limited, and ended with everything that they started. Apart as the one
place that starts processes.

A command runs in a process group of its own, below a shell that also holds a guard. The guard reads a pipe
whose other end only this process has; when that end closes, because this process died, it kills the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

SHELL: Final = "/bin/sh"
_GUARDED: Final = """
(read -r _; kill -s KILL -- -$$) </dev/fd/"$1" >/dev/null 2>&1 & guard=$!
shift
"$@"
code=$?
{ kill -s KILL $guard; wait $guard; } 2>/dev/null
exit $code
"""
_CHUNK: Final = 65536
_LOOK: Final = 0.05
"""Seconds between two looks at whether a command has ended that keeps its output open."""
_PATIENCE: Final = 2.0
"""Seconds to wait for a killed command: one that hangs in the kernel is left to it."""
_PIPE: Final = 64
"""Reads that empty a pipe of any size, unless it goes on being filled."""
_TAIL: Final = 4096
"""Bytes of stderr that are kept: the last, as errors stand at the end."""


class Ended(NamedTuple):
    """What became of a command."""

    code: int | None
    """Its exit code; none if its time was over."""
    stdout: str
    stderr: str
    """The end of what it wrote there."""
    cut: int
    """Bytes of its output that were left out."""

    @property
    def text(self) -> str:
        """What it wrote on stdout, and how much of that is missing."""
        return f"{self.stdout}\n[cut: {self.cut} bytes more]" if self.cut else self.stdout

    def trouble(self, timeout: float | None) -> str:
        """Say why it did not end well."""
        if self.code is None:
            return f"it took longer than {timeout:g} s."
        tail = self.stderr.strip()[-600:]
        said = f": {tail}" if tail else "."
        return f"it ended with exit code {self.code}{said}"


async def run_command(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str],
    cwd: str | Path | None = None,
    timeout: float | None = None,
    output_limit: int,
) -> Ended:
    """Run a command to its end; cancelled or out of time, it is killed with all that it started.

    Nothing that it started outlives it, unless it left the process group.
    """
    running = _Running(command, stdin=stdin, env=env, cwd=cwd, timeout=timeout, output_limit=output_limit)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Ended] = loop.create_future()
    # A thread of its own: those of the loop are few, and a command may take hours.
    thread = threading.Thread(
        target=_deliver, args=(running, loop, ended), name="everstep-command", daemon=True
    )
    thread.start()
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        ended.cancel()
        running.kill()
        thread.join(_PATIENCE)
        raise


def _deliver(running: _Running, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[Ended]) -> None:
    result: Ended | None = None
    failed: BaseException | None = None
    try:
        result = running.finish()
    except BaseException as error:
        failed = error

    def settle() -> None:
        if ended.done():
            return
        if result is not None:
            ended.set_result(result)
        else:
            ended.set_exception(failed or RuntimeError("the command was lost."))

    with contextlib.suppress(RuntimeError):  # the loop is closed: nothing awaits it any more
        loop.call_soon_threadsafe(settle)


class _Running:
    """A command under way. One thread sees it through; any thread may kill it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: bytes,
        env: Mapping[str, str],
        cwd: str | Path | None,
        timeout: float | None,
        output_limit: int,
    ) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._unsent = memoryview(stdin)
        self._limit = output_limit
        self._out, self._err = bytearray(), bytearray()
        self._cut = 0
        guarded, self._guard = os.pipe()
        try:
            self._process = subprocess.Popen(
                [SHELL, "-c", _GUARDED, "everstep", str(guarded), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=cwd,
                pass_fds=(guarded,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._guard)
            raise
        finally:
            os.close(guarded)

    def kill(self) -> None:
        """Kill the whole group, if it has not been seen off yet."""
        with self._lock:
            if not self._is_over:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def finish(self) -> Ended:
        """Feed and read the command until it has ended, and leave nothing of it behind."""
        is_late = False
        try:
            is_late = not self._serve()
        finally:
            self.kill()
            with self._lock:  # from here on its id may be another's
                self._is_over = True
            code = self._process.wait()
            self._drain()
            os.close(self._guard)
        stdout, stderr = (bytes(b).decode("utf-8", "replace") for b in (self._out, self._err))
        return Ended(None if is_late else 128 - code if code < 0 else code, stdout, stderr, self._cut)

    def _serve(self) -> bool:
        """Move bytes until the command has ended; false if its time was over before."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with selectors.DefaultSelector() as ready, _end_of(process.pid) as end:
            look = _LOOK if end is None else None
            if end is not None:
                ready.register(end, selectors.EVENT_READ)
            ready.register(process.stdin, selectors.EVENT_WRITE)
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stderr, selectors.EVENT_READ)
            for stream in (process.stdin, process.stdout, process.stderr):
                os.set_blocking(stream.fileno(), False)
            while not self._has_ended():
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                for key, _ in ready.select(min((t for t in (look, left) if t is not None), default=None)):
                    if key.fileobj != end and not self._move(key.fileobj):
                        ready.unregister(key.fileobj)
                        if key.fileobj is process.stdin:
                            process.stdin.close()
        return True

    def _has_ended(self) -> bool:
        """Say whether the command has ended, and leave it to be waited for: so its id stays its own."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _move(self, stream: Any) -> bool:
        """Write or read what can be at once; false if the stream has come to its end."""
        try:
            return (self._feed if stream is self._process.stdin else self._take)(stream)
        except BlockingIOError:
            return True
        except BrokenPipeError:  # it does not read what it is given
            return False

    def _feed(self, stream: IO[bytes]) -> bool:
        if self._unsent:
            self._unsent = self._unsent[os.write(stream.fileno(), self._unsent[:_CHUNK]) :]
        return bool(self._unsent)

    def _take(self, stream: IO[bytes]) -> bool:
        data = os.read(stream.fileno(), _CHUNK)
        if stream is self._process.stdout:
            room = self._limit - len(self._out)
            self._out += data[:room]
            self._cut += max(0, len(data) - room)
        else:
            self._err += data
            del self._err[:-_TAIL]
        return bool(data)

    def _drain(self) -> None:
        """Take what still lies in the pipes, without waiting for who may hold them open."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            with contextlib.suppress(BlockingIOError):
                for _ in range(_PIPE):
                    if not self._take(stream):
                        break
            stream.close()


@contextlib.contextmanager
def _end_of(pid: int) -> Iterator[int | None]:
    """Give a descriptor that can be read once the process has ended; none where there is no such thing."""
    try:
        found = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield found
    finally:
        os.close(found)
