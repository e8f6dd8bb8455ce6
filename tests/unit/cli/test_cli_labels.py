"""Attributes as words of a command line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from everstep import Flow, Host, node
from everstep.cli.args.labels import given_attributes
from everstep.cli.view.labels import attributes_said
from everstep.errors import BadRequest


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("12.5", 12.5),
        ("1e3", 1000.0),
        ("007", "007"),
        ("-00.5", "-00.5"),
        ("0.5", 0.5),
        ("+4930123", 4930123.0),
        ("7a", "7a"),
        ('"7"', "7"),
        ("", ""),
        ("true", True),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_a_word_is_what_it_looks_like(word: str, value: object) -> None:
    (found,) = given_attributes([f"customer={word}"]).values()
    assert (found, type(found)) == (value, type(value))


@node(output="m")
def count(n: int = 1) -> int:
    return n


def test_a_whole_number_is_shown_and_found_as_it_was_given() -> None:
    with Host("memory:") as host:
        for run_id, word in (("A1", "7"), ("A2", "007")):
            host.run(Flow("f", [count]), run_id=run_id, attributes=given_attributes([f"customer={word}"]))
        said = {run.run_id: attributes_said(run) for run in host.runs(labels=True)}
        assert said == {"A1": "customer=7", "A2": "customer=007"}
        assert [run.run_id for run in host.runs(where="customer = 7")] == ["A1"]
        assert [run.run_id for run in host.runs(where="customer = '007'")] == ["A2"]


def test_a_number_that_would_be_another_in_the_store_is_refused() -> None:
    with Host("memory:") as host, pytest.raises(BadRequest, match=r"Give a number up to 2\*\*53, or text"):
        host.run(Flow("f", [count]), attributes=given_attributes(["customer=12345678901234567890"]))
