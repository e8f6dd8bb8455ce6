"""What is said of a node, by itself, a registry and a flow, and what follows from it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from everstep import Flow, Host, Node, node, validate, wait
from everstep.errors import BadRequest
from everstep.model.enums import Determinism, Effects
from everstep.types import Profile, Registry


@node(output="rates", checkpointable=False, reason="holds open websocket")
def feed(x: int) -> int:
    return x


@node(output="a")
def plain(x: int) -> int:
    return x


FEED = {
    "id": "external.feed",
    "durability": {"checkpointable": False, "reason": "holds open websocket"},
    "effects": "effectful",
    "determinism": "nondeterministic",
    "idempotency": {"key": "feed-{x}", "scope": "node"},
    "kind": "activity",
}


def test_an_ordinary_node_is_checkpointable_and_replayable_and_does_not_halt() -> None:
    assert Profile.of(plain) == Profile(True, True, False, "")


def test_a_node_opts_out_with_a_reason() -> None:
    assert Profile.of(feed) == Profile(False, True, False, "holds open websocket")


def test_a_halt_node_halts() -> None:
    assert Profile.of(wait.timer("nap", duration="1s")).halts


def test_an_effect_without_a_key_is_not_checkpointable() -> None:
    @node(effects="effectful")
    def send() -> None: ...

    assert Profile.of(send) == Profile(False, reason="it is effectful and has no idempotency key")
    assert Profile.of(send.saying(idempotency_key="auto")).checkpointable


def test_a_generator_streams_and_is_not_replayable_unless_it_says_so() -> None:
    def sync(x: int) -> Iterator[int]:
        yield x

    async def asynchronous(x: int) -> AsyncIterator[int]:
        yield x

    class Called:
        def __call__(self, x: int) -> Iterator[int]:
            yield x

    for fn in (sync, asynchronous, Called()):
        streaming = Node(fn, name="s", output="s")
        assert streaming.streams
        assert Profile.of(streaming)[:2] == (False, False)
        assert Profile.of(Node(fn, name="s", output="s", replayable=True))[:2] == (True, True)

    def listed(x: int) -> list[int]:
        return [x]

    assert Profile.of(Node(listed, replayable=False))[:2] == (True, False)


def test_a_generator_still_collects_its_value() -> None:
    @node(output="parts")
    def parts(n: int) -> Iterator[int]:
        yield from range(n)

    with Host("memory:") as host:
        assert host.run(Flow("f", [parts]), {"n": 3})["parts"] == [0, 1, 2]


def test_a_subflows_profile_is_the_worst_of_its_parts() -> None:
    def stream(x: int) -> Iterator[int]:
        yield x

    halting = Flow("halting", [plain, wait.timer("nap", duration="1s")]).as_node()
    assert Profile.of(halting) == Profile(True, True, True, "")
    worst = Flow("worst", [halting, feed, Node(stream, output="s")]).as_node()
    assert Profile.of(worst) == Profile(False, False, True, "feed: holds open websocket")
    assert Profile.of(Flow("around", [worst]).as_node()).reason == "worst: feed: holds open websocket"


# -- registries -------------------------------------------------------------------------------------------


def test_a_registry_tells_of_a_node_that_is_registered_with_it() -> None:
    registry = Registry([FEED])
    made = registry.node("external.feed", lambda x: x, name="feed", output="rates")
    assert (made.effects, made.determinism) == (Effects.EFFECTFUL, Determinism.NONDETERMINISTIC)
    assert (made.checkpointable, made.reason) == (False, "holds open websocket")
    assert (made.idempotency_key, made.is_simple) == ("feed-{x}", False)
    assert made.id == "external.feed"
    assert registry.find("external.feed") is made


@pytest.mark.parametrize("id_", [f"{__name__}:plain", f"{__name__}.plain"])
def test_a_registry_tells_of_a_function_by_its_module_and_name(id_: str) -> None:
    registry = Registry([{"id": id_, "durability": {"checkpointable": False, "reason": "r"}}])
    flow = Flow("f", [plain], registry=registry, durability="strong")
    assert [d.code for d in validate(flow)] == ["DAG-CKPT-001"]
    assert plain.checkpointable is None


def test_a_node_is_called_in_a_registry_as_in_the_ir() -> None:
    registry = Registry()
    made = registry.node("external.feed", lambda x: x, name="made")
    for n in (plain, feed, made):
        assert Flow("f", [n]).to_ir()["nodes"][0]["identifier"] == n.id
    assert plain.id == f"{__name__}:plain"


def test_a_function_of_a_script_is_called_by_the_name_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(x: int) -> int:
        return x

    script.__module__, script.__qualname__ = "__main__", "script"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "orders.py", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert Node(script).id == "orders:script"


def test_the_flow_has_the_last_word() -> None:
    registry = Registry([{"id": f"{__name__}.feed", "durability": {"checkpointable": False, "reason": "r"}}])
    said: dict[str, Any] = {"feed": {"checkpointable": True}}
    flow = Flow("f", [feed], registry=registry, profiles=said, durability="strong")
    assert not validate(flow)
    assert Profile.of(flow["feed"]).checkpointable
    assert (
        Profile.of(Flow("f", [feed], profiles={"feed": Profile(replayable=False)})["feed"]).replayable
        is False
    )


def test_what_a_flow_says_of_effects_holds_when_it_runs() -> None:
    @node(output="a")
    def send(x: int) -> int:
        return x

    @node
    def last(a: int) -> None: ...

    said = {"send": {"effects": "effectful", "idempotency": {"key": "k-{x}"}}}
    with Host("memory:") as host:
        host.run(Flow("f", [send, last], profiles=said), {"x": 5}, run_id="r")
        [step] = [s for r in host.history("r") for s in r.steps if s.path == "send"]
        assert step.key == "k-5"
        assert "effect" in [r.trigger for r in host.history("r")]


def test_a_registry_is_read_from_json_and_keeps_what_it_does_not_know() -> None:
    registry = Registry.from_json('[{"id": "a.b", "kind": "activity", "durability": {"cursor": "x"}}]')
    assert registry.to_json() == [{"id": "a.b", "kind": "activity", "durability": {"cursor": "x"}}]
    assert (list(registry), len(registry), "a.b" in registry) == (["a.b"], 1, True)
    assert registry["a.b"]["kind"] == "activity"


@pytest.mark.parametrize(
    "text", ["{", "{}", "[1]", '[{"id": ""}]', '[{"durability": {}}]', "[" * 100_000, b"\xff", 3]
)
def test_what_is_no_registry_is_refused(text: Any) -> None:
    with pytest.raises(BadRequest):
        Registry.from_json(text)


def test_two_entries_for_one_node_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"two entries for 'a\.b'"):
        Registry.from_json('[{"id": "a.b"}, {"id": "a.c"}, {"id": "a.b", "effects": "pure"}]')


@pytest.mark.parametrize("id_", ["std.timer.wait", "std.mine", 3])
def test_no_one_registers_what_comes_with_everstep(id_: Any) -> None:
    with pytest.raises(BadRequest, match="identifier"):
        Registry().node(id_, lambda: 1, name="mine")


@pytest.mark.parametrize(
    "entry",
    [
        {"effects": "some"},
        {"determinism": "yes"},
        {"durability": []},
        {"durability": {"checkpointable": "no"}},
        {"durability": {"reason": 3}},
        {"idempotency": {"key": ""}},
        {"idempotency": "auto"},
    ],
)
def test_an_entry_that_means_nothing_is_refused_by_name(entry: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"a\.b"):
        Registry([{"id": "a.b", **entry}])
    with pytest.raises(BadRequest, match="plain"):
        Flow("f", [plain], profiles={"plain": entry})


def test_a_flows_own_profile_has_no_other_fields() -> None:
    with pytest.raises(BadRequest, match="chekpointable"):
        Flow("f", [plain], profiles={"plain": {"chekpointable": False}})


@pytest.mark.parametrize("section", ["durability", "idempotency"])
def test_nor_have_its_sections(section: str) -> None:
    with pytest.raises(BadRequest, match=rf"{section}\.chekpointable"):
        Flow("f", [plain], profiles={"plain": {section: {"chekpointable": False}}})


def test_no_profile_makes_nonsense_of_what_is_asked_after_a_crash() -> None:
    careful = Node(lambda x: x, name="n", effects="effectful", idempotency_key="auto", on_unknown="stop")
    with pytest.raises(BadRequest, match="unknown effect"):
        Flow("f", [careful], profiles={"n": {"effects": "pure"}})


def test_no_profile_takes_a_halt_away() -> None:
    with pytest.raises(BadRequest, match="halts"):
        Flow("f", [wait.timer("nap", duration="1s")], profiles={"nap": {"halts": False}})


@pytest.mark.parametrize("said", [{"checkpointable": "no"}, {"replayable": 1}, {"reason": None}])
def test_a_node_says_plainly_what_it_is(said: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        Node(lambda: 1, name="n", **said)


def test_what_is_said_of_a_node_does_not_change_the_structure() -> None:
    bare, told = Flow("f", [plain]), Flow("f", [plain], profiles={"plain": {"effects": "read_only"}})
    assert bare.plan.hash == told.plan.hash


# -- inside flows -----------------------------------------------------------------------------------------


@node(output="sent", effects="effectful")
def send(x: int) -> int:
    return x


@node
def last(sent: int) -> None: ...


BILLING = Flow("billing", [send, last])
KEYED = {"idempotency": {"key": "k-{x}"}}


def missing_keys(flow: Flow) -> list[str]:
    return [d.node for d in validate(flow) if d.code == "DAG-CKPT-004"]


@pytest.mark.parametrize("durability", ["nested", "atomic"])
def test_a_flow_has_the_last_word_on_nodes_of_the_flows_inside_it(durability: Any) -> None:
    inner = Flow("inner", [send, last], profiles={"send": {"checkpointable": False, "reason": "r"}})
    around = Flow("around", [inner.as_node(durability=durability).lift("sent")])
    outer = [around.as_node(), around.as_node(name="other").with_outputs("other")]
    assert missing_keys(Flow("f", outer, durability="strong")) == ["around/inner/send", "other/inner/send"]
    said = {"around/inner/send": {"checkpointable": True, "idempotency": {"key": "auto"}}}
    told = Flow("f", outer, durability="strong", profiles=said)
    assert missing_keys(told) == ["other/inner/send"]
    assert [Profile.of(n).checkpointable for n in told.nodes] == [True, False]
    assert told.plan.hash == Flow("f", outer).plan.hash
    assert missing_keys(Flow("f", outer, durability="strong")) == ["around/inner/send", "other/inner/send"]


def test_what_a_flow_says_of_inner_effects_holds_when_it_runs_and_in_the_ir() -> None:
    flow = Flow("f", [BILLING.as_node()], durability="strong", profiles={"billing/send": KEYED})
    again = Flow.from_ir(flow.to_ir(), flow.functions())
    with Host("memory:") as host:
        for k, told in enumerate((flow, again)):
            host.run(told, {"x": 5}, run_id=f"r{k}")
            [step] = [s for r in host.history(f"r{k}") for s in r.steps if s.path == "billing/send"]
            assert step.key == "k-5"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("billing/sent", "'sent', which is not a node"),
        ("billing/send/x", "'send' is no flow"),
        ("billin/send", "Did you mean 'billing'"),
        ("billing", "is a flow"),
        ("plain/x", "'plain' is no flow"),
        ("billing/", "is not a node"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, says: str) -> None:
    draft = Flow.draft("f", [plain, BILLING.as_node()], profiles={path: {"replayable": True}})
    [found] = validate(draft).errors
    assert (found.code, found.node) == ("flow.unknown_profile", path.rstrip("/"))
    assert says in str(found)


def test_what_a_profile_breaks_inside_is_said_with_its_path() -> None:
    inner = Flow("inner", [Node(lambda x: x, name="make", output="sent", persist="no"), last])
    draft = Flow.draft(
        "f", [inner.as_node(durability="atomic")], profiles={"inner/make": {"effects": "effectful"}}
    )
    assert [(d.code, d.node) for d in validate(draft).errors] == [("flow.not_durable", "inner/make")]
    with pytest.raises(BadRequest, match="halts"):
        pause = Flow("pause", [wait.timer("nap", duration="1s")])
        Flow("f", [pause.as_node()], profiles={"pause/nap": {"halts": False}})
