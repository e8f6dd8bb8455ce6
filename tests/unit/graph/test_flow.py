"""Building a flow: wiring, and every problem reported at once with its code and its fix."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from everstep import END, Context, Flow, Host, Node, ifelse, node, route
from everstep.errors import BadRequest, FlowError, InputError, StateCorrupted
from everstep.graph.compile.blueprint import read_plan


@node(output="doubled")
def double(x: int) -> int:
    return 2 * x


@node(output="total")
def add(doubled: int, y: int) -> int:
    return doubled + y


@node(output="i")
def step(i: int) -> int:
    return i + 1


@ifelse(when_true="step", when_false=END)
def more(i: int, n: int) -> bool:
    return i < n


def problems_of(*nodes: Any, **options: Any) -> dict[str, str]:
    with pytest.raises(FlowError) as caught:
        Flow("bad", nodes, **options)
    found = caught.value.details["problems"]
    assert isinstance(found, list)
    assert all(p["fix"] for p in found)
    return {p["code"]: p["message"] for p in found}


def test_edges_follow_from_names() -> None:
    flow = Flow("sum", [double, add])
    assert flow.plan.graph == {0: {1}, 1: set()}
    assert flow.inputs == {"x": True, "y": True}
    assert flow.outputs == ("doubled", "total")


def test_a_node_can_be_called_like_its_function() -> None:
    assert double(4) == 8


def test_renamed_nodes_read_and_write_other_names() -> None:
    other = double.with_name("quadruple").with_inputs(x="doubled").with_outputs("quadrupled")
    flow = Flow("twice", [double, other])
    assert flow.plan.graph == {0: {1}, 1: set()}
    assert double.name == "double" and double.outputs == ("doubled",)
    with pytest.raises(BadRequest, match="no parameter 'z'"):
        double.with_inputs(z="x")


def test_all_problems_are_reported_at_once() -> None:
    @route("nowhere", "double")
    def gate(x: int) -> str:
        return "double"

    found = problems_of(double, double.with_name("double"), gate, entry="missing")
    assert found.keys() == {"flow.duplicate_name", "flow.unknown_target", "flow.unknown_entry"}


def test_a_misspelt_target_is_suggested() -> None:
    @ifelse(when_true="stepp", when_false=END)
    def again(i: int) -> bool:
        return True

    with pytest.raises(FlowError, match="Did you mean 'step'"):
        Flow("bad", [step, again])


def test_a_loop_without_a_gate_is_refused() -> None:
    @node(output="b")
    def there(a: int) -> int:
        return a

    @node(output="a")
    def back(b: int) -> int:
        return b

    assert "there -> back -> there" in problems_of(there, back)["flow.endless_loop"]


def test_a_node_that_reads_its_own_output_needs_a_gate() -> None:
    assert "flow.endless_loop" in problems_of(step)


def test_two_writers_need_a_gate_or_an_order() -> None:
    left = double.with_name("left")
    right = double.with_name("right")
    assert "both write 'doubled'" in problems_of(left, right)["flow.two_writers"]

    @ifelse(when_true="left", when_false="right")
    def choose(x: int) -> bool:
        return x > 0

    Flow("fine", [left, right, choose])


def test_a_gate_that_may_choose_both_does_not_exclude() -> None:
    left, right = double.with_name("left"), double.with_name("right")

    @route("left", "right", multi=True)
    def choose(x: int) -> list[str]:
        return ["left", "right"]

    assert "flow.two_writers" in problems_of(left, right, choose)


def test_hints_that_cannot_fit_are_reported() -> None:
    @node(output="words")
    def words() -> list[str]:
        return []

    @node(output="n")
    def count(words: int) -> int:
        return words

    message = problems_of(words, count)["flow.type_mismatch"]
    assert "'words' returns list[str]" in message and "'count' wants int" in message


def test_doubtful_hints_are_let_through() -> None:
    @node(output="x")
    def maybe() -> int | None:
        return 1

    @node(output="y")
    def anything(x: Any) -> int:
        return 1

    @node(output="z")
    def number(x: float) -> float:
        return x

    Flow("fine", [maybe, anything, number])


def test_parameters_that_no_name_can_fill_are_refused() -> None:
    @node(output="z")
    def odd(*args: int) -> int:
        return 1

    assert "'args'" in problems_of(odd)["flow.bad_parameter"]


def test_named_inputs_fill_keyword_arguments() -> None:
    @node(output="n", inputs=["a", "b"])
    def join(**parts: int) -> int:
        return len(parts)

    assert Flow("join", [join]).inputs == {"a": True, "b": True}


def test_a_context_parameter_is_not_an_input() -> None:
    @node(output="z")
    def asks(x: int, ctx: Context) -> int:
        return 1

    assert Flow("f", [asks]).inputs == {"x": True}


def test_gates_only_choose() -> None:
    @ifelse(when_true=END, when_false=END, output="z")
    def gate(x: int) -> bool:
        return True

    assert "flow.gate_output" in problems_of(gate)


def test_an_empty_flow_and_a_bad_name_are_refused() -> None:
    assert problems_of().keys() == {"flow.empty"}
    with pytest.raises(FlowError, match=r"flow\.bad_name"):
        Flow("a/b", [double])


def test_a_plain_function_is_not_a_node() -> None:
    def plain(x: int) -> int:
        return x

    assert "flow.not_a_node" in problems_of(plain)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "Input 'x' is missing; double reads it"),
        ({"x": 1}, "Input 'y' is missing"),
        ({"x": 1, "y": 2, "z": 3}, "Unknown input 'z'"),
        ({"x": "1", "y": 2}, "Input 'x' is '1' (str); double wants int"),
        ({"x": True, "y": 2}, "double wants int"),
        ({"x": 1, "y": 2, "doubled": 4}, "'doubled' is written by ['double']"),
    ],
)
def test_wrong_inputs_are_named(inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        Flow("sum", [double, add]).check_inputs(inputs)
    assert said in str(caught.value)


def test_a_misspelt_input_is_suggested() -> None:
    @node(output="z")
    def reads(customer_name: str) -> str:
        return customer_name

    with pytest.raises(InputError, match="Did you mean 'customer_name'"):
        Flow("f", [reads]).check_inputs({"custmer_name": "x"})


def test_a_loop_wants_its_first_value() -> None:
    flow = Flow("count", [step, more], entry="step")
    with pytest.raises(InputError, match="Input 'i' is missing"):
        flow.check_inputs({"n": 3})
    flow.check_inputs({"i": 0, "n": 3})


def test_structure_is_hashed_and_bodies_are_not() -> None:
    def build(factor: int) -> Flow:
        @node(output="doubled", name="double")
        def body(x: int) -> int:
            return factor * x

        return Flow("f", [body])

    assert build(2).plan.hash == build(3).plan.hash
    assert build(2).plan.hash != Flow("f", [double, add]).plan.hash


def test_values_that_are_not_kept_cannot_be_skipped() -> None:
    @node(output="z", persist="no", skip_on_resume=True)
    def skips(x: int) -> int:
        return x

    assert "flow.not_durable" in problems_of(skips)


def test_an_effect_whose_result_is_read_must_be_kept() -> None:
    @node(output="receipt", persist="no", effects="effectful")
    def pay(x: int) -> int:
        return x

    @node(output="mail")
    def mail(receipt: int) -> int:
        return receipt

    assert "flow.not_durable" in problems_of(pay, mail)


BAD_OPTIONS: list[dict[str, Any]] = [
    {"effects": "sometimes"},
    {"determinism": "?"},
    {"persist": "maybe"},
    {"retry": -1},
    {"timeout": "5"},
    {"timeout": 0},
    {"max_visits": 0},
    {"max_visits": "3"},
    {"outputs": "z"},
]


@pytest.mark.parametrize("option", BAD_OPTIONS)
def test_unknown_options_of_a_node_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        node(output="z", **option)(lambda x: x)


def test_a_misspelt_option_is_suggested() -> None:
    with pytest.raises(BadRequest, match="Did you mean 'output'"):
        node(outputs="z")  # type: ignore[call-overload]


def test_keyword_arguments_without_names_are_refused() -> None:
    @node(output="n")
    def join(**parts: int) -> int:
        return len(parts)

    assert "'**parts'" in problems_of(join)["flow.bad_parameter"]


def test_a_forgotten_output_is_named() -> None:
    @node
    def price(x: int) -> int:
        return x

    @node(output="paid")
    def charge(price: int) -> int:
        return price

    with pytest.raises(InputError, match="did you forget output='price'"):
        Flow("f", [price, charge]).check_inputs({"x": 1})


def test_an_unannotated_context_is_told_how_to_be_one() -> None:
    @node(output="z")
    def asks(x: int, ctx) -> int:
        return x

    with pytest.raises(InputError, match="ctx: Context"):
        Flow("f", [asks]).check_inputs({"x": 1})


def test_targets_may_be_given_as_a_list() -> None:
    @route(["double", END])
    def gate(x: int) -> str:
        return "double"

    assert gate.targets == ("double", END)


def test_the_word_end_in_quotes_is_told() -> None:
    @ifelse(when_true="double", when_false="END")
    def gate(x: int) -> bool:
        return True

    with pytest.raises(FlowError, match="END without quotes"):
        Flow("f", [gate, double])


def test_inputs_must_be_a_mapping() -> None:
    with pytest.raises(InputError, match="Give a dict"):
        Flow("f", [double]).check_inputs([1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limit", ["max_steps", "max_visits", "max_concurrency", "max_running", "max_per_group"]
)
def test_limits_are_whole_numbers(limit: str) -> None:
    for wrong in ("a", 0, 1.5):
        with pytest.raises(BadRequest, match=limit):
            Flow("f", [double], **{limit: wrong})  # type: ignore[arg-type]


def test_two_gates_that_lead_to_one_writer_exclude_nothing() -> None:
    a, b, c = (double.with_name(n) for n in "abc")

    @route("a", "b")
    def one(x: int) -> str:
        return "a"

    @route("b", "c")
    def two(x: int) -> str:
        return "b"

    assert "flow.two_writers" in problems_of(a, b, c.with_outputs("other"), one, two)


def test_an_optional_context_is_a_context() -> None:
    @node(output="z")
    def asks(x: int, ctx: Context | None = None) -> int:
        return x

    assert asks.context_param == "ctx"


def test_a_partial_of_an_async_function_is_async() -> None:
    async def body(x: int, y: int) -> int:
        return x + y

    assert node(output="z", name="n")(functools.partial(body, y=1)).is_async


def test_an_unknown_input_is_told_which_are_asked_for_and_which_nodes_write() -> None:
    @node(output="n")
    def grow(n: int, step: int) -> int:
        return n + step

    @ifelse(when_true=END, when_false="grow")
    def enough(n: int) -> bool:
        return n > 3

    with pytest.raises(InputError, match=r"It takes: step \(and, to begin with, what nodes write: n\)"):
        Flow("f", [grow, enough]).check_inputs({"n": 1, "step": 1, "other": 2})


def test_a_node_behind_an_edge_may_read_what_it_writes() -> None:
    @node(output="n")
    def step(n: int = 0) -> int:
        return n + 1

    begin = node(name="begin")(lambda: None)
    flow = Flow("f", [begin >> step])
    assert flow.inputs == {"n": False}
    with Host("memory:") as host:
        assert host.run(flow)["n"] == 1
        assert host.run(flow, {"n": 5})["n"] == 6


def test_a_circle_of_edges_is_refused_whatever_is_read() -> None:
    one, two = (node(name=name, output="n", inputs=["n"])(lambda n: n) for name in ("one", "two"))
    assert "one -> two -> one" in problems_of(one >> two, two >> one)["flow.endless_loop"]


@pytest.mark.parametrize("entry", [(), "pick"])
def test_gates_behind_a_gate_choose_who_writes(entry: Any) -> None:
    """The writers lie two gates deep, and the whole is a loop if it has an entry."""

    def way(*targets: str, name: str) -> Node:
        return route(*targets, name=name)(lambda n: targets[n % 2])

    def writer(name: str) -> Node:
        return node(name=name, output="out")(lambda n: f"{name}{n}")

    parts = [way("left", "right", name="pick"), way("a", "b", name="left"), way("c", "d", name="right")]
    again = [ifelse(when_true="pick", when_false=END, name="again")(lambda out: False)] if entry else []
    flow = Flow("f", [*parts, *map(writer, "abcd"), *again], entry=entry)
    with Host("memory:") as host:
        assert [host.run(flow, {"n": n})["out"] for n in (0, 1)] == ["a0", "d1"]


def agent_after_a_first_node(**options: Any) -> Flow:
    @node(output="docs")
    def load(question: str) -> list[str]:
        return [question]

    @node(output="messages")
    def think(docs: list[str], messages: list[str] | None = None) -> list[str]:
        return [*(messages or []), *docs]

    @route("think", END)
    def choose(messages: list[str]) -> str:
        return "think" if len(messages) < 3 else END

    return Flow("agent", [load, think, choose], **options)


def test_a_run_whose_loop_has_no_beginning_is_refused_though_another_node_could_start() -> None:
    with pytest.raises(InputError) as caught, Host("memory:") as host:
        host.run(agent_after_a_first_node(), {"question": "tea"})
    assert "'think' and 'choose' can never start with these inputs" in caught.value.message
    assert "'think' is chosen by 'choose'; 'choose' reads 'messages' from 'think'" in caught.value.message
    assert "entry='think', or give 'messages'." in caught.value.message


def test_a_loop_without_a_beginning_is_refused_inside_another_flow_too() -> None:
    inner = agent_after_a_first_node().as_node().with_inputs(messages="before")
    with pytest.raises(InputError) as caught:
        Flow("outer", [inner]).check_inputs({"question": "tea"})
    assert "In 'agent': 'think' and 'choose' can never start" in caught.value.message
    Flow("outer", [inner]).check_inputs({"question": "tea", "before": ["hot"]})
    Flow("outer", [agent_after_a_first_node(entry="think").as_node()]).check_inputs({"question": "tea"})


def test_a_loop_begins_at_its_entry_or_by_an_input() -> None:
    with Host("memory:") as host:
        begun = host.run(agent_after_a_first_node(entry="think"), {"question": "tea"})
        given = host.run(agent_after_a_first_node(), {"question": "tea", "messages": ["hot"]})
    assert begun["messages"] == ["tea", "tea", "tea"]
    assert given["messages"] == ["hot", "tea", "tea"]


def test_a_misspelt_input_is_guessed_once() -> None:
    with pytest.raises(InputError) as caught:
        Flow("sum", [double]).check_inputs({"xx": 1})
    assert "Did you mean 'x'?" in caught.value.message
    assert "Did you mean 'xx'?" not in caught.value.message


def test_a_missing_input_says_what_to_give() -> None:
    with pytest.raises(InputError) as caught:
        Flow("sum", [double, add]).check_inputs({})
    assert caught.value.fix == "Give 'x' and 'y'."


def test_a_plain_function_in_a_flow_is_called_by_its_name() -> None:
    def plain(x: int) -> int:
        return x

    (message,) = problems_of(plain).values()
    assert message.startswith("Function 'plain' (test_flow.py:") and " at 0x" not in message


def test_the_structure_of_a_flow_is_read_once_by_all_who_look_at_it() -> None:
    blueprint = Flow("sum", [double, add]).plan.blueprint
    plan = read_plan(blueprint, "sum")
    assert plan.blueprint == blueprint
    assert read_plan(bytes(bytearray(blueprint)), "another") is plan


def test_what_is_no_structure_is_told_of_each_time() -> None:
    for flow_id in ("a", "b"):
        with pytest.raises(StateCorrupted, match=f"of flow '{flow_id}' cannot be read"):
            read_plan(b"{}", flow_id)
