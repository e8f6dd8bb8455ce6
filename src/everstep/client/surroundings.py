"""What a host takes from where it runs: folders, and what the environment says."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from everstep.codec.chain import Codec, Codecs
from everstep.codec.keyring import KeyRing, keys_around
from everstep.errors import BadRequest
from everstep.registry import place_of
from everstep.runtime.system import random_bytes


def spool_folder(url: str, given: str | Path | None) -> Path:
    """Return where commits wait on this machine: a folder of its own for each store.

    It does not depend on where a program is started, so that all who find the store find what waits for it.
    """
    place = place_of(url)
    root = given or os.environ.get("EVERSTEP_SPOOL")
    if not root and place.startswith("sqlite:///"):
        return Path(place.removeprefix("sqlite:///") + ".spool")
    root = root or _state_folder(os.environ.get("XDG_STATE_HOME"), os.environ.get("HOME"))
    return _folder_in(root, place).absolute()


@lru_cache(maxsize=16)
def _folder_in(root: str | Path, place: str) -> Path:
    return Path(root) / hashlib.sha256(place.encode()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _state_folder(named: str | None, home: str | None) -> Path:
    """Return where programs of this user keep what they need later; `home` is what that is kept by."""
    try:
        state = Path(named) if named else Path.home() / ".local" / "state"
    except RuntimeError:  # a container may run as a user without a home
        return Path(".everstep") / "spool"
    return state / "everstep" / "spool"


def new_request_id() -> str:
    """Return an id for a request that came without one."""
    return random_bytes(8).hex()


def new_secret(count: int = 32) -> str:
    """Return what cannot be guessed, in letters and digits."""
    return random_bytes(count).hex()


def make_own_folder() -> None:
    """Make `./.everstep/`, and keep it out of version control."""
    folder = Path(".everstep")
    if not folder.exists():
        folder.mkdir()
        (folder / ".gitignore").write_text("*\n")


def keys_here(required: bool | None) -> KeyRing | Literal[False]:
    """Return the keys that the environment names, required or not as is said here, else there."""
    return keys_around(required) or False


def codecs_of(
    encrypt: KeyRing | Literal[False] | None, compress: bool | None, codecs: Iterable[Codec]
) -> Codecs:
    """Return what a host does to values: as it is told, else as the environment says."""
    if compress is None:
        said = os.environ.get("EVERSTEP_COMPRESS", "").strip().lower()
        if said not in ("", "0", "1", "false", "true"):
            raise BadRequest(f"EVERSTEP_COMPRESS is {said!r}.", fix="Set it to 1, or not at all.")
        compress = said in ("1", "true")
    if encrypt is not None and encrypt is not False and not isinstance(encrypt, KeyRing):
        raise BadRequest("encrypt takes a KeyRing.", fix="Use KeyRing({...}), or KeyRing.from_env().")
    keys = keys_around() if encrypt is None else encrypt or None
    return Codecs(random_bytes, keys=keys, compress=compress, codecs=codecs)
