"""A wire between a client and a server that can be cut, before a request arrives or before its reply does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on, until a request that `cuts` picks; then the connection ends on both sides."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self.is_down = False
        """True if every connection is refused."""
        self.cuts_reply: Callable[[bytes], bool] = _never
        """Picks requests that the server gets and answers, and whose reply is lost."""
        self.cuts_request: Callable[[bytes], bool] = _never
        """Picks requests that the server never gets."""
        self.answers: Callable[[bytes], bytes | None] = _nothing
        """Gives what is answered in the server's place, after which the connection ends."""
        self.cut = 0
        """How many connections were cut."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_down:
                    client.close()
                    continue
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def drop_all(self) -> None:
        """Break every connection there is."""
        for end in list(self._open):
            _shut(end)

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        try:
            self._pass_on(client)
        finally:
            self._open.discard(client)

    def _pass_on(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            is_armed = threading.Event()
            back = threading.Thread(target=self._answer, args=(client, server, is_armed), daemon=True)
            back.start()
            while request := client.recv(1 << 20):
                if self.is_down or self.cuts_request(request):
                    self.cut += 1
                    break
                if (answer := self.answers(request)) is not None:
                    client.sendall(answer)
                    break
                if self.cuts_reply(request):
                    is_armed.set()
                server.sendall(request)
            _shut(server)
            back.join()

    def _answer(self, client: socket.socket, server: socket.socket, is_armed: threading.Event) -> None:
        with suppress(OSError):
            while reply := server.recv(1 << 20):
                if self.is_down or is_armed.is_set():
                    self.cut += 1
                    break
                client.sendall(reply)
        _shut(client)

    def close(self) -> None:
        _shut(self._listener)
        self._listener.close()


def once(has: bytes) -> Callable[[bytes], bool]:
    """Pick the first request that holds these bytes, and no other."""
    left = [has]
    return lambda request: bool(left) and left[0] in request and bool(left.pop())


class Nth:
    """Picks the n-th request that holds these bytes, and counts all that do."""

    def __init__(self, has: bytes, n: int) -> None:
        self._has = has
        self._n = n
        self.seen = 0

    def __call__(self, request: bytes) -> bool:
        is_one = self._has in request
        self.seen += is_one
        return is_one and self.seen == self._n


def _never(_: bytes) -> bool:
    return False


def _nothing(_: bytes) -> None:
    return None


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """Run a proxy to a server."""
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()


@contextmanager
def proxy_before(url: str) -> Iterator[tuple[Proxy, str]]:
    """Run a proxy to the server of a URL; also give the URL that leads through it."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    with proxy_to(host, port) as proxy:
        yield proxy, url.replace(f"{host}:{port}", f"127.0.0.1:{proxy.port}")
