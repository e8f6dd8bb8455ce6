"""Artifacts that go through the codecs of a host on their way to and from its store."""

from __future__ import annotations

import hashlib
import logging

from everstep.codec.chain import Codecs
from everstep.codec.payload import HEADER, body_of, layers_of
from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.ports.retention import RetainingBlobStore
from everstep.ports.store import CheckpointBlobStore

log = logging.getLogger("everstep")


class CodedBlobs:
    """A store of artifacts whose data is encoded.

    An artifact is named by the digest of its data, and shared by all that hold the same: runs, forks, names.
    So an encrypted one is bound to that digest, and to nothing else.
    """

    def __init__(self, blobs: CheckpointBlobStore, codecs: Codecs) -> None:
        self._blobs = blobs
        self._codecs = codecs

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        if not self._codecs.is_active or header != HEADER:
            return self._blobs.put_checkpoint_blob(header, data, content_type=content_type, plain=plain)
        closed = self._codecs.close(HEADER + data, *_place(hashlib.sha256(data).hexdigest()))
        # With header and data apart, a store names both as it does without codecs.
        return self._put(closed, data, content_type)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        stored = self._blobs.get_checkpoint_blob(ref)
        if len(stored) < len(HEADER):
            raise StateCorrupted(f"the artifact {ref.key} was altered.")
        return self._codecs.open(stored, *_place(ref.checksum), ref.key, ref.size)

    @property
    def retaining(self) -> RetainingBlobStore | None:
        """The store of artifacts itself, if it can list and remove them."""
        return self._blobs if isinstance(self._blobs, RetainingBlobStore) else None

    def rekey(self, ref: ArtifactRef, *, dry_run: bool) -> bool:
        """Encrypt an artifact with the active key; false if it is already."""
        stored = self._blobs.get_checkpoint_blob(ref)
        if self._codecs.is_current(stored, ref.key):
            return False
        data = bytes(body_of(self._codecs.open(stored, *_place(ref.checksum), ref.key, ref.size), ref.key))
        if hashlib.sha256(data).hexdigest() != ref.checksum:
            raise StateCorrupted(f"the artifact {ref.key} was altered.")
        if dry_run:
            return True
        closed = self._codecs.close(HEADER + data, *_place(ref.checksum))
        if self._put(closed, data, ref.content_type).key == ref.key:
            return True
        log.warning("artifact %s is kept where new ones are not: it keeps its key.", ref.key)
        return False

    def _put(self, closed: bytes, data: bytes, content_type: str) -> ArtifactRef:
        _, start = layers_of(closed, "artifact")
        return self._blobs.put_checkpoint_blob(
            closed[:start], closed[start:], content_type=content_type, plain=data
        )


def _place(checksum: str) -> tuple[str, bytes]:
    return checksum, b"artifact"
