"""The page on the Flow IR names every field, kind and code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from everstep.graph.ir.check import schema
from everstep.graph.ir.nodes import WAITS
from tests.architecture.sources import PACKAGE, ROOT

PAGE = (ROOT / "docs/reference/flow-ir.md").read_text(encoding="utf-8")
SOURCES = [file.read_text(encoding="utf-8") for file in sorted((PACKAGE / "graph/ir").glob("*.py"))]


def fields_of(part: Any) -> Iterator[str]:
    """Yield the name of each field in a schema, at any depth."""
    if isinstance(part, dict):
        properties = part.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for inner in part.values():
            yield from fields_of(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from fields_of(inner)


@pytest.mark.parametrize("field", sorted(set(fields_of(schema()))))
def test_every_field_is_explained(field: str) -> None:
    assert re.search(rf"[`.\"]{field}[`\"]", PAGE)


def test_every_code_is_explained() -> None:
    raised = {code for text in SOURCES for code in re.findall(r'"(ir\.[a-z_]+)"', text)}
    assert set(re.findall(r"^\| `(ir\.[a-z_]+)` \|", PAGE, re.MULTILINE)) == raised
    assert "ir.missing" in raised


@pytest.mark.parametrize("identifier", WAITS)
def test_every_wait_and_its_arguments_are_explained(identifier: str) -> None:
    assert f"| `{identifier}` |" in PAGE
    for argument in inspect.signature(WAITS[identifier]).parameters.keys() - {
        "name",
        "output",
        "answer_type",
    }:
        assert f"`{argument}`" in PAGE
