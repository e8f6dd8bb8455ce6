"""Names from outside as names of files: none leads elsewhere, and no two become one."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.@#-]")
_LONGEST: Final = 80
_RESERVED: Final = frozenset({"con", "prn", "aux", "nul"})


def file_name(text: str) -> str:
    """Return a name for a file: letters, digits and `_.@#-` as they are, `/` as `+`, all else as `%XX`.

    One that is too long is cut, one that would be hidden or is reserved changed; a digest keeps it its own.
    """
    name = "".join(_spelled(letter) for letter in text)
    if name[:1] in (".", "-"):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    is_odd = not name or name.endswith(".") or name.partition(".")[0].lower() in _RESERVED
    if len(name) > _LONGEST or is_odd:
        return f"{name[:_LONGEST].rstrip('.')}~{_digest(text)}"
    return name


def _spelled(letter: str) -> str:
    if letter == "/":
        return "+"
    if _PLAIN.fullmatch(letter):
        return letter
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


class FileNames:
    """Names of files in one folder, also where it does not tell capital letters from small ones."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, text: str) -> str:
        """Return the name for a text: always the same, and never that of another."""
        if text not in self._given:
            name = file_name(text)
            if name.lower() in self._taken:
                name = f"{name}~{_digest(text)}"
            self._taken.add(name.lower())
            self._given[text] = name
        return self._given[text]
