"""Stored values as JSON, for people: without keys, without classes, and without running code."""

from __future__ import annotations

from typing import Any, Final

from msgspec.msgpack import Decoder

from everstep.codec.classes import SEEN_APART, as_stored
from everstep.codec.forms import FORM_OF_TAG
from everstep.codec.payload import AES_GCM, SERIALIZER, ZSTD, Zstd, key_id_of, layers_of
from everstep.codec.plain_json import jsonable
from everstep.codec.tags import Tag


class NotShown(Exception):
    """Why a value cannot be shown."""


def shown(payload: bytes, where: str, size: int) -> Any:
    """Return a stored value as JSON; what cannot be shown says so as an object with a `$type`."""
    try:
        layers, start = layers_of(payload, where)
        data = payload[start:]
        for position in range(len(layers) - 1, -1, -1):
            codec = layers[position].codec
            if codec == AES_GCM:
                return {"$type": "encrypted", "key_id": key_id_of(layers[position]), "size": size}
            if codec != ZSTD:
                return {"$type": "encoded", "codec": codec, "size": size}
            data = _ZSTD.decompress(data, where, size if position == 0 else None)
        if payload[1] != SERIALIZER:
            return {"$type": "encoded", "codec": f"serializer {payload[1]}", "size": size}
        return jsonable(_DECODER.decode(data))
    # Damaged bytes can make anything fail; they are shown as unreadable.
    except Exception as error:
        return {"$type": "unreadable", "text": str(error), "size": size}


def _from_ext(code: int, payload: memoryview) -> object:
    parts = _DECODER.decode(payload)
    form = FORM_OF_TAG.get(code)
    if form is not None and type(parts) is form.shape:
        return form.together(parts)
    if code == Tag.PICKLED:
        return as_stored(code, ["pickle", {"bytes": len(parts)}])
    if code in SEEN_APART:
        return as_stored(code, parts)
    raise NotShown(f"it has the unknown tag {code}")


_ZSTD: Final = Zstd()
_DECODER: Final[Decoder[Any]] = Decoder(ext_hook=_from_ext)
