"""Log lines as JSON: whatever a program logs is one object on one line, and nothing of a secret is in it."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from everstep.logs import JsonFormatter, TextFormatter
from everstep.model.acts import without_tokens

TOKEN = "et_" + "Ab3" * 14 + "x"
FIELDS = ["time", "level", "logger", "message", "run", "step", "attempt", "request_id"]


class Odd:
    """Cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no")


def line_of(message: object, *args: object, **said: Any) -> dict[str, Any]:
    """Return what a record is as a line."""
    record = logging.LogRecord("shop", logging.WARNING, "shop.py", 1, message, args, None)
    vars(record).update(said)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_has_the_same_fields_always() -> None:
    assert list(line_of("paid %s", "A17")) == FIELDS
    assert line_of("paid %s", "A17")["message"] == "paid A17"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"run": ["A17"]}, "['A17']"),
        ({"run": b"A17"}, "b'A17'"),
        ({"run": {1, 2}}, "{1, 2}"),
        ({"run": Odd()}, "<Odd: ValueError('no')>"),
    ],
)
def test_what_a_program_notes_that_is_no_json_loses_no_line(said: dict[str, Any], shown: str) -> None:
    line = line_of("paid", **said)
    assert (line["message"], line["run"]) == ("paid", shown)


def test_arguments_that_do_not_fit_lose_no_line() -> None:
    assert "paid %d" in line_of("paid %d", "much")["message"]


@pytest.mark.parametrize("text", ["paid\n{}", "\ud800 half", "\x1b[31m red", "\u2028", "a" * 100_000])
def test_any_text_is_one_line(text: str) -> None:
    assert line_of("%s", text)["message"] == text


def test_an_exception_has_its_type_message_and_place_without_secrets() -> None:
    try:
        raise ConnectionError(f"password=hunter2 {TOKEN}")
    except ConnectionError:
        caught = sys.exc_info()
    line = line_of("failed", exc_info=caught)
    assert line["error"]["type"] == "ConnectionError"
    assert "test_logs.py" in line["error"]["traceback"]
    assert "hunter2" not in str(line) and TOKEN not in str(line)


def test_tokens_and_secrets_are_cut_out_of_text_and_json() -> None:
    record = logging.LogRecord("shop", logging.WARNING, "shop.py", 1, "api_key: s3cr3t %s", (TOKEN,), None)
    for formatter in (JsonFormatter(), TextFormatter()):
        said = formatter.format(record)
        assert TOKEN not in said and "s3cr3t" not in said
    assert TOKEN not in str(line_of("x", run=[TOKEN], step={TOKEN}))
    assert without_tokens(TOKEN) == "et_…"
