"""Artifacts that go through the codecs of a host on their way to and from its store."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

from everstep.codec.chain import Codecs
from everstep.codec.payload import AES_GCM, HEADER, Layer, body_of, key_id_of, layers_of
from everstep.errors import IncompatibleVersion, KeyUnavailable, StateCorrupted, StoreError
from everstep.model.records import ArtifactRef
from everstep.ports.restoring import RestoringBlobs
from everstep.ports.retention import RetainingBlobStore
from everstep.ports.store import CheckpointBlobStore

if TYPE_CHECKING:
    from everstep.runtime.metrics.meter import Meter

log = logging.getLogger("everstep")


class CodedBlobs:
    """A store of artifacts whose data is encoded.

    An artifact is named by the digest of its data, and shared by all that hold the same: runs, forks, names.
    So an encrypted one is bound to that digest, and to nothing else.
    """

    def __init__(self, blobs: CheckpointBlobStore, codecs: Codecs, meter: Meter | None = None) -> None:
        self._blobs = blobs
        self._codecs = codecs
        self._meter = meter

    @property
    def beneath(self) -> CheckpointBlobStore:
        """Where artifacts lie as they are encoded."""
        return self._blobs

    @property
    def requires_key(self) -> bool:
        """True if artifacts that are not encrypted are refused."""
        return self._codecs.requires_key

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        if not self._codecs.is_active or header != HEADER:
            ref = self._blobs.put_checkpoint_blob(header, data, content_type=content_type, plain=plain)
        else:
            closed = self._codecs.close(HEADER + data, *_place(hashlib.sha256(data).hexdigest()))
            # With header and data apart, a store names both as it does without codecs.
            ref = self._put(closed, data, content_type)
        if self._meter is not None:
            self._meter.kept(len(data))
        return ref

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        stored = self._blobs.get_checkpoint_blob(ref)
        if len(stored) < len(HEADER):
            raise StateCorrupted(f"the artifact {ref.key} was altered.")
        return self._codecs.open(stored, *_place(ref.checksum), ref.key, ref.size)

    def stored(self, ref: ArtifactRef) -> bytes:
        """Return an artifact as its store keeps it."""
        return self._blobs.get_checkpoint_blob(ref)

    def opened(self, ref: ArtifactRef, stored: bytes) -> bytes:
        """Return what another store kept without codecs, or a named error if it is not what it should be."""
        if len(stored) < len(HEADER):
            raise StateCorrupted(f"the artifact {ref.checksum} was altered.")
        plain = self._codecs.open(stored, *_place(ref.checksum), ref.checksum, ref.size)
        data = body_of(plain, ref.checksum)
        if len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.checksum:
            raise StateCorrupted(f"the artifact {ref.checksum} was altered.")
        return plain

    def check(self, ref: ArtifactRef, stored: bytes) -> bool:
        """Raise unless an artifact is what it should be; false if that cannot be told for want of a key."""
        try:
            self.opened(ref, stored)
        except KeyUnavailable:
            return False
        except IncompatibleVersion as error:
            if "codec" not in error.details:
                raise
            return False
        return True

    def restore(self, ref: ArtifactRef, stored: bytes) -> None:
        """Keep what another store kept; where this host encrypts, with its key if it can be opened."""
        if not isinstance(self._blobs, RestoringBlobs):
            raise StoreError("where this host keeps artifacts, those of other stores cannot be kept.")
        if not self.check(ref, stored):
            stored = self.chosen(ref, stored, self._blobs)
        elif self._codecs.encrypts and not self._codecs.is_current(stored, ref.checksum):
            stored = self._codecs.close(self.opened(ref, stored), *_place(ref.checksum))
        self._blobs.restore_checkpoint_blob(ref, stored)

    def chosen(self, ref: ArtifactRef, comes: bytes, target: CheckpointBlobStore) -> bytes:
        """Return what to keep of an artifact that comes to a store: what is there, if that is sound.

        Other runs may name it, and those who read them need not have the key of the one that comes.
        `KeyUnavailable` if it cannot be told which of two to keep.
        """
        try:
            there = target.get_checkpoint_blob(ref)
            if there == comes or self.check(ref, there):
                return there
        except StateCorrupted:
            return comes
        if _key_of(there) == _key_of(comes):
            return there
        names = ", ".join(repr(key_id_of(layer)) for layer in _key_of(there))
        raise KeyUnavailable(
            f"artifact {ref.checksum} is there already, and this host lacks its key {names}.",
            fix="Give this host that key as well, or bring the run to another store.",
        )

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
        self._put(closed, data, ref.content_type)
        if self._codecs.is_current(self._blobs.get_checkpoint_blob(ref), ref.key):
            return True
        log.warning("artifact %s is kept where new ones are not: it keeps its key.", ref.key)
        return False

    def _put(self, closed: bytes, data: bytes, content_type: str) -> ArtifactRef:
        _, start = layers_of(closed, "artifact")
        return self._blobs.put_checkpoint_blob(
            closed[:start], closed[start:], content_type=content_type, plain=data
        )


def _key_of(stored: bytes) -> tuple[Layer, ...]:
    return tuple(layer for layer in layers_of(stored, "artifact")[0] if layer.codec == AES_GCM)


def _place(checksum: str) -> tuple[str, bytes]:
    return checksum, b"artifact"
