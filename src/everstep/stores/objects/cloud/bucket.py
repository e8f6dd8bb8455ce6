"""A bucket of S3, Google Cloud Storage or Azure, by way of obstore."""

from __future__ import annotations

import hashlib
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from everstep.errors import BadRequest, StoreError, StoreUnavailable
from everstep.ports.health import Health
from everstep.ports.system import Clock
from everstep.stores.objects.bucket import Found, Listed
from everstep.stores.objects.cloud.address import CloudAddress, profile_keys
from everstep.stores.objects.cloud.clock import ServerClock
from everstep.stores.objects.cloud.health import look_at
from everstep.stores.objects.cloud.trouble import OTHER_SERVER, Said, explain
from everstep.stores.objects.naming import checked

T = TypeVar("T")
_PAGE = 1000
"""Names in one reply to a listing."""
_AT_ONCE = 64 << 20
"""Bytes up to which one request carries a whole object."""
_CONFLICTS = 5
"""How often two writes may collide before the caller has to decide what to do."""
_SIDE_BY_SIDE = 16
_FAILURES = (BaseError, OSError, ValueError)
_ALPHABET = "-.0123456789=ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"


class _Process:
    """Knows whether obstore works in this process: its threads do not live on in a forked child."""

    def __init__(self) -> None:
        self._pid: int | None = None

    def check(self) -> None:
        pid = os.getpid()
        if self._pid is None:
            self._pid = pid
        if self._pid != pid:
            raise StoreError(
                "this process was forked from one that used a bucket, and cannot use any.",
                fix="Start processes with the method 'spawn', or open buckets only after forking.",
            )


_process = _Process()


class WriteReply(NamedTuple):
    """What a server says of a write."""

    tag: str
    version: str | None


class Cloud:
    """Keeps each name as one object. Conditional writes are sent once; anything else is tried again.

    A conditional write whose reply is lost raises `StoreUnavailable`: a second try would meet the first one's
    object and take it for another client's. Tags are what the server calls its ETag, which most servers make
    from the bytes alone: bytes that return to what they were have the tag that they had.
    """

    is_local = False

    def __init__(self, address: CloudAddress, clock: Clock, *, create: bool = True) -> None:
        """Open it; without `create`, whether it honours conditions is tried only before the first write."""
        self.address = address
        self.place = address.place
        self.requests = 0
        """How many requests were made, not counting what obstore tried again."""
        self.is_versioned = False
        """True if the bucket was seen to keep what is replaced or removed."""
        self._clock = clock
        self._root = address.root
        self._lock = threading.Lock()
        self._is_checked = False
        self._stamps = 0
        self._pool: ThreadPoolExecutor | None = None
        self._once = self._ask(lambda: _open(address, retries=0), costs=0)
        self._again = self._ask(lambda: _open(address, retries=3), costs=0)
        self._time = ServerClock(clock, self._write_time)
        if create:
            self.check()

    def get(self, name: str) -> Found | None:
        key = self._key(name)

        def read() -> Found | None:
            try:
                found = obstore.get(self._again, key)
                return Found(bytes(found.bytes()), _tag(found.meta["e_tag"], found.meta["version"]))
            except FileNotFoundError as error:
                if Said(error).is_no_bucket:
                    raise
                return None

        return self._ask(read)

    def create(self, name: str, data: bytes) -> bool:
        self._check_once()
        return self._write(name, data, "create") is not None

    def swap(self, name: str, data: bytes, tag: str) -> bool:
        self._check_once()
        return self._write(name, data, _mode(tag)) is not None

    def put(self, name: str, data: bytes) -> None:
        key = self._key(name)
        self._ask(lambda: obstore.put(self._again, key, data, chunk_size=_AT_ONCE))

    def _key(self, name: str) -> str:
        return self._root + checked(name)

    def mark(self, names: Sequence[str]) -> None:
        if len(names) == 1:
            self.put(names[0], b"")
        elif names:
            with self._lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="everstep-marks")
                done = self._pool.map(lambda name: self.put(name, b""), names)
            list(done)

    def delete(self, names: Iterable[str]) -> None:
        keys = [self._key(name) for name in names]
        for first in range(0, len(keys), _PAGE):
            self._ask(partial(self._delete, keys[first : first + _PAGE]))

    def _delete(self, keys: list[str]) -> None:
        try:
            obstore.delete(self._again, keys if len(keys) > 1 else keys[0])
        except FileNotFoundError as error:
            if Said(error).is_no_bucket:
                raise
            # Not every server passes over what is not there.
            for key in keys if len(keys) > 1 else ():
                self._delete([key])

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        if limit == 0 or (after > prefix and not after.startswith(prefix)):
            return []
        folder = prefix[: prefix.rfind("/") + 1]
        found: list[str] = []
        is_flat = True
        for page in self._pages(folder, _before(folder, max(prefix, after))):
            names = [meta["path"].removeprefix(self._root) for meta in page]
            found += [name for name in names if name > after and name.startswith(prefix)]
            # Only in a flat folder do all servers list names in the order of their bytes.
            is_flat = is_flat and all("/" not in name[len(folder) :] for name in names)
            is_past = names[-1] > prefix and not names[-1].startswith(prefix)
            if is_flat and (is_past or (limit is not None and len(found) >= limit)):
                break
        return sorted(found)[:limit]

    def listed(self, prefix: str) -> Iterator[Listed]:
        folder = prefix[: prefix.rfind("/") + 1]
        for page in self._pages(folder, None):
            for meta in page:
                name = meta["path"].removeprefix(self._root)
                if name.startswith(prefix):
                    yield Listed(name, meta["size"], meta["last_modified"])

    def _pages(self, folder: str, behind: str | None) -> Iterator[Sequence[Any]]:
        where = (self._root + folder).rstrip("/") or None
        offset = None if behind is None else self._root + behind
        stream = self._ask(
            lambda: iter(obstore.list(self._again, where, offset=offset, chunk_size=_PAGE)), costs=0
        )
        while page := self._ask(lambda: next(stream, None)):
            yield page
            if len(page) < _PAGE:
                return

    def now(self) -> datetime:
        return self._time.now()

    def changes(self) -> int | None:
        return None

    def health(self) -> Health:
        return look_at(self)

    def close(self) -> None:
        """Let threads go; a call that still gives a lease back gets new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _write(self, name: str, data: bytes, mode: Any) -> WriteReply | None:
        """Write under a condition; none if it did not hold."""
        key = self._key(name)
        # A server may say of a swap that the object is not there.
        refusals = (AlreadyExistsError,) if mode == "create" else (PreconditionError, FileNotFoundError)

        def write() -> WriteReply | None:
            try:
                done = obstore.put(self._once, key, data, mode=mode)
            except (BaseError, FileNotFoundError) as error:
                said = Said(error)
                if said.is_conflict:
                    raise _Met from None
                if said.is_no_bucket or not isinstance(error, refusals):
                    raise
                return None
            return WriteReply(_tag(done["e_tag"], done["version"]), done["version"])

        for _ in range(_CONFLICTS):
            try:
                return self._ask(write)
            except _Met:
                continue
        raise StoreUnavailable(
            f"others write {name} at {self.place} at the same time.", fix="Nothing was written; try again."
        )

    def _ask(self, work: Callable[[], T], *, costs: int = 1) -> T:
        _process.check()
        with self._lock:
            self.requests += costs
        try:
            return work()
        except _FAILURES as error:
            raise explain(error, self.address) from None

    def _write_time(self) -> Callable[[], datetime]:
        """Write something, and return what tells when the server says that was; nothing is left behind."""
        name = self._new_name()
        self.put(name, b"")

        def tell() -> datetime:
            try:
                return self._ask(lambda: obstore.head(self._again, self._key(name)))["last_modified"]
            finally:
                self.delete([name])

        return tell

    def _new_name(self) -> str:
        """Return an unused name for something that is soon removed."""
        with self._lock:
            self._stamps += 1
            here = (platform.node(), os.getpid(), id(self), self._stamps)
        parts = (*here, self._clock.now(), self._clock.monotonic())
        return f"probes/{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"

    def _check_once(self) -> None:
        if not self._is_checked:
            self.check()

    def check(self) -> None:
        """Refuse a server that ignores conditions: two owners of a run would overwrite each other's steps."""
        name = self._new_name()
        first = self._write(name, b"first", "create")
        try:
            swapped = None if first is None else self._swapped_under_conditions(name, first)
        finally:
            self.delete([name])
        if swapped is None:
            raise StoreError(
                f"the server of {self.place} ignores conditions on writes, so that two owners of a run could "
                "overwrite each other's steps; nothing is kept there.",
                fix=OTHER_SERVER,
            )
        self.is_versioned = swapped.version is not None and self.address.kind == "s3"
        self._is_checked = True

    def _swapped_under_conditions(self, name: str, first: WriteReply) -> WriteReply | None:
        """Try every condition on an object; none if one does not count."""
        if self._write(name, b"second", "create") is not None:
            return None
        swapped = self._write(name, b"third", _mode(first.tag))
        if swapped is None or self._write(name, b"fourth", _mode(first.tag)) is not None:
            return None
        found = self.get(name)
        return swapped if found is not None and found.data == b"third" else None


