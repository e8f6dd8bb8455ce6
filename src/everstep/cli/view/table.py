"""Columns of text: aligned, coloured on a terminal, and cut at its right edge."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from everstep.cli.view.text import cut


class Cell(NamedTuple):
    """A text and its colour."""

    text: str
    colour: str | None = None
    dim: bool = False


LEAST = 8
"""A column that needs no more than this is never narrowed."""
LEAST_LAST = 16
"""What other columns leave to the last one, if it needs so much."""


class Table:
    """A table that is written a page at a time; its columns grow wider, and never narrower."""

    def __init__(self, head: Sequence[str]) -> None:
        self._waiting: list[Sequence[Cell]] = [[Cell(title, dim=True) for title in head]] if head else []
        self._least: list[int] = []

    def write(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Write the next rows on stdout, the headings above the first ones."""
        table = [*self._waiting, *rows]
        self._waiting = []
        for line in layout(table, screen_width(), self._least):
            click.echo(line)
        self._least = _widths(table, self._least)


def write_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], spare: Sequence[str] = ()) -> None:
    """Write rows below their headings on stdout; columns to spare go, in turn, if the terminal is narrow."""
    table, width = [[Cell(title, dim=True) for title in head], *rows], screen_width()
    for line in layout(table if width is None else narrowed(table, width, spare), width):
        click.echo(line)


def narrowed(table: Sequence[Sequence[Cell]], width: int, spare: Sequence[str]) -> Sequence[Sequence[Cell]]:
    """Return a table, its headings in the first row, without the columns to spare that have no room."""
    for title in spare:
        *firsts, last = _widths(table)
        if sum(firsts) + 2 * len(firsts) + min(last, LEAST_LAST) <= width:
            break
        at = next((k for k, cell in enumerate(table[0]) if cell.text == title), None)
        if at is not None:
            table = [[cell for k, cell in enumerate(row) if k != at] for row in table]
    return table


def layout(rows: Sequence[Sequence[Cell]], width: int | None, least: Sequence[int] = ()) -> list[str]:
    """Return one line for each row; columns are as wide as they need, the last takes what is left.

    Where that is too little, the widest of the others are narrowed; a cell without any room is left out.
    `least` says how wide columns are at least, where rows follow others.
    """
    widths = _widths(rows, least)
    if width is not None and widths:
        widths = _fitted(widths, width)
    lines = []
    for row in rows:
        parts, used = [], 0
        for k, cell in enumerate(row):
            is_last = k == len(row) - 1
            text = cell.text if is_last else cut(cell.text, widths[k]).ljust(widths[k])
            if width is not None:
                if width - used < 2 < len(text):
                    break
                text = cut(text, max(width - used, 0))
            is_styled = (cell.colour or cell.dim) and text.strip()
            parts.append(click.style(text, fg=cell.colour, dim=cell.dim or None) if is_styled else text)
            used += len(text) + 2
        lines.append("  ".join(parts).rstrip())
    return lines


def _widths(rows: Sequence[Sequence[Cell]], least: Sequence[int] = ()) -> list[int]:
    count = max(map(len, rows), default=0)
    found = [max((len(row[k].text) for row in rows if k < len(row)), default=0) for k in range(count)]
    return [max(width, *least[k : k + 1]) if least[k : k + 1] else width for k, width in enumerate(found)]


def _fitted(widths: Sequence[int], width: int) -> list[int]:
    """Narrow the widest columns until the last one has room."""
    *firsts, last = widths
    room = width - 2 * len(firsts) - min(last, LEAST_LAST)
    most = max(firsts, default=0)
    while most > LEAST and sum(min(first, most) for first in firsts) > room:
        most -= 1
    return [*(min(first, most) for first in firsts), last]


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
