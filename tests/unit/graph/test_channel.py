"""The channel as a node sees it: committed values, the node's own changes on top, and what gets recorded."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import BadRequest
from everstep.graph.author.channel import MISSING, Channel, ChannelOp, apply

OWNER = object()


class Committed:
    """A source over a dict that remembers what was locked."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.locks: list[tuple[str, str, object, float]] = []

    def read(self, key: str) -> Any:
        return copy.deepcopy(self.values[key])

    def keys(self) -> list[str]:
        return list(self.values)

    def lock(self, key: str, owner: object, timeout: float) -> None:
        self.locks.append(("sync", key, owner, timeout))

    def check(self, key: str, value: Any) -> None:
        pass

    async def lock_async(self, key: str, owner: object, timeout: float) -> None:
        self.locks.append(("async", key, owner, timeout))


def channel(types: dict[str, Any] | None = None, /, **values: Any) -> Channel:
    return Channel(Committed(**values), OWNER, types)


def kinds(given: Channel) -> list[tuple[str, str, Any]]:
    return [op[:3] for op in given.ops]


def refused(build: Callable[[], object], match: str) -> str:
    with pytest.raises(BadRequest, match=match) as caught:
        build()
    assert caught.value.fix
    return str(caught.value)


# Reading


def test_committed_values_are_read() -> None:
    ch = channel(x=1, none=None)
    assert (ch.get("x"), ch["x"], ch.get("y"), ch.get("y", 7)) == (1, 1, None, 7)
    assert ch.get("none", 7) is None
    assert ch.exists("x") and "x" in ch and not ch.exists("y") and "y" not in ch
    assert ch.ops == ()


def test_a_missing_key_raises_key_error_as_in_a_dict() -> None:
    ch = channel()
    with pytest.raises(KeyError, match="y"):
        ch["y"]
    with pytest.raises(KeyError, match="y"):
        del ch["y"]
    assert ch.ops == ()


def test_keys_are_sorted_and_can_be_filtered() -> None:
    ch = channel(b=1, ab=2)
    ch["ac"] = 3
    assert ch.keys() == list(ch) == ["ab", "ac", "b"]
    assert ch.keys("a") == ["ab", "ac"]
    assert ch.keys("z") == []
    assert len(ch) == 3
    del ch["ab"]
    assert ch.keys("a") == ["ac"]


def test_what_others_commit_meanwhile_is_seen() -> None:
    source = Committed(log=["a"], n=1)
    ch = Channel(source, OWNER)
    assert ch["n"] == 1
    ch.append("log", "mine")
    ch.atomic_add("n", 10)
    source.values.update(log=["a", "b"], n=5, new=True)
    assert (ch["log"], ch["n"], ch["new"]) == (["a", "b", "mine"], 15, True)
    assert ch.append("log", "more") == 4


def test_other_things_than_text_are_not_in_the_channel() -> None:
    assert 5 not in channel(x=1)
    assert None not in channel(x=1)


# Writing


def test_own_writes_are_seen_before_they_are_committed() -> None:
    source = Committed(x=1)
    ch = Channel(source, OWNER)
    ch["x"] = 2
    ch.set("y", 3)
    assert (ch["x"], ch["y"], source.values) == (2, 3, {"x": 1})
    assert kinds(ch) == [("set", "x", 2), ("set", "y", 3)]


def test_a_later_set_replaces_an_earlier_one() -> None:
    ch = channel()
    ch["x"], ch["y"], ch["x"] = 1, 2, 3
    assert kinds(ch) == [("set", "y", 2), ("set", "x", 3)]


def test_a_delete_drops_what_came_before_it() -> None:
    ch = channel(x=1)
    ch["x"] = 2
    assert ch.delete("x") is True
    assert ch.delete("x") is False
    assert "x" not in ch and ch.keys() == []
    assert ch.ops == (ChannelOp("delete", "x", None, None),)


def test_a_key_no_one_has_seen_is_deleted_all_the_same() -> None:
    ch = channel()
    assert ch.delete("x") is False
    assert kinds(ch) == [("delete", "x", None)]


def test_a_set_after_a_delete_is_a_set() -> None:
    ch = channel(x=1)
    del ch["x"]
    ch["x"] = 5
    assert kinds(ch) == [("set", "x", 5)]


