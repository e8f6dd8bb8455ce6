"""Count what a client says to a server, and how often it waits for the answer."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
POLLS = re.compile(r"last_value|pg_locks")
"""What a worker on PostgreSQL asks while it waits for work: how often is up to the machine. Not counted."""


class Dialect(Protocol):
    """Finds what is asked for in what a client sends."""

    def read(self, sent: bytes) -> Iterator[str]: ...


class Tally:
    """A meter of what a wire sees."""

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None

    def note(self, what: str) -> None:
        if self._counts is not None:
            self._counts[what] += 1

    def start(self) -> None:
        self._counts = Counter()

    def stop(self) -> Counter[str]:
        found, self._counts = self._counts or Counter(), None
        return found


class Wire:
    """Passes bytes on between clients and a server.

    A round trip begins when a client asks for something after an answer. To greet a server is none: what is
    asked on a new connection tells of it.
    """

    def __init__(self, url: str) -> None:
        self.asked, self.trips = Tally(), Tally()
        host, port, self._dialect = _server_of(url)
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        own = self._listener.getsockname()[1]
        self.url = url.replace(f"{host}:{port}", f"127.0.0.1:{own}")
        """Where clients find the server through this wire."""
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        answered = threading.Event()
        answered.set()
        threading.Thread(target=_answer, args=(client, server, answered), daemon=True).start()
        said, is_new = self._dialect(), False
        with suppress(OSError), server:
            while sent := client.recv(1 << 20):
                is_new = is_new or answered.is_set()
                answered.clear()
                for asked in said.read(sent):
                    if POLLS.search(asked):
                        continue
                    self.asked.note(asked)
                    if is_new:
                        self.trips.note("turns")
                        is_new = False
                server.sendall(sent)
            _shut(server)


def _answer(client: socket.socket, server: socket.socket, answered: threading.Event) -> None:
    with suppress(OSError), client:
        while reply := server.recv(1 << 20):
            answered.set()
            client.sendall(reply)
        _shut(client)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _server_of(url: str) -> tuple[str, int, type[Dialect]]:
    parts = urlsplit(url)
    if parts.scheme == "s3":
        parts = urlsplit(re.findall(r"endpoint=([^&]+)", url)[0])
    return parts.hostname or "", parts.port or 0, DIALECTS[parts.scheme]


class Postgres:
    """Statements by their texts, whether they are prepared or not."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_begun = False
        self._prepared: dict[bytes, str] = {}
        self._bound = ""

    def read(self, sent: bytes) -> Iterator[str]:
        self._rest += sent
        while (taken := self._take()) is not None:
            kind, body = taken
            if kind == b"Q":
                yield _squeezed(body[:-1])
            elif kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self._prepared[name] = _squeezed(text)
            elif kind == b"B":
                self._bound = self._prepared.get(body.split(b"\0", 2)[1], "?")
            elif kind == b"E":
                yield self._bound

    def _take(self) -> tuple[bytes, bytes] | None:
        head = 1 if self._has_begun else 0
        if len(self._rest) < head + 4:
            return None
        (length,) = struct.unpack_from(">I", self._rest, head)
        if len(self._rest) < head + length:
            return None
        kind, body = self._rest[:head], self._rest[head + 4 : head + length]
        self._rest = self._rest[head + length :]
        if not self._has_begun:
            self._has_begun = struct.unpack(">I", body[:4])[0] not in (SSL_REQUEST, GSS_REQUEST)
        return kind, body


def _squeezed(text: bytes) -> str:
    # Each process has a schema of its own.
    return re.sub(r"\btest_\d+_\d+\b", "test", " ".join(text.decode().split()))


class Redis:
    """Commands; of scripts, their names."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, sent: bytes) -> Iterator[str]:
        self._rest += sent
        while (words := self._take()) is not None:
            is_script = words[0] in (b"EVALSHA", b"EVAL")
            yield words[0].decode() + (f" {_script_of(words[1])}" if is_script else "")

    def _take(self) -> list[bytes] | None:
        lines, at = [], 0

        def line() -> bytes:
            nonlocal at
            end = self._rest.index(b"\r\n", at)
            found, at = self._rest[at:end], end + 2
            return found

        try:
            for _ in range(int(line()[1:])):
                size = int(line()[1:])
                if len(self._rest) < at + size + 2:
                    return None
                lines.append(self._rest[at : at + size])
                at += size + 2
        except ValueError:
            return None
        self._rest = self._rest[at:]
        return lines


def _script_of(word: bytes) -> str:
    from everstep.stores.redis.link import _LUA, script

    names = (Path(file).stem for file in _LUA.glob("*.lua"))
    known = [name for name in names if word.decode() in (script(name).sha, script(name).text)]
    return known[0] if known else "?"


class Http:
    """Requests by method and by the kind of object: its folder, without ids and numbers."""

    def read(self, sent: bytes) -> Iterator[str]:
        for method, path in re.findall(rb"^(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP/1", sent):
            yield f"{method.decode()} {re.sub(r'[0-9a-f-]{8,}|[0-9]+', '#', path.decode())}"


DIALECTS: dict[str, type[Dialect]] = {"postgresql": Postgres, "redis": Redis, "http": Http}
