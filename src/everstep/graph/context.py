"""What a node may ask about the step it is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from everstep.errors import BadRequest


class Context:
    """Handed to a node that has a parameter annotated `Context`."""

    __slots__ = ("_request", "attempt", "idempotency_key", "node", "run_id", "visit")

    def __init__(self, run_id: str, node: str, visit: int, attempt: int, idempotency_key: str) -> None:
        self.run_id = run_id
        self.node = node
        self.visit = visit
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        """The same on every attempt of this visit, also after a crash. Hand it to whatever you call."""
        self._request: dict[str, Any] | None = None

    def checkpoint(self, metadata: Mapping[str, Any] | None = None) -> None:
        """Ask for a checkpoint once this node has succeeded and its successors are queued."""
        given = dict(metadata or {})
        try:
            is_storable = all(type(key) is str for key in given) and bool(msgspec.msgpack.encode(given))
        except (TypeError, ValueError, OverflowError):
            is_storable = False
        if not is_storable:
            raise BadRequest(
                f"node {self.node!r} asked for a checkpoint with {metadata!r:.80}.",
                fix="Give names and plain values: text, numbers, lists, dicts.",
            )
        self._request = {**(self._request or {}), **given}

    @property
    def checkpoint_request(self) -> dict[str, Any] | None:
        """The metadata of the checkpoint that was asked for, or none."""
        return self._request
