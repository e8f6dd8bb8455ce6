"""What `compat` says of a run is what a resume does: *continues* means that it does not raise.

Each case is made from a seed: a flow whose values are objects, stopped somewhere, and a next version of it
with other classes, nodes and wiring.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from everstep import Flow, Host, Node, node
from everstep.errors import EverstepError, FlowChanged, ValueUnreadable
from everstep.model.enums import Persist
from tests.unit.codec.fuzzing import IS_SOAK

MODULE = "everstep_test_shop"
SEEDS = range(3_000 if IS_SOAK else 150)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module whose classes change from one version of a program to the next."""
    module = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    yield module


def defines(shop: Any, name: str, *fields: Any) -> None:
    made = dataclasses.make_dataclass(name, fields)
    made.__module__, made.__qualname__ = MODULE, name
    setattr(shop, name, made)


def made(shop: Any, name: str, n: int) -> Any:
    kind = getattr(shop, name, None)
    if kind is None:
        return n
    needed = [f for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    return kind(*[n] * len(needed))


class Version:
    """One version of a program: which node writes an object of which class, and reads what."""

    def __init__(self, chance: Random) -> None:
        self.count = chance.randint(2, 6)
        self.reads = {k: sorted(chance.sample(range(k), chance.randint(0, k))) for k in range(self.count)}
        self.classes = [f"C{chance.randrange(3)}" for _ in range(self.count)]
        self.nests = chance.random() < 0.3
        self.transient = {k for k in range(self.count) if not self.nests and chance.random() < 0.2}
        self.options: dict[int, str] = {}
        self.names = [f"n{k}" for k in range(self.count)]
        self.stop = chance.randrange(self.count)
        self.left_out: set[int] = set()

    def node_of(self, shop: Any, k: int, *, stops: bool) -> Node:
        def body(**given: Any) -> Any:
            if stops and k == self.stop:
                raise KeyboardInterrupt
            return [made(shop, self.classes[k], k)]

        inputs = ["x", *(f"v{r}" for r in self.reads[k])]
        persist = Persist.NO if k in self.transient else Persist.AUTO
        return node(name=self.names[k], output=f"v{k}", inputs=inputs, persist=persist)(body)

    def flow(self, shop: Any, *, stops: bool) -> Flow:
        nodes = [self.node_of(shop, k, stops=stops) for k in range(self.count) if k not in self.left_out]
        if self.nests:
            inner = Flow("inner", nodes).as_node(durability="nested")
            last = node(name="last", output="end", inputs=[f"v{self.count - 1}"])(lambda **_: 1)
            return Flow("f", [inner, last], durability="strong")
        return Flow("f", nodes, durability="strong")

    def change(self, chance: Random, shop: Any) -> None:
        """Become the next version."""
        for name in ("C0", "C1", "C2"):
            match chance.randrange(6):
                case 0:
                    defines(shop, name, ("other", int))
                case 1:
                    defines(shop, name, ("a", int), ("more", int))
                case 2:
                    defines(shop, name, ("a", int), ("more", int, dataclasses.field(default=1)))
                case 3:
                    delattr(shop, name)
                case _:
                    pass
        k = chance.randrange(self.count)
        match chance.randrange(6):
            case 0:
                self.reads[k] = sorted(chance.sample(range(k), chance.randint(0, k)))
            case 1:
                self.names[k] = f"m{k}"
            case 2 if k == self.count - 1 and not self.nests:
                self.left_out = {k}
            case 3:
                self.count += 1
                self.reads[self.count - 1] = sorted(chance.sample(range(k), chance.randint(0, k)))
                self.classes.append("C0")
                self.names.append("added")
            case _:
                pass


def outcome(host: Host, flow: Flow) -> Exception | str:
    try:
        return str(host.resume("r", flow).status)
    except EverstepError as error:
        return error


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_of_which_compat_says_that_it_continues_can_be_resumed(seed: int, shop: Any) -> None:
    chance = Random(seed)
    for name in ("C0", "C1", "C2"):
        defines(shop, name, ("a", int))
    version = Version(chance)
    with Host("memory:") as host:
        try:
            host.run(version.flow(shop, stops=True), {"x": 1}, run_id="r")
        except KeyboardInterrupt:
            pass
        else:
            pytest.fail("the run was to stop")
        version.change(chance, shop)
        try:
            flow = version.flow(shop, stops=False)
        except EverstepError:
            return  # no version that could be deployed
        told = host.versions.compat("r", flow)
        ended = outcome(host, flow)
        if told.verdict == "continues":
            assert ended in ("completed", "failed"), (told, ended)
        elif told.code == ValueUnreadable.code:
            assert isinstance(ended, EverstepError), (told, ended)


def test_some_of_these_continue_and_some_do_not(shop: Any) -> None:
    """Else the property above would say nothing."""
    said: set[str] = set()
    for seed in range(40):
        chance = Random(seed)
        for name in ("C0", "C1", "C2"):
            defines(shop, name, ("a", int))
        version = Version(chance)
        with Host("memory:") as host:
            with pytest.raises(KeyboardInterrupt):
                host.run(version.flow(shop, stops=True), {"x": 1}, run_id="r")
            version.change(chance, shop)
            told = host.versions.compat("r", version.flow(shop, stops=False))
            said.add(f"{told.verdict} {told.code}".strip())
    assert {"continues", f"refused {ValueUnreadable.code}", f"needs_migration {FlowChanged.code}"} <= said
