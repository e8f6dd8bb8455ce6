"""Pickle, for hosts that allow it. To unpickle bytes is to run whatever they say."""

from __future__ import annotations

import pickle

from everstep.codec.tags import Refused

_PROTOCOL = 5


def pickled(value: object) -> bytes:
    """Return a value as a pickle, in the form that it has once it was read back."""
    try:
        return pickle.dumps(pickle.loads(pickle.dumps(value, _PROTOCOL)), _PROTOCOL)
    except Exception as error:  # a class may raise anything here
        raise Refused(f"it cannot be pickled ({error})") from error


def unpickled(data: object, *, is_allowed: bool) -> object:
    """Return what was pickled, if that is allowed here."""
    if not is_allowed:
        raise Refused(
            "it was pickled, and this host does not unpickle",
            "If you trust everybody who can write to the store: Host(..., allow_pickle=True).",
        )
    if not isinstance(data, bytes):
        raise Refused("its pickle is damaged", "Restore it from a backup.")
    return pickle.loads(data)
