"""Everything that is wrong with a flow is said before it runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from everstep import END, Context, Durability, Flow, Host, node, validate, wait
from everstep.errors import (
    BadRequest,
    DotError,
    FlowError,
    HaltNeedsDurability,
    IrInvalid,
    KeyMissing,
    NotCheckpointable,
    NotReplayable,
    ServiceMissing,
    UnknownNotifier,
    ValueNotStorable,
)
from everstep.frontends.dot.parser import parse
from everstep.model.durability import DurabilityMode
from everstep.model.enums import Mode
from everstep.results import Diagnostic, Diagnostics
from everstep.runtime.preflight import preflight
from everstep.types import Offers
from tests.architecture.sources import PACKAGE, ROOT
from tests.unit.frontends.pipelines import pipelines_diagnosed
from tests.unit.graph import diagnosed
from tests.unit.graph.diagnosed import (
    ALL,
    NAP,
    NONE,
    check,
    feed,
    first,
    gate,
    loop,
    of,
    second,
    send,
    stream,
)

CASES = {**diagnosed.CASES, **pipelines_diagnosed.CASES}


def codes(found: Diagnostics) -> list[str]:
    return [d.code for d in found]


@pytest.mark.parametrize("code", CASES)
def test_the_smallest_flow_with_the_fault_is_found(code: str) -> None:
    [found] = [d for d in CASES[code].bad() if d.code == code]
    assert found.message
    assert found.fix


@pytest.mark.parametrize("code", CASES)
def test_the_smallest_flow_with_the_fault_has_no_other(code: str) -> None:
    assert set(codes(CASES[code].bad())) == {code}


@pytest.mark.parametrize("code", CASES)
def test_the_nearest_flow_without_the_fault_has_none(code: str) -> None:
    assert codes(CASES[code].good()) == []


def documented() -> dict[str, str]:
    page = (ROOT / "docs/reference/diagnostics.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `([\w.-]+)` \| (error|warning|info) \|", page, re.MULTILINE))


def test_every_code_in_the_docs_is_in_the_table_and_the_other_way_round() -> None:
    assert documented().keys() == CASES.keys()


@pytest.mark.parametrize("code", CASES)
def test_the_docs_say_how_much_a_code_matters(code: str) -> None:
    assert {d.severity for d in CASES[code].bad()} == {documented()[code]}


def test_every_code_that_the_rules_can_give_is_in_the_table() -> None:
    text = "".join(
        (PACKAGE / f"graph/{name}.py").read_text()
        for name in ("author/options", "check/structure", "check/validate")
    )
    assert set(re.findall(r'"((?:flow|profile|durability)\.[a-z_]+)"', text)) <= CASES.keys()


# -- everything at once -----------------------------------------------------------------------------------


def test_everything_is_said_at_once_with_the_errors_first() -> None:
    found = check(
        feed,
        first,
        send,
        stream,
        of(first.fn, name="m", output="m", checkpointable=False),
        durability="strong",
    )
    assert codes(found) == [
        *("DAG-CKPT-001", "DAG-CKPT-004", "DAG-CKPT-005", "DAG-CKPT-001"),
        "profile.no_reason",
    ]
    assert [d.node for d in found.errors] == ["feed", "send", "stream", "m"]
    assert len(found.warnings) == 1
    with pytest.raises(NotCheckpointable) as raised:
        found.raise_for_errors()
    assert [p["code"] for p in raised.value.details["problems"]] == codes(found)[:-1]  # type: ignore[attr-defined]
    assert "DAG-CKPT-005" in str(raised.value)


def test_a_flow_that_cannot_be_built_still_hears_of_its_nodes() -> None:
    found = check(
        feed, first, gate("nowhere"), NAP, durability="strong", host=NONE._replace(max_mode=Mode.STRONG)
    )
    assert {"flow.unknown_target", "DAG-CKPT-001", "DAG-CKPT-003"} <= set(codes(found))


def test_wrong_names_hide_no_types_that_do_not_fit() -> None:
    @node(output="b")
    def wants_text(a: str) -> str:
        return a

    with pytest.raises(FlowError) as raised:
        Flow("f", [first, wants_text, send, gate("nowhere")], durability="strong")
    problems = raised.value.details["problems"]
    assert [p["code"] for p in problems] == ["flow.unknown_target", "flow.type_mismatch"]  # type: ignore[attr-defined]
    line = wants_text.fn.__code__.co_firstlineno
    assert f"test_validate.py:{line}" in problems[1]["fix"]  # type: ignore[index]
    whole = validate(raised.value.draft)
    assert [d.code for d in whole.errors] == ["flow.unknown_target", "flow.type_mismatch", "DAG-CKPT-004"]


def test_a_draft_without_problems_runs_and_one_with_problems_does_not() -> None:
    with Host("memory:") as host:
        assert host.run(Flow.draft("f", [first]), {"x": 1})["a"] == 1
        with pytest.raises(FlowError, match=r"flow\.empty"):
            host.run(Flow.draft("f", []))
        with pytest.raises(FlowError, match=r"flow\.empty"):
            Flow.draft("f", []).as_node()
        with pytest.raises(FlowError, match=r"flow\.empty"):
            Flow.draft("f", []).to_ir()


def test_whatever_else_is_asked_of_a_draft_with_problems_says_what_they_are() -> None:
    draft = Flow.draft("f", [first], entry="fist")
    for ask in (
        lambda: draft.inputs,
        lambda: draft["first"],
        draft.functions,
        lambda: draft.check_inputs({}),
    ):
        with pytest.raises(FlowError, match="Did you mean 'first'"):
            ask()
    assert "first" in repr(draft)
    assert not hasattr(draft, "plam")


def test_what_a_flow_refuses_when_built_is_what_validate_says() -> None:
    with pytest.raises(FlowError) as raised:
        Flow("f", [first, gate("secund"), second.with_name("first")], entry="fist")
    draft = Flow.draft("f", [first, gate("secund"), second.with_name("first")], entry="fist")
    assert list(Diagnostics.of(raised.value, "f")) == list(validate(draft).errors)
    assert len(validate(draft)) == 3


def test_only_a_flow_can_be_validated() -> None:
    with pytest.raises(BadRequest, match="not a flow"):
        validate(first)  # type: ignore[arg-type]


def test_an_edge_names_both_ends() -> None:
    assert CASES["flow.type_mismatch"].bad()[0].edge == ("first", "wants_text")
    assert CASES["flow.unknown_target"].bad()[0].edge == ("gate", "secund")


def test_what_is_wrong_with_a_dot_text_is_a_finding_with_its_place() -> None:
    with pytest.raises(DotError) as raised:
        parse("digraph {\n a -> -> b\n c -- d\n}", "p.dot")
    found = Diagnostics.of(raised.value, "p")
    assert [(d.code, d.place) for d in found] == [
        ("dot.syntax", "p.dot:2:7"),
        ("dot.undirected", "p.dot:3:4"),
    ]
    assert str(found[1]) == "[dot.undirected] p.dot:3:4: `--` joins nodes without a direction. Write `->`."
    assert (found[1].to_json()["line"], found[1].to_json()["column"]) == (3, 4)


def test_what_is_wrong_with_an_ir_is_a_finding_with_its_path() -> None:
    with pytest.raises(IrInvalid) as raised:
        Flow.from_ir({"name": 3}, {})
    assert all(d.message.startswith("$") for d in Diagnostics.of(raised.value, "f"))


def test_diagnostics_are_plain_data_too() -> None:
    found = check(NAP, host=NONE)
    plain = found.to_json()
    assert plain["errors"] == 2
    assert plain["diagnostics"][0] == {
        "code": "DAG-CKPT-003",
        "severity": "error",
        "node": "nap",
        "edge": None,
        "message": "Halt node 'nap' requires CheckpointStore capability: durability::checkpoint_store.",
        "fix": "Open the host on a store, such as sqlite:///runs.db.",
        "services": ["durability::checkpoint_store"],
    }


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("DAG-CKPT-001", "Node 'feed' is not checkpointable; cannot use durability=strong"),
        ("DAG-CKPT-002", "Halt node 'nap' requires durability != off"),
        ("DAG-CKPT-003", "Halt node 'asking' requires CheckpointStore capability"),
        ("DAG-CKPT-004", "Effectful node 'send' on resume path must declare idempotency"),
        ("DAG-CKPT-005", "Streaming node 'stream' is not replayable; cannot checkpoint mid-stream"),
    ],
)
def test_the_rules_of_the_specification_have_its_words(code: str, words: str) -> None:
    assert CASES[code].bad()[0].message.startswith(words)


def test_a_value_that_a_flow_gives_but_does_not_keep_is_named_by_its_path() -> None:
    inner = Flow("inner", [of(first.fn, name="first", output="a", persist="no"), second])
    [found] = check(inner.as_node())
    assert (found.code, found.node) == ("flow.not_durable", "inner/first")
    assert ".lift(...)" in found.fix
    assert not check(inner.as_node().lift("b"))


# -- the resume path --------------------------------------------------------------------------------------


def missing_keys(*nodes: Any, **options: Any) -> list[str]:
    return [d.node for d in check(*nodes, **options) if d.code == "DAG-CKPT-004"]


def test_under_strong_every_effect_needs_a_key() -> None:
    assert missing_keys(first, send, durability="strong") == ["send"]


def test_under_partial_only_what_is_behind_a_halt_needs_a_key() -> None:
    late = of(lambda nap: nap, name="late", output="l", effects="effectful")
    later = of(lambda l: l, name="later", effects="effectful")  # noqa: E741
    assert missing_keys(first, send, NAP, late, later) == ["late", "later"]


def test_an_effectful_halt_node_is_on_its_own_resume_path() -> None:
    ask = of(lambda x: wait.Wait(), name="ask", halts=True, effects="effectful")
    assert missing_keys(ask) == ["ask"]


def test_off_resumes_nothing_so_no_key_is_needed() -> None:
    assert missing_keys(first, send, durability="off") == []
    assert missing_keys(first, send, durability="strong", host=NONE) == []


def test_the_resume_path_leads_out_of_inner_flows_and_into_others() -> None:
    pauses = Flow("pauses", [NAP]).as_node()
    late = of(lambda nap: nap, name="late", output="l", effects="effectful")
    for durability in ("nested", "atomic"):
        acts = Flow("acts", [late]).as_node(durability=durability)
        assert missing_keys(pauses, acts) == ["acts/late"]
    early = of(lambda x: x, name="early", effects="effectful")
    assert missing_keys(Flow("both", [NAP, early]).as_node()) == []


def test_the_resume_path_goes_through_a_flow_along_its_values() -> None:
    one = of(lambda nap: nap, name="one", output="p", effects="effectful")
    two = of(lambda y: y, name="two", output="q", effects="effectful")
    inner = Flow("inner", [one, two]).as_node()
    behind_one = of(lambda p: p, name="behind_one", effects="effectful")
    behind_two = of(lambda q: q, name="behind_two", effects="effectful")
    assert missing_keys(NAP, inner, behind_one, behind_two) == ["inner/one", "behind_one"]


def test_the_resume_path_follows_gates_edges_and_tasks() -> None:
    chosen = of(lambda x: x, name="chosen", effects="effectful")
    assert missing_keys(NAP, gate("chosen", source="nap"), chosen) == ["chosen"]
    act = of(lambda x: x, name="act", effects="effectful")
    assert missing_keys(NAP >> act) == ["act"]

    @node(output="z")
    def asks(nap: Any, ctx: Any) -> int:
        return 1

    assert missing_keys(NAP, asks, tasks=[act]) == []
    asks.context_param = "ctx"
    assert missing_keys(NAP, asks, tasks=[act]) == ["act"]


def test_an_undeclared_node_counts_as_pure() -> None:
    assert codes(check(first, second, durability="strong")) == []


@pytest.mark.parametrize(
    "key",
    [
        *("{nope}", "{x", "x}", "{}", "{0}", "{x!z}", "{x:{nope}}", "{x.__class__}", "{x.a._b}", "{ctx}"),
        *(lambda nope: "", lambda x, /: "", lambda run_id: ""),
    ],
)
def test_a_key_that_can_never_be_made_is_found_before_the_run(key: Any) -> None:
    def send(x: int, ctx: Context, y: int = 1) -> int:
        return x

    found = check(of(send, effects="effectful", idempotency_key=key), durability="strong")
    assert codes(found) == ["flow.bad_key"]


@pytest.mark.parametrize(
    "key",
    [
        *("plain", "{x}-{y}", "{x.id}{x[0]}{x!r:>{y}}", "{{}}", "{run_id}{visit}{node}{path}"),
        *(lambda x: "", lambda **given: "", lambda x, nope=1: "", lambda: ""),
    ],
)
def test_a_key_that_may_be_made_is_let_through(key: Any) -> None:
    def send(x: int, y: int = 1) -> int:
        return x

    assert codes(check(of(send, effects="effectful", idempotency_key=key), durability="strong")) == []


def test_a_probe_may_ask_for_the_inputs_and_the_key() -> None:
    def send(x: int) -> int:
        return x

    def probed(probe: Any) -> list[str]:
        return codes(check(of(send, effects="effectful", idempotency_key="auto", probe=probe)))

    assert probed(lambda x, idempotency_key: None) == []
    assert probed(lambda **given: None) == []
    assert probed(lambda key: None) == ["flow.bad_probe"]


# -- hosts ------------------------------------------------------------------------------------------------


def test_missing_services_are_named_once_and_in_order() -> None:
    asks = wait.approval("ok", timeout="1h")
    [found] = check(asks, NAP, host=ALL._replace(services=frozenset({"checkpoint_store"})))
    assert found.services == ("durability::resume_scheduler", "durability::resume_signal_source")
    assert str(found.services[0]) in found.message


def test_more_durability_than_the_host_keeps_is_an_error() -> None:
    some = ALL._replace(max_mode=Mode.PARTIAL)
    assert codes(check(first, durability="strong", host=some)) == ["DAG-CKPT-003"]
    assert codes(check(first, durability="partial", host=some)) == []


def test_without_a_host_nothing_is_missing() -> None:
    assert codes(check(wait.approval("ok", notify="unknown"), host=None)) == []


@pytest.mark.parametrize(
    ("nodes", "durability", "error"),
    [
        ([feed], "strong", NotCheckpointable),
        ([NAP], "off", HaltNeedsDurability),
        ([of(first.fn, requires=["printer"])], "partial", ServiceMissing),
        ([first, send], "strong", KeyMissing),
        ([stream], "strong", NotReplayable),
    ],
)
def test_a_flow_with_errors_does_not_start(
    nodes: list[Any], durability: DurabilityMode, error: type[Exception]
) -> None:
    flow = Flow("f", nodes, durability=durability)
    with Host("memory:") as host:
        for begin in (host.run, host.start):
            with pytest.raises(error):
                begin(flow, {"x": 1})
        assert host.runs() == []
        with pytest.raises(error):
            validate(flow, host).raise_for_errors()


def test_a_flow_is_examined_once_per_host_and_again_when_its_durability_changes() -> None:
    seen: list[Offers | None] = []

    def watch(flow: Flow, host: Offers | None) -> list[Diagnostic]:
        seen.append(host)
        return []

    flow = Flow("f", [first, send], rules=[watch])
    with Host("memory:") as host, Host("memory:", max_durability_mode="partial") as other:
        for _ in range(3):
            host.run(flow, {"x": 1})
        assert seen == [host.offers]
        other.run(flow, {"x": 1})
        assert seen == [host.offers, other.offers]
        flow.durability = Durability("strong")
        for _ in range(2):
            with pytest.raises(KeyMissing):
                host.run(flow, {"x": 1})
        assert len(seen) == 4


def test_what_one_host_finds_in_a_flow_is_found_on_another_that_offers_less() -> None:
    told = Flow("f", [first, wait.approval("ok", notify="team")])
    given = Flow("g", [pay])

    with Host("memory:", notifiers={"team": print}) as host:
        preflight(told, host._host._services)
        host.values.register(Money, name="money", encode=lambda _: 0, decode=lambda _: Money())
        preflight(given, host._host._services)
    with Host("memory:", notifiers={"team": print}) as host:
        preflight(told, host._host._services)
        with pytest.raises(ValueNotStorable):
            preflight(given, host._host._services)
    with Host("memory:", notifiers={"boss": print}) as host, pytest.raises(UnknownNotifier):
        preflight(told, host._host._services)
    told.durability = Durability("off")
    with Host("memory:", notifiers={"team": print}) as host, pytest.raises(HaltNeedsDurability):
        preflight(told, host._host._services)


class Money:
    """What no codec takes by itself."""

    def __init__(self) -> None:
        self.lock = object()


@node(output="money")
def pay(x: int) -> Money:
    return Money()


# -- rules of one's own -----------------------------------------------------------------------------------


def needs_time_out(flow: Flow, host: Offers | None) -> list[Diagnostic]:
    nodes = [n.name for n in flow.nodes if n.timeout is None]
    return [
        Diagnostic("house.timeout", "error", name, message=f"{name} may take for ever.") for name in nodes
    ]


def test_rules_of_ones_own_are_checked_per_call_flow_and_host() -> None:
    plain, strict = Flow("f", [first]), Flow("f", [first], rules=[needs_time_out])
    assert codes(validate(plain)) == []
    assert codes(validate(plain, rules=[needs_time_out])) == ["house.timeout"]
    assert codes(validate(strict)) == ["house.timeout"]
    with Host("memory:", rules=[needs_time_out]) as host:
        assert codes(validate(plain, host)) == ["house.timeout"]
        with pytest.raises(FlowError, match=r"house\.timeout"):
            host.run(plain, {"x": 1})
    with Host("memory:") as host:
        host.run(plain, {"x": 1})
        with pytest.raises(FlowError, match="may take for ever"):
            host.run(strict, {"x": 1})


# -- smaller things ---------------------------------------------------------------------------------------


def test_a_loop_that_only_a_task_or_several_choices_leave_has_an_exit() -> None:
    more, _ = loop("more")
    assert codes(check(more, gate("more", source="n", multi=True))) == []


def test_what_only_an_unreachable_gate_leads_to_is_unreachable() -> None:
    one, two = gate("two", END, name="one"), gate("one", "act", name="two")
    act = of(lambda x: x, name="act")
    found = check(first, one, two, act)
    (told,) = found
    assert told.code == "flow.unreachable" and "'one' and 'two' can never start" in told.message
    assert "'two' is chosen by 'one'" in told.message and "So 'act' never runs" in told.message


def test_an_edge_alone_does_not_start_the_target_of_a_gate() -> None:
    act = of(lambda x: x, name="act")
    again = gate("act", END, name="again")
    (told,) = check(first >> act >> again)
    assert (
        told.code == "flow.unreachable"
        and "'act' comes after 'first' and is chosen by 'again'" in told.message
    )
    assert "entry='act'" in (told.fix or "")
    assert codes(check(first >> act >> again, entry="act")) == []


def test_the_last_nodes_and_halt_nodes_may_write_what_no_node_reads() -> None:
    act = of(lambda a: a, name="act")
    assert codes(check(first >> NAP >> act)) == []


# -- what is something else altogether --------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *({"entry": 3}, {"entry": [3]}, {"tasks": first}, {"channel": ["x"]}, {"profiles": ["x"]}),
        *({"profiles": {3: {}}}, {"registry": {}}, {"rules": len}, {"version": 2}, {"max_steps": 0}),
    ],
)
def test_an_option_of_another_kind_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        Flow.draft("f", [first], **options)
    assert refused.value.fix


@pytest.mark.parametrize("nodes", [None, 3, first])
def test_nodes_are_a_list(nodes: Any) -> None:
    with pytest.raises(BadRequest, match="'f' got"):
        Flow.draft("f", nodes)


def test_the_name_of_a_node_is_text() -> None:
    with pytest.raises(BadRequest, match="not 3"):
        of(first.fn, name=3)


@pytest.mark.parametrize("host", [3, "memory:", first])
def test_only_a_host_can_be_validated_against(host: Any) -> None:
    with pytest.raises(BadRequest, match="no host"):
        validate(Flow("f", [first]), host)


@pytest.mark.parametrize(
    "rule", [3, lambda flow, host: ["x"], lambda flow, host: [Diagnostic("x", severity="fatal")]]
)
def test_a_rule_that_finds_something_else_is_named(rule: Any) -> None:
    with pytest.raises(BadRequest, match="rule"):
        validate(Flow("f", [first]), rules=[rule])


def test_a_rule_that_returns_nothing_has_found_nothing() -> None:
    assert not validate(Flow("f", [first]), rules=[lambda flow, host: None])  # type: ignore[list-item,return-value]


def test_what_was_found_for_one_host_or_durability_is_not_taken_for_another() -> None:
    flow, lacks_waits = Flow("f", [first, feed, NAP]), ALL._replace(holds_waits=False)
    for _ in range(2):
        flow.durability = Durability("strong")
        assert codes(validate(flow, ALL)) == [NotCheckpointable.code]
        assert codes(validate(flow, lacks_waits)) == [ServiceMissing.code, NotCheckpointable.code]
        assert set(codes(validate(flow, NONE))) == {ServiceMissing.code}
        flow.durability = Durability("partial")
        assert codes(validate(flow, ALL)) == []
        assert codes(validate(flow, lacks_waits)) == [ServiceMissing.code]
