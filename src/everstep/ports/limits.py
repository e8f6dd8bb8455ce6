"""Limits, as stores keep what counts for them. What fits is judged by `engine.limits`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from everstep.model.leases import KeyLimit, Lease, Process

LimitChange = Callable[[bytes | None, datetime], tuple[bytes | None, Any]]
"""Takes what is kept and the store's time; returns what is to be kept instead, and what to say besides."""


@runtime_checkable
class LimitingStore(Protocol):
    """A store whose claims go by `Quota.limits`. Every method is one atomic act."""

    async def lease_within(
        self,
        run_id: str,
        *,
        owner: str,
        ttl: timedelta,
        process: Process | None,
        limits: Sequence[KeyLimit],
        void_epoch: int | None = None,
    ) -> Lease:
        """Claim the run as `lease` does if its limits leave room for it, else raise `NoRoom`.

        Its first lease counts as its start, as it does in `claim_due`.
        """

    async def change_limit(self, key: str, change: LimitChange) -> Any:
        """Change what is kept under a key, and return what `change` says besides.

        To keep nothing removes it, and the same bytes are not written. Where another was quicker it is
        called again.
        """

    async def limit_states(self, prefix: str, *, limit: int = 1000, after: str = "") -> dict[str, bytes]:
        """Return what is kept under keys that begin with a text, in their order; those behind `after`."""
