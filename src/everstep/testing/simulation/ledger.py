"""What was seen of a world, in one order: writes that the store took, calls of nodes, faults, log lines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from everstep.errors import EverstepError
from everstep.model.leases import Lease
from everstep.model.waits import WaitRow
from everstep.ports.events import EventRow
from everstep.ports.store import Commit, TakenUp, Verdict
from everstep.runtime.drive.context import RunContext
from everstep.testing.simulation.faults import TOLD, Fault, Taken
from everstep.testing.simulation.hub import SECOND, Hub

Visit = tuple[str, str, int]
"""A run, a path in it, and the number of the visit."""


class Body(NamedTuple):
    """One call of a node."""

    order: int
    tag: str
    run_id: str
    path: str
    visit: int
    attempt: int
    key: str | None
    given: str
    """What it was given, as text."""
    is_effect: bool
    is_sure: bool
    """True if its process had no reason to doubt that it has the run."""
    owner: str | None
    """Who had the run by the store's word when an effect began, if that was another process."""
    epoch: int = 0
    """That of the lease by which it was called."""
    beside: str | None = None
    """Who was still at the same effect when it began, and had no reason to doubt that it has the run."""
    behind: tuple[tuple[str, int], ...] = ()
    """The visits whose values it was given: of plain nodes and atomic flows, each by its path."""
    endures: bool = False
    """True if a worker drives the run, which holds on to what is done however long the store is away."""

    @property
    def place(self) -> Visit:
        return self.run_id, self.path, self.visit


class Ended(NamedTuple):
    """A call of a node that came to its end."""

    order: int
    body: Body
    is_left: bool = False
    """True if it was left, to be called again: it waits, or is paused."""


class Life(Protocol):
    """One life of a process, as far as the ledger knows it."""

    tag: str

    def hears(self, run_id: str, epoch: int, *, has_it: bool) -> None:
        """Learn from the store whether it has a run, by one of its leases."""

    def is_sure_of(self, run_id: str, epoch: int) -> bool:
        """True if it lives, and has no reason to doubt that it has a run by this lease."""


class Claim(NamedTuple):
    """A run that a process got."""

    order: int
    tag: str
    run_id: str
    since: int | None
    """How many microseconds ago the same process was last told that it has the run, if it ever was."""


class Death(NamedTuple):
    """A process that died, and the runs that it drove."""

    pid: int
    driving: frozenset[str]


class Spent(NamedTuple):
    """What a node said it spent."""

    run_id: str
    amounts: dict[str, Decimal]
    is_counted: bool
    """True once `ctx.spend` has returned."""


