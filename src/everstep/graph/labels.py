"""Tags and attributes: what may be one, and what stores keep of it.

Attributes are values of the run, in its chain as `@attribute/NAME`; the row has them so that runs are found
by them. Tags are in the row only. Apart from the records: most runs have neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from everstep.errors import BadRequest
from everstep.model.commits import MOST_LABELS, Attribute, AttributeValue, LabelKind, Labels, Tag
from everstep.model.durations import time_of

LONGEST: Final = 256
"""Bytes of a text."""
LABEL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_UNKEPT: Final = re.compile("[\0\ud800-\udfff]")
_MOMENT: Final = re.compile(r"-\d|\d{4}-\d\d-\d\d")
_EXACT: Final = 1 << 53
"""Whole numbers up to this one are what they are in every store."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime(1700, 1, 1, tzinfo=UTC), datetime(2250, 1, 1, tzinfo=UTC)


def labels_of(tags: object, attributes: object) -> Labels:
    """Return what a run is started with, or raise what is wrong with it."""
    if attributes is not None and not isinstance(attributes, Mapping):
        raise BadRequest("attributes are no mapping.", fix='Give names and values: {"customer": "7"}.')
    found = tuple(attribute(name, value) for name, value in (attributes or {}).items())
    check_many(len(found), "attributes")
    return Labels(tags_of(tags), found)


def tags_of(given: object) -> tuple[Tag, ...]:
    """Return tags that were given as names, or as names and values."""
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, (Mapping, Iterable)):
        raise BadRequest(f"tags are {given!r:.60}.", fix='Give a list, ["vip"], or names and values.')
    pairs = given.items() if isinstance(given, Mapping) else [(name, "") for name in given]
    tags = {name: tag(name, value) for name, value in pairs}
    check_many(len(tags), "tags")
    return tuple(tags.values())


def tag(name: object, value: object = "") -> Tag:
    """Return one tag, or raise what is wrong with it."""
    checked = label_name(name, "tag")
    return Tag(checked, _text(value, f"the value of tag {checked!r}"))


def attribute(name: object, value: object) -> Attribute:
    """Return an attribute as stores keep it, or raise what is wrong with it."""
    checked = label_name(name, "attribute")
    what = f"attribute {checked!r}"
    if isinstance(value, bool):
        return Attribute(checked, LabelKind.FLAG, number=number_of(value))
    if isinstance(value, int):
        if abs(value) > _EXACT:
            raise BadRequest(f"{what} is {value!r:.40}.", fix="Give a number up to 2**53, or text.")
        return Attribute(checked, LabelKind.WHOLE, number=float(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadRequest(f"{what} is {value!r}.", fix="Give a number that is finite.")
        return Attribute(checked, LabelKind.NUMBER, number=value + 0.0)
    if isinstance(value, datetime):
        if value.tzinfo is None or not _FIRST <= value < _LAST:
            fix = "Give a time with its zone, between the years 1700 and 2250."
            raise BadRequest(f"{what} is {value!r:.60}.", fix=fix)
        return Attribute(checked, LabelKind.TIME, number=number_of(value))
    if not isinstance(value, str):
        fix = "Give text, a number, true or false, or a time."
        raise BadRequest(f"{what} is {type(value).__name__}.", fix=fix)
    return Attribute(checked, LabelKind.TEXT, text=_text(value, what))


def number_of(value: float | bool | datetime) -> float:
    """Return what is kept of a value that is no text."""
    return (value - _EPOCH) / timedelta(microseconds=1) if isinstance(value, datetime) else float(value)


def value_of(kept: Attribute) -> AttributeValue:
    """Return what an attribute is."""
    number = kept.number
    if kept.kind is LabelKind.TEXT or number is None:
        return kept.text or ""
    match kept.kind:
        case LabelKind.WHOLE:
            return int(number)
        case LabelKind.FLAG:
            return bool(number)
        case LabelKind.TIME:
            return _EPOCH + timedelta(microseconds=int(number))
    return number


def meant(word: str, now: datetime) -> tuple[AttributeValue, ...]:
    """Return what a word without quotes may be: a number, the truth or a time; and always a text."""
    text = word.lower()
    if text in ("true", "false"):
        return text == "true", word
    if _NUMBER.fullmatch(word) and math.isfinite(number := float(word)):
        return number, word
    if text == "now" or _MOMENT.match(word):
        with suppress(BadRequest):
            return time_of(word, now), word
    return (word,)


def shown_labels(labels: Labels) -> dict[str, Any]:
    """Return labels as people see them."""
    return {
        "tags": {tag.name: tag.value for tag in labels.tags},
        "attributes": {one.name: value_of(one) for one in labels.attributes},
        "undoing": labels.undoing or None,
    }


def check_labels(labels: Labels) -> None:
    """Raise if a run that comes from elsewhere has labels that none here could have been given."""
    if not re.fullmatch(r"|undoing|complete|declined|[0-9]{1,9} skipped", labels.undoing):
        raise BadRequest(f"it says {labels.undoing!r:.80} of undoing.")
    for one in labels.tags:
        tag(one.name, one.value)
    for kept in labels.attributes:
        is_text = kept.kind is LabelKind.TEXT
        if is_text is (kept.text is None) or is_text is (kept.number is not None) or kept.number == math.inf:
            raise BadRequest(f"attribute {kept.name!r:.80} says too much or too little.")
        attribute(kept.name, value_of(kept))
    for what, names in ("tags", labels.tags), ("attributes", labels.attributes):
        check_many(len(names), what)
        if len({one.name for one in names}) < len(names):
            raise BadRequest(f"two of its {what} have one name.")


def label_name(name: object, what: str) -> str:
    """Return a name that a tag or an attribute may have."""
    if not isinstance(name, str) or not LABEL_NAME.fullmatch(name):
        fix = "Use letters, digits and _ . : -, at most 64, and begin with a letter, a digit or _."
        raise BadRequest(f"{what} name {name!r:.80} cannot be used.", fix=fix)
    return name


def check_many(many: int, what: str) -> None:
    """Raise if a run would have more than it may."""
    if many > MOST_LABELS:
        raise BadRequest(f"there are {many} {what}.", fix=f"A run has at most {MOST_LABELS}.")


def check_plain(names: Iterable[str], plain: Collection[str] | None) -> None:
    """Raise unless the flow says that these may be read without its key; none lets all be."""
    if plain is None:
        return
    for name in names:
        if name not in plain:
            raise BadRequest(
                f"attribute {name!r} would be readable in the store, and this host encrypts what it keeps.",
                fix=f"Declare it if that may be: Flow(..., plain_attributes=[{name!r}]); or leave it out.",
            )


def unkept(text: str) -> int | None:
    """Return where a text has a character that no store keeps; none if it has none."""
    found = _UNKEPT.search(text)
    return None if found is None else found.start()


def check_kept(text: object, what: str) -> None:
    """Raise if a text has a character that no store keeps, and that none can be asked for."""
    if isinstance(text, str) and unkept(text) is not None:
        raise BadRequest(f"{what} has characters that no store keeps.", fix="Leave them out.")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"{what} is {type(value).__name__}.", fix="Give text.")
    check_kept(value, what)
    if len(value.encode()) > LONGEST:
        raise BadRequest(f"{what} has more than {LONGEST} bytes.", fix="Keep long texts in values.")
    return value
