"""Artifacts that are kept elsewhere than the records that name them."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.ports.store import CheckpointBlobStore, StreamedBlobs


class ArtifactsApart:
    """Keeps artifacts in one place, and still reads those that were kept beside the records before."""

    def __init__(self, apart: CheckpointBlobStore, beside: CheckpointBlobStore | None) -> None:
        self._apart = apart
        self._beside = beside

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        return self._apart.put_checkpoint_blob(header, data, content_type=content_type, plain=plain)

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
