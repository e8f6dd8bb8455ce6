"""A proxy before a real server that breaks connections on purpose."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class ChaosProxy:
    """Passes bytes to a server and back, and can lose a reply, refuse everybody, or drop everybody."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")
        self.is_down = False
        """New connections are refused."""
        self.seen = 0
        """How many requests contained what is looked for."""
        self.cuts = 0
        """How many replies were lost."""
        self._wanted = b""
        self._nth = 0
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_reply(self, containing: bytes, nth: int) -> None:
        """Lose the reply to the n-th request from now on that contains these bytes, once it was answered."""
        self._wanted, self._nth, self.seen = containing, nth, 0

    def drop_all(self) -> None:
        """Break every connection there is."""
        for pair in list(self._pairs):
            _break(*pair)

    def close(self) -> None:
        self.is_down = True
        self._listener.close()
        self.drop_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.add((client, server))
            armed = threading.Event()
            threading.Thread(target=self._forward, args=(client, server, armed), daemon=True).start()
            threading.Thread(target=self._back, args=(client, server, armed), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, armed: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._wanted and self._wanted in data:
                    self.seen += 1
                    if self.seen == self._nth:
                        armed.set()
                server.sendall(data)
        self._end(client, server)

    def _back(self, client: socket.socket, server: socket.socket, armed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if armed.is_set():
                    self.cuts += 1
                    break
                client.sendall(data)
        self._end(client, server)

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        self._pairs.discard((client, server))
        _break(client, server)


def _break(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def chaos_before(url: str) -> Iterator[ChaosProxy]:
    """Put a proxy before the server of a URL."""
    proxy = ChaosProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
