"""One connection to a Redis."""

from __future__ import annotations

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from everstep.stores.redis.address import RedisAddress

CONNECT_TIMEOUT = 5.0
Argument = str | bytes | int | float


class Wire:
    """Sends commands and reads replies, one thread at a time; what fails raises as the driver does."""

    def __init__(self, at: RedisAddress) -> None:
        kind: Any = redis.SSLConnection if at.is_tls else redis.Connection
        # The driver's own retries would repeat a write that may not be repeated.
        self._connection: Any = kind(
            host=at.host,
            port=at.port,
            db=at.db,
            username=at.username,
            password=at.password,
            socket_timeout=at.timeout,
            socket_connect_timeout=min(CONNECT_TIMEOUT, at.timeout),
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            **at.tls_files,
        )

    def connect(self) -> None:
        self._connection.connect()

    def disconnect(self) -> None:
        self._connection.disconnect()

    def ask(self, *words: Argument) -> Any:
        """Send a command and return its reply."""
        connection = self._connection
        connection.send_packed_command(connection.pack_command(*words), check_health=False)
        return connection.read_response()

    def read(self) -> Any:
        """Return the next thing that the server says by itself."""
        return self._connection.read_response()

    def has_more(self) -> bool:
        """True if there is something to read, or the other end has hung up."""
        return bool(self._connection.can_read(timeout=0))
