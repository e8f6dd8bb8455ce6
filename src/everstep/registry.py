"""Joins what knows nothing of each other: a URL becomes a store, and front ends attach to the core.

Drivers load when they are asked for. This is the one module that names what stands outside the core.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from everstep.errors import BadRequest
from everstep.on_demand import on_demand
from everstep.ports.beside import ChannelStore, RunQueue
from everstep.ports.store import CheckpointBlobStore, CheckpointStore
from everstep.ports.system import Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from urllib.parse import parse_qsl, quote, unquote, urlsplit

    from everstep.ports.upgrades import StoreUpgrade
else:
    Path = on_demand("pathlib:Path")
    parse_qsl = on_demand("urllib.parse:parse_qsl")
    quote = on_demand("urllib.parse:quote")
    unquote = on_demand("urllib.parse:unquote")
    urlsplit = on_demand("urllib.parse:urlsplit")

NO_STORE = "none:"
"""The URL of a host that keeps nothing; its flows run with durability off."""
DEFAULT_URL = "sqlite:///.everstep/runs.db"
ATTACHED: Final = ("everstep.compat",)
"""Modules that add to the classes of the core when imported; one that is not installed adds nothing."""
_REDIS = ("redis", "rediss", "valkey", "valkeys")
_CLOUDS = ("s3", "gs", "az")
_SYNCHRONOUS = ("off", "normal", "full", "extra")


Closes = CheckpointStore | None


class Opened(NamedTuple):
    """What a URL stands for. A host also takes one of these, with a store of your own in it."""

    store: CheckpointStore
    blobs: CheckpointBlobStore | None
    url: str = ""


def attach() -> None:
    """Let what is installed outside the core add to it."""
    for module in ATTACHED:
        if find_spec(module) is not None:
            import_module(module)


def open_store(url: str, clock: Clock, *, create: bool = True) -> Opened:
    """Open the store a URL names. Without `create`, a store that is not there is an error."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        if rest:
            raise BadRequest(f"{url!r} is not a store.", fix="Write just memory:")
        return _open_memory(clock)
    if scheme == "none":
        return Opened(_open_memory(clock).store, None, NO_STORE)
    if "/" not in rest and scheme in ("postgresql", "postgres", *_CLOUDS):
        scheme = ""  # a word is no URL: its driver could not say what is wrong with it
    if scheme == "sqlite":
        return _open_sqlite(url, clock, create)
    if scheme == "file":
        return _open_folder(url, clock, create)
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(url, clock, create)
    if scheme in _REDIS:
        return _open_redis(url, clock, create)
    if scheme in _CLOUDS:
        return _open_cloud(url, clock, create)
    if scheme == "github":
        return _open_github(url, clock)
    raise BadRequest(
        f"{without_secrets(url)!r} is not a store.",
        fix="Use sqlite:///runs.db, file:///folder, postgresql://user@host/database, redis://host/0, "
        "s3://bucket/prefix, github://owner/repo/path, memory: or none:",
    )


def upgrade_of(url: str, *, dry_run: bool, say: Callable[[str], object]) -> StoreUpgrade:
    """Bring what a URL names up to date, or say what that would do. It is not opened as hosts open it."""
    from everstep.ports.upgrades import StoreUpgrade

    scheme, shown = url.partition(":")[0], without_secrets(url)
    if scheme == "sqlite":
        from everstep.stores.sqlite.upgrade import upgrade as upgrade_file

        return upgrade_file(_path_of(url, "sqlite:///runs.db"), dry_run=dry_run, say=say)
    if scheme in ("postgresql", "postgres"):
        try:
            from everstep.stores.postgres.address import read_address
            from everstep.stores.postgres.upgrade import upgrade as upgrade_schema
        except ModuleNotFoundError as missing:
            raise _needs("postgres", missing) from missing
        return upgrade_schema(read_address(url), dry_run=dry_run, say=say)
    notes = {
        **dict.fromkeys(_REDIS, "Its keys and fields are made when they are first written."),
        **dict.fromkeys((*_CLOUDS, "file", "github"), "Each object says its version."),
        "memory": "It ends with its process.",
    }
    if scheme not in notes:
        raise BadRequest(f"{shown!r} is not a store.", fix="Use the URL that your workers have.")
    note = f"There is nothing to bring up to date. {notes[scheme]}"
    return StoreUpgrade(url=shown, kind=scheme, version=None, newest=None, dry_run=dry_run, note=note)


