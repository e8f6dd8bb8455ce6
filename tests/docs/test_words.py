"""The words of the pages: a glossary that every page links to, and the words that people search for."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import PACKAGE, ROOT

DOCS = ROOT / "docs"
GLOSSARY = DOCS / "glossary.md"
PAGES = [
    path.relative_to(DOCS).as_posix()
    for path in sorted(DOCS.rglob("*.md"))
    if path != GLOSSARY and path.parent.name != "decisions"
]

HOUSE = [
    *("worker", "owner", "caller", "lease", "epoch", "checkpoint", "step", "attempt", "retry", "commit"),
    *("flush", "subflow", "fan-out", "idempotent", "heartbeat", "deregister", "backpressure", "redaction"),
    *("plan", "blueprint", "structure", "wiring", "settle", "run", "root run", "chain", "record"),
    *("keyframe", "head", "channel", "wait", "halt"),
]
"""Words that the glossary defines, each once."""

SEARCHED = [
    *("saga", "compensation", "cron", "schedule", "tag", "fan-out", "fan-in", "interrupt"),
    *("human in the loop", "thread", "conversation", "conditional edge", "signal", "child workflow"),
    "dead letter",
]
"""What people look for who know other systems."""


def defined_words() -> list[str]:
    rows = re.findall(
        r"^\| ([^|]+?) \| [^|]+(?:\\\|[^|]+)* \| [^|]*(?:\\\|[^|]*)*\|$", GLOSSARY.read_text(), re.MULTILINE
    )
    return [word for row in rows for word in row.split(", ") if row != "word"]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_links_the_glossary(page: str) -> None:
    up = "../" * page.count("/")
    assert f"({up}glossary.md)" in (DOCS / page).read_text(encoding="utf-8"), (
        f"end docs/{page} with: [Glossary]({up}glossary.md): what each word means here."
    )


def test_the_glossary_defines_each_word_once() -> None:
    words = defined_words()
    assert [word for word in HOUSE if words.count(word) != 1] == []
    assert [word for word in words if words.count(word) > 1] == []


def test_every_file_that_the_glossary_names_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", GLOSSARY.read_text(encoding="utf-8")))
    assert len(named) > 5
    assert [path for path in sorted(named) if not (PACKAGE / path).is_file()] == []


@pytest.mark.parametrize("word", SEARCHED)
def test_a_searched_word_is_found_in_the_glossary_and_on_another_page(word: str) -> None:
    pattern = re.compile(rf"\b{word}", re.IGNORECASE)
    assert pattern.search(GLOSSARY.read_text(encoding="utf-8"))
    assert [page for page in PAGES if pattern.search((DOCS / page).read_text(encoding="utf-8"))]
