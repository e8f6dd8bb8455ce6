"""What is done to payloads between serializing and storing them: codecs of the user's, zstd, AES-256-GCM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from everstep.codec.keyring import KeyRing, invalid_tag
from everstep.codec.payload import (
    AES_GCM,
    FORMAT,
    HEADER,
    LEFT_OUT,
    ZSTD,
    Layer,
    Zstd,
    header_with,
    key_id_of,
    key_missing,
    layers_of,
)
from everstep.errors import (
    BadRequest,
    EverstepError,
    IncompatibleVersion,
    KeyUnavailable,
    StateCorrupted,
    ValueNotStorable,
)

_NONCE: Final = 12
_MOST_CODECS: Final = 8


class Codec(Protocol):
    """A codec of your own: `Host(codecs=[...])` applies it to every payload before zstd and encryption."""

    @property
    def name(self) -> str:
        """What is stored with each payload it was applied to; it must last."""

    def encode(self, data: bytes) -> bytes | None:
        """Return other bytes for these, or none to leave them as they are."""

    def decode(self, data: bytes) -> bytes:
        """Return the bytes that were encoded."""


class Codecs:
    """The codecs of a host: applies those that it is told to, and undoes every one that it knows."""

    def __init__(
        self,
        entropy: Callable[[int], bytes],
        *,
        keys: KeyRing | None = None,
        compress: bool = False,
        codecs: Iterable[Codec] = (),
    ) -> None:
        self._entropy = entropy
        self.keys = keys
        self._zstd = Zstd()
        self._own = tuple(codecs)
        self._known: dict[str, Codec] = {}
        for codec in self._own:
            if not codec.name or len(codec.name.encode()) > 64 or codec.name in {*self._known, ZSTD, AES_GCM}:
                raise BadRequest(f"a codec cannot be called {codec.name!r}.", fix="Choose another name.")
            self._known[codec.name] = codec
        if len(self._own) > _MOST_CODECS:
            raise BadRequest(f"there are {len(self._own)} codecs.", fix=f"Use at most {_MOST_CODECS}.")
        self._applied: tuple[Codec, ...] = (*self._own, self._zstd) if compress else self._own
        self.is_active = bool(self._applied) or keys is not None
        """True if anything is done to payloads that are written."""
        self.requires_key = keys is not None and keys.required is True
        """True if payloads that are not encrypted are refused."""
        self.believes_plain_answers = keys is None or keys.required is False
        """True if a run goes on with an answer that is not encrypted."""
        self._headers: dict[tuple[tuple[Layer, ...], bytes], bytes] = {}

    @property
    def encrypts(self) -> bool:
        """True if payloads are written encrypted."""
        return self.keys is not None

    def close(self, payload: bytes, owner: str, place: bytes) -> bytes:
        """Return a payload as it is stored: readable only at this place of this owner, if it is encrypted."""
        data = payload[len(HEADER) :]
        layers: tuple[Layer, ...] = ()
        for codec in self._applied:
            encoded = self._encoded(codec, data)
            if encoded is not None:
                data = encoded
                layers = (*layers, Layer(codec.name))
        if self.keys is None:
            return self._header(layers, b"") + data if layers else payload
        key = self.keys.active()
        header = self._header(layers, key.note)
        nonce = self._entropy(_NONCE)
        return b"".join((header, nonce, key.cipher(owner).encrypt(nonce, data, header + place)))

    def open(self, payload: bytes, owner: str, place: bytes, where: str, size: int | None) -> bytes:
        """Return a stored payload without codecs, or raise a named error. `size` is that of its data."""
        if payload[2:3] == b"\0" and not self.requires_key:
            return payload
        if payload == LEFT_OUT:
            return payload
        layers, start = layers_of(payload, where)
        if self.requires_key and (not layers or layers[-1].codec != AES_GCM):
            raise StateCorrupted(
                f"{where!r} is not encrypted, and this host reads only what is.",
                fix="If it was written before there was a key: open a host without `required` and rekey.",
            )
        header, data = payload[:start], payload[start:]
        for position in range(len(layers) - 1, -1, -1):
            codec = layers[position].codec
            if codec == AES_GCM:
                data = self._decrypted(data, layers[position], owner, header + place, where)
            elif codec == ZSTD:
                # What another codec made of the value may be larger than it, by an unknown amount.
                data = self._zstd.decompress(data, where, size if position == 0 else None)
            else:
                data = self._decoded(codec, data, where)
        return bytes((FORMAT, payload[1], 0)) + data

    def is_current(self, payload: bytes, where: str) -> bool:
        """True if a stored payload is encrypted with the key that is active now, or was left out."""
        if payload == LEFT_OUT:
            return True
        layers, _ = layers_of(payload, where)
        if self.keys is None:
            return not any(layer.codec == AES_GCM for layer in layers)
        key = self.keys.active()
        return bool(layers) and layers[-1] == Layer(AES_GCM, key.note)

    def _header(self, layers: tuple[Layer, ...], note: bytes) -> bytes:
        found = self._headers.get((layers, note))
        if found is None:
            whole = (*layers, Layer(AES_GCM, note)) if note else layers
            found = self._headers[layers, note] = header_with(whole)
        return found

    def _encoded(self, codec: Codec, data: bytes) -> bytes | None:
        try:
            return codec.encode(data)
        except EverstepError:
            raise
        except Exception as error:  # a codec of the user's may raise anything
            raise ValueNotStorable(f"the codec {codec.name!r} cannot encode a value: {error}.") from error

    def _decoded(self, name: str, data: bytes, where: str) -> bytes:
        codec = self._known.get(name)
        if codec is None:
            raise IncompatibleVersion(
                f"{where!r} was encoded with the codec {name!r}, which this host does not know.",
                fix="Give it with Host(codecs=[...]), or use the newer everstep that wrote it.",
                codec=name,
            )
        try:
            return codec.decode(data)
        except EverstepError:
            raise
        except Exception as error:  # likewise
            raise StateCorrupted(f"the codec {name!r} cannot decode {where!r}: {error}.") from error

    def _decrypted(self, data: bytes, layer: Layer, owner: str, bound: bytes, where: str) -> bytes:
        key_id = key_id_of(layer)
        key = self.keys.get(key_id) if self.keys is not None else None
        if key is None:
            raise key_missing(where, key_id)
        if key.fingerprint != layer.note[:4]:
            raise KeyUnavailable(
                f"{where!r} is encrypted with another key than the one called {key_id!r} here.",
                fix="Find the key of that name that the value was written with.",
                key_id=key_id,
            )
        cipher = key.cipher(owner)
        try:
            return bytes(cipher.decrypt(data[:_NONCE], data[_NONCE:], bound))
        # The tag does not fit, or the bytes are too few for one; which of these makes no difference.
        except (invalid_tag(), ValueError):
            raise StateCorrupted(
                f"the bytes of {where!r} were altered, or belong to another place."
            ) from None
