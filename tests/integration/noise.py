"""Text that does not become smaller when it is compressed, so that sizes are what they seem."""

from __future__ import annotations

from functools import cache
from random import Random


@cache
def noise(seed: object, size: int) -> str:
    """Return so many characters, the same for the same seed."""
    return "".join(chr(33 + byte % 94) for byte in Random(repr(seed)).randbytes(size))
