"""Changes as text: short enough for a screen, and never silent about what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.cli.view.changes import MOST, MOST_LINES, ChangeWriter
from everstep.results import Change, Pair, Unreadable


def written(
    capsys: pytest.CaptureFixture[str], *changes: Change, whole: bool = False
) -> tuple[list[str], bool]:
    writer = ChangeWriter(whole=whole)
    writer.write(changes)
    return capsys.readouterr().out.splitlines(), writer.has_cut


def test_a_change_has_its_path_and_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    lines, has_cut = written(
        capsys,
        Change("order.lines[2].price", "changed", 1, 1.0),
        Change("label", "added", None, "big"),
        Change("note", "removed", None, None),
        Change("tags{'x'}", "added", None, "x"),
        Change("odd", "changed", Unreadable("damaged"), 1),
    )
    assert lines == [
        "~ order.lines[2].price",
        "  - 1",
        "  + 1.0",
        "+ label = 'big'",
        "- note = None",
        "+ tags{'x'}",
        "~ odd",
        "  - <unreadable: damaged>",
        "  + 1",
    ]
    assert not has_cut


def test_long_texts_are_shown_from_a_little_before_where_they_part(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, after = "a" * 900 + "b" * 900, "a" * 900 + "c" * 900
    (_, removed, added), has_cut = written(capsys, Change("t", "changed", before, after))
    assert has_cut
    assert removed.startswith("  - …'aaa") and removed.endswith("bbb'… (1,800 characters)")
    assert "ac" in added
    assert len(removed) <= 200
    lines, has_cut = written(capsys, Change("t", "changed", before, after), whole=True)
    assert not has_cut
    assert sum(line.count("b") for line in lines) == 900


def test_a_text_that_is_the_beginning_of_the_other_shows_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    (_, removed, added), _ = written(capsys, Change("t", "changed", "a" * 300, "a" * 300 + "tail"))
    assert "tail" in added and "tail" not in removed


def test_texts_of_several_lines_are_compared_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines, has_cut = written(capsys, Change("t", "changed", "a\nb\nc\n", "a\nx\nc\n"))
    assert lines == ["~ t", "    @@ -1,3 +1,3 @@", "    a", "  - b", "  + x", "    c"]
    assert not has_cut
    lines, _ = written(capsys, Change("t", "changed", "a\nb\n", "a\nb\r\n"))
    assert lines == ["~ t", "  - 'a\\nb\\n'", "  + 'a\\nb\\r\\n'"]


def test_what_is_left_out_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    many = [Change(f"rows[{k}].x", "added", None, k) for k in range(MOST + 7)]
    lines, has_cut = written(capsys, *many, Change("last", "added", None, 1))
    assert has_cut
    assert lines[MOST:] == ["… 7 more changes in rows", "+ last = 1"]
    lines, has_cut = written(capsys, *many, whole=True)
    assert (len(lines), has_cut) == (MOST + 7, False)
    before, after = "\n".join("a" * 99), "\n".join("b" * 99)
    lines, has_cut = written(capsys, Change("t", "changed", before, after))
    assert (len(lines), lines[-1], has_cut) == (MOST_LINES + 2, "    … 179 more lines", True)


@pytest.mark.parametrize("value", ["x" * 5000, list(range(5000)), {"k": "x" * 5000}])
def test_a_long_value_is_cut_with_its_size(capsys: pytest.CaptureFixture[str], value: Any) -> None:
    [line], has_cut = written(capsys, Change("v", "added", None, value))
    assert has_cut
    assert len(line) <= 200
    assert "(" in line
    lines, has_cut = written(capsys, Change("v", "added", None, value), whole=True)
    assert len("".join(lines)) >= 5000
    assert not has_cut


def test_nothing_that_a_terminal_would_obey_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    change = Change("a['\x1b[31m']", "changed", "one\n\x1b[31mred", "two\n\x1b[32mgreen")
    lines, _ = written(capsys, change)
    assert not any("\x1b" in line for line in lines)


def test_a_value_that_is_equal_on_both_sides_takes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    writer = ChangeWriter(whole=False, indent="    ")
    writer.write_pair(Pair("n", 1, 1, ()))
    writer.write_value("m", [1, 2])
    assert capsys.readouterr().out.splitlines() == ["    = n = 1  (equal)", "    = m = [1, 2]"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a" * 90 + "b" + "a" * 90, "a" * 90 + "c" + "a" * 90),
        (b"a" * 500 + b"b" + b"a" * 90, b"a" * 500 + b"c" + b"a" * 90),
        (10**400 + 10**200, 10**400),
        ("a" * 300 + "\n" + "b" * 300, "a" * 299 + "c\n" + "b" * 300),
        (("x" * 300, 1), ["x" * 300, 1]),
    ],
)
def test_two_sides_that_differ_never_look_the_same(
    capsys: pytest.CaptureFixture[str], before: Any, after: Any
) -> None:
    lines, has_cut = written(capsys, Change("t", "changed", before, after))
    sides = [line for line in lines if line.startswith(("  - ", "  + "))]
    assert has_cut and len(sides) == 2 and all(len(line) <= 200 for line in sides)
    assert sides[0][4:] != sides[1][4:]
