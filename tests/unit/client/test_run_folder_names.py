"""Names from outside as names of files."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.client.exports.run_folder import FileNames, file_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("plan", "plan"),
        ("fan/a", "fan+a"),
        ("rag@2#7/inner", "rag@2#7+inner"),
        ("a+b", "a%2Bb"),
        ("a b", "a%20b"),
        ("%2F", "%252F"),
        ("..", "%2E."),
        (".git", "%2Egit"),
        ("-rf", "%2Drf"),
        ("ü", "%C3%BC"),
        ("a~b", "a%7Eb"),
    ],
)
def test_name_is_spelled_so_that_it_stays_a_name(text: str, name: str) -> None:
    found = file_name(text)
    assert found == name or found.startswith(name.rstrip(".") + "~")


@given(st.text(max_size=300))
def test_name_is_one_plain_part_of_a_path(text: str) -> None:
    name = file_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_@#+%~-][A-Za-z0-9_.@#+%~-]{0,95}", name)
    assert name not in (".", "..") and not name.endswith(".") and not name.startswith("-")


@given(st.lists(st.text(alphabet="aAbB./+%~é", max_size=6), unique=True, max_size=30))
def test_no_two_become_one_even_where_case_does_not_count(texts: list[str]) -> None:
    names = FileNames()
    assert len({names[text].lower() for text in texts}) == len(texts)
    assert [names[text] for text in texts] == [names[text] for text in texts]
