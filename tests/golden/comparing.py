"""Golden files: what a command or an endpoint said once, compared with what it says now.

Where a change is meant, write them anew with EVERSTEP_GOLDEN=write and read the diff:

    EVERSTEP_GOLDEN=write python -m pytest tests/golden -n 0
"""

from __future__ import annotations

import difflib
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent
WRITES = os.environ.get("EVERSTEP_GOLDEN") == "write"

_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_SHORT_ID = re.compile(r"\b[0-9a-f]{8}\b")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_TOKEN = re.compile(r"\bet_[A-Za-z0-9_-]{16,}")
_TIMES = [
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?"),
    re.compile(r"\b(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d(\.\d+)?)?\b"),
]
_CARETS = re.compile(r"\n[ ~^]*[~^]+ *(?=\n)")
"""Below the lines of a traceback, as Python 3.13 sets them and 3.11 does not always."""
_SQLITE = re.compile(r"\bSQLite [0-9.]+")
_CUT_TIME = re.compile(r"\.\.\.[^.]*tzinfo=")
_SPAN = re.compile(r"\b(?<=due in )\d+[dhms]( \d+[hms])?|\b\d+(\.\d+)? (µs|ms|s|min|h)\b( \d\d s)?")
_NUMBERS = {
    *("pid", "seconds", "size", "size_bytes", "write_ms", "slowest_ms", "skew_seconds", "took_seconds"),
    *("p50", "p90", "p99", "max", "slowest"),
}
"""Keys whose numbers differ each time: a stored time may be a byte shorter than another."""


class Told:
    """Makes what is said the same each time: ids, digests and tokens by number, no times, no paths."""

    def __init__(self, *folders: Path) -> None:
        self._folders = [str(folder) for folder in folders]
        self._known: dict[str, str] = {}

    def plain(self, value: Any, key: str = "") -> Any:
        """Return a JSON value without what differs each time."""
        match value:
            case dict():
                return {self.text(k): self.plain(v, k) for k, v in value.items()}
            case list():
                return [self.plain(item, key) for item in value]
            case str():
                return self.text(value)
            case int() if key == "size" and value >= 100:
                return "<size>"  # a time takes fewer bytes if it ends in zeros
            case int() | float() if key in _NUMBERS and not isinstance(value, bool):
                return f"<{key}>"
        return value

    def text(self, text: str) -> str:
        for folder in self._folders:
            text = text.replace(folder, "<folder>")
        text = _SQLITE.sub("SQLite <version>", _CARETS.sub("", text))
        for kind, pattern in (("id", _ID), ("digest", _DIGEST), ("token", _TOKEN), ("short", _SHORT_ID)):
            text = pattern.sub(partial(self._named, kind), text)
        for pattern in _TIMES:
            text = pattern.sub("<time>", text)
        return text

    def screen(self, text: str) -> str:
        """Return what was written for people; columns are as wide as what stands in them."""
        spanless = _SPAN.sub("<span>", _CUT_TIME.sub("...tzinfo=", self.text(text)))
        return "\n".join(re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in spanless.splitlines())

    def _named(self, kind: str, found: re.Match[str]) -> str:
        of_kind = sum(name.startswith(f"<{kind} ") for name in self._known.values())
        return self._known.setdefault(found[0], f"<{kind} {of_kind + 1}>")


def differences(folder: str, told: dict[str, Any]) -> list[str]:
    """Return what differs from the files of a folder; or write them."""
    files = {f"{name}.{'txt' if isinstance(one, str) else 'json'}": one for name, one in told.items()}
    if WRITES:
        (FILES / folder).mkdir(exist_ok=True)
        for file in (FILES / folder).iterdir():
            file.unlink()
        for name, one in files.items():
            (FILES / folder / name).write_text("\n".join([*_lines(one), ""]), encoding="utf-8")
    left = [file.name for file in (FILES / folder).iterdir() if file.name not in files]
    found = [f"{name} belongs to nothing any more." for name in left]
    for name, one in files.items():
        file = FILES / folder / name
        was = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        found += difflib.unified_diff(was, _lines(one), f"{folder}/{name}", "now", lineterm="")
    return [__doc__ or "", *found] if found else []


def _lines(told: Any) -> list[str]:
    text = told if isinstance(told, str) else json.dumps(told, indent=2, ensure_ascii=False, sort_keys=True)
    return text.rstrip().splitlines()
