"""What is no URL of a store is said to be none."""

from __future__ import annotations

import pytest

from everstep import Host
from everstep.errors import BadRequest


@pytest.mark.parametrize(
    "name", ["s3", "s3:", "gs", "az", "postgres", "postgresql:", "redis", "runs", "./runs.db"]
)
def test_a_word_that_is_no_url_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Host(name)
    assert "is not a store" in caught.value.message or "names no server" in caught.value.message
    assert "sqlite:///runs.db" in caught.value.fix or "redis://" in caught.value.fix