def test_clear_removes_what_is_seen_but_results() -> None:
    ch = channel(x=1, **{"fetch.__result__": 2})
    ch["y"] = 3
    ch.clear()
    assert ch.keys() == ["fetch.__result__"]
    assert sorted(kinds(ch)) == [("delete", "x", None), ("delete", "y", None)]


def test_ttl_is_seconds_or_a_timedelta() -> None:
    ch = channel()
    ch.set("a", 1, ttl=1.5)
    ch.set("b", 1, ttl=timedelta(days=2))
    ch.set("c", 1)
    assert [op.ttl for op in ch.ops] == [timedelta(seconds=1.5), timedelta(days=2), None]
    ch.set("a", 2)
    assert ch.ops[-1] == ChannelOp("set", "a", 2, None)


@pytest.mark.parametrize(
    "wrong", [0, -1, 1e-9, True, "5", math.nan, math.inf, 1e300, 10**400, timedelta(0), timedelta(-1)]
)
def test_a_ttl_that_is_no_time_to_live_is_refused(wrong: Any) -> None:
    ch = channel()
    assert "'x'" in refused(lambda: ch.set("x", 1, ttl=wrong), "ttl is")
    assert ch.ops == ()


# Lists


def test_append_and_prepend_return_the_new_length() -> None:
    ch = channel(log=["a"])
    assert ch.append("log", "b") == 2
    assert ch.prepend("log", "z") == 3
    assert ch.prepend("log", "y") == 4
    assert ch["log"] == ["y", "z", "a", "b"]
    assert ch.append("new", 1) == 1
    assert ch.prepend("other", 1) == 1
    assert ch["new"] == ch["other"] == [1]


def test_appends_stay_appends_so_that_those_of_others_survive() -> None:
    ch = channel(log=["a"])
    ch.append("log", "b")
    ch.append("log", "c")
    assert kinds(ch) == [("append", "log", "b"), ("append", "log", "c")]


def test_an_append_after_an_own_set_joins_it_and_keeps_its_ttl() -> None:
    ch = channel(log=["old"])
    ch.set("log", ["a"], ttl=60)
    assert (ch.append("log", "b"), ch.prepend("log", "z")) == (2, 3)
    assert ch.ops == (ChannelOp("set", "log", ["z", "a", "b"], timedelta(seconds=60)),)


def test_an_append_after_a_delete_starts_a_new_list() -> None:
    ch = channel(log=["old"])
    ch.delete("log")
    assert ch.append("log", "a") == 1
    assert ch.ops == (ChannelOp("set", "log", ["a"], None),)


@pytest.mark.parametrize("held", [1, "text", None, {}, (1, 2)])
def test_only_lists_can_be_appended_to(held: Any) -> None:
    ch = channel(x=held)
    for build in (lambda: ch.append("x", 1), lambda: ch.prepend("x", 1)):
        assert type(held).__name__ in refused(build, "'x' holds .* not a list")
    ch["y"] = held
    refused(lambda: ch.append("y", 1), "not a list")
    assert ch["y"] == held and kinds(ch) == [("set", "y", held)]


def test_a_counter_is_no_list_and_a_list_no_counter() -> None:
    ch = channel()
    ch.atomic_add("n")
    refused(lambda: ch.append("n", 1), "not a list")
    ch.append("log", 1)
    refused(lambda: ch.atomic_add("log"), "not a number")
    assert kinds(ch) == [("add", "n", 1), ("append", "log", 1)]


# Numbers


def test_atomic_add_returns_what_the_node_now_sees() -> None:
    ch = channel(n=5)
    assert (ch.atomic_add("n"), ch.atomic_add("n", 2.5), ch.atomic_add("new", -3)) == (6, 8.5, -3)
    assert (ch["n"], ch["new"]) == (8.5, -3)


def test_additions_are_summed_and_stay_additions() -> None:
    ch = channel(n=5)
    for _ in range(3):
        ch.atomic_add("n", 2)
    assert kinds(ch) == [("add", "n", 6)]


def test_an_addition_after_an_own_set_joins_it_and_keeps_its_ttl() -> None:
    ch = channel(n=5)
    ch.set("n", 1, ttl=60)
    assert (ch.atomic_add("n"), ch.atomic_add("n")) == (2, 3)
    assert ch.ops == (ChannelOp("set", "n", 3, timedelta(seconds=60)),)
    ch.delete("n")
    assert ch.atomic_add("n", 4) == 4
    assert ch.ops == (ChannelOp("set", "n", 4, None),)


