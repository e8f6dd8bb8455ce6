"""One line on stderr that says how far something has come."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

import click

from everstep.cli.view.text import count, size
from everstep.results import Progress


class Meter:
    """Shows progress on a terminal, and nothing elsewhere."""

    def __init__(self, verb: str, *, shows: bool) -> None:
        self._verb = verb
        self._shows = shows and sys.stderr.isatty()
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        if not self._shows:
            return
        parts = [count(progress.checkpoints, "checkpoint")] if progress.checkpoints else []
        parts += [count(progress.artifacts, "artifact")] if progress.artifacts else []
        text = f"{progress.run_id}: {', '.join(parts)} {self._verb}, {size(progress.size)}"
        click.echo("\r" + text.ljust(self._width), err=True, nl=False)
        self._width = len(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
            self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
