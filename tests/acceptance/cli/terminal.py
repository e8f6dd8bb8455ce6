"""A command on a terminal of its own, as a person has it."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

from tests.architecture.sources import ROOT


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_") and k != "NO_COLOR"}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}


class Terminal:
    """A command on a terminal of its own, and what it has shown."""

    def __init__(self, cwd: Path, *words: str) -> None:
        self.shown = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job passes on that it is ignored
            program = [sys.executable, "-m", "everstep", *words]
            os.execve(sys.executable, program, environment() | {"TERM": "xterm"})

    def read(self, wanted: str) -> None:
        """Read until this is shown."""
        assert self._is_shown(wanted, 20), self.shown

    def read_past(self, wanted: str) -> None:
        """Read until this is shown, and forget it with all before it."""
        self.read(wanted)
        self.shown = self.shown.partition(wanted)[2]

    def _is_shown(self, wanted: str, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        while wanted not in self.shown:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                return False
            self.shown += os.read(self._fd, 4096).decode()
        return True

    def interrupt(self, wanted: str) -> None:
        """Type Ctrl-C at the prompt that was read last, until this is shown and a new prompt behind it.

        Python does not hear one that comes when the prompt is shown and it does not wait for keys yet.
        """
        self.shown = ""
        for _ in range(20):
            self.type("\x03")
            if self._is_shown(wanted, 1):
                break
        self.read_past(wanted)
        self.read("> ")  # before it, a Ctrl-D would be a key like others

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait(self) -> int:
        """Return the exit code."""
        try:
            while chunk := os.read(self._fd, 4096):
                self.shown += chunk.decode()
        except OSError:
            pass  # the other end is closed
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
