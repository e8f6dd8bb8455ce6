"""Each promise has a check that can fail: of a world in which all went well, one thing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest

from everstep import Flow, node
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.records import CheckpointRecord, StepRecord
from everstep.model.waits import WaitStatus
from everstep.testing.simulation.checks import INVARIANTS, Judge, Kept, Reader, Told
from everstep.testing.simulation.explore import without_collector
from everstep.testing.simulation.faults import Chosen, Nothing, Taken
from everstep.testing.simulation.ledger import Body, Claim, Spent
from everstep.testing.simulation.process import BEGAN
from everstep.testing.simulation.trial import RUN, End, FlowTrial, compared, ends_of
from everstep.testing.simulation.world import World
from tests.simulation.flows import SUBJECTS, charge, price, take


@pytest.fixture(scope="module", autouse=True)
def quietly() -> Iterator[None]:
    with without_collector():
        yield


@node(output="letter", effects="effectful", idempotency_key="auto")
def send(receipt: str) -> str:
    return f"letter with {receipt}"


class Place:
    """A world that is over, and what is to be judged of it."""

    def __init__(self, trial: FlowTrial, world: World, whole: dict[str, End]) -> None:
        self.trial, self.world, self.whole = trial, world, whole
        self.ledger = world.ledger
        self.judge = Judge(world, Reader())

    @property
    def kept(self) -> Kept:
        return self.judge.kept[RUN]

    def body(self, path: str) -> Body:
        return next(body for body in reversed(self.ledger.bodies) if body.path == path)

    def again(self, path: str, **changed: object) -> None:
        """Let a node be called once more."""
        self.ledger.bodies.append(self.body(path)._replace(order=self.ledger.tick(), **changed))  # type: ignore[arg-type]

    def row(self, **changed: object) -> None:
        self.kept.row = msgspec.structs.replace(self.kept.row, **changed)

    def broken(self) -> set[str]:
        found = [*self.judge.all(self.world.explained), *compared(ends_of(self.judge.kept), self.whole)]
        return {it.invariant for it in found}


EFFECTS = FlowTrial(
    Flow("two-effects", [take, price, charge, send], durability="strong"),
    {"customer": "ada"},
    doubles={
        "charge": lambda order, price: f"{order}: {price}",
        "send": lambda receipt: f"letter with {receipt}",
    },
)
RETRYING = SUBJECTS["spending"].trial()
APPROVED = SUBJECTS["approved"].trial()


def result(place: Place) -> None:
    place.whole[RUN] = place.whole[RUN]._replace(status=Status.FAILED)


def other_values(place: Place) -> None:
    values = {**place.whole[RUN].values(), "letter": "'another'"}
    place.whole[RUN] = place.whole[RUN]._replace(digests={}, values=lambda: values)


def step_twice(place: Place) -> None:
    place.again("take")


def other_key(place: Place) -> None:
    place.again("charge", key="another", is_sure=False)


def other_inputs(place: Place) -> None:
    place.again("charge", given="price=0", is_sure=False)


def unknown_effect(place: Place) -> None:
    place.again("charge", visit=7)


def used_before_it_was_kept(place: Place) -> None:
    place.judge._recorded[RUN, "charge", 1] = place.ledger.tick()


def dropped(place: Place) -> None:
    made = place.body("charge")._replace(endures=True)
    ended = [one._replace(body=made) if one.body.path == "charge" else one for one in place.ledger.ended]
    place.ledger.bodies = [made if body.path == "charge" else body for body in place.ledger.bodies]
    place.ledger.ended = ended
    place.ledger.claims.append(Claim(place.ledger.tick(), made.tag, RUN, 0))
    place.again("charge", is_sure=False)


def made_by_another(place: Place) -> None:
    place.again("charge", owner="rival.1", visit=7)


def made_beside_another(place: Place) -> None:
    place.again("charge", beside="rival.1", visit=7)


def _changed_steps(place: Place, change: Callable[[StepRecord], list[StepRecord]]) -> None:
    def changed(record: CheckpointRecord) -> CheckpointRecord:
        steps = tuple(new for step in record.steps for new in change(step))
        return msgspec.structs.replace(record, steps=steps)

    place.kept.take([changed(record) for record in place.kept.records])


def attempt_twice(place: Place) -> None:
    _changed_steps(place, lambda step: [step, step] if step.status is Status.RETRYING else [step])


def attempts_forgotten(place: Place) -> None:
    def first(step: StepRecord) -> list[StepRecord]:
        return [msgspec.structs.replace(step, attempts=1) if step.status is Status.COMPLETED else step]

    _changed_steps(place, first)


def settled_twice(place: Place) -> None:
    place.ledger.settled *= 2


def _wait(place: Place, **changed: object) -> None:
    [wait] = place.kept.waits
    place.kept.waits = [msgspec.structs.replace(wait, **changed)]


def answered_late(place: Place) -> None:
    _wait(place, due_at=BEGAN)


def signal_lost(place: Place) -> None:
    place.ledger.sent.append((RUN, "S1"))


def event_missed(place: Place) -> None:
    [wait] = place.kept.waits
    place.ledger.missed.append(("E1", wait))


def not_on_record(place: Place) -> None:
    place.ledger.spends.append(Spent(RUN, {"usd": Decimal(1)}, is_counted=True))
    place.ledger.spends.append(Spent(RUN, {"usd": Decimal(1)}, is_counted=False))


def counted_twice(place: Place) -> None:
    place.ledger.spends = [spent for spent in place.ledger.spends if spent.is_counted][:1]
    place.ledger.spends.append(place.ledger.spends[0]._replace(is_counted=False))


def lease_left(place: Place) -> None:
    place.row(lease=Lease(RUN, "someone", 2, BEGAN + timedelta(days=1)))


def other_in_memory(place: Place) -> None:
    [live] = place.ledger.driven.values()
    live.space.slots.pop("price")


def checkpoint_gone(place: Place) -> None:
    place.ledger.accepted[RUN, 3, "another"] = None


def run_gone(place: Place) -> None:
    place.ledger.accepted["B", 1, "another"] = None


def spool_lost(place: Place) -> None:
    place.ledger.spooled.append((RUN, "another"))


def given_up(place: Place) -> None:
    place.row(status=Status.ABANDONED)


def flawed(place: Place) -> None:
    place.kept.flaws.append("it is not as it was")


def store_flawed(place: Place) -> None:
    place.world.store.flaws = lambda: ["a page is torn"]  # type: ignore[method-assign]


def skipped_and_called(place: Place) -> None:
    [told] = place.world.explained
    step = next(step for step in told.explanation.recorded if step.path == "take")
    place.ledger.bodies.append(place.body("send")._replace(path=step.path, order=place.ledger.tick()))


def made_twice_untold(place: Place) -> None:
    [told] = place.world.explained
    starts = tuple(msgspec.structs.replace(step, may_have_started=False) for step in told.explanation.starts)
    explanation = msgspec.structs.replace(told.explanation, starts=starts)
    place.world.explained = [Told(told.order, told.tag, explanation)]


def still_running(place: Place) -> None:
    place.row(status=Status.RUNNING)


def halted_for_nothing(place: Place) -> None:
    place.row(status=Status.HALTED)


def could_go_on(place: Place) -> None:
    place.row(status=Status.HALTED)
    _wait(place, status=WaitStatus.SETTLED)


def still_spooled(place: Place) -> None:
    place.world.machine().spooled[RUN] = []


def troubled(place: Place) -> None:
    place.world.troubles.append("main ended with an error")


CRASH = [Taken("app.1 after body charge 1", "crash")]
CHANGES: list[tuple[str, FlowTrial, Callable[[Place], None]]] = [
    ("result", EFFECTS, result),
    ("result", EFFECTS, other_values),
    ("no step twice", EFFECTS, step_twice),
    ("effects", EFFECTS, other_key),
    ("effects", EFFECTS, other_inputs),
    ("effects", EFFECTS, unknown_effect),
    ("kept", EFFECTS, used_before_it_was_kept),
    ("kept", EFFECTS, dropped),
    ("one owner", EFFECTS, made_by_another),
    ("one owner", EFFECTS, made_beside_another),
    ("attempts", RETRYING, attempt_twice),
    ("attempts", RETRYING, attempts_forgotten),
    ("waits", APPROVED, settled_twice),
    ("waits", APPROVED, answered_late),
    ("signals", EFFECTS, signal_lost),
    ("events", APPROVED, event_missed),
    ("budgets", RETRYING, not_on_record),
    ("budgets", RETRYING, counted_twice),
    ("leases", EFFECTS, lease_left),
    ("fold", EFFECTS, other_in_memory),
    ("durable", EFFECTS, checkpoint_gone),
    ("durable", EFFECTS, run_gone),
    ("spool", EFFECTS, spool_lost),
    ("abandoned", EFFECTS, given_up),
    ("verify", EFFECTS, flawed),
    ("store", EFFECTS, store_flawed),
    ("explain", EFFECTS, skipped_and_called),
    ("explain", EFFECTS, made_twice_untold),
    ("progress", EFFECTS, still_running),
    ("progress", EFFECTS, halted_for_nothing),
    ("progress", APPROVED, could_go_on),
    ("progress", EFFECTS, still_spooled),
    ("no surprises", EFFECTS, troubled),
]
"""Which promise is broken, in a world of which trial, by what."""


@pytest.mark.parametrize(("invariant", "trial", "change"), CHANGES, ids=[it[2].__name__ for it in CHANGES])
def test_a_promise_that_is_broken_is_named(
    invariant: str, trial: FlowTrial, change: Callable[[Place], None]
) -> None:
    world = trial.world(0, Chosen(CRASH) if invariant == "explain" else Nothing())
    world.run()
    place = Place(trial, world, trial.ends(world, Reader()))
    assert place.broken() == set()
    change(place)
    assert invariant in place.broken()
    world.close()


def test_every_promise_is_broken_by_something() -> None:
    assert {invariant for invariant, _, _ in CHANGES} == set(INVARIANTS)
