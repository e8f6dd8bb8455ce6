"""The statements of the hot path, sent without what the driver does for any statement."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import errors, pq

from everstep.stores.postgres.connections import Connection

TEXT, BINARY = pq.Format.TEXT, pq.Format.BINARY
_DONE = pq.ExecStatus.TUPLES_OK


class Call:
    """A statement that returns one value: prepared once a connection, if nothing stands before the server.

    A pooler may give the next statement to another session; there it is sent whole, and the plans of the
    function that it calls are kept by the session all the same.
    """

    def __init__(self, name: str, query: str, formats: Sequence[pq.Format]) -> None:
        self._name = name.encode()
        self._query = query.encode()
        self._formats = list(formats)

    def __call__(self, connection: Connection, values: Sequence[bytes | None]) -> bytes:
        """Send it and return what came back as text. Raises what the driver would."""
        session = connection.pgconn
        if connection.prepares:
            if self._name not in connection.prepared:
                self._check(session.prepare(self._name, self._query), pq.ExecStatus.COMMAND_OK)
                connection.prepared.add(self._name)
            result = session.exec_prepared(self._name, values, self._formats)  # type: ignore[arg-type]  # None is NULL
        else:
            result = session.exec_params(self._query, values, None, self._formats)
        self._check(result, _DONE)
        return result.get_value(0, 0) or b""

    def _check(self, result: pq.abc.PGresult, wanted: int) -> None:
        if result.status != wanted:
            raise errors.error_from_result(result)


def flag(value: bool) -> bytes:
    return b"t" if value else b"f"


def number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value
