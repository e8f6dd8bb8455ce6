"""People of a simulated fleet who vote on approvals at random times; and what must come of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

import msgspec

from everstep import Context, Host, Node, chain, node, wait
from everstep.client.views import RunInfo, WaitInfo
from everstep.errors import BadRequest, LeaseConflict, StoreError, VotedAlready, VoteRefused
from everstep.graph.author.flow import Flow
from everstep.model.enums import Status
from everstep.model.waits import SettledBy, Vote, Voting
from everstep.runtime.waits.voting import voting_of
from everstep.testing.simulation.checks import Broken, Judge, Kept, Reader
from everstep.testing.simulation.fleet import FleetTrial, FleetWorld, WorkerPlace, persist
from everstep.testing.simulation.hub import SECOND
from everstep.testing.simulation.trial import End
from everstep.testing.simulation.world import Here, World
from tests.simulation.stores import place
from tests.simulation.users.flows import effect, flow
from tests.simulation.users.people import LATE, Wish

VOTERS = ("ann", "bob", "cleo", "dan")
BOARD = VOTERS[:3]
"""Who decides where approvers are named: not everyone who would."""
FORKER = "dan"
STARTERS = ("ann", "cleo", "zoe")
QUORUM = 2
LOOK = 1.0


def _lead() -> Node:
    return effect("lead", ["x"], "led", lambda x: x)


def _pay() -> Node:
    return effect("pay", ["sign"], "paid", lambda sign: sign.approved)


def board() -> Flow:
    """Two of three must approve, before an effect."""
    asks = wait.approval("sign", approvers=list(BOARD), quorum=QUORUM, not_by_starter=True)
    return flow("board", [chain(_lead(), asks, _pay())], "partial")


def hurried() -> Flow:
    """Two of anyone must approve, and the clock rejects."""
    asks = wait.approval("sign", quorum=QUORUM, timeout="4s")
    return flow("hurried", [chain(_lead(), asks, _pay())], "strong")


def midway() -> Flow:
    """Two of three must approve in the middle of a node."""

    @node(output="sign", halts=True)
    def agent(x: int, ctx: Context) -> Any:
        return ctx.wait(wait.approval("sign", approvers=list(BOARD), quorum=QUORUM, not_by_starter=True))

    return flow("midway", [agent], "partial")


FLOWS: Mapping[str, Flow] = {made.name: made for made in (board(), hurried(), midway())}


def script(seed: int) -> tuple[Wish, ...]:
    """Return what is started, as it follows from a seed; who votes when, the seed says too."""
    chance = Random(seed)
    wishes = []
    for number in range(chance.randint(1, 3)):
        starts = round(chance.uniform(0, 3), 3)
        then = round(starts + 0.5 + chance.expovariate(0.5), 3)
        wishes.append(
            Wish(
                run_id=f"R{number}",
                flow=chance.choice(list(FLOWS)),
                x=chance.randint(0, 99),
                by=chance.choice(STARTERS),
                starts=starts,
                answers=0,
                cancels=then if chance.random() < 0.1 else None,
                forks=then if chance.random() < 0.3 else None,
            )
        )
    return tuple(wishes)


def approves(run_id: str, voter: str) -> bool:
    """Say what a voter says of a run, whenever."""
    return zlib.crc32(f"{run_id} {voter}".encode()) % 5 > 0


class Voter:
    """One person, who votes on whatever is open, some time after it was seen."""

    def __init__(self, name: str, wishes: tuple[Wish, ...]) -> None:
        self._name = name
        self._wishes = wishes

    def __call__(self, world: FleetWorld, here: Here) -> None:
        with here.host() as host:
            if self._name == VOTERS[0]:
                self._begin(world, here, host)
            while not self._is_done(world, here, host):
                here.sleep(LOOK)
                for opened in persist(here, partial(host.waits, limit=100)):
                    self._vote(world, here, host, opened)

    def _begin(self, world: FleetWorld, here: Here, host: Host) -> None:
        """Start, fork and cancel for everyone."""
        agenda: list[tuple[float, str, Any]] = []
        for wish in self._wishes:
            agenda.append((wish.starts, f"start {wish.run_id}", partial(_start, host, wish)))
            if wish.forks is not None:
                agenda.append((wish.forks, f"fork {wish.run_id}", partial(_fork, host, wish)))
            if wish.cancels is not None:
                agenda.append((wish.cancels, f"cancel {wish.run_id}", partial(host.cancel, wish.run_id)))
        for at, label, act in sorted(agenda, key=lambda it: it[:2]):
            here.sleep(max(0.0, at - world.hub.now / SECOND))
            if label not in world.notes:
                world.notes[label] = persist(here, act)

    def _vote(self, world: FleetWorld, here: Here, host: Host, opened: WaitInfo) -> None:
        pause = zlib.crc32(f"{opened.run_id} {self._name} pause".encode()) % 3
        seen = world.notes.setdefault(f"{self._name} saw {opened.id}", world.hub.now)
        if world.hub.now < seen + pause * SECOND:
            return
        here.sleep((-world.hub.now % SECOND) / SECOND)  # so that several vote at the same time
        said = {"approved": approves(opened.run_id, self._name)}
        try:
            now = host.answer(opened.id, said, by=self._name)
        except (*LATE, VotedAlready, VoteRefused):
            return
        except (StoreError, LeaseConflict) as error:
            world.ledger.tell(f"{here.process.tag} hears: {error}")
            return
        assert now.voting is not None
        world.notes[f"voted {opened.id} {self._name}"] = True

    def _is_done(self, world: FleetWorld, here: Here, host: Host) -> bool:
        rows: list[RunInfo] = persist(here, partial(host.runs, limit=100))
        if any(f"{what} {w.run_id}" not in world.notes for w in self._wishes for what in _wanted(w)):
            return False
        return all(row.status.is_final for row in rows) and not world.has_spooled()


def _wanted(wish: Wish) -> Iterator[str]:
    yield "start"
    if wish.forks is not None:
        yield "fork"


def _start(host: Host, wish: Wish) -> RunInfo:
    return host.start(FLOWS[wish.flow], {"x": wish.x}, run_id=wish.run_id, by=wish.by)


def _fork(host: Host, wish: Wish) -> RunInfo:
    try:
        return host.fork(wish.run_id, inputs={"x": wish.x + 100}, fork_id=wish.fork_id, by=FORKER)
    except BadRequest:  # the reply was lost, or the life that made it
        return host.info(wish.fork_id)


class VotingTrial(FleetTrial):
    """Two workers, and people who vote. A local store is on one machine."""

    def __init__(self, wishes: tuple[Wish, ...], *, is_remote: bool = False, skew: float = 0.0) -> None:
        flows, elsewhere = list(FLOWS.values()), "m2" if is_remote else "m1"
        workers = {"worker-1": WorkerPlace(flows, "m1"), "worker-2": WorkerPlace(flows, elsewhere)}
        people = {name: Voter(name, wishes) for name in VOTERS}
        super().__init__(workers, people, is_remote=is_remote, skew=skew)
        self._wishes = wishes

    def judge(self, world: World, reader: Reader, whole: Mapping[str, End] | None) -> list[Broken]:
        assert isinstance(world, FleetWorld)
        judge = Judge(world, reader)
        broken = list(judge.all(world.explained))
        for wish in self._wishes:
            for run_id in (wish.run_id, wish.fork_id):
                if run_id in judge.kept:
                    broken += _judged(wish, judge.kept[run_id], world.notes)
        return broken


def _judged(wish: Wish, kept: Kept, notes: Mapping[str, Any]) -> Iterator[Broken]:
    """Yield votes that were lost or do not count, and answers that they do not carry."""
    run_id = kept.row.run_id
    not_by = {wish.by, *((FORKER,) if run_id == wish.fork_id else ())} if wish.flow != "hurried" else set()
    for row in kept.waits:
        voting = voting_of(row)
        assert voting is not None
        names = [vote.by for vote in voting.votes]
        lost = [name for name in VOTERS if f"voted {row.wait_id} {name}" in notes and name not in names]
        if lost:
            yield Broken("votes", f"run {run_id!r} lost the votes of {lost}.")
        yield from _counted(row.wait_id, voting, not_by, wish.flow)
        if row.settled_by is SettledBy.ANSWER:
            approved = msgspec.json.decode(row.answer or b"{}").get("approved")
            if _outcome(voting.votes) is not approved:
                yield Broken("votes", f"{row.wait_id} was settled as {approved} by {names}.")
        elif row.settled_by is None and _outcome(voting.votes) is not None:
            yield Broken("votes", f"{row.wait_id} has votes enough, {names}, and was not settled.")
    if kept.row.status is Status.COMPLETED and kept.folded is not None:
        out = kept.folded.space.peek("sign", "")
        [settled] = [row for row in kept.waits if row.settled_by is not None]
        found = voting_of(settled)
        assert found is not None
        if out.votes != found.votes:
            yield Broken("votes", f"run {run_id!r} went on with {out.votes}, and its wait has {found.votes}.")
    elif kept.row.status is not Status.CANCELLED:
        yield Broken("result", f"run {run_id!r} is {kept.row.status.value}.")


def _counted(wait_id: str, voting: Voting, not_by: set[str], flow_name: str) -> Iterator[Broken]:
    names = [vote.by for vote in voting.votes]
    allowed = set(VOTERS if flow_name == "hurried" else BOARD) - not_by
    if len(set(names)) < len(names) or not set(names) <= allowed:
        yield Broken("votes", f"{wait_id} counts {names}, and {sorted(allowed)} may vote.")
    if any(_outcome(voting.votes[:k]) is not None for k in range(len(names))):
        yield Broken("votes", f"{wait_id} took a vote after it was decided: {names}.")


def _outcome(votes: tuple[Vote, ...]) -> bool | None:
    if any(not vote.approved for vote in votes):
        return False
    return True if len(votes) >= QUORUM else None


def trial(seed: int, store: str) -> VotingTrial:
    """Return what happens in a fleet, as it follows from a seed."""
    return VotingTrial(script(seed), **place(seed, store))
