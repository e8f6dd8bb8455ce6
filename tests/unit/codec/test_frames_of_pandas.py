"""Frames and series of pandas: they come back equal, down to types and indexes, or are refused by name."""

from __future__ import annotations

import datetime as dt
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from everstep import Flow, Host, node, validate
from everstep.codec.classes import StoredArray
from everstep.codec.compare import compare
from everstep.codec.values import Values
from everstep.errors import ValueNotStorable, ValueUnreadable

np: Any = pytest.importorskip("numpy")
pd: Any = pytest.importorskip("pandas")

DAYS = pd.date_range("2026-03-28", periods=3, freq="D", tz="Europe/Berlin", name="day")
COLUMNS = {
    "ints": pd.Series([1, 2, 3]),
    "small": pd.Series([1, 2, 3], dtype="int8"),
    "floats": pd.Series([1.0, float("nan"), -0.0]),
    "complex": pd.Series([1j, 2, 3]),
    "bools": pd.Series([True, False, True]),
    "text": pd.Series(["a", None, "ü"]),
    "string": pd.Series(["a", None, "c"], dtype="string"),
    "objects": pd.Series(["a", 1, Decimal("1.10")], dtype=object),
    "texts as objects": pd.Series(["a", "b", None], dtype=object),
    "lists": pd.Series([[1], [], [2, 3]], dtype=object),
    "nullable ints": pd.Series([1, None, 3], dtype="Int64"),
    "nullable floats": pd.Series([1.5, None, 3], dtype="Float32"),
    "nullable bools": pd.Series([True, None, False], dtype="boolean"),
    "categories": pd.Series(["b", None, "a"], dtype="category"),
    "ordered": pd.Series(pd.Categorical(["a", "b", "a"], categories=["b", "a", "z"], ordered=True)),
    "categories of ints": pd.Series(pd.Categorical([3, 1, 3])),
    "moments": pd.Series(pd.to_datetime(["2026-01-01", None, "2026-07-01"])),
    "seconds": pd.Series(np.array(["2026-01-01"] * 3, dtype="M8[s]")),
    "zoned": pd.Series(DAYS),
    "fixed zone": pd.Series(DAYS.tz_convert(dt.timezone(dt.timedelta(hours=2)))),
    "utc": pd.Series(pd.to_datetime(["2026-01-01", None, "2026-07-01"], utc=True)),
    "spans": pd.Series(pd.to_timedelta(["1D", None, "2h"])),
}
INDEXES = {
    "days": DAYS,
    "business days": pd.bdate_range("2026", periods=3),
    "hours": pd.timedelta_range("1h", periods=3, freq="h"),
    "text": pd.Index(["a", "b", "c"], name="key"),
    "objects": pd.Index(["a", 1, None], dtype=object),
    "range": pd.RangeIndex(3, 12, 3, name="n"),
    "categories": pd.CategoricalIndex(["a", "b", "c"]),
    "levels": pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["x", None]),
    "twice the same": pd.Index([1, 1, 2]),
}


def back(value: Any) -> Any:
    values = Values()
    return values.decode(values.encode(value, "value"))


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other) and type(one.index) is type(other.index)
    check = pd.testing.assert_frame_equal if type(one) is pd.DataFrame else pd.testing.assert_series_equal
    check(one, other, check_exact=True, check_freq=True, check_index_type="exact")
    assert one.attrs == other.attrs


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_of_column_comes_back_equal(name: str) -> None:
    series = COLUMNS[name]
    same(back(series), series)
    frame = pd.DataFrame({"a": series, "b": [1, 2, 3]})
    for part in (frame, frame[1:2], frame[:0], frame[frame.b > 1]):
        same(back(part), part)


@pytest.mark.parametrize("name", INDEXES)
def test_every_type_of_index_comes_back_equal(name: str) -> None:
    for frame in (
        pd.DataFrame({"a": [1, 2, 3]}, index=INDEXES[name]),
        pd.DataFrame([[1, "x", 2.5]], columns=INDEXES[name]),
    ):
        same(back(frame), frame)


