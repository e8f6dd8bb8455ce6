"""Frames and series of polars: they come back equal, down to types and nulls, or are refused by name."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from everstep import Flow, Host, node, validate
from everstep.codec.classes import StoredArray
from everstep.codec.values import Values
from everstep.errors import ValueNotStorable, ValueUnreadable

pl: Any = pytest.importorskip("polars")
testing: Any = import_module("polars.testing")

COLUMNS = {
    "ints": pl.Series([1, None, 3]),
    "small": pl.Series([1, None, 3], dtype=pl.UInt8),
    "floats": pl.Series([1.5, None, float("nan")]),
    "bools": pl.Series([True, None, False]),
    "text": pl.Series(["a", None, "ü"]),
    "bytes": pl.Series([b"a", None, b""]),
    "dates": pl.Series([dt.date(2026, 1, 1), None, dt.date(1, 1, 1)]),
    "moments": pl.Series([dt.datetime(2026, 1, 1), None, None]),
    "zoned": pl.Series([dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")), None, None]),
    "spans": pl.Series([dt.timedelta(1), None, None]),
    "times": pl.Series([dt.time(1), None, None]),
    "lists": pl.Series([[1, 2], None, []]),
    "arrays": pl.Series([[1, 2], [3, 4], None], dtype=pl.Array(pl.Int8, 2)),
    "structs": pl.Series([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "decimals": pl.Series([Decimal("1.10"), None, Decimal("-2.00")]),
    "nulls": pl.Series([None, None, None]),
    "categories": pl.Series(["b", None, "a"], dtype=pl.Categorical),
    "enum": pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b", "z"])),
}


def back(value: Any) -> Any:
    values = Values()
    return values.decode(values.encode(value, "value"))


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    check = testing.assert_frame_equal if type(one) is pl.DataFrame else testing.assert_series_equal
    check(one, other, check_exact=True)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_of_column_comes_back_equal(name: str) -> None:
    series = COLUMNS[name].alias(name)
    same(back(series), series)
    frame = pl.DataFrame([series, pl.Series("n", [1, 2, 3])])
    for part in (frame, frame[1:2], frame[:0], pl.concat([frame, frame]), frame.filter(pl.col("n") > 1)):
        same(back(part), part)


def test_odd_frames_come_back_equal() -> None:
    long = pl.DataFrame({"s": [f"a text that is longer than a view, number {n}" for n in range(100)]})
    few = long.filter(pl.col("s").str.contains("7"))
    for frame in (pl.DataFrame(), pl.DataFrame(schema={"a": pl.Int8}), long[10:20], few, long.sort("s")):
        same(back(frame), frame)
    same(back({"frames": [long]})["frames"][0], long)


def test_what_has_no_data_is_refused_by_name() -> None:
    with pytest.raises(ValueNotStorable, match="column 'o' has the type Object"):
        back(pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}))
    with pytest.raises(ValueNotStorable, match="a LazyFrame is a query") as caught:
        back(pl.DataFrame({"a": [1]}).lazy())
    assert caught.value.fix == "Return frame.collect()."


def test_a_frame_goes_from_node_to_node_and_through_a_store(tmp_path: Path) -> None:
    def load() -> Any:
        return pl.DataFrame({"shop": ["a", "b", "a"], "sum": [1.5, 2.5, 3.5]})

    def add_up(sales: Any) -> float:
        return float(sales["sum"].sum())

    load.__annotations__["return"] = pl.DataFrame
    flow = Flow("sales", [node(output="sales")(load), node(output="total")(add_up)], durability="strong")
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        assert not validate(flow, host)
        assert host.run(flow, run_id="r")["total"] == 7.5
    with Host(url) as host:
        same(host.state("r")["sales"], load())


def test_a_lazy_frame_is_refused_before_its_node_runs() -> None:
    def ask() -> Any:
        raise AssertionError("it is not called")

    ask.__annotations__["return"] = pl.LazyFrame
    with Host("memory:") as host, pytest.raises(ValueNotStorable, match="a LazyFrame is a query"):
        host.run(Flow("f", [node(output="query")(ask)]))


def test_without_polars_a_frame_is_shown_by_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Values().encode(pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "value")
    monkeypatch.delitem(sys.modules, "polars")
    with pytest.raises(ValueUnreadable, match="polars is not loaded"):
        Values().decode(data)
    told = Values(loose=True).decode(data)
    assert isinstance(told, StoredArray) and told.type_name == "polars:DataFrame"
    assert (told.fields["columns"], told.fields["rows"]) == (["a", "b"], 2)