def with_blobs(opened: Opened, url: str, clock: Clock, *, create: bool = True) -> tuple[Opened, Closes]:
    """Return the same store with artifacts in another place, and what to close with it.

    The place is a folder, `file:///var/lib/artifacts`, or any store: its artifacts are used.
    """
    from everstep.stores.apart import ArtifactsApart
    from everstep.stores.artifacts import ArtifactFolder

    scheme, home = url.partition(":")[0], None
    apart: CheckpointBlobStore | None
    if scheme == "file":
        apart = ArtifactFolder(_path_of(url, "file:///var/lib/artifacts"), clock)
    elif scheme == "sqlite":
        path = _path_of(url, "sqlite:///runs.db")
        apart = ArtifactFolder(path.with_name(path.name + ".artifacts"), clock)
    else:
        home, apart, _ = open_store(url, clock, create=create)
    if apart is None:
        raise BadRequest(f"{url!r} keeps no artifacts.", fix="Use file:///folder, or another store.")
    return opened._replace(blobs=ArtifactsApart(apart, opened.blobs)), home


def _path_of(url: str, example: str) -> Path:
    parts = urlsplit(url)
    path = Path(unquote(parts.path.removeprefix("/") if parts.scheme == "sqlite" else parts.path))
    if parts.netloc or not path.name or parts.fragment:
        raise BadRequest(f"{url!r} names no place.", fix=f"Write {example}")
    return path


def without_secrets(url: str) -> str:
    """Return a URL as it may be shown: without password and options, which may hold one."""
    head, at, tail = url.rpartition("@")
    if not at or "//" not in head:
        return url
    scheme, _, login = head.partition("//")
    return f"{scheme}//{login.partition(':')[0]}@{tail.partition('?')[0]}"


