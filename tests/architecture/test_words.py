"""The words that this project does not use.

The field has its own, and `docs/glossary.md` defines them: a role is a worker, an owner, a caller or a
person, and never just anyone; a failure is tolerated, a call is expensive, a mistake is fixed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, Source, everstep_sources

# Put together from halves, so that this file does not contain what it forbids.
STEMS = ["who" + "ever", "some" + "body", "no" + "body", "bea" + "r", "bea" + "rs", "bor" + "ne"]
STEMS += ["de" + "ar" + ending for ending in ("", "er", "est", "ly")]
STEMS += ["men" + "d" + ending for ending in ("", "s", "ed", "ing")]


def words_by_themselves(stems: list[str]) -> re.Pattern[str]:
    """Find these words in text, in snake_case and in CamelCase; not inside longer words."""
    lower, title = "|".join(stems), "|".join(stem.title() for stem in stems)
    alone = rf"(?<![A-Za-z])(?i:{lower})(?![A-Za-z])"
    return re.compile(rf"{alone}|(?<=[a-z])(?:{title})(?![a-z])|(?<![A-Za-z])(?:{title})(?=[A-Z])")


BANNED = words_by_themselves(STEMS)

WHERE = [
    *("src", "tests", "docs", "examples", "benchmarks", "scripts"),
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"),
]
KINDS = {".py", ".md", ".sql", ".lua", ".css", ".json", ".txt"}
AS_THEY_WERE_WRITTEN = ("docs/decisions/", "tests/fixtures/", "/migrations/", "postgres/schema_1.sql")
"""Decisions as they were taken, runs as they were recorded, schema changes as they were released."""

KEPT = {
    ("src/everstep/testing/__init__.py", "NO" + "BODY"): "the name of 0.1, which works until 0.3",
    ("tests/integration/compatibility/test_old_chains.py", "no" + "body"): "what a run of 0.1.0 recorded",
    ("tests/integration/compatibility/test_runs_of_0_1_0.py", "MEN" + "DED"): "a name in the flows of 0.1.0",
    ("tests/unit/graph/ir/ir_flows.py", "bea" + "rs"): "the name of a flow whose hash is pinned",
    ("tests/unit/graph/ir/test_ir_schema.py", "bea" + "rs"): "likewise",
}
"""Where such a word has to stay, and why."""

LEFT: dict[str, int] = {}
"""Lines per room that still have such a word. A number only ever gets smaller."""


def banned_words(path: str, text: str) -> Iterator[str]:
    """Name each word of a file, of its name and of the folders it is in that is not used here."""
    for found in BANNED.finditer(path):
        yield f"{path}: {found[0]} in the name of the file"
    lower = text.lower()
    if not any(stem in lower for stem in STEMS):
        return  # to look for whole words takes a hundred times longer
    for number, line in enumerate(text.splitlines(), 1):
        for found in BANNED.finditer(line):
            if (path, found[0]) not in KEPT:
                yield f"{path}:{number}: {found[0]}"


def own_files() -> Iterator[Path]:
    for name in WHERE:
        start = ROOT / name
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            is_text = path.suffix in KINDS or (not path.suffix and name == "scripts" and path.is_file())
            if is_text and not any(part in place for part in AS_THEY_WERE_WRITTEN):
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
        (f"src/everstep/runtime/{STEMS[2]}/a.py", ""),
        ("src/everstep/testing/__init__.py", f'x = "{STEMS[2].upper()}", "{STEMS[0]} asks"'),
    ],
)
def test_a_banned_word_is_found(path: str, text: str) -> None:
    [finding] = banned_words(path, text)
    assert finding.startswith(path)


def test_scripts_are_read_whatever_their_names_end_with() -> None:
    assert {path for path in (ROOT / "scripts").iterdir() if path.is_file()} <= set(own_files())


@pytest.mark.parametrize(
    "text", ["Guard.BEARER", "recommended", "an amended record", "unbearable", "endearing"]
)
def test_longer_words_are_left_alone(text: str) -> None:
    assert list(banned_words("src/a.py", text)) == []


CORE = {"graph", "engine", "runtime"}
"""Rooms that do not know who builds flows besides themselves."""
FRONT_ENDS = [
    "pipeline",
    "pipelines",
    "phase",
    "phases",
    "backend",
    "backends",
    "codergen",
    "langgraph",
    "dot",
]
FRONT_ENDS += ["digraph", "graphviz", "interviewer", "interviewers", "scored"]
LONG = "pipeline|phase|backend|codergen|langgraph|digraph|graphviz|interviewer"
GLUED = rf"(?i:(?<=[a-z])(?:{LONG})|\b(?:{LONG})(?=[a-z])|\bdot(?=(?!t|s\b)[a-z]))"
"""The same inside longer words; `dot` only where one begins with it, and not in `dotted`."""
OF_FRONT_ENDS = re.compile(f"{words_by_themselves(FRONT_ENDS).pattern}|{GLUED}")
DRAWS = ("graph/draw/", {"dot", "digraph", "graphviz"})
"""A flow is drawn as text for Graphviz; which front end reads such text is unknown there."""
STORED = ("runtime/retention/summaries.py", "phases")
"""`phases_completed` is a field of summaries that 0.1 stored."""


def words_of_front_ends(source: Source) -> Iterator[str]:
    """Name each line of the core, and the module itself, that has a word of one front end."""
    if source.layer not in CORE:
        return
    lines = enumerate([source.path, *source.text.splitlines()])
    for number, line in lines:
        lower = line.lower()
        if not any(word in lower for word in FRONT_ENDS):
            continue  # to look for words of their own takes a hundred times longer
        for found in OF_FRONT_ENDS.findall(line):
            word = found.lower()
            is_drawing = source.path.startswith(DRAWS[0]) and word in DRAWS[1]
            is_stored = (source.path, word) == STORED and "phases_completed" in line
            if not (is_drawing or is_stored):
                yield f"{source.at(number or 1)}: {found} is a word of a front end"


def test_the_core_has_no_word_of_a_front_end() -> None:
    found = [finding for source in everstep_sources() for finding in words_of_front_ends(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("graph/author/flow.py", "def from_dot(text): ..."),
        ("graph/author/flow.py", "class PipelineFlow: ..."),
        ("graph/author/flow.py", "class FlowOfPhases: ..."),
        ("engine/state.py", 'PROGRESS = "phase"'),
        ("engine/state.py", '"""What a backend has done."""'),
        ("runtime/runs.py", "# As LangGraph has it."),
        ("runtime/phases.py", ""),
        ("runtime/pipelines/one.py", ""),
        ("runtime/runs.py", "subpipelines_ = 1"),
        ("runtime/runs.py", "dotfile = 2"),
        ("runtime/runs.py", "PIPELINENAME = 3"),
        ("runtime/retention/summaries.py", "phases_left: int"),
        ("graph/check/structure.py", 'log.warning("no edge of the digraph leads to %s", name)'),
    ],
)
def test_a_word_of_a_front_end_is_found(path: str, text: str) -> None:
    assert len(list(words_of_front_ends(Source(path, text)))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("frontends/pipelines/stage.py", "class Pipeline: ..."),
        ("graph/draw/drawing.py", '"""Return the flow for Graphviz: a digraph in DOT."""'),
        ("runtime/retention/summaries.py", "phases_completed: int"),
        ("runtime/runs.py", "dotted names, and what a front end adds"),
    ],
)
def test_other_rooms_and_other_words_are_left_alone(path: str, text: str) -> None:
    assert list(words_of_front_ends(Source(path, text))) == []


def late_events(source: Source) -> Iterator[str]:
    """Name each log line that does not say the event first."""
    for node in source.nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="debug" | "info" | "warning" | "error" | "exception" as level),
                args=[ast.Constant(value=str(text)), *_],
            ) if re.match(r"(?:the|a|an|this|cannot|could not)\b", text, re.IGNORECASE):
                yield f"{source.at(node.lineno)}: {level} says the event late: {text}"


def test_a_log_line_says_the_event_first() -> None:
    found = [finding for source in everstep_sources() for finding in late_events(source)]
    assert not found, "\n".join(found)


def test_a_log_line_that_says_the_event_late_is_found() -> None:
    late = 'log.warning("the store cannot take %s, and is asked again: %s", what, error)'
    first = 'log.warning("store unavailable (%s); retrying: %s", what, error)'
    [finding] = late_events(Source("runtime/a.py", f"{late}\n{first}"))
    assert finding.startswith("src/everstep/runtime/a.py:1: warning")
    assert len(list(late_events(Source("runtime/a.py", f"self._{late}\n{first}")))) == 1
