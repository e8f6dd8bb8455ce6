"""Random histories: what the rules of the engine make of each act, the store has to make of it too.

The verdict on a put, who gets a lease, what settles a wait and what may be removed are decided in `engine`.
A store that repeats one of these, in SQL or in a script, is compared here with the rule itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import msgspec
import pytest

from everstep.engine import commits, leases
from everstep.engine.settling import settled
from everstep.engine.trimming import check_trim, judge_erasure
from everstep.errors import BadRequest, CheckpointPinned, LeaseConflict
from everstep.model.commits import OnParentCancel, StartedBy
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.model.removal import Erasure
from everstep.model.waits import SettledBy, WaitRow, WaitStatus
from everstep.ports.retention import RetainingStore
from everstep.ports.store import Admission, Adoption, Commit, RunRow, StopRequest, Verdict
from everstep.testing.conformance.forks import sealed
from everstep.testing.conformance.kit import TTL, Client, StoreKit, Suite, for_many_writers

_IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
_ACTS = 120
_HASHES = ("0" * 64, "1" * 64)
_FLOW = "flow"
_STARTS = (None, None, StartedBy("run1", "node", 1), StartedBy("run2", "a/b", 3, OnParentCancel.LEAVE))
_BODY, _ = sealed(1)
"""A record that can be read: trimming leaves its digest."""
_replace = msgspec.structs.replace


@dataclass
class RuledRun:
    """A run as the rules say it stands."""

    row: RunRow
    epoch: int
    claimed_at: int
    ids: dict[int, str] = field(default_factory=dict)
    keyframes: set[int] = field(default_factory=set)


class Ruled:
    """What a store keeps, if it does what the rules say."""

    def __init__(self) -> None:
        self.runs: dict[str, RuledRun] = {}
        self.waits: dict[str, WaitRow] = {}
        self.erased: set[str] = set()

    def put(self, commit: Commit, now: datetime) -> Verdict:
        run = self.runs.get(commit.run_id)
        refused = self._judge(commit, run)
        if refused is not None:
            return refused
        if run is None:
            row = commits.admitted(commit, now)
            run = self.runs[commit.run_id] = RuledRun(row, commit.epoch, commit.sequence)
        else:
            run.row = commits.followed(run.row, commit)
        run.ids[commit.sequence] = commit.checkpoint_id
        if commit.keyframe:
            run.keyframes.add(commit.sequence)
        self._follow(commit)
        return Verdict.ACCEPTED

    def _judge(self, commit: Commit, run: RuledRun | None) -> Verdict | None:
        admission = commit.admission
        if admission is None:
            if run is None:
                return Verdict.UNKNOWN_RUN
            here, before = run.ids.get(commit.sequence), run.ids.get(commit.sequence - 1)
            return commits.judge(
                commit, epoch=run.epoch, stop_request=run.row.stop_request, before=before, here=here
            )
        first = run.ids[run.row.first] if run is not None else None
        refused = commits.judge_admission(commit, first=first, is_erased=commit.run_id in self.erased)
        return refused or self.judge_base(commit)

    def judge_base(self, commit: Commit) -> Verdict | None:
        """Return why a fork cannot be admitted; none if it can, or is no fork."""
        admission = commit.admission
        if admission is None or admission.forked_at is None:
            return None
        parent = self.runs.get(admission.parent_run_id or "")
        is_whole = parent is not None and parent.row.trimmed_before <= admission.forked_at
        base = parent.ids.get(admission.forked_at) if parent is not None and is_whole else None
        return commits.judge_base(commit, has_parent=parent is not None, base=base)

    def _follow(self, commit: Commit) -> None:
        self.waits |= {wait.wait_id: wait for wait in commit.waits}
        closes_all = commit.status is not None and commits.closes_waits(commit.status)
        for wait in self.unclosed(commit.run_id):
            if closes_all or wait.wait_id in commit.closed:
                self.waits[wait.wait_id] = _replace(wait, status=WaitStatus.CLOSED)

    def unclosed(self, run_id: str) -> list[WaitRow]:
        found = [wait for wait in self.waits.values() if wait.run_id == run_id]
        return [wait for wait in found if wait.status is not WaitStatus.CLOSED]

    def lease(self, run_id: str, owner: str, now: datetime, void_epoch: int | None = None) -> Lease:
        run = self.runs[run_id]
        granted = leases.claim(
            run.row.lease,
            run_id=run_id,
            owner=owner,
            process=None,
            now=now,
            ttl=TTL,
            newest_epoch=run.epoch,
            has_progressed=run.row.checkpoints > run.claimed_at,
            void_epoch=void_epoch,
        )
        run.epoch, run.claimed_at = granted.epoch, run.row.checkpoints
        run.row = _replace(run.row, lease=granted, needs_repair=None)
        return granted

    def renew(self, lease: Lease, now: datetime) -> Lease | Verdict:
        run = self.runs.get(lease.run_id)
        longer = leases.renewed(run.row.lease if run is not None else None, lease, now=now, ttl=TTL)
        if run is None or longer is None:
            return Verdict.FENCED
        if run.row.stop_request is not None:
            return Verdict.STOP_REQUESTED
        run.row = _replace(run.row, lease=longer)
        return longer

    def settle(self, wait_id: str, answer: bytes, now: datetime) -> bool:
        wait = settled(self.waits.get(wait_id), SettledBy.ANSWER, answer, None, now)
        if wait is not None:
            self.waits[wait_id] = wait
        return wait is not None and wait.settled_by is SettledBy.ANSWER

    def fire(self, run_id: str, now: datetime) -> None:
        for wait in self.unclosed(run_id):
            if wait.due_at is not None and wait.due_at <= now:
                over = settled(wait, SettledBy.CLOCK, None, None, now)
                self.waits[wait.wait_id] = over or wait

    def due(self, now: datetime) -> list[str]:
        return [run_id for run_id, run in self.runs.items() if self._is_due(run, now)]

    def _is_due(self, run: RuledRun, now: datetime) -> bool:
        row = run.row
        if row.status.is_final or row.needs_repair is not None:
            return False
        if row.lease is not None and row.lease.expires_at > now:
            return False
        if row.stop_request is not None or row.status is Status.RUNNING:
            return True
        waits = self.unclosed(row.run_id)
        return any(
            w.status is WaitStatus.SETTLED or (w.due_at is not None and w.due_at <= now) for w in waits
        )

    def trim(self, run_id: str, before: int) -> int:
        run = self.runs[run_id]
        forks = [r.row.forked_at for r in self.runs.values() if r.row.parent_run_id == run_id]
        check_trim(
            run_id,
            before=before,
            is_keyframe=before in run.keyframes,
            oldest_fork=min((at for at in forks if at is not None), default=None),
            pinned=run.row.pinned,
        )
        whole = before - max(run.row.first, run.row.trimmed_before)
        if whole > 0:
            run.row = _replace(run.row, trimmed_before=before)
            run.keyframes = {k for k in run.keyframes if k >= before}
        return max(whole, 0)

    def erase(self, run_id: str, head: int, now: datetime) -> Erasure:
        run = self.runs.get(run_id)
        verdict = judge_erasure(
            is_there=run is not None,
            checkpoints=run.row.checkpoints if run is not None else 0,
            head=head,
            lease=run.row.lease if run is not None else None,
            now=now,
            has_forks=any(r.row.parent_run_id == run_id for r in self.runs.values()),
            pinned=run.row.pinned if run is not None else None,
        )
        if verdict is Erasure.ERASED:
            del self.runs[run_id]
            self.erased.add(run_id)
            self.waits = {k: wait for k, wait in self.waits.items() if wait.run_id != run_id}
        return verdict


class History:
    """Does random acts to a store through two clients, and to the rules, and compares."""

    def __init__(self, seed: int, clients: list[Client], *, holds_waits: bool) -> None:
        self._random = Random(seed)
        self._clients = clients
        self._clock = clients[0].clock
        self._holds_waits = holds_waits
        self._has_children = clients[0].store.capabilities.has_children
        self._ruled = Ruled()
        self._commits: list[Commit] = []
        self._leases: list[Lease] = []
        self._last = ""
        self._number = 0
        self._said: list[str] = [f"seed {seed}"]

    def live(self, acts: int) -> None:
        """Do so many acts, and compare all there is at the end."""
        likely: list[tuple[int, Callable[[], None]]] = [
            *((6, self._admit), (14, self._step), (8, self._odd_step), (4, self._repeat), (4, self._group)),
            *(
                (4, self._fork),
                (6, self._lease),
                (3, self._renew),
                (2, self._release),
                (4, self._request_stop),
            ),
            *((1, self._set_aside), (5, self._settle), (3, self._wait), (5, self._claim_due), (1, self._ack)),
            *((4, self._trim), (1, self._pin), (2, self._erase)),
        ]
        weights, choices = [weight for weight, _ in likely], [act for _, act in likely]
        self._admit()
        for _ in range(acts):
            self._random.choices(choices, weights)[0]()
        for run_id in [*self._ruled.runs, *self._ruled.erased]:
            self._compare(run_id)
            self._compare_records(run_id)

    def _client(self) -> Client:
        return self._random.choice(self._clients)

    def _say(self, said: object) -> None:
        self._said.append(f"{self._clock.now():%M:%S} {said}")

    def _told(self) -> str:
        return "\n".join(self._said[-12:])

    def _new(self, what: str) -> str:
        self._number += 1
        return f"{what}{self._number}"

    def _some_run(self) -> RuledRun:
        """Return any run, half of the time the one before: what acts do to each other shows on one run."""
        if self._last not in self._ruled.runs or self._random.random() < 0.5:
            self._last = self._random.choice([*self._ruled.runs, ""])
        return self._ruled.runs.get(self._last) or self._missing()

    def _missing(self) -> RuledRun:
        """Return a run that no store has."""
        row = RunRow(
            run_id="missing",
            flow_id=_FLOW,
            flow_version="1",
            flow_hash=_HASHES[0],
            parent_run_id=None,
            status=Status.RUNNING,
            created_at=self._clock.now(),
            ended_at=None,
            checkpoints=1,
            lease=None,
        )
        return RuledRun(row, 1, 1, {1: "c0"})

    def _compare(self, run_id: str) -> None:
        ruled = self._ruled.runs.get(run_id)
        for client in self._clients:
            row = client.call(client.store.run(run_id))
            assert row == (ruled.row if ruled is not None else None), self._told()
        for wait in [wait for wait in self._ruled.waits.values() if wait.run_id == run_id]:
            assert self._client().wait(wait.wait_id) == wait, self._told()

    def _compare_records(self, run_id: str) -> None:
        ruled = self._ruled.runs.get(run_id)
        kept = {record.sequence: record.checkpoint_id for record in self._client().get(run_id)}
        assert kept == (ruled.ids if ruled is not None else {}), self._told()

    # -- puts ---------------------------------------------------------------------

    def _put(self, *found: Commit) -> None:
        now = self._clock.now()
        self._say([*map(_shown, found)])
        expected = [self._ruled.put(commit, now) for commit in found]
        assert self._client().put(*found) == expected, self._told()
        self._commits += found
        for commit in found:
            self._compare(commit.run_id)

    def _admit(self) -> None:
        self._put(self._admission())

    def _admission(self, *, parent: RuledRun | None = None, at: int | None = None) -> Commit:
        chance = self._random
        known = [*self._ruled.runs]
        run_id = self._new("run") if not known or chance.random() < 0.8 else chance.choice(known)
        if self._ruled.erased and chance.random() < 0.2:
            run_id = chance.choice(sorted(self._ruled.erased))
        owner = chance.choice((None, "ann", "bob"))
        admission = Admission(
            flow_id=_FLOW,
            flow_version="1",
            flow_hash=_HASHES[0],
            blueprint=b"first",
            parent_run_id=parent.row.run_id if parent is not None else None,
            forked_at=at,
            created_at=self._clock.now(),
            owner=owner,
            ttl=TTL,
            process=None,
            priority=chance.choice((0, 0, 0, 5)),
            group=chance.choice((None, "a", "b")),
            started_by=chance.choice(_STARTS) if parent is None and self._has_children else None,
        )
        base = parent.ids.get(at) if parent is not None and at is not None else None
        if parent is not None and chance.random() < 0.15:
            base = "c-other"
        return Commit(
            run_id=run_id,
            sequence=(0 if at is None else at) + 1 + (at is not None and chance.random() < 0.1),
            checkpoint_id=self._new("c"),
            base=base,
            epoch=0 if owner is None else 1,
            body=_BODY,
            keyframe=chance.random() < 0.3,
            status=chance.choice((None, Status.RUNNING)),
            admission=admission,
        )

    def _fork(self) -> None:
        parent = self._missing() if self._random.random() < 0.1 else self._some_run()
        row = parent.row
        at = self._random.randint(max(row.first - 1, 1), row.checkpoints + 1)
        if row.trimmed_before > 1 and self._random.random() < 0.5:
            at = row.trimmed_before - 1
        self._put(self._admission(parent=parent, at=at))

    def _step(self) -> None:
        self._put(self._next(self._some_run()))

    def _next(self, run: RuledRun) -> Commit:
        """Return a commit that follows what a run has."""
        chance, row = self._random, run.row
        status = None
        if chance.random() < 0.4:
            status = chance.choice((*Status.__members__.values(), Status.HALTED, Status.HALTED))
            status = None if status is Status.RETRYING else status
        opens = self._holds_waits and (status is Status.HALTED or chance.random() < 0.1)
        waits = self._ruled.unclosed(row.run_id)
        adopts = Adoption(flow_version="2", flow_hash=_HASHES[1], blueprint=b"second")
        return Commit(
            run_id=row.run_id,
            sequence=row.checkpoints + 1,
            checkpoint_id=self._new("c"),
            base=run.ids.get(row.checkpoints),
            epoch=run.epoch,
            body=_BODY,
            keyframe=chance.random() < 0.3,
            status=status,
            answers_stop=chance.random() < 0.5,
            ended_at=self._clock.now() if status is not None and status.is_final else None,
            waits=(self._opened(row),) if opens else (),
            closed=tuple(w.wait_id for w in waits if chance.random() < 0.5),
            adopts=adopts if chance.random() < 0.1 else None,
        )

    def _opened(self, row: RunRow) -> WaitRow:
        is_timer = self._random.random() < 0.4
        due_at = self._clock.now() + timedelta(seconds=self._random.choice((5, 20, 60))) if is_timer else None
        return WaitRow(
            wait_id=self._new("w"),
            run_id=row.run_id,
            flow_id=row.flow_id,
            path="ask",
            visit=1,
            kind="timer" if is_timer else "approval",
            opened_at=self._clock.now(),
            details=b"{}",
            due_at=due_at,
        )

    def _odd_step(self) -> None:
        """Put what ought to be refused, most of the time."""
        chance = self._random
        run = self._missing() if chance.random() < 0.1 else self._some_run()
        commit = self._next(run)
        other: list[Callable[[], Commit]] = [
            lambda: _replace(commit, epoch=run.epoch + chance.choice((-1, 1))),
            lambda: _replace(commit, base=chance.choice(("c-other", *run.ids.values()))),
            lambda: _replace(commit, sequence=max(1, commit.sequence + chance.choice((-2, -1, 1, 2)))),
            lambda: _replace(commit, checkpoint_id=chance.choice(list(run.ids.values()))),
        ]
        for change in chance.sample(other, chance.choice((1, 1, 2))):
            commit = change()
        self._put(commit)

    def _repeat(self) -> None:
        """Put again what was put before, as after a lost reply; it opens no wait a second time."""
        found = [c for c in self._commits if not c.waits]
        if found:
            self._put(self._random.choice(found[-10:]))

    def _group(self) -> None:
        """Put several commits at once, some of them to one run."""
        run = self._some_run()
        first = _replace(self._next(run), waits=(), closed=(), status=None)
        second = _replace(
            self._next(run),
            sequence=first.sequence + 1,
            base=first.checkpoint_id,
            status=self._random.choice((None, Status.HALTED, Status.FAILED)),
            waits=(),
            ended_at=None,
        )
        self._put(first, self._admission(), second)

    # -- leases -------------------------------------------------------------------

    def _lease(self) -> None:
        run, now = self._some_run(), self._clock.now()
        if run.row.run_id not in self._ruled.runs:
            return
        owner = self._random.choice(("ann", "bob", "eve"))
        void = run.epoch if self._random.random() < 0.3 else None
        run_id = run.row.run_id
        self._say(f"{owner} claims {run_id}, void {void}")
        expected: Lease | str
        try:
            expected = self._ruled.lease(run_id, owner, now, void)
            self._leases.append(expected)
        except LeaseConflict as conflict:
            expected = str(conflict)
        assert _or_error(lambda: self._client().claim(run_id, owner, void_epoch=void)) == expected, (
            self._told()
        )
        self._compare(run_id)

    def _some_lease(self) -> Lease | None:
        held = [run.row.lease for run in self._ruled.runs.values() if run.row.lease is not None]
        found = held + self._leases[-5:]
        return self._random.choice(found) if found else None

    def _renew(self) -> None:
        lease = self._some_lease()
        if lease is not None:
            self._say(f"renew {lease}")
            assert self._client().renew(lease) == [self._ruled.renew(lease, self._clock.now())], self._told()
            self._compare(lease.run_id)

    def _release(self) -> None:
        lease = self._some_lease()
        if lease is not None:
            self._say(f"release {lease}")
            run = self._ruled.runs.get(lease.run_id)
            if run is not None and run.row.lease is not None and run.row.lease.epoch == lease.epoch:
                run.row = _replace(run.row, lease=None)
            self._client().release(lease)
            self._compare(lease.run_id)

    def _claim_due(self) -> None:
        now, limit = self._clock.now(), self._random.choice((1, 2, 10))
        due = self._ruled.due(now)
        self._say(f"claim {limit} of {due}")
        client = self._client()
        claimed = client.claim_due(limit, flows=_HASHES, flow_id=_FLOW, new_owner=lambda: self._new("worker"))
        found = [row.run_id for row, _ in claimed]
        ranks = sorted((self._ruled.runs[run_id].row.priority for run_id in due), reverse=True)
        assert set(found) <= set(due) and len(set(found)) == len(found) == min(limit, len(due)), self._told()
        assert [self._ruled.runs[run_id].row.priority for run_id in found] == ranks[:limit], self._told()
        for row, lease in claimed:
            assert lease == self._ruled.lease(row.run_id, lease.owner, now), self._told()
            self._leases.append(lease)
            self._ruled.fire(row.run_id, now)
            self._compare(row.run_id)

    def _request_stop(self) -> None:
        run = self._some_run()
        is_known = run.row.run_id in self._ruled.runs and not run.row.status.is_final
        self._say(f"request_stop {run.row.run_id}")
        client = self._client()
        assert client.call(client.store.request_stop(run.row.run_id, StopRequest.CANCEL)) == is_known, (
            self._told()
        )
        if is_known:
            run.row = _replace(run.row, stop_request=StopRequest.CANCEL)
        self._compare(run.row.run_id)

    def _set_aside(self) -> None:
        run = self._some_run()
        epoch = run.epoch - (self._random.random() < 0.3)
        is_done = run.row.run_id in self._ruled.runs and epoch == run.epoch and not run.row.status.is_final
        self._say(f"set {run.row.run_id} aside at {epoch}")
        assert self._client().set_aside(run.row.run_id, epoch, "damaged") == is_done, self._told()
        if is_done:
            run.row = _replace(run.row, lease=None, needs_repair="damaged")
        self._compare(run.row.run_id)

    # -- the rest -----------------------------------------------------------------

    def _settle(self) -> None:
        if self._ruled.waits:
            wait = self._random.choice(list(self._ruled.waits.values()))
            self._say(f"settle {wait.wait_id}")
            expected = self._ruled.settle(wait.wait_id, b"yes", self._clock.now())
            assert self._client().settle(wait.wait_id, b"yes") == expected, self._told()
            self._compare(wait.run_id)

    def _wait(self) -> None:
        self._clock.advance(timedelta(seconds=self._random.choice((3, 15, 40))))

    def _ack(self) -> None:
        run, client = self._some_run(), self._client()
        client.call(client.store.ack(run.row.run_id))
        run.row = _replace(run.row, acked_at=run.row.acked_at or self._clock.now())
        if run.row.run_id in self._ruled.runs:
            self._compare(run.row.run_id)

    def _trim(self) -> None:
        run = self._some_run()
        if run.row.run_id not in self._ruled.runs:
            return
        before = self._random.choice([*run.keyframes, *run.keyframes, 1, run.row.checkpoints])
        run_id = run.row.run_id
        self._say(f"trim {run_id} before {before}")
        expected = _or_error(lambda: self._ruled.trim(run_id, before))
        assert _or_error(lambda: self._client().trim(run_id, before)) == expected, self._told()
        self._compare(run_id)

    def _pin(self) -> None:
        run, client = self._some_run(), self._client()
        if isinstance(client.store, RetainingStore):
            reason = self._random.choice((None, "wanted"))
            is_there = run.row.run_id in self._ruled.runs
            self._say(f"pin {run.row.run_id}: {reason}")
            assert client.call(client.store.pin(run.row.run_id, reason)) == is_there, self._told()
            run.row = _replace(run.row, pinned=reason)

    def _erase(self) -> None:
        run, client = self._some_run(), self._client()
        if isinstance(client.store, RetainingStore):
            head = run.row.checkpoints - (self._random.random() < 0.2)
            run_id = run.row.run_id
            self._say(f"erase {run_id} at {head}")
            expected = self._ruled.erase(run_id, head, self._clock.now())
            assert client.call(client.store.erase(run_id, head=head, reason="test")) == expected, self._told()
            self._compare(run_id)


def _shown(commit: Commit) -> str:
    said = msgspec.structs.asdict(commit)
    brief = {name: value for name, value in said.items() if value not in (None, (), False, _BODY)}
    return f"put {brief}"


def _or_error(work: Callable[[], object]) -> object:
    """Return what it returns, or what the error says that it raises."""
    try:
        return work()
    except (LeaseConflict, CheckpointPinned, BadRequest) as error:
        return str(error)


@for_many_writers
class Histories(Suite):
    @pytest.mark.parametrize("seed", range(300 if _IS_SOAK else 3))
    def test_a_random_history_goes_as_the_rules_say(
        self, clients: Callable[[], Client], store_kit: StoreKit, seed: int
    ) -> None:
        holds_waits = store_kit.capabilities.holds_waits
        History(seed, [clients(), clients()], holds_waits=holds_waits).live(_ACTS)
