"""Which changes of a flow a run under way tolerates, which need a rule, and which no rule helps with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep import END, Context, Flow, Host, chain, ifelse, migrate, node, parallel, wait
from everstep.errors import BadRequest, FlowChanged, TaskGone
from everstep.model.compat import Compat

RUN = "r"


@node(output="a")
def first(x: int) -> int:
    return x + 1


@node(output="b")
def stop(a: int) -> int:
    raise KeyboardInterrupt


@node(output="b", name="stop")
def goes_on(a: int) -> int:
    return a * 2


@node(output="c")
def last(b: int) -> int:
    return b + 100


@node(output="d")
def side(a: int) -> int:
    return -a


@node(output="late")
def lang(tongue: str) -> str:
    return tongue


BEFORE = [first, stop, last]
"""`first` is finished, `stop` is pending, `last` was never reached."""


def begun(host: Host, nodes: Any, inputs: dict[str, Any] | None = None, **options: Any) -> None:
    inputs = {"x": 1} if inputs is None else inputs
    try:
        host.run(Flow("f", nodes, durability="strong", **options), inputs, run_id=RUN)
    except KeyboardInterrupt:
        return


def compat(host: Host, nodes: Any, *rules: migrate.Migration, **options: Any) -> Compat:
    return host.versions.compat(RUN, Flow("f", nodes, durability="strong", migrations=rules, **options))


Case = tuple[list[Any], list[migrate.Migration]]


@node(output="a", name="first")
def first_with_option(x: int, note: str = "") -> int:
    return x + 1


@node(output="b", name="stop")
def goes_on_with_option(a: int, x: int = 0) -> int:
    return a * 2


@node(output="note")
def writes_note(x: int) -> str:
    return str(x)


CONTINUES: dict[str, Case] = {
    "a finished node takes one more that has a default": ([first_with_option, goes_on, last], []),
    "a pending node takes one more that has a default": ([first, goes_on_with_option, last], []),
    "the same": (BEFORE, []),
    "a body changed": ([first, goes_on, last], []),
    "another order": ([last, goes_on, first], []),
    "a node more that starts": ([first, goes_on, last, side], []),
    "a node more behind the end": ([first, goes_on, last, side.with_inputs(a="c")], []),
    "what was never reached changed": ([first, goes_on, last.with_outputs("z")], []),
    "what was never reached is gone": ([first, goes_on], []),
    "a finished node renamed": (
        [first.with_name("one"), goes_on, last],
        [migrate.rename_node("first", "one")],
    ),
    "renamed twice, a version apart": (
        [first.with_name("two"), goes_on, last],
        [migrate.rename_node("first", "one"), migrate.rename_node("one", "two")],
    ),
    "a pending node renamed": (
        [first, goes_on.with_name("go"), last],
        [migrate.rename_node("stop", "go")],
    ),
    "a value renamed": (
        [first.with_outputs("aa"), goes_on.with_inputs(a="aa"), last],
        [migrate.rename_value("a", "aa")],
    ),
    "a finished node dropped": ([goes_on, last], [migrate.drop_node("first")]),
    "a pending node dropped, and no node reads it": ([first], [migrate.drop_node("stop")]),
    "a changed node accepted": (
        [first.with_outputs("aa"), side.with_inputs(a="aa"), goes_on, last],
        [migrate.accept("first"), migrate.skip("side"), migrate.add_value("aa", 9)],
    ),
    "a value that the run began without": ([*BEFORE, lang], [migrate.add_value("tongue", "de")]),
    "a rule for another version": (BEFORE, [migrate.rename_node("first", "one")]),
}

NEEDS: dict[str, tuple[Case, list[str], list[str], str]] = {
    "a finished node may take what a node to come writes": (
        ([first_with_option, goes_on, last, writes_note], []),
        ["first"],
        ["note"],
        "accept('first', reruns=True)",
    ),
    "a finished node is gone": (([goes_on, last], []), ["first"], [], "drop_node('first')"),
    "a pending node is gone": (([first], []), ["stop"], [], "drop_node('stop')"),
    "a finished node changed": (
        ([first.with_inputs(x="y"), goes_on, last], []),
        ["first"],
        ["x", "y"],
        "accept('first')",
    ),
    "a value changed its name": (
        ([first.with_outputs("aa"), goes_on.with_inputs(a="aa"), last], []),
        ["first", "stop"],
        ["a", "aa"],
        "the renames of its values",
    ),
    "a pending node reads a value that no node writes": (
        ([first, goes_on.with_inputs(a="new"), last], [migrate.accept("stop")]),
        ["stop"],
        ["new"],
        "add_value('new'",
    ),
    "a new node reads an input that the run began without": (
        ([*BEFORE, lang], []),
        ["lang"],
        ["tongue"],
        "add_value('tongue'",
    ),
    "a dropped node's value is read": (
        ([first, last], [migrate.drop_node("stop")]),
        ["last"],
        ["b"],
        "add_value('b'",
    ),
}


@pytest.mark.parametrize("name", CONTINUES)
def test_a_run_continues(host: Host, name: str) -> None:
    begun(host, BEFORE)
    nodes, rules = CONTINUES[name]
    told = compat(host, nodes, *rules)
    assert (told.verdict, told.nodes, told.values, told.reason) == ("continues", (), (), "")
    assert host.info(RUN).checkpoints == 2


@pytest.mark.parametrize("name", NEEDS)
def test_a_run_needs_a_rule_and_is_told_which(host: Host, name: str) -> None:
    begun(host, BEFORE)
    (nodes, rules), changed, values, fix = NEEDS[name]
    told = compat(host, nodes, *rules)
    assert told.verdict == "needs_migration"
    assert (sorted(told.nodes), sorted(told.values)) == (changed, values)
    assert fix in told.fix
    with pytest.raises(FlowChanged) as raised:
        host.resume(RUN, Flow("f", nodes, durability="strong", migrations=rules))
    assert told.reason in raised.value.message
    assert raised.value.details["nodes"] == list(told.nodes)
    assert host.info(RUN).checkpoints == 2


def test_what_starts_at_once_is_told(host: Host) -> None:
    begun(host, BEFORE)
    assert compat(host, [*BEFORE, side]).starts == ("side",)
    assert compat(host, [*BEFORE, side], migrate.skip("side")).starts == ()


def test_another_flow_is_refused(host: Host) -> None:
    begun(host, BEFORE)
    told = host.versions.compat(RUN, Flow("g", BEFORE))
    assert told.verdict == "refused" and "belongs to flow 'f'" in told.reason


def test_a_finished_node_is_not_run_again_by_new_wiring_unless_that_is_wanted(host: Host) -> None:
    begun(host, BEFORE)
    more = first.with_name("more").with_outputs("extra")
    nodes = [more, first.with_inputs(x="extra"), goes_on, last]
    told = compat(host, nodes, migrate.accept("first"))
    assert told.verdict == "needs_migration" and told.nodes == ("first",)
    assert "would run again: it reads 'extra', which 'more' will write" in told.reason
    assert compat(host, nodes, migrate.accept("first", reruns=True)).verdict == "continues"
    assert compat(host, nodes, migrate.accept("first"), migrate.skip("more")).verdict == "continues"


def test_a_node_put_before_finished_ones_of_a_chain_does_not_run_them_again(host: Host) -> None:
    @node
    def start() -> None: ...

    @node
    def halt() -> None:
        raise KeyboardInterrupt

    @node
    def new() -> None: ...

    begun(host, chain(start, halt), {})
    told = compat(host, chain(new, start, halt))
    assert told.verdict == "needs_migration" and "'start' is finished, and would run again" in told.reason
    assert compat(host, chain(new, start, halt), migrate.skip("new")).verdict == "continues"
    assert compat(host, chain(start, new, halt)).verdict == "continues"
    assert compat(host, chain(start, halt, new)).verdict == "continues"


def test_a_loop_that_goes_on_anyway_may_get_a_node_more(host: Host) -> None:
    @node(output="n")
    def step(n: int) -> int:
        if n == 2:
            raise KeyboardInterrupt
        return n + 1

    @ifelse(when_true="step", when_false=END)
    def more(n: int) -> bool:
        return n < 5

    @node(output="log")
    def note(n: int) -> int:
        return n

    begun(host, [step, more], {"n": 0}, entry="step")
    assert compat(host, [step, more, note], entry="step").verdict == "continues"


def test_a_task_whose_node_or_parameter_is_gone_is_refused(host: Host) -> None:
    @node
    def extra(a: int) -> None:
        raise KeyboardInterrupt

    @node
    def ask(ctx: Context) -> None:
        ctx.next_task(extra, a=1)

    @node(name="extra")
    def other(z: int) -> None: ...

    begun(host, [ask], {}, tasks=[extra])
    gone = Flow("f", [ask], tasks=[], channel={"k": int}, durability="strong")
    other_parameter = Flow("f", [ask], tasks=[other.with_inputs(z="a"), last], durability="strong")
    for flow, match in ((gone, "queued for 'extra'"), (other_parameter, "brings 'a' to 'extra'")):
        told = host.versions.compat(RUN, flow)
        assert told.verdict == "refused" and told.nodes == ("extra",)
        with pytest.raises(TaskGone, match=match):
            host.resume(RUN, flow)


def test_a_node_that_waits_can_be_renamed_but_not_taken_away(host: Host) -> None:
    ask = wait.approval("ask")
    begun(host, [first, ask])
    assert host.info(RUN).status == "halted"
    told = compat(host, [first], migrate.drop_node("ask"))
    assert told.verdict == "refused" and "'ask' waits for an answer" in told.reason

    @node(output="ask")
    def ask_no_one() -> int:
        return 1

    told = compat(host, [first, ask_no_one.with_name("ask")], migrate.accept("ask"))
    assert told.verdict == "refused" and "no longer a node that waits" in told.reason
    renamed = ask.with_name("sign")
    assert compat(host, [first, renamed], migrate.rename_node("ask", "sign")).verdict == "continues"


def inner(*nodes: Any, durability: Any = "nested") -> Any:
    return Flow("inside", nodes).as_node(durability=durability)


def test_an_open_flow_is_looked_into(host: Host) -> None:
    begun(host, [inner(first, stop), last])
    assert compat(host, [inner(first, goes_on), last, side]).verdict == "continues"
    told = compat(host, [inner(first.with_name("one"), goes_on), last])
    assert (told.verdict, told.nodes) == ("needs_migration", ("inside/first",))
    assert "drop_node('inside/first')" in told.fix
    renamed = [inner(first.with_name("one"), goes_on), last]
    assert compat(host, renamed, migrate.rename_node("inside/first", "one")).verdict == "continues"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda: [last], "'inside' is a flow under way, and is gone"),
        (lambda: [inner(first, goes_on, durability="atomic"), last], "another kind of node"),
        (lambda: [first.with_name("inside").with_outputs("a"), last], "another kind of node"),
    ],
)
def test_an_open_flow_must_stay_one(host: Host, change: Callable[[], Any], match: str) -> None:
    begun(host, [inner(first, stop), last])
    told = compat(host, change(), migrate.drop_node("inside"), migrate.accept("inside"))
    assert told.verdict == "refused" and match in told.reason


def test_a_flow_that_has_ended_may_change_inside(host: Host) -> None:
    begun(host, [inner(first), stop, last])
    changed = Flow("inside", [first.with_name("one")]).as_node()
    assert compat(host, [changed, goes_on, last]).verdict == "continues"


def test_a_group_under_way_must_keep_its_members(host: Host) -> None:
    @node(output="seen")
    def one() -> int:
        return 1

    @node
    def two(seen: int) -> None:
        raise KeyboardInterrupt

    @node
    def three() -> None: ...

    begun(host, chain(parallel(one, two, policy="best_effort", name="both"), three), {})
    changed = chain(parallel(one, two, three.with_name("four"), policy="best_effort", name="both"), three)
    told = compat(host, changed, migrate.accept("both"))
    assert told.verdict == "refused" and "'both'" in told.reason


def test_a_join_that_is_called_after_its_members_follows_them(host: Host) -> None:
    @node(output="seen")
    def one() -> int:
        return 1

    @node
    def two(seen: int) -> None:
        raise KeyboardInterrupt

    @node
    def three() -> None: ...

    begun(host, chain(parallel(one, two, policy="best_effort"), three), {})
    renamed = chain(parallel(one.with_name("uno"), two, policy="best_effort"), three)
    assert compat(host, renamed, migrate.rename_node("one", "uno")).verdict == "continues"


def test_two_names_cannot_become_one(host: Host) -> None:
    begun(host, BEFORE)
    nodes = [first.with_name("last").with_outputs("z")]
    told = compat(host, nodes, migrate.rename_node("first", "last"), migrate.drop_node("stop"))
    assert told.verdict == "refused" and "has 'last' already" in told.reason


@pytest.mark.parametrize(
    "make",
    [
        lambda: migrate.rename_node("a", "a"),
        lambda: migrate.rename_node("rag/a", "other/b"),
        lambda: migrate.rename_value("a@2", "b"),
        lambda: migrate.drop_node(""),
        lambda: migrate.upcast("a", 3),  # type: ignore[arg-type]  # that is the point
    ],
)
def test_a_rule_that_means_nothing_is_refused_when_it_is_made(make: Callable[[], Any]) -> None:
    with pytest.raises(BadRequest):
        make()
