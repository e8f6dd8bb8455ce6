"""Values as text: JSON that never fails, previews of one line, times and sizes as people read them."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from everstep.codec.plain_json import jsonable as jsonable
from everstep.codec.plain_json import safe_repr as safe_repr
from everstep.codec.tags import Unreadable as UnreadableValue
from everstep.errors import ValueUnreadable
from everstep.model.acts import Act
from everstep.model.enums import Status
from everstep.on_demand import on_demand

if TYPE_CHECKING:
    import json
    import pprint
    import shutil
    from tempfile import SpooledTemporaryFile

    from everstep.client.projection import RunAct
else:
    json = on_demand("json")
    pprint = on_demand("pprint")
    shutil = on_demand("shutil")
    SpooledTemporaryFile = on_demand("tempfile:SpooledTemporaryFile")


STATUS_COLOURS = {
    Status.RUNNING: "cyan",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.RETRYING: "yellow",
    Status.HALTED: "yellow",
    Status.CANCELLED: "yellow",
    Status.ABANDONED: "red",
}

PREVIEW = 72
"""How many characters a preview takes at most, besides the note on the size."""


class Unreadable(UnreadableValue):
    """Stands where a value would, with what to do about it on a command line."""

    def __init__(self, why: BaseException | str) -> None:
        super().__init__(why)
        self.why = printable(self.why)
        if isinstance(why, ValueUnreadable) and "not loaded" in self.why:
            self.why += " Name the file that defines it with --load."


def write_json(value: object) -> None:
    """Write one JSON document on stdout."""
    sys.stdout.write(_json_text(value) + "\n")


def _json_text(value: object) -> str:
    shown = jsonable(value)
    text = json.dumps(shown, ensure_ascii=False, indent=2)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, or a terminal that knows no more than ASCII
        text = json.dumps(shown, indent=2)
    return text


def write_json_list(
    head: Mapping[str, object], name: str, items: Iterable[object], tail: Callable[[], Mapping[str, object]]
) -> None:
    """Write one JSON object with a long list in it; a file holds it until all of it is there."""
    with SpooledTemporaryFile(max_size=1 << 20, mode="w+", encoding="utf-8", newline="") as file:
        file.write("{\n" + "".join(f"  {_entry(key, value)},\n" for key, value in head.items()))
        file.write(f"  {json.dumps(name)}: [")
        has_any = False
        for item in items:
            file.write((",\n    " if has_any else "\n    ") + _json_text(item).replace("\n", "\n    "))
            has_any = True
        file.write("\n  ]" if has_any else "]")
        file.write("".join(f",\n  {_entry(key, value)}" for key, value in tail().items()) + "\n}\n")
        file.seek(0)
        shutil.copyfileobj(file, sys.stdout)


def _entry(key: str, value: object) -> str:
    return f"{json.dumps(key)}: " + _json_text(value).replace("\n", "\n  ")


class _Short(reprlib.Repr):
    """A cut `repr` that keeps the order of a dict's keys."""

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if x and level <= 0:
            return "{...}"
        parts = [
            f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}"
            for key, item in islice(x.items(), self.maxdict)
        ]
        return "{" + ", ".join(parts + ["..."] * (len(x) > self.maxdict)) + "}"


def preview(value: object, width: int = PREVIEW) -> str:
    """Show a value in one line. A long one is cut, and its size is given."""
    if isinstance(value, UnreadableValue):
        return cut(printable(repr(value)), max(width, 140))
    short = _Short()
    short.maxlevel = 4
    short.maxstring = short.maxother = short.maxlong = max(width, 8)
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = max(width // 8, 4)
    if isinstance(value, (str, bytes)) and len(value) > width:
        return f"{cut(repr(value[:width]), width)} ({extent(value)})"
    try:
        text = short.repr(value)
    except Exception:  # a value's own repr may do anything; the command must go on
        text = safe_repr(value)
    text = printable(text).replace("\n", " ")
    shown = cut(text, width)
    held = extent(value) if shown != text or "..." in text else ""
    return f"{shown} ({held})" if held else shown


def full(value: object, width: int, indent: int = 0) -> str:
    """Show a whole value: on one line if it fits, else on lines of its own, indented."""
    if isinstance(value, UnreadableValue):
        return printable(repr(value))
    text = printable(safe_repr(value))
    if len(text) <= width and "\n" not in text:
        return text
    try:
        text = printable(pprint.pformat(value, width=max(width - indent, 40), sort_dicts=False))
    except Exception:  # as above: show it on one line instead
        return text
    return "".join(f"\n{' ' * indent}{line}" for line in text.splitlines())


def is_cut(value: object, width: int) -> bool:
    """Say whether a preview of this width leaves something out."""
    if isinstance(value, UnreadableValue):
        return False
    length = len(printable(safe_repr(value)))  # a preview may have another order, and a note on the size
    return length > width or length != len(preview(value, width))


def extent(value: object) -> str:
    """Say how large a value is: `3 items`; empty if it has no size."""
    match value:
        case str():
            return count(len(value), "character")
        case bytes() | bytearray():
            return size(len(value))
        case Sequence() | Mapping() | set() | frozenset():
            return count(len(value), "item")
    return ""


def cut(text: str, width: int) -> str:
    """Shorten a text to `width` characters, the last of them an ellipsis."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def printable(text: str) -> str:
    """Return the text without anything that a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "�" for c in text)


def one_line(text: str) -> str:
    """Return the text on one line, fit for a terminal."""
    return " ".join(printable(text).split())


def size(count: int) -> str:
    """Write a number of bytes: `812 B`, `1.5 KiB`."""
    if count < 1024:
        return f"{count} B"
    amount, unit = count / 1024, "KiB"
    for bigger in ("MiB", "GiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, bigger
    return f"{amount:.1f} {unit}"


def duration(span: timedelta | float | None) -> str:
    """Write a span: `40 µs`, `1.2 ms`, `12 ms`, `3.20 s`, `2 min 05 s`."""
    if span is None:
        return ""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def times_said(begins_at: datetime | None, ends_at: datetime | None) -> dict[str, str]:
    """Say when a run begins, if it is yet to, and by when it is to have ended."""
    told = {}
    if begins_at is not None:
        told["begins"] = moment(begins_at)
    if ends_at is not None:
        told["deadline"] = moment(ends_at)
    return told


def moment(at: datetime | None) -> str:
    """Write a time of day in the local zone, with its date."""
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock_time(at: datetime) -> str:
    """Write a time of day in the local zone, to the millisecond."""
    local = at.astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03}"


def act_said(act: Act | RunAct | None) -> str:
    """Write who did something, and why: `by ada: ticket 4711`; empty if that is not recorded."""
    if act is None:
        return ""
    by = f"by {one_line(act.by)}" if act.by else ""
    return ": ".join(part for part in (by, one_line(act.comment)) if part)


def ended_before(status: Status) -> str:
    """Say that a run had ended: `had completed before`, `was cancelled before`."""
    verb = "was" if status in (Status.CANCELLED, Status.ABANDONED) else "had"
    return f"{verb} {status.value} before"


def count(number: int, noun: str) -> str:
    """Write `1 step`, `2 steps`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def chosen_of(decision: Sequence[str]) -> str:
    """Write what a gate chose."""
    return ", ".join(decision) or "end"
