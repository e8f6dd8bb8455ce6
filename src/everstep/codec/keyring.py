"""The keys that payloads are encrypted with. Nothing here ever shows one."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

from everstep.errors import BadRequest, EverstepError, KeyUnavailable

VARIABLE: Final = "EVERSTEP_ENCRYPT_KEYS"
FILE_VARIABLE: Final = "EVERSTEP_ENCRYPT_KEYS_FILE"
REQUIRED_VARIABLE: Final = "EVERSTEP_ENCRYPT_REQUIRED"
_KEY_BYTES: Final = 32
_ID: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}"
"""Shorter than any key as text, so that none given in the place of an id is shown."""
_MANY: Final = 1024
"""How many derived keys are kept at hand."""
_MAKE_ONE: Final = "Make one with: openssl rand -base64 32"

Find = Callable[[str | None], tuple[str, bytes | str] | None]
"""Gives the key of an id, or with none the active one, with its id; none if there is no such key."""


class Key:
    """One key of a ring."""

    __slots__ = ("_ciphers", "_secret", "fingerprint", "key_id", "note")

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.key_id = key_id
        self._secret = secret
        self.fingerprint = hmac.digest(secret, b"everstep fingerprint", "sha256")[:4]
        """Tells a wrong key from altered bytes; stored with each payload."""
        self.note = self.fingerprint + key_id.encode()
        """What is stored of it."""
        self._ciphers: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Key({self.key_id!r})"

    def cipher(self, owner: str) -> Any:
        """Return AES-256-GCM under a key of the owner's own, which is derived from this one.

        Nonces are random, so one key should not see more than 2**32 of them: no single run does.
        """
        found = self._ciphers.get(owner)
        if found is None:
            if len(self._ciphers) >= _MANY:
                self._ciphers.clear()
            derived = hmac.digest(self._secret, b"everstep payloads of " + owner.encode(), "sha256")
            found = self._ciphers[owner] = _aes_gcm()(derived)
        return found


class KeyRing:
    """Keys of 32 bytes by their ids. The active one encrypts; the others still open what they encrypted.

    Give a dict, of which the first key is active unless `active` names another, or a function that returns
    the id and the key for an id, and those of the active key for none. Keys are bytes, or base64 or hex text.
    With `required`, values that are not encrypted are not read either. Without a word on it, what was written
    before there was a key is read, but no answer is believed that was given without it; `required=False`
    believes those, too.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes | str] | Find,
        *,
        active: str | None = None,
        required: bool | None = None,
    ) -> None:
        self.required = required
        self._found: dict[str, Key] = {}
        self._find: Find | None = None
        self._active: Key | None = None
        if not isinstance(keys, Mapping):
            if active is not None:
                raise BadRequest("a function says itself which key is active.", fix="Leave `active` away.")
            self._find = keys
            return
        for name, secret in keys.items():
            key_id = _checked_id(name)
            self._found[key_id] = Key(key_id, _checked_secret(key_id, secret))
        if not self._found:
            raise BadRequest("a key ring needs a key.", fix=_MAKE_ONE)
        chosen = next(iter(self._found)) if active is None else active
        if chosen not in self._found:
            raise BadRequest(f"the key ring has no key {chosen!r}.", fix=f"It has {', '.join(self._found)}.")
        self._active = self._found[chosen]

    @classmethod
    def from_text(cls, text: str, *, required: bool | None = None) -> Self:
        """Read `ID:KEY` pairs between commas, blanks or lines; the first is active, `#` begins a comment."""
        lines = (line.partition("#")[0] for line in text.splitlines())
        pairs: dict[str, bytes | str] = {}
        for pair in re.split(r"[\s,]+", " ".join(lines).strip()):
            key_id, sign, secret = pair.partition(":")
            if not sign or not secret:
                raise BadRequest("keys are written as ID:KEY.", fix=_MAKE_ONE)
            if _checked_id(key_id) in pairs:
                raise BadRequest(f"the key {key_id!r} is given twice.", fix="Give each an id of its own.")
            pairs[key_id] = secret
        return cls(pairs, required=required)

    @classmethod
    def from_env(cls, variable: str = VARIABLE, *, required: bool | None = None) -> Self:
        """Read the keys in an environment variable, written as for `from_text`."""
        text = os.environ.get(variable, "").strip()
        if not text:
            raise BadRequest(f"there are no keys in {variable}.", fix=f"Set it to ID:KEY. {_MAKE_ONE}")
        return cls.from_text(text, required=required)

    @classmethod
    def from_file(cls, path: str | Path, *, required: bool | None = None) -> Self:
        """Read the keys in a file, written as for `from_text`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise BadRequest(f"the key file {path} cannot be read: {reason}.", fix="Check it.") from error
        return cls.from_text(text, required=required)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._found) or 'asked on use'})"

    def active(self) -> Key:
        """Return the key that encrypts."""
        if self._active is None:
            found = self._ask(None)
            if found is None:
                raise BadRequest("the function of the key ring gives no active key.", fix=_MAKE_ONE)
            self._active = found
        return self._active

    def get(self, key_id: str) -> Key | None:
        """Return the key of that id."""
        return self._found.get(key_id) or self._ask(key_id)

    def _ask(self, key_id: str | None) -> Key | None:
        if self._find is None:
            return None
        try:
            answer = self._find(key_id)
        except EverstepError:
            raise
        except Exception as error:  # it may ask a service; what it says is not quoted, as it knows keys
            which = "the active key" if key_id is None else f"the key {key_id!r}"
            raise KeyUnavailable(
                f"the function of the key ring cannot give {which} ({type(error).__name__}).", key_id=key_id
            ) from error
        if answer is None:
            return None
        name, secret = _checked_id(answer[0]), answer[1]
        if key_id not in (None, name):
            raise BadRequest(f"asked for the key {key_id!r}, the key ring was given {name!r}.")
        if name not in self._found:
            self._found[name] = Key(name, _checked_secret(name, secret))
        return self._found[name]


def keys_around(required: bool | None = None) -> KeyRing | None:
    """Return the keys that the environment names; none if it names none.

    `required` counts in place of what the environment says of it.
    """
    said = os.environ.get(REQUIRED_VARIABLE, "").strip().lower()
    if said not in _SAID:
        raise BadRequest(f"{REQUIRED_VARIABLE} is {said!r}.", fix="Set it to 1 or 0, or not at all.")
    required = _SAID[said] if required is None else required
    if os.environ.get(VARIABLE, "").strip():
        return KeyRing.from_env(required=required)
    file = os.environ.get(FILE_VARIABLE)
    if not file and required:
        raise BadRequest(
            "encryption is required, and there are no keys.", fix=f"Set {VARIABLE} or {FILE_VARIABLE}."
        )
    return KeyRing.from_file(file, required=required) if file else None


_SAID: Final = {"": None, "1": True, "true": True, "0": False, "false": False}


def _checked_id(key_id: object) -> str:
    if not isinstance(key_id, str) or not re.fullmatch(_ID, key_id):
        raise BadRequest("the id of a key is up to 32 letters, digits, dots, dashes and underscores.")
    return key_id


def _checked_secret(key_id: str, secret: object) -> bytes:
    data = secret if isinstance(secret, bytes) else _from_text(secret) if isinstance(secret, str) else b""
    if len(data) != _KEY_BYTES:
        raise BadRequest(f"the key {key_id!r} is not 32 bytes, nor base64 or hex of 32 bytes.", fix=_MAKE_ONE)
    return data


def _from_text(text: str) -> bytes:
    try:
        if len(text) == 2 * _KEY_BYTES:
            return bytes.fromhex(text)
        plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (ValueError, binascii.Error):
        return b""


def _aes_gcm() -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
    except ModuleNotFoundError as missing:
        raise BadRequest(
            f"encryption needs the package {(missing.name or '').partition('.')[0]}.",
            fix="Install it with: pip install 'everstep[crypto]'",
        ) from missing


def invalid_tag() -> type[Exception]:
    """Return the error of a cipher whose bytes were altered, once a cipher was made."""
    error: type[Exception] = import_module("cryptography.exceptions").InvalidTag
    return error
