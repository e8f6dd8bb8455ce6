"""The durability services of a host, bundled: each of them may be missing."""

from __future__ import annotations

from everstep.errors import UnknownScheduler
from everstep.model.enums import Mode
from everstep.ports.durability import ResumeScheduler, ResumeSignalSource
from everstep.ports.store import CheckpointBlobStore, CheckpointStore
from everstep.runtime.services import Services


class Bundle:
    """What a host has of `HostDurability`. A host without a store has nothing, and keeps nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def checkpoint_store(self) -> CheckpointStore | None:
        return self._services.store if "checkpoint_store" in self._services.provided else None

    @property
    def resume_signal_source(self) -> ResumeSignalSource | None:
        return self._services.tokens if "resume_signal_source" in self._services.provided else None

    @property
    def checkpoint_blob_store(self) -> CheckpointBlobStore | None:
        return self._services.blobs if "checkpoint_blob_store" in self._services.provided else None

    @property
    def max_durability_mode(self) -> Mode:
        return self._services.max_mode

    def resume_scheduler(self, alias: str = "") -> ResumeScheduler | None:
        """Return the scheduler of an alias, by default the store's own; none if there is no such one."""
        if "resume_scheduler" not in self._services.provided:
            return None
        try:
            return self._services.schedulers.of(alias)
        except UnknownScheduler:
            return None
