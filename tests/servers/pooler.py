"""A pooler in transaction mode, such as PgBouncer, as far as a client can tell one from another.

Every statement outside a transaction may be answered by another session of the server; a transaction stays
with one.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

IDLE = b"I"


class Pooler:
    """Clients share a few sessions of the server, and get another one each time they are at rest."""

    def __init__(self, url: str, *, sessions: int = 3) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(
            f"{parts.hostname}:{parts.port}", f"127.0.0.1:{self._listener.getsockname()[1]}"
        )
        self._sessions: deque[_Wire] = deque()
        self._free = threading.Semaphore(0)
        self._wanted = sessions
        self._greeting = b""
        self.handed_out = 0
        """How often a session was given to a client."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(_Wire(client),), daemon=True).start()

    def _serve(self, client: _Wire) -> None:
        with suppress(OSError, EOFError):
            startup = client.startup()
            self._open_sessions(startup)
            client.send(self._greeting + _message(b"K", struct.pack(">ii", 1, 1)) + _message(b"Z", IDLE))
            while True:
                first = client.message()
                if first[:1] == b"X":
                    break
                self._one_turn(client, first)
        client.close()

    def _one_turn(self, client: _Wire, first: bytes) -> None:
        """Lend the client a session until it is at rest."""
        self._free.acquire()
        server = self._sessions.popleft()
        self.handed_out += 1
        try:
            asked = first
            while True:
                server.send(asked)
                while asked[:1] not in (b"S", b"Q"):
                    asked = client.message()
                    server.send(asked)
                state = b""
                while not state:
                    answer = server.message()
                    client.send(answer)
                    state = answer[5:6] if answer[:1] == b"Z" else b""
                if state == IDLE:
                    return
                asked = client.message()
        finally:
            self._sessions.append(server)
            self._free.release()

    def _open_sessions(self, startup: bytes) -> None:
        while self._wanted > 0:
            self._wanted -= 1
            server = _Wire(socket.create_connection(self._target))
            server.send(startup)
            greeting = b""
            while (answer := server.message())[:1] != b"Z":
                if answer[:1] == b"E":
                    raise OSError(answer)
                greeting += b"" if answer[:1] == b"K" else answer
            self._greeting = greeting
            self._sessions.append(server)
            self._free.release()

    def close(self) -> None:
        self._listener.close()
        while self._sessions:
            self._sessions.popleft().close()


class _Wire:
    """One end of a connection, message by message."""

    def __init__(self, end: socket.socket) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._end = end
        self._bytes = end.makefile("rb")

    def startup(self) -> bytes:
        """Return the first message, after refusing to encrypt."""
        while True:
            size = self._read(4)
            rest = self._read(struct.unpack(">i", size)[0] - 4)
            if struct.unpack(">i", rest[:4])[0] not in (80877103, 80877104):
                return size + rest
            self.send(b"N")

    def message(self) -> bytes:
        head = self._read(5)
        return head + self._read(struct.unpack(">i", head[1:])[0] - 4)

    def _read(self, count: int) -> bytes:
        data = self._bytes.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def send(self, data: bytes) -> None:
        self._end.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._bytes.close()
        self._end.close()


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


@contextmanager
def pooler_before(url: str) -> Iterator[Pooler]:
    """Put a pooler before the server of a URL."""
    pooler = Pooler(url)
    try:
        yield pooler
    finally:
        pooler.close()