def place_of(url: str) -> str:
    """Return the same text for every way in which the URL of one store can be written on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return f"file://{quote(os.path.realpath(unquote(parts.path)))}"
    if parts.scheme != "sqlite":
        return url
    return f"sqlite:///{os.path.realpath(unquote(parts.path.removeprefix('/')))}"


def _open_memory(clock: Clock) -> Opened:
    from everstep.stores.memory import MemoryStore

    store = MemoryStore(clock)
    return Opened(store, store.artifacts, "memory:")


def _open_folder(url: str, clock: Clock, create: bool) -> Opened:
    from everstep.stores.objects.folder.readable import ReadableFolder
    from everstep.stores.objects.readable_store import ReadableStore

    path = _path_of(url, "file:///var/lib/runs for an absolute path, file:runs for a folder here")
    parts = urlsplit(url)
    if parts.query:
        raise BadRequest(f"unknown option {parts.query} in {url!r}.", fix="A folder has no options.")
    store = ReadableStore(ReadableFolder(path, create=create), clock)
    return Opened(store, store.artifacts, place_of(url))


def _open_postgres(url: str, clock: Clock, create: bool) -> Opened:
    try:
        from everstep.stores.postgres.address import read_address
        from everstep.stores.postgres.store import PostgresStore
    except ModuleNotFoundError as missing:
        raise _needs("postgres", missing) from missing
    address = read_address(url)
    store = PostgresStore(address, clock, create=create)
    return Opened(store, store.artifacts, address.shown)


def _needs(extra: str, missing: ModuleNotFoundError) -> BadRequest:
    return BadRequest(
        f"this store needs the package {missing.name}.",
        fix=f"Install it with: pip install 'everstep[{extra}]'",
    )


def _open_sqlite(url: str, clock: Clock, create: bool) -> Opened:
    from everstep.stores.artifacts import ArtifactFolder
    from everstep.stores.sqlite.store import SqliteStore

    parts = urlsplit(url)
    path = Path(unquote(parts.path.removeprefix("/")))
    if parts.netloc or not path.name or parts.fragment:
        raise BadRequest(
            f"{url!r} does not name a file.",
            fix="Write sqlite:///runs.db for a file here, sqlite:////var/lib/runs.db for an absolute path.",
        )
    options = dict(parse_qsl(parts.query))
    synchronous = options.pop("synchronous", "full").lower()
    if options or synchronous not in _SYNCHRONOUS:
        wrong = ", ".join(options) or f"synchronous={synchronous}"
        raise BadRequest(
            f"unknown option {wrong} in {url!r}.", fix="Use ?synchronous=full or ?synchronous=normal."
        )
    store = SqliteStore(path, clock, synchronous=synchronous.upper(), create=create)
    return Opened(store, ArtifactFolder(path.with_name(path.name + ".artifacts"), clock), url)


def _open_redis(url: str, clock: Clock, create: bool) -> Opened:
    try:
        from everstep.stores.redis.address import read_address
        from everstep.stores.redis.blobs import RedisBlobs
        from everstep.stores.redis.link import Links
        from everstep.stores.redis.store import RedisStore
    except ModuleNotFoundError as missing:
        raise _needs("redis", missing) from missing
    address = read_address(url)
    links = Links(address)
    return Opened(RedisStore(links, clock, create=create), RedisBlobs(links, clock), address.url)


def _open_cloud(url: str, clock: Clock, create: bool) -> Opened:
    try:
        from everstep.stores.objects.cloud.address import read_address
        from everstep.stores.objects.cloud.bucket import Cloud
        from everstep.stores.objects.store import ObjectStore
    except ModuleNotFoundError as missing:
        raise _needs("s3", missing) from missing
    address = read_address(url)
    store = ObjectStore(Cloud(address, clock, create=create), clock)
    return Opened(store, store.artifacts, address.url)


def _open_github(url: str, clock: Clock) -> Opened:
    try:
        from everstep.stores.objects.github.address import read_address
        from everstep.stores.objects.github.store import GithubStore
        from everstep.stores.objects.github.told import ReadableRepository
    except ModuleNotFoundError as missing:
        raise _needs("github", missing) from missing
    address = read_address(url, os.environ)
    store = GithubStore(ReadableRepository(address, clock), clock)
    return Opened(store, store.artifacts, address.shown)


def open_channels(url: str) -> ChannelStore:
    """Open where channels are kept beside the records of their runs."""
    _check_beside("channel", url)
    try:
        from everstep.stores.redis.address import read_address
        from everstep.stores.redis.beside import RedisChannels
        from everstep.stores.redis.link import Links
    except ModuleNotFoundError as missing:
        raise _needs("redis", missing) from missing
    return RedisChannels(Links(read_address(url)))


def open_queue(url: str, clock: Clock) -> RunQueue:
    """Open the queue that tells workers of runs."""
    _check_beside("queue", url)
    try:
        from everstep.stores.redis.address import read_address
        from everstep.stores.redis.beside import RedisQueue
        from everstep.stores.redis.link import Links
    except ModuleNotFoundError as missing:
        raise _needs("redis", missing) from missing
    return RedisQueue(Links(read_address(url)), clock)


def _check_beside(what: str, url: str) -> None:
    if url.partition(":")[0] not in _REDIS:
        raise BadRequest(
            f"a {what} cannot be kept in {without_secrets(url)!r}.", fix=f'Use {what}="redis://host/0".'
        )
