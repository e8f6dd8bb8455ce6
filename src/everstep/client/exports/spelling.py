"""How ids, times and values are spelt in the words of others."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from everstep.client.views import RunState
from everstep.codec.plain_json import jsonable
from everstep.codec.tags import Unreadable
from everstep.errors import EverstepError
from everstep.model.acts import Act
from everstep.model.records import CHANNEL


def uuid_of(text: str) -> str:
    """Return a UUID of version 4 as it is, and for any other text always the same one."""
    try:
        given = UUID(text)
    except ValueError:
        given = None
    if given is not None and given.version == 4 and str(given) == text.lower():
        return str(given)
    return str(UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4))


def iso(at: datetime | None) -> str | None:
    """Return a time as ISO 8601, in UTC."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def readable(state: RunState, name: str) -> Any:
    """Return a value as JSON, or what says why it cannot be shown."""
    try:
        return jsonable(state[name])
    except EverstepError as error:
        return jsonable(Unreadable(error))


def context_of(state: RunState) -> dict[str, Any]:
    """Return values and channel in one object; an entry with the name of a value is `channel.NAME`."""
    found = {name: readable(state, name) for name in state if not name.startswith("@")}
    for name in state:
        if name.startswith(CHANNEL):
            key = name.removeprefix(CHANNEL)
            found[key if key not in found else f"channel.{key}"] = readable(state, name)
    return found


def signature(act: Act | None) -> dict[str, str]:
    """Return who decided, and why, as other forms have it; nothing where that is not recorded."""
    if act is None:
        return {}
    said = {"by": act.by, "comment": act.comment, "how": act.how.value}
    return {name: text for name, text in said.items() if text}
