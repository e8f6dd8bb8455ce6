"""Changes as text: where, and both sides below it, cut to the width of the terminal."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click

from everstep import Change
from everstep.cli.plain import count, cut, full, is_cut, preview, printable
from everstep.cli.table import screen_width
from everstep.client.views import Pair

MOST = 20
"""How many changes within one value are shown unless all are wanted."""
MOST_LINES = 20
"""How many lines of a changed text are shown unless all are wanted."""
WIDE = 200

_INSIDE = re.compile(r"[.\[{]")
_COLOURS = {"-": "red", "+": "green", "~": "yellow"}
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


class ChangeWriter:
    """Writes changes, and knows whether it left anything out."""

    def __init__(self, *, whole: bool, indent: str = "") -> None:
        self._whole = whole
        self._indent = indent
        self._width = (screen_width() or WIDE) - len(indent) - 4
        self.has_cut = False

    def write(self, changes: Sequence[Change]) -> None:
        """Write each change below its path; of many within one value only some, with a count of the rest."""
        for name, group in groupby(changes, lambda change: _INSIDE.split(change.path, maxsplit=1)[0]):
            found = list(group)
            shown = found if self._whole else found[:MOST]
            for change in shown:
                self._write(change)
            if len(shown) < len(found):
                self.has_cut = True
                left = count(len(found) - len(shown), "more change")
                click.secho(f"{self._indent}… {left} in {printable(name)}", dim=True)

    def write_pair(self, pair: Pair) -> None:
        """Write a value that is equal on both sides in one line, else what differs."""
        if pair.changes:
            self.write(pair.changes)
        else:
            self.write_value(pair.name, pair.after, note="equal")

    def write_value(self, name: str, value: Any, *, note: str = "") -> None:
        """Write a value that has only one side."""
        shown = self._shown(value, max(self._width - len(name) - 12, 30))
        mark = click.style(f"  ({note})", dim=True) if note else ""
        click.echo(f"{self._indent}= {name} ={_after_sign(shown)}{mark}")

    def _write(self, change: Change) -> None:
        sign = _SIGNS[change.kind]
        path = printable(change.path)
        if change.kind == "changed":
            self._line(sign, path if self._whole else cut(path, self._width))
            for side, text in self._sides(change.before, change.after):
                self._line(side, text.lstrip("\n "), deeper="  ")
            return
        if path.endswith("}"):  # the member of a set says itself what it is
            self._line(sign, path if self._whole else cut(path, self._width))
            return
        value = change.after if change.kind == "added" else change.before
        shown = self._shown(value, max(self._width - len(path) - 3, 30))
        self._line(sign, f"{path} ={_after_sign(shown)}")

    def _line(self, sign: str, text: str, *, deeper: str = "") -> None:
        click.secho(f"{self._indent}{deeper}{sign} {text}", fg=_COLOURS.get(sign), dim=sign == " " or None)

    def _sides(self, before: Any, after: Any) -> Iterator[tuple[str, str]]:
        if type(before) is str and type(after) is str:
            if "\n" in before and "\n" in after:
                yield from self._lines(before, after)
                return
            if not self._whole and max(len(before), len(after)) > self._width:
                yield from self._around(before, after)
                return
        yield "-", self._shown(before, self._width)
        yield "+", self._shown(after, self._width)

    def _shown(self, value: Any, width: int) -> str:
        if self._whole:
            return full(value, self._width, len(self._indent) + 6)
        width -= 20  # for the note on the size
        self.has_cut = self.has_cut or is_cut(value, width)
        return preview(value, width)

    def _lines(self, before: str, after: str) -> Iterator[tuple[str, str]]:
        """Show which lines of a text came and went."""
        found = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
        lines = [(" " if line[0] == "@" else line[0], line if line[0] == "@" else line[1:]) for line in found]
        if not lines:  # only the way in which lines end
            lines = [("-", repr(before)), ("+", repr(after))]
        shown = lines if self._whole else lines[:MOST_LINES]
        for sign, text in shown:
            yield sign, printable(text) if self._whole else cut(printable(text), self._width)
        if len(shown) < len(lines):
            self.has_cut = True
            yield " ", f"… {count(len(lines) - len(shown), 'more line')}"

    def _around(self, before: str, after: str) -> Iterator[tuple[str, str]]:
        """Show two long texts from a little before where they part."""
        self.has_cut = True
        room = max(self._width - 30, 20)
        parts = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
        at = min(len(before), len(after)) if parts is None else parts
        begin = max(at - room // 3, 0)
        for sign, text in (("-", before), ("+", after)):
            part = printable(repr(text[begin : begin + room]))
            lead = "…" if begin else ""
            tail = "…" if len(text) > begin + room else ""
            note = f" ({count(len(text), 'character')})" if lead or tail else ""
            yield sign, f"{lead}{part}{tail}{note}"


def _after_sign(shown: str) -> str:
    """Keep a value of several lines on lines of its own."""
    return shown if shown.startswith("\n") else f" {shown}"


def change_json(change: Change) -> dict[str, Any]:
    """Return a change as JSON shows it."""
    return {"path": change.path, "kind": change.kind, "before": change.before, "after": change.after}
