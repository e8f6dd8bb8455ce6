"""The table of waits. Apart from the store, as most runs never wait. The caller holds the connection."""

from __future__ import annotations

from typing import Any

from everstep.engine.settling import changed
from everstep.model.waits import SettledBy, WaitChange, WaitRow, WaitStatus
from everstep.ports.store import WaitFilter
from everstep.stores.columns import to_int
from everstep.stores.postgres.columns import some_text, text, wait_row
from everstep.stores.postgres.connections import Connection, at_once, rows


class PostgresWaits:
    """The waits of every run."""

    def __init__(self, sql: dict[str, str], channel: str) -> None:
        self._sql = sql
        self._channel = channel

    def get(self, db: Connection, wait_id: str) -> WaitRow | None:
        """Return one wait."""
        found = rows(db, self._sql["wait"], (text(wait_id),))
        return wait_row(found[0]) if found else None

    def of_token(self, db: Connection, token_hash: bytes) -> WaitRow | None:
        """Return the wait that a token belongs to."""
        found = rows(db, self._sql["wait_of_token"], (token_hash,))
        return wait_row(found[0]) if found else None

    def settle(
        self,
        db: Connection,
        wait_id: str,
        by: SettledBy,
        answer: bytes | None,
        token_hash: bytes | None,
        now: int | None,
        details: bytes | None = None,
    ) -> tuple[bool, WaitRow | None]:
        """Give an open wait its answer; says whether this did it, and how the wait is now."""
        given = (text(wait_id), now, by.value, answer, token_hash, self._channel, details)
        done, found = at_once(db, [(self._sql["settle"], given), (self._sql["wait"], (text(wait_id),))])
        return bool(done) and done[0][0] == by.value, wait_row(found[0]) if found else None

    def fire(self, db: Connection, run_id: str, now: int | None) -> list[WaitRow]:
        """Settle what is due of a run, and return what is settled."""
        settled = self._asked(WaitFilter(run_id=run_id, status=WaitStatus.SETTLED, limit=-1))
        is_due, found = at_once(db, [(self._sql["has_due"], (text(run_id), now)), settled])
        if is_due:
            _, found = at_once(db, [(self._sql["settle_due"], (text(run_id), now)), settled])
        return [wait_row(row) for row in found]

    def settle_if(self, db: Connection, was: bytes, wait_id: str, *given: Any) -> tuple[bool, WaitRow | None]:
        """Give an open wait its answer if its details are still these; returns what `settle` does."""
        with db.transaction():
            rows(db, self._sql["lock_run_of_wait"], (text(wait_id),))
            wait = self.get(db, wait_id)
            if wait is None or wait.details != was:
                return False, wait
            return self.settle(db, wait_id, *given)

    def change(
        self, db: Connection, wait_id: str, change: WaitChange, was: bytes | None = None
    ) -> tuple[bool, WaitRow | None]:
        """Change an open wait; says whether it did, and how it is now."""
        with db.transaction():
            run = rows(db, self._sql["lock_run_of_wait"], (text(wait_id),))
            old = self.get(db, wait_id)
            new = None if old is None else changed(old, change, was)
            if new is None:
                return False, old
            db.execute(
                self._sql["change_wait"],
                (
                    text(wait_id),
                    new.token_hash,
                    to_int(new.token_expires_at),
                    new.generation,
                    new.single_use,
                    some_text(new.schedule_id),
                    to_int(new.notified_at),
                    to_int(new.due_at),
                    new.details,
                    run[0][1],
                    self._channel,
                ),
            )
            return True, self.get(db, wait_id)

    def list(self, db: Connection, wanted: WaitFilter) -> list[WaitRow]:
        """Return the waits that match, the oldest first."""
        return [wait_row(row) for row in rows(db, *self._asked(wanted))]

    def _asked(self, wanted: WaitFilter) -> tuple[str, tuple[Any, ...]]:
        """Return the query for the waits that match, and what it takes."""
        if wanted.is_untold:
            query = "untold_waits"
        elif wanted.run_id is not None:
            query = "unclosed_waits_of_run" if wanted.leaves_out_closed else "waits_of_run"
        elif wanted.leaves_out_closed:
            query = "unclosed_waits"
        else:
            query = "waits"
        bindings = (
            some_text(wanted.run_id),
            some_text(wanted.flow_id),
            some_text(wanted.kind),
            wanted.status.value if wanted.status is not None else None,
            some_text(wanted.after),
            wanted.limit if wanted.limit >= 0 else None,
        )
        return self._sql[query], bindings
