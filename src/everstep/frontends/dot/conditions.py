"""Conditions on edges: the long and the short grammar, one tree, one way to judge it.

The long one: `status == 'SUCCESS' AND (score >= 0.8 OR NOT draft)`. `NOT` binds tighter than a comparison,
that tighter than `AND`, and that tighter than `OR`. Nothing is converted: a number never equals a string.
A comparison with a missing key is false, whatever the operator; `NOT key` is then true.

The short one: `outcome=success && context.tests != failed`. Both sides are compared as strings, and a missing
key is the empty one.

A key on its own is true if it is there and neither false, null, zero nor empty. No text at all always holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from everstep.errors import DotError
from everstep.frontends.dot.source import Passage, dot_error

_DEEPEST: Final = 32
_LONGEST: Final = 100_000
_COMPARES: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "CONTAINS", "STARTS_WITH", "ENDS_WITH", "IN"})
_JOINERS: Final = frozenset({"AND", "OR", "NOT"})
_WORDS: Final = {w for w in _COMPARES | _JOINERS if w.isalpha() or "_" in w}
_TOKEN: Final = re.compile(
    r"""\s*+(?:
      (?P<sign>==|!=|<=|>=|&&|\|\||[=<>()\[\],!])
    | (?P<string>'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+")
    | (?P<number>[+-]?+(?:[0-9]++(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+)(?![\w.-])
    | (?P<word>[^\s=!<>&|()\[\],'"]++)
    )""",
    re.VERBOSE | re.DOTALL,
)
_KEY: Final = re.compile(r"[^\W\d][\w-]*(?:\.[\w-]+)*")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class Dialect(StrEnum):
    """Which of the two grammars a condition is written in."""

    LONG = "long"
    SHORT = "short"


Scalar = str | int | float | bool


class Key(msgspec.Struct, frozen=True):
    """The value under a key of the outcome or the context."""

    name: str
    at: int


class Constant(msgspec.Struct, frozen=True):
    """A string, a number, a boolean, or a list of them."""

    value: Scalar | tuple[Scalar, ...]
    at: int


class Comparison(msgspec.Struct, frozen=True):
    """Two sides and an operator of the long grammar, or `=` and `!=` of the short one."""

    operator: str
    left: Expression
    right: Expression
    at: int
    is_short: bool = False
    """Compared as strings, as the short grammar does."""


class Not(msgspec.Struct, frozen=True):
    operand: Expression
    at: int


class Every(msgspec.Struct, frozen=True):
    """All hold; judged from the left, up to the first that does not."""

    parts: tuple[Expression, ...]
    at: int


class Some(msgspec.Struct, frozen=True):
    """One holds; judged from the left, up to the first that does."""

    parts: tuple[Expression, ...]
    at: int


Expression = Key | Constant | Comparison | Not | Every | Some


class Condition(msgspec.Struct, frozen=True):
    """A condition that was read; `root` is None for the empty one, which always holds."""

    text: str
    dialect: Dialect
    root: Expression | None
    specificity: int
    """How many comparisons it makes; a key on its own counts as one."""
    keys: tuple[str, ...]
    """Every key it names, once, in order."""


class _Token(msgspec.Struct, frozen=True, gc=False):
    kind: str
    text: str
    at: int
    end: int


def parse_condition(condition: str | Passage) -> Condition:
    """Read a condition of either grammar; `DotError` with the place of what is wrong with it."""
    passage = Passage(condition) if isinstance(condition, str) else condition
    if len(passage.text) > _LONGEST:
        said = f"the condition has {len(passage.text):,} characters, more than {_LONGEST:,}."
        raise _error(passage, 0, said, "Work it out in a node, and test its result.")
    tokens = list(_tokens(passage))
    dialect = _dialect(passage, tokens)
    reader = _Reader(passage, tokens)
    root = None
    if len(tokens) > 1:
        root = reader.short() if dialect is Dialect.SHORT else reader.long()
    keys = tuple(dict.fromkeys(reader.keys))
    return Condition(passage.text, dialect, root, _specificity(root), keys)


def _error(passage: Passage, at: int, message: str, fix: str) -> DotError:
    problem = passage.problem(at, "condition.syntax", message, fix)
    return dot_error([problem], problem.file, "the condition")


def _tokens(passage: Passage) -> Iterator[_Token]:
    text, at = passage.text, 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            if text[at] in "'\"":
                raise _error(passage, at, "this string is never closed.", f"Close it with `{text[at]}`.")
            raise _error(passage, at, f"`{text[at]}` means nothing here.", "Put it in quotes if it is text.")
        kind = found.lastgroup or ""
        said = found[kind]
        if kind == "sign" or (kind == "word" and said in _WORDS):
            yield _Token(said, said, found.start(kind), found.end())
        else:
            yield _Token(kind, said, found.start(kind), found.end())
        at = found.end()
    yield _Token("end", "", end, end)


def _dialect(passage: Passage, tokens: list[_Token]) -> Dialect:
    """Find the grammar by what only one of the two has; a text that has both is an error."""
    long = next((t for t in tokens if _is_long(t)), None)
    short = next((t for t in tokens if t.kind in ("=", "&&")), None)
    if long and short:
        later = max(long, short, key=lambda t: t.at)
        said = f"`{_cut(long.text)}` is of the long grammar and `{short.text}` of the short one."
        fix = "Write `==` and `AND`, or only `=`, `!=` and `&&`."
        raise _error(passage, later.at, said, fix)
    if short:
        return Dialect.SHORT
    if long:
        return Dialect.LONG
    # What is left is `key`, or one `!=`: unquoted text on its right is a string of the short grammar.
    is_short = len(tokens) == 4 and tokens[1].kind == "!=" and tokens[2].kind == "word"
    is_short = is_short and tokens[2].text.lower() not in ("true", "false")
    first = tokens[0].text
    is_named = first in ("outcome", "preferred_label") or first.startswith("context.")
    return Dialect.SHORT if is_short or is_named else Dialect.LONG


def _is_long(token: _Token) -> bool:
    kind = token.kind
    return (
        kind in "()[]"
        or (kind == "string" and token.text[0] == "'")
        or (kind != "!=" and kind in _COMPARES | _JOINERS)
    )


class _Reader:
    def __init__(self, passage: Passage, tokens: list[_Token]) -> None:
        self._passage = passage
        self._tokens = tokens
        self._i = 0
        self._depth = 0
        self.keys: list[str] = []

    def short(self) -> Expression:
        """Clauses with `&&` between them."""
        parts = [self._clause()]
        while self._took("&&"):
            parts.append(self._clause())
        self._want_end("Join clauses with `&&`; the short grammar has no other way.")
        return parts[0] if len(parts) == 1 else Every(tuple(parts), parts[0].at)

    def _clause(self) -> Expression:
        key = self._key("Write `outcome=success`, or `context.key=value`.")
        operator = self._now
        if operator.kind not in ("=", "!="):
            return key
        self._i += 1
        value = self._now
        if value.kind not in ("word", "number", "string"):
            said = f"expected a value after `{operator.text}`, found {self._said()}."
            raise self._wrong(said, 'Write a word, a number or a string; nothing is `""`.')
        self._i += 1
        text = _unquoted(value.text) if value.kind == "string" else value.text
        return Comparison(operator.text, key, Constant(text, value.at), operator.at, True)

    def long(self) -> Expression:
        """The whole of a long condition."""
        root = self._some()
        self._want_end("Join comparisons with AND or OR, and put parentheses around what belongs together.")
        return root

    def _some(self) -> Expression:
        parts = [self._every()]
        while self._took("OR"):
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Some(tuple(parts), parts[0].at)

    def _every(self) -> Expression:
        parts = [self._comparison()]
        while self._took("AND"):
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else Every(tuple(parts), parts[0].at)

    def _comparison(self) -> Expression:
        left = self._operand()
        operator = self._now
        if operator.kind not in _COMPARES:
            return left
        self._i += 1
        right = self._operand()
        if self._now.kind in _COMPARES:
            fix = "Write two comparisons with AND between them."
            raise self._wrong(f"`{self._now.text}` compares the result of another comparison.", fix)
        return Comparison(operator.kind, left, right, operator.at)

    def _operand(self) -> Expression:
        token = self._now
        if token.kind == "NOT":
            self._i += 1
            with _Deeper(self):
                return Not(self._operand(), token.at)
        if token.kind == "(":
            self._i += 1
            with _Deeper(self):
                inner = self._some()
            self._want(")")
            return inner
        if token.kind == "[":
            return self._list()
        if token.kind == "word" and token.text.lower() not in ("true", "false"):
            return self._key("Write a key, a number, true or false, or a string such as 'SUCCESS'.")
        return self._constant()

    def _list(self) -> Constant:
        at = self._now.at
        self._i += 1
        items: list[Scalar] = []
        while self._now.kind != "]":
            item = self._constant().value
            if not isinstance(item, tuple):
                items.append(item)
            if self._now.kind != "]":
                self._want(",")
        self._i += 1
        return Constant(tuple(items), at)

    def _constant(self) -> Constant:
        token = self._now
        lowered = token.text.lower()
        if token.kind == "string":
            value: Scalar = _unquoted(token.text)
        elif token.kind == "number" and len(token.text) <= 400:
            value = int(token.text) if token.text.lstrip("+-").isdigit() else float(token.text)
        elif token.kind == "word" and lowered in ("true", "false"):
            value = lowered == "true"
        else:
            said = f"expected a value, found {self._said()}."
            raise self._wrong(said, "Write a key, a number, true or false, or a string such as 'SUCCESS'.")
        self._i += 1
        return Constant(value, token.at)

    def _key(self, fix: str) -> Key:
        token = self._now
        if token.kind != "word":
            raise self._wrong(f"expected a key, found {self._said()}.", fix)
        if not _KEY.fullmatch(token.text):
            raise self._wrong(f"`{_cut(token.text)}` is no key.", fix)
        self._i += 1
        self.keys.append(token.text)
        return Key(token.text, token.at)

    @property
    def _now(self) -> _Token:
        return self._tokens[self._i]

    def _took(self, kind: str) -> bool:
        if self._now.kind != kind:
            return False
        self._i += 1
        return True

    def _want(self, kind: str) -> None:
        if not self._took(kind):
            raise self._wrong(f"expected `{kind}`, found {self._said()}.", "")

    def _want_end(self, fix: str) -> None:
        token = self._now
        if token.kind == "end":
            return
        upper = token.text.upper()
        if token.kind == "word" and upper in _WORDS:
            fix = f"Write {upper}."
        elif token.kind == "||":
            fix = "Write OR, with `==` in place of `=` and strings in single quotes."
        raise self._wrong(f"expected the end of the condition, found {self._said()}.", fix)

    def _said(self) -> str:
        token = self._now
        return "the end of the condition" if token.kind == "end" else f"`{_cut(token.text)}`"

    def _wrong(self, message: str, fix: str) -> DotError:
        return _error(self._passage, self._now.at, message, fix)

    def deeper(self, by: int) -> None:
        self._depth += by
        if self._depth > _DEEPEST:
            raise self._wrong(
                f"more than {_DEEPEST} parentheses and NOTs inside one another.", "Nest less deeply."
            )


class _Deeper:
    """One level further in, as long as it is entered."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        self._reader.deeper(1)

    def __exit__(self, *_: object) -> None:
        self._reader.deeper(-1)


def _specificity(root: Expression | None) -> int:
    count, left = 0, [(root, False)]
    while left:
        part, is_compared = left.pop()
        match part:
            case Comparison():
                count += 1
                left += [(part.left, True), (part.right, True)]
            case Not():
                left.append((part.operand, is_compared))
            case Every() | Some():
                left += [(inner, False) for inner in part.parts]
            case Key():
                count += not is_compared
    return count


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(r"\1", text[1:-1])


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
