"""Lists as the server takes them in one parameter."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from everstep.stores.postgres.address import read_address
from everstep.stores.postgres.columns import array


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["a", "", "NULL", None, 'b"c', "d\\e", "{x},y", " z ", "ü\n\t", "\\", '"']),
        ("bigint", [1, None, -3, 2**62]),
        ("text", []),
    ],
)
def test_what_is_written_as_an_array_is_read_as_that(postgres_url: str, kind: str, values: list[Any]) -> None:
    url = read_address(postgres_url).url
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as connection:
        found = connection.execute(f"SELECT $1::{kind}[]".encode(), (array(values),)).fetchone()
        assert found == (values,)
