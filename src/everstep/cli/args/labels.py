"""Tags and attributes as they are given on a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from everstep.errors import BadRequest
from everstep.graph.labels import meant
from everstep.model.commits import AttributeValue


def given_tags(given: Iterable[str]) -> dict[str, str]:
    """Return tags that were given as `NAME` or `NAME=VALUE`."""
    parts = (one.partition("=") for one in given)
    return {name: value for name, _, value in parts}


def given_attributes(given: Iterable[str]) -> dict[str, AttributeValue]:
    """Return attributes that were given as `NAME=VALUE`: a number, true, false, a time; or text.

    A word means what it means in a query; what stands in double quotes is text.
    """
    found: dict[str, AttributeValue] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise BadRequest(f"--attribute is {one!r:.80}.", fix="Give NAME=VALUE.")
        is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
        found[name] = value[1:-1] if is_quoted else _meant(value)
    return found


def _meant(word: str) -> AttributeValue:
    """Return what a word is; digits that a number would not keep, as in 007, are text."""
    if re.match(r"[+-]?0\d", word):
        return word
    is_whole = re.fullmatch(r"-?\d{1,20}", word, re.ASCII)
    return int(word) if is_whole else meant(word, datetime.now(UTC))[0]
