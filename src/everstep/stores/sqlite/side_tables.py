"""The tables beside those of every file. Apart from the schema: a file has them once a client needs one."""

from __future__ import annotations

from pathlib import Path

import apsw

from everstep.errors import IncompatibleVersion
from everstep.stores.sqlite.database import rows

_HERE = Path(__file__).parent
NEWEST = 1
_THERE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'side_schema'"


class SideTables:
    """Whether the tables are there. Asked of the file until they are, as none ever takes them away."""

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._are_there = False

    def are_there(self) -> bool:
        """True if a client made them; `IncompatibleVersion` if a newer one has changed them."""
        if not self._are_there and rows(self._db, _THERE):
            number = rows(self._db, "SELECT number FROM side_schema")[0][0]
            if number > NEWEST:
                raise IncompatibleVersion(
                    f"{self._path} has side tables of version {number}; this everstep knows up to {NEWEST}.",
                    fix="Use the newer everstep that wrote it.",
                )
            self._are_there = True
        return self._are_there

    def forget(self) -> None:
        """Ask the file again: they may have been made in a transaction that was rolled back."""
        self._are_there = False

    def need(self) -> None:
        """Make them unless they are there; the caller has begun a transaction."""
        if not self.are_there():
            self._db.execute((_HERE / "side_tables.sql").read_text())