class _Met(Exception):
    """Two conditional writes met at the server, which refused to decide."""


def _open(address: CloudAddress, *, retries: int) -> Any:
    client: dict[str, Any] = {
        "allow_http": address.allow_http,
        "timeout": timedelta(seconds=address.timeout),
        "connect_timeout": timedelta(seconds=min(5.0, address.timeout)),
    }
    if address.ca is not None:
        client["root_certificate"] = _read(address.ca)
    shared: dict[str, Any] = {
        "client_options": client,
        "retry_config": {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=address.timeout),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    }
    if address.kind == "gs":
        return GCSStore(address.bucket, **shared)
    if address.kind == "az":
        given: dict[str, Any] = {"account_name": address.account, "endpoint": address.endpoint}
        return AzureStore(address.bucket, **_known(given), **shared)
    given = {
        "endpoint": address.endpoint,
        "region": address.region,
        "conditional_put": "etag",
        "virtual_hosted_style_request": address.virtual_hosted,
        **profile_keys(address),
    }
    return S3Store(address.bucket, **_known(given), **shared)


def _known(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}.", fix="Check ?ca= in the URL.") from None


def _tag(e_tag: str | None, version: str | None) -> str:
    """Return all that a server wants to hear in a condition."""
    return f"{e_tag or ''} {version or ''}".rstrip()


def _mode(tag: str) -> Any:
    e_tag, _, version = tag.partition(" ")
    # A version of None is not taken for none.
    return {"e_tag": e_tag, "version": version} if version else {"e_tag": e_tag}


def _before(folder: str, bound: str) -> str | None:
    """Return a name to list behind, so that nothing is left out that sorts at or behind `bound`.

    Servers that keep names in folders compare part by part and take `a` before `a-b`; by bytes, `a/x` comes
    after it. So the name ends before the first sign that sorts before a slash, and is a little smaller.
    """
    part = bound.removeprefix(folder).partition("/")[0]
    part = part[: next((at for at, sign in enumerate(part) if sign in "-."), len(part))]
    if not part:
        return None
    place = _ALPHABET.find(part[-1])
    return f"{folder}{part[:-1]}{_ALPHABET[place - 1]}~" if place > 0 else None
