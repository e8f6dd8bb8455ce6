"""Artifacts in a bucket, named by their digest."""

from __future__ import annotations

import hashlib

from everstep.errors import StateCorrupted
from everstep.model.records import ArtifactRef
from everstep.stores.objects import names
from everstep.stores.objects.bucket import Bucket

_STORAGE = "objects"


class ObjectBlobs:
    """Keeps artifacts beside the runs of a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def put_checkpoint_blob(
        self, header: bytes, data: bytes, *, content_type: str, plain: bytes | None = None
    ) -> ArtifactRef:
        named = data if plain is None else plain
        digest = hashlib.sha256(named).hexdigest()
        self._bucket.put(names.blob_name(digest), header + data)
        return ArtifactRef(_STORAGE, digest, len(named), content_type, digest)

    def get_checkpoint_blob(self, ref: ArtifactRef) -> bytes:
        found = self._bucket.get(names.blob_name(names.quoted(ref.key)))
        if found is None:
            raise StateCorrupted(f"artifact {ref.key} is missing from {self._bucket.place}.")
        return found.data