def test_what_is_seen_of_floats_is_what_the_record_gives() -> None:
    ch = channel(n=0.7)
    ch.atomic_add("n", 0.1)
    seen = ch.atomic_add("n", 0.2)
    [op] = ch.ops
    assert apply(op, 0.7) == seen == ch["n"]


@pytest.mark.parametrize("wrong", [True, "1", None, 1j, [1]])
def test_only_numbers_can_be_added(wrong: Any) -> None:
    ch = channel(n=1, x=wrong)
    refused(lambda: ch.atomic_add("n", wrong), "'n' was to grow by")
    refused(lambda: ch.atomic_add("x", 1), "'x' holds .* not a number")
    assert ch.ops == ()


def test_a_sum_beyond_floats_is_refused() -> None:
    ch = channel(n=10**400)
    refused(lambda: ch.atomic_add("n", 0.5), "too large")
    assert ch.ops == ()


# Copies


def test_what_was_written_is_a_copy_of_that_moment() -> None:
    ch = channel()
    value, item = {"deep": [1]}, [1]
    ch.set("x", value)
    ch.append("log", item)
    value["deep"].append(2)
    item.append(2)
    assert (ch["x"], ch["log"]) == ({"deep": [1]}, [[1]])
    assert [op.value for op in ch.ops] == [{"deep": [1]}, [1]]


def test_changing_what_was_read_changes_nothing() -> None:
    ch = channel(old=[1])
    ch["x"] = {"deep": [1]}
    ch.append("log", {"a": 1})
    ch["pair"] = (1, [2])
    ch["old"].append(2)
    ch["x"]["deep"].append(2)
    ch.get("log")[0]["a"] = 2
    ch["pair"][1].append(3)
    assert (ch["old"], ch["x"], ch["log"], ch["pair"]) == ([1], {"deep": [1]}, [{"a": 1}], (1, [2]))
    assert [op.value for op in ch.ops] == [{"deep": [1]}, {"a": 1}, (1, [2])]


def test_recorded_operations_do_not_change_afterwards() -> None:
    ch = channel()
    ch["x"] = [1]
    before = ch.ops
    ch.append("x", 2)
    assert before == (ChannelOp("set", "x", [1], None),)


def test_a_container_that_cannot_be_copied_is_refused() -> None:
    ch = channel()
    lines = (line for line in "ab")
    refused(lambda: ch.set("x", [lines]), "'x': list cannot be copied")
    assert ch.ops == ()


# Keys


@pytest.mark.parametrize("key", ["a", "a/b", "/a/", "für alle", "a b", "ü" * 256, "a\u00a0b", ".__result__x"])
def test_any_text_without_control_characters_is_a_key(key: str) -> None:
    ch = channel()
    ch[key] = 1
    assert ch[key] == 1 and key in ch and ch.keys() == [key]


@pytest.mark.parametrize("key", ["", "a" * 257, "a\nb", "\x00", "a\x7f", "\x85", "\ud800", 5, None, b"a"])
def test_a_bad_key_is_refused_by_every_method(key: Any) -> None:
    ch = channel()
    calls: list[Callable[[], object]] = [
        lambda: ch.get(key),
        lambda: ch[key],
        lambda: ch.exists(key),
        lambda: ch.set(key, 1),
        lambda: ch.delete(key),
        lambda: ch.append(key, 1),
        lambda: ch.prepend(key, 1),
        lambda: ch.atomic_add(key),
        lambda: ch.lock(key),
    ]
    for call in calls:
        refused(call, "not a channel key")
    assert ch.ops == ()


def test_results_can_be_read_but_not_changed() -> None:
    key = "fetch.__result__"
    ch = channel(**{key: [1]})
    assert ch[key] == [1] and key in ch
    changes: list[Callable[[], object]] = [
        lambda: ch.set(key, 1),
        lambda: ch.delete(key),
        lambda: ch.append(key, 1),
        lambda: ch.prepend(key, 1),
        lambda: ch.atomic_add(key),
        lambda: ch.__delitem__(key),
    ]
    for change in changes:
        refused(change, "result of a node")
    assert ch.ops == () and ch[key] == [1]


# Declared types


TYPES = {
    "n": int,
    "rate": float,
    "log": list[str],
    "mixed": list[int | str],
    "maybe": list[int] | None,
    "noted": Annotated[list[int], "a note"],
    "seq": Sequence[int],
    "bare": list,
    "any": Any,
    "mode": Literal["on", "off"],
}


