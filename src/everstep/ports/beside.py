"""What may be kept beside a run's chain: its channel, and the message that it is due."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec


class KeptChannel(msgspec.Struct, frozen=True):
    """The channel of a run as it is in force, and changes whose checkpoint is not known to be written."""

    entries: Mapping[str, bytes]
    staged: Mapping[str, int]
    """Checkpoints by id, with their sequence."""


class ChannelStore(Protocol):
    """Keeps channels of runs apart from their chains. Blocking; may be called from any thread."""

    def load(self, run_id: str) -> KeptChannel:
        """Return the channel of a run; empty if there is none."""

    def stage(
        self, run_id: str, checkpoint_id: str, sequence: int, changes: Mapping[str, bytes | None]
    ) -> None:
        """Keep durably what a checkpoint is to change, without changing it; none removes a key."""

    def settle(self, run_id: str, checkpoint_id: str, *, is_written: bool) -> None:
        """Put what was staged for a checkpoint into force, or drop it. Nothing happens the second time."""

    def close(self) -> None: ...


class RunQueue(Protocol):
    """Tells workers that there is a run to drive. Blocking; may be called from any thread.

    It holds no truth: a run that is not in it is found in the store all the same, a little later.
    """

    def announce(self, run_id: str, flow_id: str) -> bool:
        """Put a run into the queue and ring for it; false if it is there already."""

    def take(self, run_ids: Collection[str]) -> None:
        """Take runs out that have an owner now."""

    def waiting(self) -> list[str]:
        """Return the runs in the queue, the longest waiting first."""

    def changes(self) -> int:
        """Return a number that is soon another one after a run was announced. It neither waits nor fails."""

    def close(self) -> None: ...
