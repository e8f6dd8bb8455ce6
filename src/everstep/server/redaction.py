"""Texts without the secrets in them, for logs and errors."""

from __future__ import annotations

import re

_IN_PATH = re.compile(r"^/(answers|w)/.*", re.DOTALL)
_TOKEN = re.compile(r"(et_(?=[A-Za-z0-9_-]{16})|everstep_(?=[A-Za-z0-9_-]{24}))[A-Za-z0-9_-]+")
"""The tokens of waits, and those that `everstep token new` makes."""


def without_tokens(text: str) -> str:
    """Return a text with the tokens cut out."""
    return _TOKEN.sub(r"\1…", text)


def redacted(path: str) -> str:
    """Return a path as a log may show it: without tokens and signs that a terminal obeys, not too long."""
    path = without_tokens(_IN_PATH.sub(r"/\1/…", path))
    shown = "".join(c if c.isprintable() else "�" for c in path)
    return shown if len(shown) <= 200 else shown[:199] + "…"
