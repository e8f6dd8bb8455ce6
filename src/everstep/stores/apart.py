"""Artifacts that are kept elsewhere than the records that name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from everstep.errors import BadRequest, StateCorrupted, StoreError
from everstep.model.records import ArtifactRef
from everstep.model.removal import StoredBlob
from everstep.ports.restoring import RestoringBlobs
from everstep.ports.retention import SHARED_MARK, RetainingBlobStore
from everstep.ports.store import CheckpointBlobStore, StreamedBlobs


class ArtifactsApart:
    """Keeps artifacts in one place, and still reads those that were kept beside the records before.

    Others may keep theirs in the same place, so it is marked: a sweep for unused artifacts sees
    the records of one store only.
    """

    def __init__(self, apart: CheckpointBlobStore, beside: CheckpointBlobStore | None) -> None:
        self._apart = apart
        self._beside = beside
        self._has_marked = False

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        self._mark()
        return self._apart.put_checkpoint_blob(header, data, content_type=content_type, plain=plain)

    def _mark(self) -> None:
        if not self._has_marked:
            self._apart.put_checkpoint_blob(b"", SHARED_MARK, content_type="text/plain")
            self._has_marked = True

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

    def list_checkpoint_blobs(self, *, after: str = "", limit: int = 1000) -> list[StoredBlob]:
        """List what is kept apart; what lies beside the records from before is no longer put, and stays."""
        self._mark()
        return self._retaining().list_checkpoint_blobs(after=after, limit=limit)

    def delete_checkpoint_blobs(self, keys: Sequence[str], *, untouched_for: timedelta) -> list[str]:
        return self._retaining().delete_checkpoint_blobs(keys, untouched_for=untouched_for)

    def _retaining(self) -> RetainingBlobStore:
        if not isinstance(self._apart, RetainingBlobStore):
            raise BadRequest("this store of artifacts cannot remove any.", fix="Remove them where they lie.")
        return self._apart

    def stream_checkpoint_blob(self, ref: ArtifactRef) -> Iterator[bytes]:
        try:
            yield from _pieces(self._apart, ref)
        except StateCorrupted:
            if self._beside is None:
                raise
            yield from _pieces(self._beside, ref)


def _pieces(blobs: CheckpointBlobStore, ref: ArtifactRef) -> Iterator[bytes]:
    if isinstance(blobs, StreamedBlobs):
        yield from blobs.stream_checkpoint_blob(ref)
    else:
        yield blobs.get_checkpoint_blob(ref)