def test_declared_values_pass() -> None:
    ch = channel(TYPES)
    ch["n"], ch["rate"], ch["log"], ch["mode"], ch["maybe"] = 1, 2, ["x"], "on", None
    ch["any"] = object
    assert ch.atomic_add("n") == 2
    assert ch.atomic_add("rate", 0.5) == 2.5
    for key, item in [("log", "y"), ("mixed", 1), ("mixed", "a"), ("noted", 1), ("seq", 1), ("bare", None)]:
        ch.append(key, item)
        ch.prepend(key, item)
    ch.delete("maybe")
    assert ch.append("maybe", 1) == 1


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda ch: ch.set("n", "one"), ["'n'", "'one' (str)", "declared int"]),
        (lambda ch: ch.set("n", True), ["'n'", "True (bool)", "declared int"]),
        (lambda ch: ch.__setitem__("mode", "of"), ["'mode'", "'of'", "Literal['on', 'off']"]),
        (lambda ch: ch.set("log", "x"), ["'log'", "'x' (str)", "list[str]"]),
        (lambda ch: ch.append("log", 1), ["'log'", "item 1 (int)", "list[str]"]),
        (lambda ch: ch.prepend("log", 1), ["'log'", "item 1 (int)", "list[str]"]),
        (lambda ch: ch.append("mixed", 1.5), ["'mixed'", "item 1.5 (float)"]),
        (lambda ch: ch.append("maybe", "x"), ["'maybe'", "item 'x' (str)"]),
        (lambda ch: ch.append("noted", "x"), ["'noted'", "item 'x' (str)"]),
        (lambda ch: ch.append("seq", "x"), ["'seq'", "item 'x' (str)"]),
        (lambda ch: ch.append("n", 1), ["'n'", "item 1 (int)", "declared int"]),
        (lambda ch: ch.atomic_add("n", 0.5), ["'n'", "0.5 (float)", "declared int"]),
        (lambda ch: ch.atomic_add("log"), ["'log'", "1 (int)", "list[str]"]),
    ],
)
def test_other_values_than_declared_are_refused(
    change: Callable[[Channel], object], parts: list[str]
) -> None:
    ch = channel(TYPES)
    message = refused(lambda: change(ch), "but is declared")
    assert [part for part in parts if part not in message] == []
    assert ch.ops == ()


def test_an_undeclared_key_is_refused_with_a_suggestion() -> None:
    ch = channel({"total": int, "names": list[str]})
    changes: list[Callable[[], object]] = [
        lambda: ch.set("totl", 1),
        lambda: ch.append("totl", 1),
        lambda: ch.prepend("totl", 1),
        lambda: ch.atomic_add("totl"),
    ]
    for change in changes:
        assert "Did you mean 'total'?" in refused(change, "'totl' is not declared")
    assert "Declared are: names, total." in refused(lambda: ch.set("x", 1), "'x' is not declared")
    refused(lambda: channel({}).set("x", 1), "Declared are: none")
    assert ch.ops == ()


def test_reading_and_deleting_ask_for_no_declaration() -> None:
    ch = channel({"n": int}, old=1)
    assert ch["old"] == 1 and ch.get("other") is None
    assert ch.delete("old") is True


# Locks


def test_a_lock_is_taken_on_entering_and_not_given_back_on_leaving() -> None:
    source = Committed()
    ch = Channel(source, OWNER)
    lock = ch.lock("x", timeout=5)
    assert source.locks == []
    with lock:
        assert source.locks == [("sync", "x", OWNER, 5.0)]
    assert source.locks == [("sync", "x", OWNER, 5.0)]


def test_an_async_node_waits_for_a_lock_without_blocking() -> None:
    source = Committed()

    async def body() -> None:
        async with Channel(source, OWNER).lock("x"):
            assert source.locks == [("async", "x", OWNER, 30.0)]

    asyncio.run(body())
    assert len(source.locks) == 1


def test_a_lock_lets_errors_out() -> None:
    with pytest.raises(ZeroDivisionError), channel().lock("x"):
        _ = 1 / 0


def test_a_value_read_before_a_lock_is_read_anew_under_it() -> None:
    class Slow(Committed):
        def lock(self, key: str, owner: object, timeout: float) -> None:
            self.values[key] = 10

    ch = Channel(Slow(n=1), OWNER)
    assert ch["n"] == 1
    with ch.lock("n"):
        ch["n"] += 1
    assert kinds(ch) == [("set", "n", 11)]


