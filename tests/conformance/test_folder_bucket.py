"""A folder passes the suite for buckets."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from everstep.stores.objects.folder.bucket import Folder
from everstep.testing import BucketConformance
from everstep.testing.conformance.buckets import Open


class TestFolder(BucketConformance):
    @pytest.fixture
    def buckets(self, tmp_path: Path) -> Open:
        return partial(Folder, tmp_path / "objects")
