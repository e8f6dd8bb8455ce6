"""Columns of text: aligned, coloured on a terminal, and cut at its right edge."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from everstep.cli.plain import cut


class Cell(NamedTuple):
    """A text and its colour."""

    text: str
    colour: str | None = None
    dim: bool = False


def write_table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Write rows below their headings on stdout."""
    titles = [Cell(title, dim=True) for title in head]
    for line in layout([titles, *rows], screen_width()):
        click.echo(line)


def layout(rows: Sequence[Sequence[Cell]], width: int | None) -> list[str]:
    """Return one line for each row; columns are as wide as they need, the last takes what is left."""
    count = max(map(len, rows), default=0)
    widths = [max((len(row[k].text) for row in rows if k < len(row)), default=0) for k in range(count)]
    lines = []
    for row in rows:
        parts, used = [], 0
        for k, cell in enumerate(row):
            is_last = k == len(row) - 1
            text = cell.text if is_last else cell.text.ljust(widths[k])
            if width is not None:
                text = cut(text, max(width - used, 0))
            is_styled = (cell.colour or cell.dim) and text.strip()
            parts.append(click.style(text, fg=cell.colour, dim=cell.dim or None) if is_styled else text)
            used += len(text) + 2
        lines.append("  ".join(parts).rstrip())
    return lines


def screen_width() -> int | None:
    """Return the width of the terminal, or none where nothing needs to be cut."""
    if not sys.stdout.isatty():
        return None
    from shutil import (
        get_terminal_size,
    )  # brings every compression library along, which `run` need not wait for

    return get_terminal_size().columns


def wide() -> int:
    """Return how long a value with a line of its own may be shown."""
    width = screen_width()
    return 200 if width is None else max(width - 40, 30)