class Ledger:
    """Everything that was seen. What is in `trace` is what two equal schedules have in common."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.order = 0
        self.trace: list[str] = []
        self.story: list[tuple[int, str]] = []
        self.taken: list[Taken] = []
        """The decisions that were not the usual ones."""
        self.points: list[tuple[str, tuple[Fault, ...]]] = []
        """The points where something could go wrong."""
        self.keeps_points = False
        self.bodies: list[Body] = []
        self.ended: list[Ended] = []
        self.puts: dict[tuple[str, int], int] = {}
        """When each checkpoint of each run was first taken."""
        self.accepted: dict[tuple[str, int, str], None] = {}
        """Each checkpoint that a process was told of that it is kept: its run, its number and its id."""
        self.has_erased = False
        """True if a run was erased."""
        self.released: list[tuple[str, int]] = []
        """Which process gave a lease back, and when."""
        self.settled: list[str] = []
        """The waits that got an answer, each as often as one was taken."""
        self.sent: list[tuple[str, str]] = []
        """Signals that the store took in: the run and the id of each."""
        self.took: dict[tuple[str, str], list[int]] = {}
        """Signals, and the checkpoints of their run that say that they take them."""
        self.published: dict[str, EventRow] = {}
        """Events by their ids, each once who published it heard that this is done."""
        self.missed: list[tuple[str, WaitRow]] = []
        """Events, and waits that they should have settled, as who published them saw."""
        self.spends: list[Spent] = []
        self.spooled: list[tuple[str, str]] = []
        """What was kept on a machine, as the store could not take it: runs and ids of checkpoints."""
        self.claims: list[Claim] = []
        self.deaths: list[Death] = []
        self._told: dict[tuple[str, str], int] = {}
        """When each process was last told that it has the lease of each run."""
        self.at_it: list[tuple[Life, Body]] = []
        """Effects that have begun and not ended, each with its process."""
        self.driven: dict[tuple[str, str], RunContext] = {}
        """The newest drive of each run in each process, as it stands."""

    def tick(self) -> int:
        """Return the next number in the order of things."""
        self.order += 1
        return self.order

    def digest(self) -> str:
        """Return a digest of what the store and the world outside saw."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append((self._hub.now, text))

    def note_fault(self, process: Life, point: str, fault: Fault) -> None:
        self.taken.append(Taken(f"{process.tag} {point}", fault.value))
        self.trace.append(f"{self._hub.now} {process.tag} {point}: {fault.value}")
        self.tell(f"{process.tag}, {point}: {TOLD[fault]}.")

    def note_write(
        self, process: Life, name: str, number: int, commits: Sequence[Commit], result: Any
    ) -> None:
        order = self.tick()
        if name == "put":
            for commit, verdict in zip(commits, result, strict=True):
                self._note_put(process, commit, verdict, order)
            return
        self.trace.append(f"{self._hub.now} {process.tag} {name} {_shown(result)}")
        if name == "release_lease":
            self.released.append((process.tag, order))
        if name == "claim_due":
            for row, lease in result:
                self._note_claim(process, lease, order)
                self.tell(f"{process.tag} claims run {row.run_id!r} (epoch {lease.epoch}).")
        elif name == "erase":
            self.has_erased = True
        elif name in ("lease", "take_up"):
            result = result.lease if isinstance(result, TakenUp) else result
            self._note_claim(process, result, order)
            self.tell(f"{process.tag} takes run {result.run_id!r} (epoch {result.epoch}).")
        elif name == "renew":
            for renewed in result:
                if isinstance(renewed, Lease):
                    self._note_lease(process, renewed)
        elif name == "settle" and result[0]:
            self.settled.append(result[1].wait_id)
            self.tell(f"wait {result[1].path} is settled by {result[1].settled_by} through {process.tag}.")
        elif name == "request_stop" and result:
            self.tell(f"{process.tag} asks for a run to be cancelled.")

    def _note_claim(self, process: Life, lease: Lease, order: int) -> None:
        told = self._told.get((process.tag, lease.run_id))
        since = None if told is None else self._hub.now - told
        self.claims.append(Claim(order, process.tag, lease.run_id, since))
        self._note_lease(process, lease)

    def _note_lease(self, process: Life, lease: Lease) -> None:
        self._told[process.tag, lease.run_id] = self._hub.now
        process.hears(lease.run_id, lease.epoch, has_it=True)

    def _note_put(self, process: Life, commit: Commit, verdict: Verdict, order: int) -> None:
        what = f"{commit.run_id}@{commit.sequence}"
        self.trace.append(f"{self._hub.now} {process.tag} put {what} {commit.checkpoint_id} {verdict}")
        if verdict is Verdict.ACCEPTED:
            if (commit.run_id, commit.sequence) not in self.puts:
                # One that is there already is accepted once more, whichever process has the run by now.
                process.hears(commit.run_id, commit.epoch, has_it=True)
                for signal_id in commit.taken:
                    self.took.setdefault((commit.run_id, signal_id), []).append(commit.sequence)
            self.puts.setdefault((commit.run_id, commit.sequence), order)
            self.accepted[commit.run_id, commit.sequence, commit.checkpoint_id] = None
        elif verdict in (Verdict.FENCED, Verdict.MOVED):
            process.hears(commit.run_id, commit.epoch, has_it=False)
        status = f", {commit.status}" if commit.status is not None else ""
        said = "is kept" if verdict is Verdict.ACCEPTED else f"is refused ({verdict})"
        self.tell(f"checkpoint {what} of {process.tag} {said}{status}.")

    def note_refusal(self, process: Life, name: str, error: EverstepError) -> None:
        self.trace.append(f"{self._hub.now} {process.tag} {name} {error.code}")

    def note_body(self, process: Life, body: Body) -> None:
        self.bodies.append(body)
        if body.is_effect:
            self.at_it.append((process, body))
        kind = "effect" if body.is_effect else "node"
        self.trace.append(
            f"{self._hub.now} {body.tag} {kind} {body.run_id} {body.path}@{body.visit} {body.attempt} "
            f"{body.key} {body.given}"
        )
        again = f", attempt {body.attempt}" if body.attempt > 1 else ""
        visit = f" (visit {body.visit})" if body.visit > 1 else ""
        self.tell(f"{body.tag} calls {body.path}{visit} of run {body.run_id!r}{again}.")

    def who_is_at(self, place: Visit, apart_from: Life) -> str | None:
        """Return who else lives, is at an effect, and has no reason to doubt that it has the run."""
        for process, body in self.at_it:
            is_same = body.place == place and process is not apart_from
            if is_same and process.is_sure_of(body.run_id, body.epoch):
                return process.tag
        return None

    def note_ended(self, body: Body, *, is_left: bool = False) -> None:
        self.ended.append(Ended(self.tick(), body, is_left))
        if body.is_effect:
            self.at_it = [one for one in self.at_it if one[1] is not body]

    def note_life(self, process: Life, what: str) -> None:
        self.trace.append(f"{self._hub.now} {process.tag} {what}")
        self.tell(f"{process.tag} {what}.")

    def lines(self) -> list[str]:
        """Return the story, each line with its time."""
        return [f"{at / SECOND:9.3f} s  {text}" for at, text in self.story]


def _shown(result: Any) -> str:
    """Return what a store answered, without what two equal schedules could differ in."""
    if isinstance(result, Lease):
        return f"{result.run_id} {result.owner} {result.epoch}"
    if isinstance(result, list):
        return f"[{', '.join(_shown(item) for item in result)}]"
    if isinstance(result, tuple):
        return f"({', '.join(_shown(item) for item in result)})"
    if isinstance(result, WaitRow):
        return f"{result.wait_id} {result.status.value}"
    run_id = getattr(result, "run_id", None)
    return str(run_id) if run_id is not None else f"{result!r:.80}"
