"""The attributes of a node, an edge or a graph: read as what they are meant to be, when asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Final, TypeVar

from everstep.errors import BadRequest, DotError, InvalidDelay
from everstep.frontends.dot.lexer import offsets
from everstep.frontends.dot.source import Passage, Position, Problem, Source, dot_error
from everstep.frontends.dot.tree import Attribute, Value
from everstep.model.durations import span_of

_D = TypeVar("_D")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAGS: Final = {"true": True, "false": False}


class Attributes(Mapping[str, Value]):
    """Values by key, in the order they were set. Those read as a type raise `DotError` at their place."""

    __slots__ = ("_found", "_source")

    def __init__(self, source: Source, found: Mapping[str, Attribute]) -> None:
        self._source = source
        self._found = found

    def __getitem__(self, key: str) -> Value:
        return self._found[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: object) -> bool:
        return key in self._found

    def __repr__(self) -> str:
        return f"Attributes({self.plain()!r})"

    def plain(self) -> dict[str, str]:
        """Return every attribute as text."""
        return {key: attribute.value.plain for key, attribute in self._found.items()}

    def place(self, key: str) -> Position:
        """Return where the key stands that set this attribute; of a default, where the default stands."""
        return self._source.place(self._found[key].key.at)

    def problem(
        self, key: str, code: str, message: str, fix: str = "", *, severity: str = "error"
    ) -> Problem:
        """Return a problem with the value of an attribute."""
        return self._source.problem(self[key].at, code, message, fix, severity=severity)

    def passage(self, key: str) -> Passage:
        """Return an attribute that has a grammar of its own; its problems have their place in the file."""
        value = self[key]
        return Passage(value.plain, self._source, offsets(self._source.text, value))

    def text(self, key: str, default: _D) -> str | _D:
        """Return an attribute as text."""
        return self[key].plain if key in self._found else default

    def word(self, key: str, default: _D, *, among: Collection[str] = ()) -> str | _D:
        """Return an attribute that is a name, or one of a few words."""
        if key not in self._found:
            return default
        said = self[key].plain.strip()
        if among and said not in among:
            raise self._not_a(key, "one of the words that are known", f"Write one of: {', '.join(among)}.")
        if not among and not _WORD.fullmatch(said):
            raise self._not_a(key, "a word", "Write letters, digits and `_`, and no digit first.")
        return said

    def integer(self, key: str, default: _D) -> int | _D:
        """Return an attribute that is a whole number."""
        if key not in self._found:
            return default
        said = self[key].plain.strip()
        if not _INTEGER.fullmatch(said):
            raise self._not_a(key, "a whole number", f"Write `{key}=3`.")
        return int(said)

    def number(self, key: str, default: _D) -> float | _D:
        """Return an attribute that is a number."""
        if key not in self._found:
            return default
        said = self[key].plain.strip()
        number = float(said) if len(said) <= 400 and _NUMBER.fullmatch(said) else math.inf
        if not math.isfinite(number):
            raise self._not_a(key, "a number", f"Write `{key}=0.5`.")
        return number

    def flag(self, key: str, default: _D) -> bool | _D:
        """Return an attribute that is `true` or `false`, in any case."""
        if key not in self._found:
            return default
        flag = _FLAGS.get(self[key].plain.strip().lower())
        if flag is None:
            raise self._not_a(key, "true or false", f"Write `{key}=true` or `{key}=false`.")
        return flag

    def duration(self, key: str, default: _D) -> timedelta | _D:
        """Return an attribute that is a span of time: `250ms`, `15m`; a bare number counts seconds."""
        if key not in self._found:
            return default
        said = self[key].plain.strip()
        try:
            return span_of(f"{said}s" if _NUMBER.fullmatch(said) else said, key)
        except (BadRequest, InvalidDelay):
            fix = f"Write a number and one of ms, s, m, h, d: `{key}=15m`."
            raise self._not_a(key, "a span of time", fix) from None

    def _not_a(self, key: str, wanted: str, fix: str) -> DotError:
        said = self[key].plain
        shown = said if len(said) <= 40 else said[:37] + "..."
        problem = self.problem(key, "dot.value", f"{key} is {shown!r}, which is not {wanted}.", fix)
        return dot_error([problem], self._source.file)
