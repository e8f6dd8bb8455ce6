"""Files that wait on this machine, tokens and structures of flows that say anything: named errors only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from everstep import Flow, Host, node, wait
from everstep.errors import EverstepError, StateCorrupted, StoreError
from everstep.graph.compile.blueprint import read_plan
from everstep.registry import Opened
from everstep.stores.memory import MemoryStore
from everstep.stores.objects import names
from everstep.stores.objects.entries import sealed
from everstep.testing import ManualClock
from tests.integration.runtime.outage.test_spool import spooled
from tests.integration.runtime.outage.test_store_failures import Place
from tests.unit.codec.fuzzing import IS_SOAK, spoiled

TRIES = 2000 if IS_SOAK else 40


@node(output="b")
def twice(a: int) -> int:
    return 2 * a


FLOW = Flow("f", [twice, wait.question("why", kind="text"), wait.approval("ok")])


def test_a_damaged_spool_is_refused_by_name_or_holds_what_was_written(tmp_path: Path) -> None:
    place, chance = Place(tmp_path), Random(3 if not IS_SOAK else None)
    file = spooled(place)
    whole = file.read_bytes()
    with place.host() as host:
        written = [record.digest for record in host.storage.spooled("A")]
        assert len(written) == 2
        looks: list[Callable[[], object]] = [
            lambda: host.storage.verify("A"),
            lambda: host.explain("A", place.flow()),
            lambda: host.state("A"),
        ]
        for _ in range(TRIES):
            file.write_bytes(spoiled(chance, whole, (b"\0" * 99, whole[len(whole) // 2 :])))
            try:
                found = [record.digest for record in host.storage.spooled("A")]
                assert found == written[: len(found)]
            except EverstepError as error:
                assert isinstance(error, StateCorrupted | StoreError)
            for look in looks:
                try:
                    look()
                except EverstepError as error:
                    assert isinstance(error, StateCorrupted | StoreError)
        file.write_bytes(whole)
        assert [d.checkpoints for d in host.storage.drain()] == [2]


def test_any_text_is_a_token_of_ours_or_none(tmp_path: Path) -> None:
    chance = Random(5 if not IS_SOAK else None)
    with Host("memory:", key="0" * 32) as host:
        halted = host.run(FLOW, {"a": 1})
        token = next(w.token for w in halted.waits if w.node == "why")
        assert token is not None
        for _ in range(TRIES * 5):
            text = spoiled(chance, token.encode()).decode("utf-8", errors="replace")
            for use in (lambda text=text: host.wait(text), lambda text=text: host.answer(text, "because")):
                with pytest.raises(EverstepError) as refused:
                    use()
                assert refused.value.code in {"token.invalid", "wait.not_found", "request.invalid"}
        assert host.answer(token, "because").status == "settled"


def test_a_damaged_structure_is_refused_by_name() -> None:
    chance, whole = Random(6 if not IS_SOAK else None), FLOW.plan.blueprint
    inner = Flow("outer", [FLOW.as_node().lift("b")]).plan.blueprint
    for _ in range(TRIES * 20):
        try:
            read_plan(spoiled(chance, whole, (inner,)), "f")
        except StateCorrupted:
            continue


def test_a_structure_whose_bytes_are_others_is_refused_before_it_is_read() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    with Host(Opened(store, store.artifacts, "memory:"), clock=clock) as host:
        host.run(FLOW, {"a": 1}, run_id="A")
    name, known = names.flow_name(FLOW.plan.hash), store.lines.flow(FLOW.plan.hash)
    assert known is not None
    altered = msgspec.json.encode({**msgspec.json.decode(known.blueprint), "tasks": ["twice"]})
    store.bucket.put(name, sealed(msgspec.msgpack.encode(msgspec.structs.replace(known, blueprint=altered))))
    with Host(Opened(store, store.artifacts, "memory:"), clock=clock) as host:
        with pytest.raises(StateCorrupted, match="structure of flow 'f' was altered"):
            host.state("A")
        assert [flaw.kind.value for flaw in host.storage.verify("A")[0].flaws] == ["blueprint"]
