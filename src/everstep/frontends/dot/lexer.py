"""DOT text as tokens, each with its offset."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from everstep.frontends.dot.source import Problems, Source
from everstep.frontends.dot.tree import Value
from everstep.graph.draw.graphviz import KEYWORDS

END: Final = "end"

_LETTER: Final = r"A-Za-z_\x80-\U0010ffff"
_BLANK: Final = r"(?:[ \t\r\n\f\v]++|//[^\n\r]*+|\#[^\n\r]*+|/\*.*?\*/)*+"
_STRING: Final = r'"(?:[^"\\]++|\\.)*+"'
_TOKEN: Final = re.compile(
    rf"""{_BLANK}(?:
      (?P<word>[{_LETTER}][{_LETTER}0-9]*+)(?P<dotted>(?:\.[{_LETTER}][{_LETTER}0-9]*+)++)?+
    | (?P<string>{_STRING})
    | (?P<arrow>->|--)
    | (?P<number>-?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++))(?P<mixed>[.{_LETTER}][.{_LETTER}0-9]*+)?+
    | (?P<sign>[][{{}};,=:+])
    | (?P<html><)
    )""",
    re.VERBOSE | re.DOTALL,
)
_BLANKS: Final = re.compile(_BLANK, re.DOTALL)
_JOINT: Final = re.compile(rf"{_BLANK}\+{_BLANK}", re.DOTALL)
_PIECE: Final = re.compile(_STRING, re.DOTALL)
_JUNK: Final = re.compile(r"""[^][\s{};,=:+"<#0-9A-Za-z_\x80-\U0010ffff/-]++|.""", re.DOTALL)
_UNIT: Final = re.compile(r"\\(?:\r\n?|.)|[^\\]", re.DOTALL)
_ANGLE: Final = re.compile("[<>]")

# `kinds`, `starts` and `ends` rather than one object a token: this is the hot loop of reading a large file.


class Tokens:
    """The tokens of a text; the last is of the kind `end`."""

    def __init__(self, source: Source, problems: Problems, most: int) -> None:
        self.kinds: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.after_junk: set[int] = set()
        """The tokens before which something was left out."""
        self._text = source.text
        self._problems = problems
        self._read(most)

    def _read(self, most: int) -> None:
        text, at, match = self._text, 0, _TOKEN.match
        if text.startswith("\ufeff"):
            at = 1
        kinds, starts, ends = self.kinds, self.starts, self.ends
        while True:
            found = match(text, at)
            if found is None:
                blank = _BLANKS.match(text, at)
                at = self._odd(blank.end() if blank else at)
                if at < 0:
                    break
                continue
            kind = found.lastgroup or ""
            start, at = found.span(kind)
            if kind == "word":
                word = text[start:at].lower()
                kind = word if word in KEYWORDS else kind
            elif kind == "sign" or kind == "arrow":
                kind = text[start:at]
            elif kind == "dotted" or kind == "mixed":
                start = found.start("word" if kind == "dotted" else "number")
            elif kind == "html":
                at = self._html_end(start)
                if at < 0:
                    break
            kinds.append(kind)
            starts.append(start)
            ends.append(at)
            if len(kinds) > most:
                said = f"more than {most:,} words, strings and signs."
                self._problems.add(start, "dot.limit", said, "Split the pipeline into several.")
                self._problems.raise_if_any()
        kinds.append(END)
        starts.append(len(text))
        ends.append(len(text))

    def _html_end(self, start: int) -> int:
        depth = 0
        for angle in _ANGLE.finditer(self._text, start):
            depth += 1 if angle[0] == "<" else -1
            if depth == 0:
                return angle.end()
        self._problems.add(start, "dot.unclosed", "this `<` is never closed.", "Close it with `>`.")
        return -1

    def _odd(self, at: int) -> int:
        """Note what no token begins with; return where to go on, or -1 if there is nothing more to read."""
        text, add = self._text, self._problems.add
        if at >= len(text):
            return -1
        if text[at] == '"':
            add(at, "dot.unclosed", "this string is never closed.", 'Close it with `"`; inside write `\\"`.')
            return -1
        if text.startswith("/*", at):
            add(at, "dot.unclosed", "this comment is never closed.", "Close it with `*/`.")
            return -1
        if self._problems.are_enough:
            return -1
        self.after_junk.add(len(self.kinds))
        junk = _JUNK.match(text, at)
        end = junk.end() if junk else at + 1
        shown = text[at : min(end, at + 20)]
        said = f"`{shown}`" if shown.isprintable() else "a control character"
        add(
            at,
            "dot.syntax",
            f"{said} means nothing here.",
            "Put it in quotes if it belongs to a name or a value.",
        )
        return end


def offsets(text: str, value: Value) -> Iterator[int]:
    """Yield for each character of `value.plain`, and for its end, the offset in the text."""
    if value.form != "string":
        first = value.at + (value.form == "html")
        yield from range(first, first + len(value.text) + 1)
        return
    at = last = value.at
    while at < value.end and (piece := _PIECE.match(text, at)):
        last = piece.end() - 1
        for unit in _UNIT.finditer(text, at + 1, last):
            yield from _kept(unit)
        joint = _JOINT.match(text, piece.end())
        at = joint.end() if joint else value.end
    yield last


def _kept(unit: re.Match[str]) -> Iterable[int]:
    """Return the offsets of what is left of a character or an escape."""
    start = unit.start()
    if len(unit[0]) == 1 or unit[0][1] in '"\\nt':
        return (start,)
    return () if unit[0][1] in "\r\n" else (start, start + 1)
