"""Checking artifacts: each is read once, a piece at a time where its store can, however many name it."""

from __future__ import annotations

import hashlib

from everstep.codec.payload import HEADER
from everstep.errors import EverstepError, IncompatibleVersion, KeyUnavailable
from everstep.model.records import ArtifactRef
from everstep.ports.store import CheckpointBlobStore, StreamedBlobs
from everstep.ports.system import System
from everstep.runtime.coded_blobs import CodedBlobs
from everstep.runtime.integrity.findings import FlawKind

Found = tuple[FlawKind, str]


class BlobCheck:
    """Says of artifacts whether they are as they were written."""

    def __init__(self, blobs: CodedBlobs | None, system: System) -> None:
        self._system = system
        self._blobs = blobs
        self._known: dict[str, Found | None] = {}
        self.locked_by: dict[str, None] = {}
        """The keys that were missing."""

    @property
    def has_found(self) -> bool:
        """True if some artifact is not as it was written."""
        return bool(self._known) and any(found is not None for found in self._known.values())

    def is_bad(self, ref: ArtifactRef) -> bool:
        return self._known.get(ref.checksum) is not None

    async def check(self, ref: ArtifactRef) -> Found | None:
        """Return what is wrong with an artifact."""
        if ref.checksum not in self._known:
            found = await self._system.to_thread(self._check, ref)
            self._known[ref.checksum] = found
        return self._known[ref.checksum]

    def _check(self, ref: ArtifactRef) -> Found | None:
        if self._blobs is None:
            return FlawKind.ARTIFACT_MISSING, f"artifact {ref.key}: this host has no store of artifacts."
        try:
            size, digest = self._measured(ref, self._blobs)
        except KeyUnavailable as error:
            self.locked_by[str(error.details.get("key_id"))] = None
            return None
        except IncompatibleVersion as error:
            return FlawKind.NEWER, error.message
        except EverstepError as error:
            return _why(ref, self._blobs.beneath, error)
        if digest != ref.checksum:
            return _altered(ref, size)
        return None

    def _measured(self, ref: ArtifactRef, blobs: CodedBlobs) -> tuple[int, str]:
        """Return the size and the digest of what is kept as an artifact, before codecs."""
        beneath = blobs.beneath
        if isinstance(beneath, StreamedBlobs) and not blobs.requires_key:
            pieces = iter(beneath.stream_checkpoint_blob(ref))
            first = next(pieces, b"")
            if first[: len(HEADER)] == HEADER:
                hasher, size = hashlib.sha256(first[len(HEADER) :]), len(first) - len(HEADER)
                for piece in pieces:
                    hasher.update(piece)
                    size += len(piece)
                return size, hasher.hexdigest()
        data = memoryview(blobs.get_checkpoint_blob(ref))[len(HEADER) :]
        return len(data), hashlib.sha256(data).hexdigest()


def _why(ref: ArtifactRef, beneath: CheckpointBlobStore, error: EverstepError) -> Found:
    """Say whether an artifact that cannot be read is there at all."""
    try:
        stored = beneath.get_checkpoint_blob(ref)
    except EverstepError as missing:
        return FlawKind.ARTIFACT_MISSING, missing.message
    if len(stored) < len(HEADER):
        return _altered(ref, 0)
    return FlawKind.ARTIFACT_ALTERED, f"artifact {ref.key} was altered: {error.message}"


def _altered(ref: ArtifactRef, size: int) -> Found:
    if size < ref.size:
        said = f"artifact {ref.key} is cut short: {size:,} bytes of {ref.size:,} are there."
        return FlawKind.ARTIFACT_CUT_SHORT, said
    return FlawKind.ARTIFACT_ALTERED, f"artifact {ref.key} was altered."
