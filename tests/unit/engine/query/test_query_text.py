"""Queries as people write them, and what is wrong with those that cannot be read."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.client.views import RunInfo
from everstep.engine.query import text as query_text
from everstep.engine.query.text import DEEPEST, MOST, read_query
from everstep.engine.query.tree import FIELDS, Compare, Every, Not, Op, Query, Some
from everstep.errors import BadRequest
from everstep.model.shapes import LONGEST_QUERY

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAILED = Compare("status", Op.IS, ("failed",))
ORDERS = Compare("flow", Op.IS, ("orders",))
ACME = Compare("group", Op.IS, ("acme",))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("status = failed", FAILED),
        ("status='failed'", FAILED),
        ('flow = "orders"', ORDERS),
        ("status = failed and flow = orders", Every((FAILED, ORDERS))),
        ("status = failed and flow = orders or group = acme", Some((Every((FAILED, ORDERS)), ACME))),
        ("status = failed and (flow = orders or group = acme)", Every((FAILED, Some((ORDERS, ACME))))),
        ("NOT status = failed AND flow = orders", Every((Not(FAILED), ORDERS))),
        ("not (status = failed or flow = orders)", Not(Some((FAILED, ORDERS)))),
        ("flow in (orders, 'x,y')", Compare("flow", Op.IN, ("orders", "x,y"))),
        ("flow not in (orders)", Not(Compare("flow", Op.IN, ("orders",)))),
        ("flow <> orders", Compare("flow", Op.IS_NOT, ("orders",))),
        ("group is set", Compare("group", Op.SET)),
        ("group is not set", Not(Compare("group", Op.SET))),
        ("group = 'it''s \"so\"'", Compare("group", Op.IS, ('it\'s "so"',))),
        ("group = and", Compare("group", Op.IS, ("and",))),
        ("id starts_with A17-", Compare("id", Op.STARTS, ("A17-",))),
        ("error contains 'timed out'", Compare("error", Op.CONTAINS, ("timed out",))),
        ("priority >= -3", Compare("priority", Op.FROM, (-3.0,))),
        ("pinned = TRUE", Compare("pinned", Op.IS, (True,))),
        ("started > -2d", Compare("started", Op.ABOVE, (NOW - timedelta(days=2),))),
        ("started > '-1h 30m'", Compare("started", Op.ABOVE, (NOW - timedelta(minutes=90),))),
        ("ended <= now", Compare("ended", Op.UP_TO, (NOW,))),
        ("started < 2026-02-01", Compare("started", Op.BELOW, (datetime(2026, 2, 1, tzinfo=UTC),))),
        (
            "started < 2026-02-01T09:00:00+01:00",
            Compare("started", Op.BELOW, (datetime(2026, 2, 1, 8, tzinfo=UTC),)),
        ),
    ],
)
def test_query_is_read(text: str, tree: Query) -> None:
    assert read_query(text, NOW) == tree


@pytest.mark.parametrize(
    ("text", "at", "problem", "fix"),
    [
        ("", None, "where says nothing", "status = failed"),
        ("statsu = failed", 0, "no field 'statsu', at character 1", "Did you mean status?"),
        ("run_id = A17", 0, "no field 'run_id', at character 1", "Did you mean id?"),
        ("flow = a and created_at > -2d", 13, "no field 'created_at'", "Did you mean started?"),
        ("status = faild", 9, "'faild' is no status", "failed"),
        ("flow = a status = failed", 9, "'status' is not expected", "and"),
        ("flow", 4, "a comparison behind flow, such as = is missing, at its end", "For example"),
        ("flow =", 6, "a value behind = is missing", "For example"),
        ("flow = )", 7, "a value is missing here", "status = failed"),
        ("flow ~ a", 5, "'~' is no comparison", "starts_with"),
        ("(flow = a", 0, "this parenthesis is not closed", "Add )"),
        ("flow = a)", 8, "')' is not expected", "Join"),
        ("flow < a", 5, "flow is text, and has no order", "="),
        ("flow = a or or id = x", 12, "a field is missing before 'or'", "attribute.or"),
        ("is = 3", 0, "a field is missing before 'is'", "For example"),
        ("status > failed", 7, "status has no order", "=, !=, in"),
        ("status contains fail", 7, "status is a word of its own", "=, !=, in"),
        ("pinned > true", 7, "pinned is true or false, and has no order", "="),
        ("started contains a", 8, "started is time, not text", "<"),
        ("started > yesterday", 10, "'yesterday' is no time", "-2d"),
        ("started > 2026-01-31T09:00", 10, "is no time", "Z"),
        ("started > -99999999999d", 10, "is no time", "-2d"),
        ("priority = high", 11, "'high' is no number", "digits"),
        ("priority = nan", 11, "'nan' is no number", "digits"),
        ("pinned = 1", 9, "neither true nor false", "one of the two"),
        ("flow in orders", 8, "'orders' is not expected", "in ("),
        ("group is empty", 9, "'empty' is not expected", "is not set"),
        ("flow = 'open", 7, "this cannot be read", "quotes"),
        ("not " * (DEEPEST + 2) + "flow = a", 4 * (DEEPEST + 1), "nested deeper", "flatter"),
        (" or ".join(["flow = a"] * (MOST + 1)), 12 * MOST, "more than 100 conditions", "in (...)"),
        ("x" * (LONGEST_QUERY + 1), None, "characters", "4000"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place_and_the_fix(
    text: str, at: int | None, problem: str, fix: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        read_query(text, NOW)
    assert problem in refused.value.message and fix in refused.value.fix
    assert refused.value.details.get("at") == at


def test_no_field_of_a_run_as_it_is_shown_is_taken_for_an_attribute() -> None:
    labels = {"tags", "attributes"}  # these are asked for by tag. and attribute.
    shown = {field.name for field in msgspec.structs.fields(RunInfo)} - FIELDS.keys() - labels
    nothing_to_ask = {"checkpoints", "forked_at", "adopted_at", "trimmed_before", "is_cancelling", "acked_at"}
    for name in shown - nothing_to_ask - {"pinned_by"}:
        with pytest.raises(BadRequest, match="there is no field"):
            read_query(f"{name} = x", NOW)
    assert nothing_to_ask <= shown


@given(st.text(alphabet="stauflowr =<>!()',\"-2d\n\x00é", max_size=60))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        read_query(text, NOW)
    except BadRequest as refused:
        assert refused.fix


def test_a_word_that_is_longer_than_any_field_is_compared_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes time by the length of both, and a service answers no one meanwhile."""
    compared: list[str] = []
    edits = query_text._edits

    def noted(one: str, other: str) -> int:
        compared.append(one)
        return edits(one, other)

    monkeypatch.setattr(query_text, "_edits", noted)
    for where in ("x" * 3900 + " = 1", " and ".join(["attribute." + "y" * 20 + " = 1"] * 100)):
        with suppress(BadRequest):
            read_query(where, NOW)
    assert compared == []
    with pytest.raises(BadRequest, match="Did you mean needs_repair"):
        read_query("needs_repeir = true", NOW)
    assert compared
