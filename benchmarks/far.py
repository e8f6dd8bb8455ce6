"""A server that is some milliseconds away: a proxy before it that delays what passes, both ways alike.

    python benchmarks/far.py 127.0.0.1:5432 --ms 20

prints its own port, and passes on until it is ended. `far(url, ms)` does the same for a URL in a program.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit


@contextlib.contextmanager
def far(url: str, ms: float) -> Iterator[str]:
    """Give the URL of the same server, a round trip of so many milliseconds away."""
    parts = urlsplit(url)
    command = [sys.executable, __file__, f"{parts.hostname}:{parts.port}", "--ms", str(ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
            yield urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
        finally:
            process.terminate()


class _Late(asyncio.Protocol):
    """One side of a connection: what arrives is written to the other side some time later."""

    def __init__(self, seconds: float) -> None:
        self._loop, self._seconds = asyncio.get_running_loop(), seconds
        self.other: asyncio.Future[asyncio.Transport] = self._loop.create_future()

    def data_received(self, data: bytes) -> None:
        due = self._loop.time() + self._seconds
        self.other.add_done_callback(lambda other: self._loop.call_at(due, other.result().write, data))

    def connection_lost(self, error: Exception | None) -> None:
        self.other.add_done_callback(lambda other: other.result().close())


class _Door(_Late):
    """The side of the client: a connection to the server is made for it."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        super().__init__(seconds)
        self._server, self._half = (host, port), seconds
        self._made: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = self._loop.create_task(self._reach(transport))

    async def _reach(self, transport: asyncio.BaseTransport) -> None:
        server, back = await self._loop.create_connection(lambda: _Late(self._half), *self._server)
        assert isinstance(transport, asyncio.Transport)
        back.other.set_result(transport)
        self.other.set_result(server)


async def pass_on(host: str, port: int, ms: float) -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: _Door(host, port, ms / 2000), "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("server", help="HOST:PORT")
    options.add_argument("--ms", type=float, default=1.0, help="how long a round trip takes")
    given = options.parse_args()
    host, _, port = given.server.rpartition(":")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(pass_on(host, int(port), given.ms))


if __name__ == "__main__":
    main()
