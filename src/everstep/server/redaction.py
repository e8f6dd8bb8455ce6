"""Paths as a log may show them. Apart from the service, as its forms of secrets are a matter of their own."""

from __future__ import annotations

import re

from everstep.model.acts import without_tokens

_IN_PATH = re.compile(r"^/(answers|w)/.*", re.DOTALL)


def redacted(path: str) -> str:
    """Return a path as a log may show it: without tokens and signs that a terminal obeys, not too long."""
    path = without_tokens(_IN_PATH.sub(r"/\1/…", path))
    shown = "".join(c if c.isprintable() else "�" for c in path)
    return shown if len(shown) <= 200 else shown[:199] + "…"
