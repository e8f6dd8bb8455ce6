"""Effects inside a visit under way keep their idempotency keys when the flow's next version renames what is
around them, or them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep import Context, Flow, Host, Node, Retry, migrate
from everstep.engine.keys import automatic_key
from everstep.model.records import CheckpointRecord
from everstep.runtime.drive.chain_writer import Journal

pytestmark = pytest.mark.stores("memory", "sqlite")


class Bank:
    """Pays, and the first times interrupts the process after it."""

    def __init__(self, deaths: int = 1) -> None:
        self.deaths = deaths
        self.keys: dict[Any, list[str]] = {}
        """The keys that each piece was paid with."""

    def node(self, name: str, **options: Any) -> Node:
        options = {"effects": "effectful", "idempotency_key": "auto", **options}
        return Node(self.pay, name=name, output="paid", **options)

    def pay(self, ctx: Context, piece: int) -> int:
        self.keys.setdefault(piece, []).append(ctx.idempotency_key)
        if self.deaths:
            self.deaths -= 1
            raise KeyboardInterrupt
        return piece


Build = Callable[[Bank, str, str], Node]
"""Makes a node around the paying of a bank; the names are those of the node and of the paying."""


def mapped(bank: Bank, outer: str, inner: str) -> Node:
    return bank.node(outer).map_over("piece", max_concurrency=1).with_inputs(piece="pieces")


def nested(bank: Bank, outer: str, inner: str) -> Node:
    return Flow("sub", [bank.node(inner)]).as_node(name=outer).with_inputs(piece="one")


def behind_a_step(bank: Bank, outer: str, inner: str) -> Node:
    first = Node(lambda raw: raw, name="first", inputs=["raw"], output="piece")
    return Flow("sub", [first, bank.node(inner)]).as_node(name=outer).with_inputs(raw="one")


def atomic(bank: Bank, outer: str, inner: str) -> Node:
    return Flow("sub", [bank.node(inner)]).as_node(name=outer, durability="atomic").with_inputs(piece="one")


def mapped_flow(bank: Bank, outer: str, inner: str) -> Node:
    return (
        Flow("sub", [bank.node(inner)])
        .as_node(name=outer)
        .map_over("piece", max_concurrency=1)
        .with_inputs(piece="pieces")
    )


def map_in_a_flow(bank: Bank, outer: str, inner: str) -> Node:
    over = bank.node(inner).map_over("piece", max_concurrency=1).with_inputs(piece="pieces")
    return Flow("sub", [over]).as_node(name=outer)


def deep(bank: Bank, outer: str, inner: str) -> Node:
    return Flow("around", [mapped_flow(bank, "between", inner)]).as_node(name=outer)


SHAPES: list[Build] = [mapped, nested, behind_a_step, atomic, mapped_flow, map_in_a_flow, deep]
FLOWS = SHAPES[1:]
BETWEEN: dict[Build, str] = {deep: "between/"}
"""What lies between the outer node and the paying."""
INPUTS = {"pieces": [7, 8], "one": 7}


def shop(made: Build, bank: Bank, outer: str, inner: str = "pay", **how: Any) -> Flow:
    reads_all = Node(lambda one, pieces: 0, name="look", inputs=["one", "pieces"], output="looked")
    return Flow("shop", [reads_all, made(bank, outer, inner)], durability="strong", **how)


def rename_inner(made: Build, outer: str, old: str, new: str) -> migrate.Migration:
    return migrate.rename_node(f"{outer}/{BETWEEN.get(made, '')}{old}", new)


def dies(call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        call(*args, **kwargs)


@pytest.fixture(params=[False, True], ids=["", "keyframes"])
def keyframes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each put as it is, and each as a keyframe."""
    record = Journal._record

    def as_keyframe(self: Journal, *args: Any) -> CheckpointRecord:
        made = record(self, *args)
        return made if made.keyframe else self._keyframe(made)

    if request.param:
        monkeypatch.setattr(Journal, "_record", as_keyframe)


@pytest.mark.parametrize("made", SHAPES)
def test_an_effect_keeps_its_key_when_what_is_around_it_is_renamed(host: Host, made: Build) -> None:
    bank = Bank()
    dies(host.run, shop(made, bank, "pack"), INPUTS, run_id="r")
    host.resume("r", shop(made, bank, "wrap", migrations=[migrate.rename_node("pack", "wrap")]))
    first, again = bank.keys[7]
    assert first == again


