"""ARCHITECTURE.md is short, its drawing is that of the code, and the code map names files that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from tests.architecture.sources import PACKAGE, ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "draw_rooms.py"))
MOST_WORDS = 1_200
PATH = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|md|sql))`")


def page() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def missing_files(text: str) -> list[str]:
    """Return the paths in backticks that are neither below the package nor below the project."""
    return [
        path for path in PATH.findall(text) if not (PACKAGE / path).exists() and not (ROOT / path).exists()
    ]


def test_the_drawing_is_that_of_the_code() -> None:
    redrawn = SCRIPT["redrawn"](page(), SCRIPT["drawing"](PACKAGE))
    assert page() == redrawn, "the rooms have changed; run: .venv/bin/python scripts/draw_rooms.py"


def test_the_page_is_short() -> None:
    assert len(page().split()) <= MOST_WORDS


def test_every_file_on_the_page_and_in_the_code_map_exists() -> None:
    code_map = (ROOT / "docs/reference/code-map.md").read_text(encoding="utf-8")
    assert len(PATH.findall(code_map)) > 80
    gone = missing_files(page()) + missing_files(code_map)
    assert not gone, f"say in ARCHITECTURE.md or docs/reference/code-map.md where these are now: {gone}"


def test_a_file_that_is_gone_is_found() -> None:
    assert missing_files("see `engine/scope.py` and `engine/weather.py`") == ["engine/weather.py"]


def test_the_drawing_shows_rooms_and_imports_without_shortcuts(tmp_path: Path) -> None:
    for file, text in {
        "errors.py": '"""What goes wrong."""',
        "registry.py": '"""Opens stores."""',
        "low/__init__.py": '"""The low room. More."""\nfrom everstep.errors import E',
        "high/__init__.py": '"""The high room."""\nfrom everstep.errors import E\nfrom everstep.low import x',
        "high/inner/__init__.py": f'"""Inside: {"long " * 20}."""',
    }.items():
        (tmp_path / "everstep" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "everstep" / file).write_text(text)
    lines = SCRIPT["drawing"](tmp_path / "everstep").splitlines()
    assert [line for line in lines if "-->" in line] == ["  high --> low", "  low --> errors"]
    assert [line.split() for line in lines[-6:-1]] == [
        ["errors", "What", "goes", "wrong"],
        ["registry", "Opens", "stores"],
        ["low", "The", "low", "room"],
        ["high", "The", "high", "room"],
        ["inner", "Inside"],
    ]
