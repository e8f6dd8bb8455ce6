"""Changes as text: where, and both sides below it, cut to the width of the terminal."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click

from everstep.cli.view.table import screen_width
from everstep.cli.view.text import count, cut, extent, full, is_cut, preview, printable, safe_repr
from everstep.codec.compare import Pair
from everstep.results import Change

MOST = 20
"""How many changes within one value are shown unless all are wanted."""
MOST_LINES = 20
"""How many lines of a changed text are shown unless all are wanted."""
WIDE = 200
NOTE = 20
"""Room for the note on the size of a value."""

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
        if type(before) is str and type(after) is str and "\n" in before and "\n" in after:
            yield from self._lines(before, after)
            return
        if not self._whole and any(is_cut(side, self._width - NOTE) for side in (before, after)):
            yield from self._around(before, after)
            return
        yield "-", self._shown(before, self._width)
        yield "+", self._shown(after, self._width)

    def _shown(self, value: Any, width: int) -> str:
        if self._whole:
            return full(value, self._width, len(self._indent) + 6)
        width -= NOTE
        self.has_cut = self.has_cut or is_cut(value, width)
        return preview(value, width)

    def _lines(self, before: str, after: str) -> Iterator[tuple[str, str]]:
        """Show which lines of a text came and went."""
        found = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
        lines = [
            (" ", line) if line[0] == "@" else (line[0], printable(line[1:]))  # as it can be shown
            for line in found
        ]
        if not lines:  # only the way in which lines end
            lines = [("-", repr(before)), ("+", repr(after))]
        shown = lines if self._whole else lines[:MOST_LINES]
        yield from shown if self._whole else self._cut_lines(shown)
        if len(shown) < len(lines):
            self.has_cut = True
            yield " ", f"… {count(len(lines) - len(shown), 'more line')}"

    def _cut_lines(self, lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Cut long lines; one that came in the place of another, and that one, from where they part."""
        for is_context, run in groupby(lines, lambda line: line[0] == " "):
            found = list(run)
            gone = [text for sign, text in found if sign == "-"]
            came = [text for sign, text in found if sign == "+"]
            begins = [self._begin(a, b) for a, b in zip(gone, came, strict=False)]
            seen: Counter[str] = Counter()
            for sign, text in found:
                at = 0 if is_context or seen[sign] >= len(begins) else begins[seen[sign]]
                seen[sign] += 1
                self.has_cut = self.has_cut or at > 0 or len(text) > self._width
                yield sign, cut(f"…{text[at:]}" if at else text, self._width)

    def _begin(self, before: str, after: str) -> int:
        """Return from where two lines are to be shown."""
        if max(len(before), len(after)) <= self._width:
            return 0
        return max(_parting(before, after) - self._width // 3, 0)

    def _around(self, before: Any, after: Any) -> Iterator[tuple[str, str]]:
        """Show two long values from a little before where they part."""
        self.has_cut = True
        room = max(self._width - 30, 20)
        are_texts = type(before) is str and type(after) is str
        old, new = (before, after) if are_texts else map(_in_one_line, (before, after))
        begin = max(_parting(old, new) - room // 3, 0)
        for sign, text, value in (("-", old, before), ("+", new, after)):
            part = text[begin : begin + room]
            lead = "…" if begin else ""
            tail = "…" if len(text) > begin + room else ""
            note = f" ({told})" if (lead or tail) and (told := extent(value)) else ""
            yield sign, f"{lead}{printable(repr(part)) if are_texts else part}{tail}{note}"


def _parting(before: str, after: str) -> int:
    """Return where two texts begin to differ."""
    both = zip(before, after, strict=False)
    return next((k for k, (a, b) in enumerate(both) if a != b), min(len(before), len(after)))


def _in_one_line(value: Any) -> str:
    return printable(safe_repr(value)).replace("\n", " ")


def _after_sign(shown: str) -> str:
    """Keep a value of several lines on lines of its own."""
    return shown if shown.startswith("\n") else f" {shown}"
