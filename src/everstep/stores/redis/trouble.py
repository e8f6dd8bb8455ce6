"""What goes wrong with a Redis, in plain words."""

from __future__ import annotations

import redis

from everstep.errors import EverstepError, StoreError, StoreNotWritable, StoreUnavailable
from everstep.stores.redis.address import RedisAddress


def explain(error: Exception, address: RedisAddress) -> EverstepError:
    """Say in one line what Redis means, and what to do."""
    at, said = address.shown, str(error).split("\n")[0].rstrip(".")
    if isinstance(error, redis.exceptions.NoPermissionError):
        return StoreError(
            f"the user of the Redis at {at} may not do this: {said}.",
            fix=f"Allow it by ACL: ~{address.keys}* &{address.keys}* +@all -@dangerous +info",
        )
    if isinstance(error, redis.AuthenticationError) or said.startswith(("WRONGPASS", "NOAUTH")):
        return StoreError(
            f"the Redis at {at} refused the login.", fix="Check the user and the password in the URL."
        )
    if isinstance(error, redis.TimeoutError):
        return StoreUnavailable(
            f"the Redis at {at} did not answer in time.", fix="See whether it is overloaded, then try again."
        )
    if isinstance(error, redis.exceptions.BusyLoadingError) or said.startswith(_LATER):
        return StoreUnavailable(f"the Redis at {at} is not ready: {said}.", fix="Try again in a moment.")
    if isinstance(error, redis.exceptions.InvalidResponse):
        return StoreError(
            f"what listens at {at} does not speak Redis.", fix="Check host and port in the URL."
        )
    if isinstance(error, (redis.ConnectionError, OSError)):
        return StoreUnavailable(
            f"the Redis at {at} is out of reach: {said}.", fix="Start it, or check host and port in the URL."
        )
    for begins, (means, fix) in _REFUSALS.items():
        if begins in said:
            kind = StoreNotWritable if begins in _FOR_NOW else StoreError
            return kind(f"the Redis at {at} {means}.", fix=fix)
    return StoreError(f"the Redis at {at} failed: {said}.", fix="See the server's log.")


_LATER = ("LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "UNBLOCKED")
_REFUSALS = {
    "READONLY": ("is a read-only replica", "Give the URL of the primary."),
    "read only replica": ("is a read-only replica", "Give the URL of the primary."),
    "OOM": (
        "has used all the memory it may (maxmemory); nothing was written",
        "Give it more, or remove runs, then resume.",
    ),
    "maxmemory": (
        "has used all the memory it may (maxmemory); nothing was written",
        "Give it more, or remove runs, then resume.",
    ),
    "MISCONF": (
        "cannot write to its disk, and takes no more until it can; nothing was written",
        "Free some space on the server, then resume.",
    ),
    "WAITEXISTS": ("has a wait of this id already; nothing was written", "Give every wait its own id."),
    "TOKENEXISTS": (
        "has another wait with the token of one of these; nothing was written",
        "Issue a new one where the run comes from.",
    ),
    "WRONGTYPE": ("holds keys of another program under this prefix", "Name another one with ?prefix=."),
    "MOVED ": (
        "is part of a cluster and does not hold these keys",
        "Use one server, or the node of the cluster that holds them.",
    ),
    "CROSSSLOT": ("is part of a cluster", "Use one server."),
    "DB index": ("has no database of this number", "Give a smaller one in the URL, such as /0."),
    "invalid DB": ("has no database of this number", "Give a smaller one in the URL, such as /0."),
}
_FOR_NOW = ("READONLY", "read only replica", "OOM", "maxmemory", "MISCONF")
"""It takes writes again once there is room, or another is the primary."""
