"""The words that this project does not use.

The field has its own, and `docs/glossary.md` defines them: a role is a worker, an owner, a caller or a
person, and never just anyone; a failure is tolerated, a call is expensive, a mistake is fixed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

# Put together from halves, so that this file does not contain what it forbids.
STEMS = ["who" + "ever", "some" + "body", "no" + "body", "bea" + "r", "bea" + "rs", "bor" + "ne"]
STEMS += ["de" + "ar" + ending for ending in ("", "er", "est", "ly")]
STEMS += ["men" + "d" + ending for ending in ("", "s", "ed", "ing")]
LOWER, TITLE = "|".join(STEMS), "|".join(stem.title() for stem in STEMS)
BANNED = re.compile(
    rf"(?<![A-Za-z])(?i:{LOWER})(?![A-Za-z])|(?<=[a-z])(?:{TITLE})(?![a-z])|(?<![A-Za-z])(?:{TITLE})(?=[A-Z])"
)
"""The words by themselves, in text, in snake_case and in CamelCase; not inside longer words."""

WHERE = [
    *("src", "tests", "docs", "examples", "benchmarks", "scripts"),
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"),
]
KINDS = {".py", ".md", ".sql", ".lua", ".css", ".json", ".txt"}
AS_THEY_WERE_WRITTEN = ("docs/decisions/", "tests/fixtures/", "/migrations/")
"""Decisions as they were taken, runs as they were recorded, schema changes as they were released."""

LEFT: dict[str, int] = {
    "README.md": 2,
    "docs/README.md": 3,
    "docs/explanation": 19,
    "docs/how-to": 113,
    "docs/reference": 32,
    "docs/tutorial.md": 6,
    "engine/forks.py": 1,
    "engine/halts.py": 1,
    "engine/keyframe.py": 1,
    "engine/leases.py": 2,
    "engine/meetings.py": 1,
    "engine/opened.py": 1,
    "engine/retention.py": 3,
    "engine/scope.py": 2,
    "engine/settling.py": 1,
    "engine/state.py": 2,
    "engine/trimming.py": 1,
    "engine/verdict.py": 1,
    "runtime/bundles": 12,
    "runtime/drive": 52,
    "runtime/events.py": 1,
    "runtime/guards": 25,
    "runtime/integrity": 4,
    "runtime/outage": 13,
    "runtime/record_events.py": 1,
    "runtime/rehydrate.py": 1,
    "runtime/resume.py": 1,
    "runtime/retention": 24,
    "runtime/runs.py": 10,
    "runtime/services.py": 3,
    "runtime/stay.py": 1,
    "runtime/store_time.py": 1,
    "runtime/system.py": 1,
    "runtime/travel": 3,
    "runtime/waits": 21,
    "runtime/workers": 11,
    "testing/__init__.py": 2,
    "testing/clock.py": 2,
    "testing/conformance": 37,
    "testing/killing.py": 2,
    "testing/playing.py": 8,
    "testing/power_cut.py": 1,
    "tests/acceptance": 41,
    "tests/architecture": 1,
    "tests/conformance": 1,
    "tests/conftest.py": 2,
    "tests/golden": 1,
    "tests/integration": 271,
    "tests/servers": 18,
    "tests/unit": 62,
}
"""Lines per room that still have such a word. A number only ever gets smaller."""


def banned_words(path: str, text: str) -> Iterator[str]:
    """Name each line of a file, and the file itself, with a word that is not used here."""
    for found in BANNED.finditer(Path(path).stem):
        yield f"{path}: {found[0]} in the name of the file"
    for number, line in enumerate(text.splitlines(), 1):
        if found_in_line := BANNED.search(line):
            yield f"{path}:{number}: {found_in_line[0]}"


def own_files() -> Iterator[Path]:
    for name in WHERE:
        start = ROOT / name
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            if path.suffix in KINDS and not any(part in place for part in AS_THEY_WERE_WRITTEN):
                yield path


def room_of(finding: str) -> str:
    return "/".join(finding.split(":")[0].removeprefix("src/everstep/").split("/")[:2])


def test_no_file_has_a_word_that_is_not_used_here() -> None:
    found = [
        finding
        for path in own_files()
        for finding in banned_words(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    crowded = {room for room, lines in Counter(map(room_of, found)).items() if lines > LEFT.get(room, 0)}
    new = [finding for finding in found if room_of(finding) in crowded]
    assert not new, "\n".join(["say it in the words of docs/glossary.md:", *new])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/a.py", f"def {STEMS[4]}(scope): ..."),
        ("src/a.py", f"is_{STEMS[5]} = True"),
        ("src/a.py", f"class {STEMS[2].title()}Home: ..."),
        ("src/a.py", f"class Home{STEMS[2].title()}: ..."),
        ("src/a.py", f"{STEMS[2].upper()} = 1"),
        ("src/a.py", f'raise BadRequest("{STEMS[0].title()} asks twice is refused.")'),
        ("src/a.py", f'log.warning("{STEMS[1]} else has the lease of %s", run_id)'),
        ("src/a.py", f"x = 1  # {STEMS[10]} it later"),
        ("src/a.sql", f"-- Runs that {STEMS[1]} should drive."),
        ("tests/unit/a.py", f"def test_{STEMS[6]}_calls_are_counted(): ..."),
        (f"tests/unit/test_{STEMS[6]}_calls.py", ""),
    ],
)
def test_a_banned_word_is_found(path: str, text: str) -> None:
    [finding] = banned_words(path, text)
    assert finding.startswith(path)


@pytest.mark.parametrize(
    "text", ["Guard.BEARER", "recommended", "an amended record", "unbearable", "endearing"]
)
def test_longer_words_are_left_alone(text: str) -> None:
    assert list(banned_words("src/a.py", text)) == []