@pytest.mark.parametrize("made", FLOWS)
def test_a_renamed_effect_inside_keeps_its_key(host: Host, made: Build) -> None:
    bank = Bank()
    dies(host.run, shop(made, bank, "pack"), INPUTS, run_id="r")
    rules = [rename_inner(made, "pack", "pay", "charge")]
    host.resume("r", shop(made, bank, "pack", "charge", migrations=rules))
    first, again = bank.keys[7]
    assert first == again


@pytest.mark.usefixtures("keyframes")
@pytest.mark.parametrize("made", SHAPES)
def test_a_key_outlives_one_rename_after_the_other_and_crashes_between(host: Host, made: Build) -> None:
    bank = Bank(deaths=4)
    dies(host.run, shop(made, bank, "pack"), INPUTS, run_id="r")
    rules = [rename_inner(made, "pack", "pay", "charge")] if made in FLOWS else []
    rules += [migrate.rename_node("pack", "wrap")]
    second = shop(made, bank, "wrap", "charge", migrations=rules)
    dies(host.resume, "r", second)
    dies(host.resume, "r", second)
    rules = [rename_inner(made, "wrap", "charge", "bill")] if made in FLOWS else []
    rules += [migrate.rename_node("wrap", "box")]
    third = shop(made, bank, "box", "bill", migrations=rules)
    dies(host.resume, "r", third)
    host.resume("r", third)
    assert len(bank.keys[7]) == 5 and len(set(bank.keys[7])) == 1
    assert set(bank.keys[7]).isdisjoint(bank.keys.get(8, ()))
    assert [found.problem for found in host.storage.verify("r")] == [""]


@pytest.mark.usefixtures("keyframes")
def test_an_item_that_is_tried_again_keeps_its_key(host: Host) -> None:
    keys: list[str] = []

    def pay(ctx: Context, piece: int) -> int:
        keys.append(ctx.idempotency_key)
        if ctx.attempt == 1:
            raise ConnectionError
        if len(keys) == 2:
            raise KeyboardInterrupt
        return piece

    def made(name: str, **how: Any) -> Flow:
        retry = Retry(3, first=0, on=ConnectionError)
        paying = Node(pay, name=name, output="paid", effects="effectful", idempotency_key="auto", retry=retry)
        over = paying.map_over("piece").with_inputs(piece="pieces")
        return Flow("shop", [over], durability="strong", **how)

    dies(host.run, made("pack"), {"pieces": [7]}, run_id="r")
    host.resume("r", made("wrap", migrations=[migrate.rename_node("pack", "wrap")]))
    assert len(keys) == 3 and len(set(keys)) == 1


@pytest.mark.parametrize("made", SHAPES)
def test_explain_tells_the_key_that_a_resume_uses(host: Host, made: Build) -> None:
    bank = Bank()
    dies(host.run, shop(made, bank, "pack"), INPUTS, run_id="r")
    second = shop(made, bank, "wrap", migrations=[migrate.rename_node("pack", "wrap")])
    assert bank.keys[7][0] in [planned.key for planned in host.explain("r", second).starts]
    host.versions.migrate("r", second)
    assert bank.keys[7][0] in [planned.key for planned in host.explain("r", second).starts]


def test_what_a_renamed_flow_was_called_is_not_told_as_a_key(host: Host) -> None:
    bank = Bank()
    dies(host.run, shop(nested, bank, "pack"), INPUTS, run_id="r")
    host.versions.migrate("r", shop(nested, bank, "wrap", migrations=[migrate.rename_node("pack", "wrap")]))
    told = host.history("r")[-1].idempotency
    assert told is None or told.pending == {}


def test_a_fork_with_keys_of_its_own_has_no_key_from_before_a_rename(host: Host) -> None:
    bank = Bank()
    dies(host.run, shop(mapped, bank, "pack"), INPUTS, run_id="r")
    second = shop(mapped, bank, "wrap", migrations=[migrate.rename_node("pack", "wrap")])
    host.versions.migrate("r", second)
    host.fork("r", fork_id="f")
    host.resume("f", second)
    assert bank.keys[7][1] == automatic_key("f", "wrap#0", 1)


def test_a_visit_that_begins_after_a_rename_has_keys_of_the_new_names(host: Host) -> None:
    bank = Bank(deaths=0)

    def stops(one: int) -> list[int]:
        raise KeyboardInterrupt

    def made(name: str, split: Any, **how: Any) -> Flow:
        first = Node(split, name="split", inputs=["one"], output="pieces")
        return Flow("shop", [first, mapped(bank, name, "")], durability="strong", **how)

    dies(host.run, made("pack", stops), {"one": 7}, run_id="r")
    host.resume("r", made("wrap", lambda one: [one], migrations=[migrate.rename_node("pack", "wrap")]))
    assert bank.keys == {7: [automatic_key("r", "wrap#0", 1)]}