@pytest.mark.parametrize("wrong", [-1, True, "5", None, math.nan, timedelta(-1)])
def test_a_timeout_that_is_no_time_is_refused(wrong: Any) -> None:
    refused(lambda: channel().lock("x", timeout=wrong), "timeout of the lock of channel key 'x'")


# What the record gives is what the node saw


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(
    st.integers(-9, 9),
    st.floats(-9, 9, width=16),
    st.lists(st.integers(-9, 9), max_size=3),
    st.text(max_size=2),
)
CALLS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.sampled_from(["append", "prepend"]), KEYS, VALUES),
    st.tuples(st.just("atomic_add"), KEYS, st.integers(-9, 9) | st.floats(-9, 9, width=16)),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("clear")),
)


def imitate(values: dict[str, Any], name: str, *args: Any) -> Any:
    """Do to a dict what the channel should do, or raise if it should refuse."""
    if name == "clear":
        return values.clear()
    key, *rest = args
    if name == "delete":
        return values.pop(key, MISSING) is not MISSING
    if name == "set":
        values[key] = copy.deepcopy(rest[0])
        return None
    if name == "atomic_add":
        if not isinstance(values.get(key, 0), (int, float)):
            raise BadRequest("")
        values[key] = values.get(key, 0) + rest[0]
        return values[key]
    if not isinstance(values.get(key, []), list):
        raise BadRequest("")
    held = values.get(key, [])
    values[key] = [*held, rest[0]] if name == "append" else [rest[0], *held]
    return len(values[key])


def record(ops: Sequence[ChannelOp], values: dict[str, Any]) -> dict[str, Any]:
    """Fold recorded operations into plain values, written apart from the channel's own folding."""
    result = copy.deepcopy(values)
    for op in ops:
        if op.kind == "set":
            result[op.key] = op.value
        elif op.kind == "delete":
            result.pop(op.key, None)
        elif op.kind == "add":
            result[op.key] = result.get(op.key, 0) + op.value
        else:
            result.setdefault(op.key, []).insert(len(result[op.key]) if op.kind == "append" else 0, op.value)
    return result


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except BadRequest:
        return "refused"


@given(st.dictionaries(KEYS, VALUES), st.lists(CALLS, max_size=12))
def test_recorded_operations_give_what_the_node_saw(before: dict[str, Any], calls: list[Any]) -> None:
    source = Committed(**copy.deepcopy(before))
    ch, model = Channel(source, OWNER), copy.deepcopy(before)
    for name, *args in calls:
        expected = outcome(lambda n=name, a=args: imitate(model, n, *a))  # type: ignore[misc]
        assert outcome(lambda n=name, a=args: getattr(ch, n)(*a)) == expected  # type: ignore[misc]
        assert {key: ch[key] for key in ch} == model
        assert [ch.exists(key) for key in "abc"] == [key in model for key in "abc"]
    assert record(ch.ops, before) == model
    folded = dict(before)
    for op in ch.ops:
        folded[op.key] = apply(op, folded.get(op.key, MISSING))
    assert {key: value for key, value in folded.items() if value is not MISSING} == model
    assert source.values == before


@given(st.lists(CALLS, max_size=12))
def test_a_key_has_one_operation_unless_it_grows(calls: list[Any]) -> None:
    ch = channel(a=[1], b=2)
    for name, *args in calls:
        outcome(lambda n=name, a=args: getattr(ch, n)(*a))  # type: ignore[misc]
    for key in "abc":
        found = [op.kind for op in ch.ops if op.key == key]
        assert len(found) <= 1 or set(found) <= {"append", "prepend"}


@given(st.lists(st.integers(), max_size=5), st.lists(st.integers(), max_size=5), st.booleans())
def test_growth_of_two_nodes_at_once_survives_in_either_order(
    one: list[int], two: list[int], swapped: bool
) -> None:
    source = Committed(log=[0], n=0)
    nodes = [Channel(source, object()), Channel(source, object())]
    for ch, numbers in zip(nodes, (one, two), strict=True):
        for number in numbers:
            ch.append("log", number)
            ch.atomic_add("n", number)
    first, second = reversed(nodes) if swapped else nodes
    after = record(second.ops, record(first.ops, source.values))
    assert after["n"] == sum(one) + sum(two)
    assert after["log"] == [0, *((two + one) if swapped else (one + two))]
