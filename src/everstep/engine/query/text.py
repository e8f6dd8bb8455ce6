"""A query as people write it: `status = failed and (flow = orders or group = 'acme') and started > -2d`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from everstep.engine.query.tree import (
    ARGUMENTS,
    FIELDS,
    OF_ATTRIBUTE,
    OF_TAG,
    Compare,
    Every,
    Kind,
    Not,
    Op,
    Query,
    Some,
    Value,
    arguments_in,
)
from everstep.errors import BadRequest
from everstep.graph.labels import LABEL_NAME, check_kept, label_name, meant, unkept
from everstep.model.durations import time_of
from everstep.model.enums import Status
from everstep.model.shapes import LONGEST_QUERY

MOST = 100
"""Comparisons that a query may have."""
DEEPEST = 20
"""How deep parentheses and `not` may be nested."""
_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")|(<=|>=|!=|<>|[=<>(),])|([^\s()=<>!,'\"]+))")
_SIGNS = {op.value: op for op in (Op.IS, Op.IS_NOT, Op.BELOW, Op.UP_TO, Op.ABOVE, Op.FROM)} | {
    "<>": Op.IS_NOT
}
_WORDS = {op.value: op for op in (Op.STARTS, Op.CONTAINS)}
_STATUSES = [status.value for status in Status if status is not Status.RETRYING]
_JOINTS = ("and", "or", "in", "is")
_RANGES = (Op.BELOW, Op.UP_TO, Op.ABOVE, Op.FROM)
_AS_SHOWN = {
    "run_id": "id",
    "flow_id": "flow",
    "flow_version": "version",
    "created": "started",
    "created_at": "started",
    "started_at": "started",
    "ended_at": "ended",
    "changed_at": "changed",
    "is_paused": "paused",
    "paused_at": "paused",
    "paused_by": "paused",
    "undo": "undoing",
    "updated": "changed",
    "updated_at": "changed",
    "parent_run_id": "parent",
    "is_driven": "owner",
    "starter_run_id": "started_by",
    "starter_node": "started_by",
    "error_message": "error",
    "error_type": "error_code",
    "wait_kind": "waiting",
    "node": "waiting_at",
}
"""What fields are called where runs are shown, and elsewhere: as attributes they would find nothing."""
_EXAMPLE = "status = failed and flow = orders and started > -2d"


class Token(NamedTuple):
    """A word, a sign or a quoted text, and where it begins."""

    text: str
    at: int
    is_quoted: bool = False

    def is_word(self, word: str) -> bool:
        return not self.is_quoted and self.text.lower() == word


def query_of(
    where: str | None,
    tags: str | Iterable[str],
    attributes: str | Iterable[str] | Mapping[str, Value],
    now: datetime,
    asked: Mapping[str, object] = MappingProxyType({}),
) -> Query:
    """Return a query for what `where`, labels (`NAME` or `NAME=VALUE`) and arguments ask for."""
    found = [read_query(where, now)] if where is not None else []
    found += [_argued(name, value, now) for name, value in arguments_in(asked).items()]
    for given in (tags,) if isinstance(tags, str) else tags:
        name, sign, value = given.partition("=")
        label_name(name, "tag")
        check_kept(value, f"the value of tag {name!r}")
        found.append(Compare(OF_TAG + name if sign else "tag", Op.IS, (value if sign else name,)))
    if isinstance(attributes, Mapping):
        for name in attributes:
            field = OF_ATTRIBUTE + label_name(name, "attribute")
            check_kept(attributes[name], f"attribute {name!r}")
            found.append(Compare(field, Op.IS, (attributes[name],)))
        attributes = ()
    for given in (attributes,) if isinstance(attributes, str) else attributes:
        name, sign, value = given.partition("=")
        field = OF_ATTRIBUTE + label_name(name, "attribute")
        check_kept(value, f"attribute {name!r}")
        found.append(Compare(field, Op.IS, meant(value, now)) if sign else Compare(field, Op.SET))
    return found[0] if len(found) == 1 else Every(tuple(_flat(found)))


def _argued(name: str, value: object, now: datetime) -> Query:
    field, op = ARGUMENTS[name]
    if FIELDS[field] is Kind.TIME:
        return Compare(field, op, (time_of(value, now, name),))
    if not isinstance(value, str):
        raise BadRequest(f"{name} is {type(value).__name__}, not text.", fix="Give it as text.")
    check_kept(value, name)
    return Compare(field, op, (value,))


def _flat(parts: Iterable[Query]) -> Iterator[Query]:
    for part in parts:
        yield from part.parts if isinstance(part, Every) else (part,)


def field_of(name: str) -> str:
    """Return the field that a name means, as in a query."""
    return _Reader(name, datetime.min).field()


def read_query(text: str, now: datetime) -> Query:
    """Read a query. A moment such as `-2d` counts back from `now`; what is wrong is told with its place."""
    if len(text) > LONGEST_QUERY:
        raise BadRequest(f"where has {len(text)} characters.", fix=f"At most {LONGEST_QUERY} are read.")
    return _Reader(text, now).query()


class _Reader:
    def __init__(self, text: str, now: datetime) -> None:
        self._text = text
        self._now = now
        self._tokens = self._split()
        self._at = 0
        self._tests = 0

    def query(self) -> Query:
        if not self._tokens:
            raise BadRequest("where says nothing.", fix=f"Write a condition: {_EXAMPLE}")
        found = self._some(0)
        if (left := self._peek()) is not None:
            self._refuse(
                f"{left.text!r} is not expected", left, "Join conditions with and, or; or leave it out."
            )
        return found

    def field(self) -> str:
        if len(self._tokens) != 1:
            raise BadRequest(f"{self._text!r:.80} is no field.", fix="Name one, such as status or tag.team.")
        return self._field(self._tokens[0])[0]

    def _split(self) -> list[Token]:
        tokens, at, text = [], 0, self._text.rstrip()
        if (odd := unkept(text)) is not None:
            self._refuse("no store keeps this character", Token(text[odd], odd), "Leave it out.")
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                here = Token("", at + len(text[at:]) - len(text[at:].lstrip()))
                self._refuse("this cannot be read", here, "Put text with odd characters in 'quotes'.")
            quoted, sign, word = found.groups()
            if quoted is not None:
                mark = quoted[0]
                tokens.append(Token(quoted[1:-1].replace(mark * 2, mark), found.start(1), is_quoted=True))
            else:
                tokens.append(Token(sign or word, found.start(2 if sign else 3)))
            at = found.end()
        return tokens

    # -- conditions ---------------------------------------------------------------------------------------

    def _some(self, depth: int) -> Query:
        return self._joined("or", lambda: self._every(depth), Some)

    def _every(self, depth: int) -> Query:
        return self._joined("and", lambda: self._one(depth), Every)

    def _joined(self, word: str, part: Callable[[], Query], whole: type[Some] | type[Every]) -> Query:
        parts = [part()]
        while (token := self._peek()) is not None and token.is_word(word):
            self._at += 1
            parts.append(part())
        return parts[0] if len(parts) == 1 else whole(tuple(parts))

    def _one(self, depth: int) -> Query:
        token = self._next("a field")
        if depth > DEEPEST:
            self._refuse(f"this is nested deeper than {DEEPEST} times", token, "Write it flatter.")
        if token.is_word("not"):
            return Not(self._one(depth + 1))
        if token.text == "(" and not token.is_quoted:
            inner = self._some(depth + 1)
            self._close(token)
            return inner
        return self._test(token)

    def _close(self, opened: Token) -> None:
        token = self._peek()
        if token is None or token.text != ")" or token.is_quoted:
            self._refuse("this parenthesis is not closed", opened, "Add ) where it ends.")
        self._at += 1

    def _test(self, name: Token) -> Query:
        field, kind = self._field(name)
        self._tests += 1
        if self._tests > MOST:
            self._refuse(f"there are more than {MOST} conditions", name, "Use in (...), or ask twice.")
        sign = self._next(f"a comparison behind {name.text}, such as =")
        if sign.is_word("is"):
            return self._is_set(field)
        if sign.is_word("in"):
            return Compare(field, Op.IN, self._several(name, kind))
        is_negated = sign.is_word("not")
        if is_negated:
            sign = self._next("in behind not")
            if not sign.is_word("in"):
                self._refuse(f"{sign.text!r} is not expected", sign, "Write: not in (...)")
            return Not(Compare(field, Op.IN, self._several(name, kind)))
        op = None if sign.is_quoted else _SIGNS.get(sign.text) or _WORDS.get(sign.text.lower())
        if op is None:
            known = ", ".join([*_SIGNS, *_WORDS, "in", "is set", "is not set"])
            self._refuse(f"{sign.text!r} is no comparison", sign, f"Use one of {known}.")
        self._check_fits(name, kind, op, sign)
        token = self._next(f"a value behind {sign.text}")
        return Compare(field, op, self._values(kind, token, op))

    def _field(self, name: Token) -> tuple[str, Kind]:
        """Return the field that a name means. What is no field, nor nearly one, is an attribute."""
        text = name.text
        if any(map(name.is_word, _JOINTS)):
            hint = f"For an attribute write {OF_ATTRIBUTE}{text}."
            self._refuse(f"a field is missing before {text!r}", name, f"For example: {_EXAMPLE}. {hint}")
        kind = None if name.is_quoted else FIELDS.get(text)
        if kind is not None:
            return text, kind
        start = next((start for start in (OF_TAG, OF_ATTRIBUTE) if text.startswith(start)), "")
        near = _near(text)
        is_name = LABEL_NAME.fullmatch(text[len(start) :]) and not text[len(start)].isdigit()
        if name.is_quoted or not is_name or (near and not start):
            known = ", ".join([*FIELDS, f"{OF_TAG}NAME", f"{OF_ATTRIBUTE}NAME"])
            hint = f"Did you mean {near}? For an attribute write {OF_ATTRIBUTE}{text}. " if near else ""
            self._refuse(f"there is no field {text!r}", name, f"{hint}Fields are {known}.")
        return (text, Kind.TEXT) if start == OF_TAG else (text if start else OF_ATTRIBUTE + text, Kind.ANY)

    def _check_fits(self, name: Token, kind: Kind, op: Op, sign: Token) -> None:
        if kind is Kind.ANY:
            return
        is_text = kind in (Kind.TEXT, Kind.STATUS)
        if (is_text and op in _RANGES) or (kind is Kind.FLAG and op not in (Op.IS, Op.IS_NOT)):
            fits = "=, !=, in" if is_text else "= or !="
            what = f" is {kind.value}, and" if kind is not Kind.STATUS else ""
            self._refuse(f"{name.text}{what} has no order", sign, f"Compare it with {fits}.")
        if op in (Op.STARTS, Op.CONTAINS) and kind is not Kind.TEXT:
            what = "is a word of its own" if kind is Kind.STATUS else f"is {kind.value}, not text"
            fits = "=, !=, in" if is_text else "=, < or >"
            self._refuse(f"{name.text} {what}", sign, f"Compare it with {fits}.")

    def _is_set(self, field: str) -> Query:
        token = self._next("set, or not set")
        is_negated = token.is_word("not")
        if is_negated:
            token = self._next("set")
        if not token.is_word("set"):
            self._refuse(f"{token.text!r} is not expected", token, "Write: is set, is not set, or =.")
        test = Compare(field, Op.SET)
        return Not(test) if is_negated else test

    def _several(self, name: Token, kind: Kind) -> tuple[Value, ...]:
        opened = self._next(f"( behind {name.text} in")
        if opened.text != "(" or opened.is_quoted:
            self._refuse(f"{opened.text!r} is not expected", opened, "Write: in ('a', 'b')")
        values = [*self._values(kind, self._next("a value"), Op.IN)]
        while (token := self._peek()) is not None and token.text == "," and not token.is_quoted:
            self._at += 1
            values += self._values(kind, self._next("a value behind the comma"), Op.IN)
        self._close(opened)
        return tuple(values)

    # -- values -------------------------------------------------------------------------------------------

    def _values(self, kind: Kind, token: Token, op: Op) -> tuple[Value, ...]:
        """Return what is compared with. What an attribute is compared with may be a number and a text."""
        if not token.is_quoted and token.text in (*_SIGNS, "(", ")", ","):
            self._refuse("a value is missing here", token, f"Write, for example: {_EXAMPLE}")
        if kind is not Kind.ANY:
            return (self._value(kind, token),)
        if token.is_quoted or op in (Op.STARTS, Op.CONTAINS):
            found: tuple[Value, ...] = (token.text,)
        else:
            found = meant(token.text, self._now)
        if op in _RANGES and isinstance(found[0], (str, bool)):
            fix = "Compare text with =, !=, in; numbers and times stand without quotes: 12.5, -2d."
            self._refuse(f"{token.text!r} has no order", token, fix)
        return found[:1] if op in _RANGES else found

    def _value(self, kind: Kind, token: Token) -> Value:
        match kind:
            case Kind.TEXT | Kind.ANY:
                return token.text
            case Kind.STATUS:
                return self._status(token)
            case Kind.NUMBER:
                return self._number(token)
            case Kind.FLAG:
                return self._flag(token)
            case Kind.TIME:
                return self._moment(token)

    def _status(self, token: Token) -> str:
        if token.text not in _STATUSES:
            self._refuse(f"{token.text!r} is no status of runs", token, f"Use one of {', '.join(_STATUSES)}.")
        return token.text

    def _number(self, token: Token) -> float:
        try:
            number = float(token.text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self._refuse(f"{token.text!r} is no number", token, "Write it in digits.")
        return number

    def _flag(self, token: Token) -> bool:
        if token.text.lower() not in ("true", "false"):
            self._refuse(f"{token.text!r} is neither true nor false", token, "Write one of the two.")
        return token.text.lower() == "true"

    def _moment(self, token: Token) -> datetime:
        try:
            return time_of(token.text, self._now)
        except BadRequest as error:
            self._refuse(f"{token.text!r} is no time", token, error.fix)

    # -- tokens -------------------------------------------------------------------------------------------

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self, wanted: str) -> Token:
        token = self._peek()
        if token is None:
            self._refuse(
                f"{wanted} is missing", Token("", len(self._text.rstrip())), f"For example: {_EXAMPLE}"
            )
        self._at += 1
        return token

    def _refuse(self, problem: str, token: Token, fix: str) -> NoReturn:
        around = self._text[max(0, token.at - 20) : token.at + 20].replace("\n", " ")
        near = around.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        place = f"at character {token.at + 1}" if token.at < len(self._text.rstrip()) else "at its end"
        raise BadRequest(f"where: {problem}, {place} (… {near.strip()} …).", fix=fix, at=token.at)


def _near(word: str) -> str:
    """Return the field that a word is a misspelling of, or a beginning; empty if it is none."""
    text = word.lower()
    if text in _AS_SHOWN:
        return _AS_SHOWN[text]
    for field in FIELDS:
        if field.startswith(text) and len(text) > 2:
            return field
    most = 1 if len(text) < 6 else 2
    near = [field for field in FIELDS if abs(len(field) - len(text)) <= most]
    found = min(near, key=lambda field: _edits(text, field), default="")
    return found if found and _edits(text, found) <= most else ""


def _edits(one: str, other: str) -> int:
    """Return how many letters must be typed otherwise; two that changed places count once."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
