"""Times and processes as the columns of a table keep them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

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
