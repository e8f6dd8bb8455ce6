"""The statements of the hot path, sent without what the driver does for any statement. Apart from all other
statements, which the driver prepares.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import errors, pq

from everstep.stores.postgres.connections import Connection

TEXT, BINARY = pq.Format.TEXT, pq.Format.BINARY
_DONE = pq.ExecStatus.TUPLES_OK
_FORGOTTEN = b"26000"
"""The code of a statement that the server does not know."""


class PreparedCall:
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
        result = self._send(connection, values)
        if result.status != _DONE and result.error_field(pq.DiagnosticField.SQLSTATE) == _FORGOTTEN:
            # The driver makes the server forget all statements after a rollback. Nothing was done yet.
            connection.prepared.discard(self._name)
            result = self._send(connection, values)
        if result.status != _DONE:
            raise errors.error_from_result(result)
        return result.get_value(0, 0) or b""

    def _send(self, connection: Connection, values: Sequence[bytes | None]) -> pq.abc.PGresult:
        session = connection.pgconn
        if not connection.prepares:
            return session.exec_params(self._query, values, None, self._formats)
        if self._name not in connection.prepared:
            prepared = session.prepare(self._name, self._query)
            if prepared.status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(prepared)
            connection.prepared.add(self._name)
        return session.exec_prepared(self._name, values, self._formats)  # type: ignore[arg-type]  # None is NULL


def flag(value: bool) -> bytes:
    return b"t" if value else b"f"


def number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value
