"""The text that one attempt at a step logs and prints: its head and its tail, without secrets. Apart from how
it is caught and written.
"""

from __future__ import annotations

import re
from collections import deque

from everstep.codec.plain_json import spelled_out
from everstep.model.bundles import SECRETS
from everstep.ports.system import Lock

HALF = 32 * 1024
"""How many bytes of the head are kept, and of the tail."""
_TOKEN = re.compile(r"et_[A-Za-z0-9_-]{16,}")
_WORDS = "|".join(pattern.strip("*").replace("_", "[_-]") for pattern in SECRETS)
_SECRET = re.compile(
    rf"""(?ix) ( (?:{_WORDS}) [\w.-]{{0,64}} \\{{0,3}} ["']? \s* [=:]+ \s* (?: (?:bearer|basic) \s+ )? )
         ( "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;&)\]}}]+ )"""
)
# What stands before the word is not part of it, and what follows is bounded: a line of one long word, as a
# picture in base64 is, would else be looked through again from each of its letters.
_BEGUN = re.compile(
    rf"""(?ix) (?: (?:{_WORDS}) [\w.-]{{0,64}} \\{{0,3}} ["']? \s*
         (?: [=:]+ \s* (?: (?:bearer|basic) \s+ )?
             ( "(?:[^"\\]|\\.)* | '(?:[^'\\]|\\.)* | [^\s,;&)\]}}"'][^\s,;&)\]}}]* )? )?
           | (et_[A-Za-z0-9_-]*) ) \Z"""
)
"""A secret at the end of a text, that may go on behind it."""
_REPEATED = re.compile(r"([\s=:])\1+")
_NUMBER = re.compile(r"[\d.,_]{1,9}")
_HELD = 256
"""So much of the end of a line that is written in parts is held back: it may begin the name of a secret."""
_PIECE = 1024
"""A longer line is kept in parts of so many characters, so that none goes whole where some of it has room."""


def without_secrets(line: str) -> str:
    """Return a line without the values of what its name says is a secret, and without tokens of waits."""
    return _SECRET.sub(_hidden, _TOKEN.sub("et_…", line))


def _hidden(found: re.Match[str]) -> str:
    name, value = found.groups()
    return found[0] if _NUMBER.fullmatch(value) else f"{name}…"  # a count, as of tokens


class LogText:
    """Takes text from any thread, and keeps a bounded part of it, line by line."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._head: list[str] = []
        self._head_bytes = 0
        self._tail: deque[str] = deque()
        self._tail_bytes = 0
        self._omitted = 0
        self._open: dict[int, str] = {}
        """Lines that have not ended, by the threads that write them: `print` writes a line in parts."""

    def add(self, text: str, thread: int = 0) -> None:
        """Take what a thread has written."""
        with self._lock:
            *lines, begun = (self._open.pop(thread, "") + spelled_out(text)).split("\n")
            for line in lines:
                self._take(f"{without_secrets(line)}\n")
            if len(begun) > HALF:
                whole, begun = _cut(begun)
                self._take(without_secrets(whole))
            if begun:
                self._open[thread] = begun

    def _take(self, line: str) -> None:
        size = len(line.encode())
        if not self._tail and self._head_bytes + size <= HALF:
            self._head.append(line)
            self._head_bytes += size
            return
        if not self._tail and size > HALF:  # it has no room anywhere: its beginning ends the head
            begun = line.encode()[: HALF - self._head_bytes].decode("utf-8", "ignore")
            self._head.append(begun)
            self._head_bytes = HALF
            line = line[len(begun) :]
        for k in range(0, len(line), _PIECE):
            piece = line[k : k + _PIECE]
            self._tail.append(piece)
            self._tail_bytes += len(piece.encode())
        while self._tail_bytes > HALF:
            gone = len(self._tail.popleft().encode())
            self._tail_bytes -= gone
            self._omitted += gone

    def kept(self) -> tuple[str, int, str]:
        """Return the head, how many bytes are left out behind it, and the tail."""
        with self._lock:
            head, last = "".join(self._head), "\n".join(map(without_secrets, self._open.values()))
            if not self._tail and self._head_bytes + len(last.encode()) <= HALF:
                return head + last, 0, ""
            tail, cut = _end_of("".join(self._tail) + last)
            return head, self._omitted + cut, tail


def _cut(line: str) -> tuple[str, str]:
    """Cut a line that goes on in two, but no secret; of a long one only what tells that it is one is held."""
    found = _BEGUN.search(line)
    if found is not None:
        held, (value, token) = found[0], found.groups()
        if len(held) > _HELD:
            name = held[: len(held) - len(value or "")]
            held = token[:_HELD] if token else _REPEATED.sub(r"\1", name) + (f"{value[0]}x" if value else "")
        return line[: found.start()], held
    at = len(line) - _HELD
    for secret in (*_SECRET.finditer(line), *_TOKEN.finditer(line)):
        if secret.start() < at < secret.end():
            at = secret.end()
    return line[:at], line[at:]


def _end_of(text: str) -> tuple[str, int]:
    """Return as much of the end of a text as is kept of a tail, and how many bytes that leaves out."""
    data = text.encode()
    if len(data) <= HALF:
        return text, 0
    end = data[-HALF:].decode("utf-8", "ignore")
    return end, len(data) - len(end.encode())
