"""What a bucket keeps, and what it can lose, as far as it tells. Apart, as only `doctor` asks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from http.client import HTTPException
from typing import Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from everstep.errors import StoreError
from everstep.ports.health import Finding, Health, Level
from everstep.stores.objects.cloud.address import CloudAddress

_PATIENCE = 5.0
_PRODUCTS = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"}


class Looked(Protocol):
    """A bucket as it is looked at."""

    address: CloudAddress
    is_versioned: bool

    def check(self) -> None: ...

    def now(self) -> datetime: ...


def look_at(bucket: Looked) -> Health:
    """Ask the server what it is, and try whether it does what is needed."""
    findings: list[Finding] = []
    now = None
    try:
        bucket.check()
        now = bucket.now()
        findings.append(
            Finding(
                Level.FINE,
                "it honours conditions on writes: two owners of a run cannot overwrite each other's steps.",
            )
        )
    except StoreError as error:
        findings.append(Finding(Level.PROBLEM, f"it cannot be used: {error.message}", error.fix))
    findings += _about_versions(bucket.is_versioned)
    return Health(server=_product(bucket.address), now=now, findings=tuple(findings))


def _about_versions(is_versioned: bool) -> Iterator[Finding]:
    if is_versioned:
        yield Finding(
            Level.WARNING,
            "it keeps versions: what is removed or replaced stays, is paid for, and is not erased.",
            "Let a lifecycle rule remove noncurrent versions after a few days.",
        )


def _product(address: CloudAddress) -> str:
    """Return what the server calls itself."""
    kind = _PRODUCTS[address.kind]
    if address.endpoint is None:
        return kind
    unsigned = Request(f"{address.endpoint}/{address.bucket}", method="HEAD")
    try:
        with urlopen(unsigned, timeout=_PATIENCE) as reply:
            server = reply.headers.get("Server")
    except HTTPError as refused:
        server = refused.headers.get("Server")
    except (OSError, HTTPException, ValueError):
        server = None
    return f"{server} ({kind})" if server else kind
