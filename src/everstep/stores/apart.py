"""Artifacts that are kept elsewhere than the records that name them."""

from __future__ import annotations

from everstep.errors import StateCorrupted, StoreError
from everstep.model.records import ArtifactRef
from everstep.ports.restoring import RestoringBlobs
from everstep.ports.store import CheckpointBlobStore


class ArtifactsApart:
    """Keeps artifacts in one place, and still reads those that were kept beside the records before."""

    def __init__(self, apart: CheckpointBlobStore, beside: CheckpointBlobStore | None) -> None:
        self._apart = apart
        self._beside = beside

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        return self._apart.put_checkpoint_blob(header, data, content_type=content_type, plain=plain)

    def restore_checkpoint_blob(self, ref: ArtifactRef, stored: bytes) -> None:
        if not isinstance(self._apart, RestoringBlobs):
            raise StoreError("the place where artifacts are kept takes none of other stores.")
        self._apart.restore_checkpoint_blob(ref, stored)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        try:
            return self._apart.get_checkpoint_blob(ref)
        except StateCorrupted as missing:
            if self._beside is None:
                raise
            try:
                return self._beside.get_checkpoint_blob(ref)
            except StateCorrupted:
                raise missing from None