def test_odd_frames_come_back_equal() -> None:
    twice = pd.DataFrame([[1, "a"]], columns=["x", "x"])
    noted = pd.DataFrame({"a": [1]})
    noted.attrs = {"unit": "m"}
    for frame in (pd.DataFrame(), pd.DataFrame(index=[1, 2]), twice, noted, twice.T):
        same(back(frame), frame)
    same(back({"frames": [noted]})["frames"][0], noted)


def test_what_would_not_come_back_equal_is_refused_by_name() -> None:
    class Own(pd.DataFrame):  # type: ignore[misc]
        pass

    periods = pd.period_range("2026", periods=2, freq="M")
    plain = pd.DataFrame({"a": [1, 2]})
    for value, message in (
        (pd.DataFrame({"ok": [1, 2], "month": periods}), r"column 'month' has the type period\[M\]"),
        (pd.Series(pd.interval_range(0, 2), name="i"), "column 'i' has the type interval"),
        (pd.Series(pd.arrays.SparseArray([0, 1])), "has the type Sparse"),
        (plain.set_axis(periods), "an index of type `PeriodIndex`"),
        (plain.set_flags(allows_duplicate_labels=False), "it allows no duplicate labels"),
        (Own({"a": [1]}), "`.*Own` has no data-only form"),
        (pd.DataFrame({"a": pd.Series([1, pd.NA], dtype=object)}), r"`value\['a'\]\[1\]`: .*NAType"),
    ):
        with pytest.raises(ValueNotStorable, match=message):
            back(value)


def test_a_frame_goes_from_node_to_node_and_through_a_store(tmp_path: Path) -> None:
    def load() -> Any:
        return pd.DataFrame({"shop": ["a", "b", "a"], "sum": [1.5, 2.5, 3.5]}, index=DAYS)

    def add_up(sales: Any) -> Any:
        sales["spoiled"] = 1
        return sales.groupby("shop")["sum"].sum()

    load.__annotations__["return"], add_up.__annotations__["return"] = pd.DataFrame, pd.Series
    flow = Flow("sales", [node(output="sales")(load), node(output="by_shop")(add_up)], durability="strong")
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        assert not validate(flow, host)
        assert host.run(flow, run_id="r")["by_shop"].to_dict() == {"a": 5.0, "b": 2.5}
    with Host(url) as host:
        same(host.state("r")["sales"], load())


def test_without_pandas_a_frame_is_shown_by_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Values().encode(pd.DataFrame({"a": [1], "b": [ZoneInfo("UTC")]}), "value")
    monkeypatch.delitem(sys.modules, "pandas")
    with pytest.raises(ValueUnreadable, match="pandas is not loaded"):
        Values().decode(data)
    told = Values(loose=True).decode(data)
    assert isinstance(told, StoredArray) and told.type_name == "pandas:DataFrame"
    assert told.fields["columns"] == 2


@pytest.mark.parametrize("has_pandas", [True, False])
def test_two_long_frames_that_differ_in_the_middle_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, has_pandas: bool
) -> None:
    before = pd.DataFrame({"a": np.arange(5000)})
    after = before.copy()
    after.loc[2500, "a"] = -1
    values = Values(loose=True)
    if not has_pandas:
        stored = [values.encode(frame, "value") for frame in (before, after)]
        monkeypatch.delitem(sys.modules, "pandas")
        before, after = (values.decode(data) for data in stored)
    [change] = compare(values, "value", before, after).changes
    assert change.before.fields["digest"] != change.after.fields["digest"]


def test_a_damaged_frame_is_unreadable_and_nothing_else() -> None:
    values = Values()
    frame = pd.DataFrame({"a": ["x"], "b": COLUMNS["categories"][:1].array}, index=DAYS[:1])
    data = values.encode(frame, "value")
    for at in range(len(data)):
        for flip in (1, 0x80):
            broken = bytearray(data)
            broken[at] ^= flip
            with suppress(ValueUnreadable):
                values.decode(bytes(broken))
