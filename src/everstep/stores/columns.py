"""Times and processes as the columns of a table keep them, and how large what they keep may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from everstep.errors import ValueNotStorable
from everstep.model.leases import Process

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_int(at: datetime | None) -> int | None:
    return None if at is None else (at - EPOCH) // _MICROSECOND


def to_time(at: int | None) -> datetime | None:
    return None if at is None else EPOCH + timedelta(microseconds=at)


def span_to_int(span: timedelta) -> int:
    return span // _MICROSECOND


def process_text(process: Process | None) -> str | None:
    return None if process is None else msgspec.json.encode(process).decode()


def check_size(size: int, most: int, place: str) -> None:
    """Refuse a value before it is sent: a server hangs up on one that is too large, as if it were gone."""
    if size > most:
        raise ValueNotStorable(
            f"a value of {size / 2**20:,.0f} MiB is too large for {place}: at most {most / 2**20:,.0f} MiB.",
            fix="Keep large values elsewhere, with Host(blobs=...), or return where it is instead.",
        )
