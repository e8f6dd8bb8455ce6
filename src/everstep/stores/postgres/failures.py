"""What PostgreSQL's errors mean, each with what to do. None of them shows a password."""

from __future__ import annotations

import psycopg

from everstep.errors import EverstepError, StateCorrupted, StoreError, StoreNotWritable, StoreUnavailable
from everstep.stores.postgres.address import PostgresAddress

_TRY_AGAIN = "Nothing is lost: it is tried again, or resume the run later."


def explain(error: psycopg.Error, at: PostgresAddress) -> EverstepError:
    """Say in one line what the server, or the way to it, means."""
    state = error.sqlstate or ""
    said = (error.diag.message_primary or _first_line(error)).rstrip(".")
    if state == "":
        return _explain_connection(said, at)
    if state == "53100":
        return StoreNotWritable(
            f"the disk of {at.shown} is full.", fix="Free some space on the server, then resume the run."
        )
    if state == "25006":
        return StoreNotWritable(
            f"{at.shown} is read-only: a replica, or default_transaction_read_only is on.",
            fix="Use the URL of the primary, or add target_session_attrs=read-write to it.",
        )
    if state == "42501":
        return StoreError(
            f"this user may not do that on {at.shown}: {said}.",
            fix=f"Grant it usage of schema {at.schema} and all on its tables, sequences and functions.",
        )
    if state in ("3F000", "42P01", "42883", "42703"):
        return StoreError(
            f"the tables in {at.shown} are not those of everstep, or were dropped: {said}.",
            fix="Check the schema in the URL, or restore it from a copy.",
        )
    if state == "23505" and error.diag.table_name == "waits":
        return StoreError(f"there is such a wait already: {said}.", fix="Give every wait its own id.")
    if state[:2] in ("XX", "58") and state not in ("XX000", "58000"):
        return StateCorrupted(f"{at.shown} is damaged: {said}.", fix="Restore it from a copy.")
    if state[:2] in ("28", "3D"):
        return _explain_connection(said, at)
    if state[:2] in ("08", "40", "53", "55", "57") or state == "0A000":
        return StoreUnavailable(f"{at.shown} is out of reach or busy: {said}.", fix=_TRY_AGAIN)
    return StoreError(f"PostgreSQL failed on {at.shown}: {state} {said}.", fix="Check the server's log.")


_CROWDED = ("too many connections", "too many clients", "connection slots", "connection limit")


def _explain_connection(said: str, at: PostgresAddress) -> EverstepError:
    if any(sign in said for sign in _CROWDED):
        return StoreUnavailable(
            f"{at.shown} has no connection left: {said}.",
            fix="It is tried again. Raise the limit, use a smaller ?pool=, or put a pooler before it.",
        )
    if "password" in said or "authentication" in said or "pg_hba" in said or 'role "' in said:
        return StoreError(
            f"{at.shown} refused the login: {said}.", fix="Check the user and the password of the URL."
        )
    if "does not exist" in said and "database" in said:
        return StoreError(
            f"there is no such database: {at.shown}.", fix="Check its name, or make it with: createdb"
        )
    if "translate host" in said or "resolve" in said:
        return StoreUnavailable(f"the host of {at.shown} is unknown: {said}.", fix="Check the URL.")
    return StoreUnavailable(
        f"{at.shown} is out of reach: {said}.", fix="Check the URL, and that the server runs."
    )


def _first_line(error: psycopg.Error) -> str:
    """Return the cause: what a connection attempt says last on its first line, without where it went."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rpartition("failed: ")[2].removeprefix("FATAL:").strip()


def is_broken(error: psycopg.Error) -> bool:
    """True if the connection is of no more use, so that another may do better."""
    state = error.sqlstate or ""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        state == "" or state[:2] == "08" or state[:3] == "57P"
    )
