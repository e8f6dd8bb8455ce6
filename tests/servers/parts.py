"""Parts of a bucket, named without loading what talks to one."""

from __future__ import annotations

from urllib.parse import urlsplit


def within(url: str, prefix: str) -> str:
    """Return the URL of a part of a bucket."""
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{prefix}").geturl()
