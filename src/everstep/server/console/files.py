"""What the console's page loads: scripts, style and icons, read once, each under the hash of all of them."""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("assets")

TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


_FOR_READERS = re.compile(rb"^[ ]*(?://[^\n]*|/\*\*(?:[^*]|\*(?!/))*\*/)\n|^[ ]+", re.M)
"""Comments and indents; no text of a page depends on how its template is indented."""


class Asset(NamedTuple):
    """A file as it is sent."""

    body: bytes
    packed: bytes
    """The same, compressed."""
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Return all files by their path below the folder."""
    found: dict[str, Asset] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in TYPES:
            body = path.read_bytes()
            if path.suffix == ".js" and "vendor" not in path.parts:
                body = _FOR_READERS.sub(b"", body)
            packed = gzip.compress(body, 9, mtime=0)
            found[path.relative_to(FOLDER).as_posix()] = Asset(body, packed, TYPES[path.suffix])
    return found


@cache
def edition() -> str:
    """Return what is in the path of every file: browsers keep them, and load others when one changes."""
    digest = sha256()
    for name, asset in assets().items():
        digest.update(f"{name}\0{len(asset.body)}\0".encode() + asset.body)
    return digest.hexdigest()[:12]
