"""What makes many workers a fleet: whose turn it is, how many may run, what is held, damaged, alive."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import msgspec
import pytest

from everstep.engine.limits.rates import micros_at
from everstep.errors import LeaseConflict, NoRoom, RunNotFound
from everstep.model.acts import Act, AuditRow
from everstep.model.enums import Status
from everstep.model.leases import (
    ALONE,
    Driven,
    Held,
    KeyLimit,
    KeyState,
    LanePause,
    Lease,
    Pause,
    Process,
    Quota,
    WorkerRow,
    group_of,
    pause_of,
)
from everstep.ports.audit import AuditFilter, AuditStore
from everstep.ports.limits import LimitingStore
from everstep.ports.pausing import BlockingPauses, PausingStore
from everstep.ports.retention import RetainingStore
from everstep.ports.store import Commit, StopRequest, Traits, Verdict
from everstep.testing.conformance.kit import TTL, Chain, Client, StoreKit, Suite, for_many_writers, fork_of

CROWD = 3_000
WORKERS = 4
GROUPS = ["", "é", "a\nb", "a" * 500, "0", "None", "%", "漢字 🎈", "'; drop"]
ONE = Quota(limits=(KeyLimit(name="customer", running=1),))
SPAN = TTL / 3
SINGLE = Quota(limits=(KeyLimit(name=f"{ALONE}k", alone=True),))
THREE = Quota(limits=(KeyLimit(name="tenant", starts=3, span=SPAN),))
UGLY = ["a,b", "a=b", "50%", "%2C", "é 漢字 🎈", "'; drop", "a\\b"]


def of(**keys: str) -> Traits:
    """Return what runs with these keys are given."""
    return Traits(group=group_of(keys.items()))


def lease_within(client: Client, run_id: str, quota: Quota, void_epoch: int | None = None) -> Lease:
    """Claim a run that is named, if there is room."""
    store = cast(LimitingStore, client.store)
    how: dict[str, Any] = {"owner": str(uuid4()), "ttl": TTL, "process": None, "limits": quota.limits}
    return client.call(store.lease_within(run_id, void_epoch=void_epoch, **how))


def alone(key: str) -> Traits:
    """Return what runs are given of which one is unfinished at a time."""
    return of(**{SINGLE.limits[0].name: key})


def given_back(client: Client, run_id: str) -> None:
    """Give the lease of a run back."""
    lease = client.row(run_id).lease
    assert lease is not None
    client.release(lease)


def ended(client: Client, run_id: str) -> None:
    """Let a run complete."""
    lease = client.row(run_id).lease or client.claim(run_id)
    last = client.get(run_id)[-1]
    end = Commit(
        run_id=run_id,
        sequence=last.sequence + 1,
        checkpoint_id=str(uuid4()),
        base=last.checkpoint_id,
        epoch=lease.epoch,
        body=b"end",
        status=Status.COMPLETED,
        ended_at=client.clock.now(),
    )
    assert client.put(end) == [Verdict.ACCEPTED]


def accept(client: Client, names: Sequence[str], **about: Any) -> None:
    """Accept runs for workers to drive, in one go."""
    chains = [Chain(name, client.clock, has_lease=False, **about) for name in names]
    assert set(client.put(*(chain.admission() for chain in chains))) <= {Verdict.ACCEPTED}


def halt(client: Client, names: Sequence[str], **about: Any) -> None:
    """Let runs halt for a time that has come, in one go."""
    now, commits = client.clock.now(), []
    for name in names:
        chain = Chain(name, client.clock, **about)
        commits.append(chain.admission(status=Status.HALTED, waits=(chain.wait(f"w {name}", due_at=now),)))
    assert set(client.put(*commits)) <= {Verdict.ACCEPTED}


def answer(client: Client, names: Sequence[str], **about: Any) -> None:
    """Let runs halt for an answer that has come."""
    halt(client, names, **about)
    for name in names[:100]:
        client.settle(f"w {name}")


@for_many_writers
class Turns(Suite):
    def test_priority_and_group_come_back_with_the_run(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        chain = client.admit("run", traits=Traits(priority=-7, group="customer 7"))
        plain = client.admit("plain")
        assert (other.row("run").priority, other.row("run").group) == (-7, "customer 7")
        assert (other.row("plain").priority, other.row("plain").group) == (0, None)
        client.extend(chain, [b"2"])
        client.accept(plain, plain.final())
        assert (client.row("run").priority, client.row("run").group) == (-7, "customer 7")
        base = client.accept(chain, chain.following())
        forked = fork_of(base, "fork", client.clock, traits=Traits(priority=3, group="customer 7"))
        client.accept(forked, forked.admission())
        assert (other.row("fork").priority, other.row("fork").group) == (3, "customer 7")

    @pytest.mark.parametrize("group", GROUPS[1:])
    def test_a_group_may_be_any_text(self, client: Client, group: str) -> None:
        accept(client, ["run", "next"], traits=Traits(group=group))
        accept(client, ["other"], traits=Traits(group="other"))
        assert client.row("run").group == group
        quotas = {"flow": Quota(per_group=1)}
        assert sorted(client.due(quotas=quotas)) == ["other", "run"]

    def test_a_higher_priority_comes_first_whatever_it_is_due_for(self, client: Client) -> None:
        accept(client, ["low"], traits=Traits(priority=-1))
        accept(client, ["plain"])
        halt(client, ["halted"], traits=Traits(priority=5))
        answer(client, ["answered"], traits=Traits(priority=6))
        client.admit("expired", traits=Traits(priority=7))
        client.clock.advance(TTL)
        accept(client, ["new"], traits=Traits(priority=2_000_000_000))
        order = ["new", "expired", "answered", "halted", "plain", "low"]
        assert client.due(2) == order[:2]
        assert client.due(3) == order[2:5]
        assert client.due() == order[5:]

    def test_within_a_group_the_longest_due_comes_first(self, client: Client) -> None:
        for number in range(6):
            accept(client, [f"{number}"], traits=Traits(group="odd" if number % 2 else "even"))
            client.clock.advance(1)
        claimed = client.due(6)
        assert [name for name in claimed if int(name) % 2] == ["1", "3", "5"]
        assert [name for name in claimed if int(name) % 2 == 0] == ["0", "2", "4"]

    @pytest.mark.parametrize("crowd", [accept, halt])
    @pytest.mark.parametrize("by", ["flow_id", "group"])
    def test_a_crowd_keeps_no_other_waiting(
        self, client: Client, crowd: Callable[..., None], by: str
    ) -> None:
        def of(name: str) -> dict[str, Any]:
            return {"flow_id": name} if by == "flow_id" else {"traits": Traits(group=name)}

        crowd(client, [f"crowd {number}" for number in range(client.crowd(CROWD))], **of("crowd"))
        client.clock.advance(1)
        crowd(client, ["rare 1"], **of("rare"))
        names = ["crowd", "rare"] if by == "flow_id" else ["flow"]
        assert "rare 1" in client.due(10, names=names)
        crowd(client, ["rare 2"], **of("rare"))
        one_by_one = [client.due(1, names=names)[0] for _ in range(4)]
        assert "rare 2" in one_by_one
        assert len(set(one_by_one)) == 4
        assert [name for name in one_by_one if name.startswith("crowd")] != []

    def test_a_flow_with_many_groups_keeps_no_other_flow_waiting(self, client: Client) -> None:
        many = client.crowd(300)
        for number in range(many):
            accept(client, [f"crowd {number}"], flow_id="crowd", traits=Traits(group=f"g{number}"))
        accept(client, ["rare 1"], flow_id="rare")
        names = ["crowd", "rare"]
        assert "rare 1" in client.due(4, names=names)
        accept(client, ["rare 2"], flow_id="rare")
        assert "rare 2" in [client.due(1, names=names)[0] for _ in range(3)]
        claimed = [run_id for _ in range(many // 5) for run_id in client.due(5, names=names)]
        assert len(set(claimed)) == len(claimed) >= many - 10

    def test_groups_take_turns_until_none_is_left(self, client: Client) -> None:
        for group in ("a", "b", "c"):
            accept(client, [f"{group}{number}" for number in range(4)], traits=Traits(group=group))
        claimed = [client.due(1)[0] for _ in range(12)]
        for number in range(4):
            assert sorted(name[0] for name in claimed[3 * number : 3 * number + 3]) == ["a", "b", "c"]
        assert client.due(1) == []

    def test_runs_without_a_group_take_turns_with_groups(self, client: Client) -> None:
        accept(client, ["plain 1", "plain 2"])
        accept(client, ["grouped 1", "grouped 2"], traits=Traits(group="g"))
        claimed = client.due(4)
        assert {name.split()[0] for name in claimed[:2]} == {"plain", "grouped"}
        assert sorted(claimed) == ["grouped 1", "grouped 2", "plain 1", "plain 2"]

    def test_a_crowd_of_one_priority_hides_none_of_a_higher(self, client: Client) -> None:
        accept(client, [f"crowd {number}" for number in range(client.crowd(500))])
        accept(client, ["urgent 1", "urgent 2"], traits=Traits(priority=1))
        assert set(client.due(2)) == {"urgent 1", "urgent 2"}


@for_many_writers
class Quotas(Suite):
    def test_no_more_of_a_flow_are_claimed_than_its_quota_allows(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        quotas = {"flow": Quota(running=3)}
        accept(client, [f"{number}" for number in range(6)])
        assert len(client.due(2, quotas=quotas)) == 2
        assert len(other.due(quotas=quotas)) == 1
        assert client.due(quotas=quotas) == other.due(quotas=quotas) == []
        [first, *_] = client.leased()
        lease = client.row(first).lease
        assert lease is not None
        client.release(lease)
        assert len(other.due(quotas=quotas)) == 1

    def test_quotas_of_one_flow_bind_no_other(self, client: Client) -> None:
        accept(client, ["a1", "a2"], flow_id="a")
        accept(client, ["b1", "b2"], flow_id="b")
        claimed = client.due(names=["a", "b"], quotas={"a": Quota(running=1)})
        assert Counter(name[0] for name in claimed) == {"a": 1, "b": 2}

    def test_each_group_has_a_quota_of_its_own(self, client: Client) -> None:
        quotas = {"flow": Quota(running=4, per_group=1)}
        for group in ("x", "y"):
            accept(client, [f"{group}{number}" for number in range(3)], traits=Traits(group=group))
        accept(client, [f"plain {number}" for number in range(5)])
        claimed = client.due(quotas=quotas)
        assert Counter(name[0] for name in claimed) == {"x": 1, "y": 1, "p": 2}
        assert client.due(quotas=quotas) == []

    def test_a_group_that_is_full_hides_no_other(self, client: Client) -> None:
        quotas = {"flow": Quota(per_group=2)}
        accept(
            client, [f"full {number}" for number in range(client.crowd(1000))], traits=Traits(group="full")
        )
        accept(client, ["other"], traits=Traits(group="other"))
        assert len(client.due(3, quotas=quotas)) == 3
        assert client.due(5, quotas=quotas) == []
        accept(client, ["late"], traits=Traits(group="other"))
        assert client.due(5, quotas=quotas) == ["late"]

    @pytest.mark.parametrize("crowd", [accept, halt])
    def test_many_groups_that_are_full_hide_no_other(
        self, client: Client, crowd: Callable[..., None]
    ) -> None:
        quotas = {"flow": Quota(per_group=1)}
        many = client.crowd(250)
        groups = [f"full {number:03}" for number in range(many)]
        for group in groups:
            crowd(client, [f"{group} {number}" for number in range(2)], traits=Traits(group=group))
        assert len(client.due(many, quotas=quotas)) == many
        client.clock.advance(1)
        crowd(client, ["low"], traits=Traits(group="low", priority=-1))
        crowd(client, ["late"], traits=Traits(group="late"))
        assert client.due(1, quotas=quotas) == ["late"]
        assert client.due(1, quotas=quotas) == ["low"]
        assert client.due(1, quotas=quotas) == []

    @pytest.mark.parametrize("crowd", [accept, halt])
    def test_many_groups_of_another_version_hide_no_run(
        self, client: Client, crowd: Callable[..., None]
    ) -> None:
        for number in range(client.crowd(260)):
            crowd(client, [f"newer {number}"], flow_hash="1" * 64, traits=Traits(group=f"tenant {number:03}"))
        client.clock.advance(1)
        crowd(client, ["ours"], traits=Traits(group="zebra"))
        assert client.due(5) == ["ours"]
        assert client.due(5) == []

    def test_a_flow_that_is_full_hides_no_other(self, client: Client) -> None:
        quotas = {"full": Quota(running=1)}
        for number in range(client.crowd(300)):
            accept(
                client,
                [f"full {number}"],
                flow_id="full",
                traits=Traits(group=f"{number}", priority=number % 2),
            )
        assert len(client.due(5, names=["full"], quotas=quotas)) == 1
        client.clock.advance(1)
        accept(client, ["other"], flow_id="other")
        assert client.due(5, names=["full", "other"], quotas=quotas) == ["other"]

    def test_every_live_lease_counts_whichever_owner_has_it(self, client: Client) -> None:
        quotas = {"flow": Quota(running=2)}
        driven = client.admit("driven by its starter")
        client.halted("answered", "w")
        client.settle("w")
        accept(client, ["waiting 1", "waiting 2"])
        assert len(client.due(1, quotas=quotas)) == 1
        assert client.due(quotas=quotas) == []
        client.accept(driven, driven.final())
        assert len(client.due(quotas=quotas)) == 1

    def test_a_halted_run_that_was_claimed_counts(self, client: Client) -> None:
        quotas = {"flow": Quota(running=1)}
        halt(client, ["halted"])
        assert client.due(quotas=quotas) == ["halted"]
        accept(client, ["waiting"])
        assert client.due(quotas=quotas) == []

    def test_a_lease_that_ran_out_does_not_count(self, client: Client) -> None:
        quotas = {"flow": Quota(running=1)}
        client.admit("dead")
        accept(client, ["waiting"])
        assert client.due(quotas=quotas) == []
        client.clock.advance(TTL)
        assert len(client.due(quotas=quotas)) == 1
        assert client.due(quotas=quotas) == []

    def test_a_run_that_halts_makes_room(self, client: Client) -> None:
        quotas = {"flow": Quota(running=1)}
        chain = client.admit("run")
        accept(client, ["waiting"])
        client.halt(chain, chain.wait("w"))
        assert client.due(quotas=quotas) == ["waiting"]

    def test_of_clients_that_claim_at_once_none_exceeds_a_quota(
        self, client: Client, store_kit: StoreKit
    ) -> None:
        quotas = {"flow": Quota(running=7, per_group=2)}
        for group in range(6):
            accept(client, [f"{group} {number}" for number in range(10)], traits=Traits(group=f"{group}"))
        start = threading.Barrier(WORKERS)
        claimed: list[str] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                mine = Client(store_kit)
                start.wait(30)
                for _ in range(5):
                    claimed.extend(mine.due(3, quotas=quotas))
                mine.close()
            except BaseException as error:
                failures.append(error)
                start.abort()

        threads = [threading.Thread(target=work) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(claimed) == len(set(claimed)) == 7
        assert max(Counter(name.split()[0] for name in claimed).values()) <= 2


@for_many_writers
class Limits(Suite):
    """Only for stores that declare `limits`."""

    @pytest.fixture
    def limiting(self, client: Client) -> Client:
        if not client.store.capabilities.limits:
            pytest.skip("it declares that it judges no limits")
        return client

    def test_of_a_key_no_more_are_driven_than_its_limit_allows(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": ONE}
        for customer in ("a", "b"):
            accept(client, [f"{customer}{number}" for number in range(3)], traits=of(customer=customer))
        assert sorted(client.due(quotas=quotas)) == ["a0", "b0"]
        assert client.due(quotas=quotas) == []
        lease = client.row("a0").lease
        assert lease is not None
        client.release(lease)
        assert len(client.due(quotas=quotas)) == 1

    def test_a_run_counts_for_each_of_its_keys(self, limiting: Client) -> None:
        client = limiting
        both = Quota(limits=(KeyLimit(name="customer", running=1), KeyLimit(name="region", running=2)))
        for customer in ("a", "b", "c"):
            accept(client, [f"{customer}0", f"{customer}1"], traits=of(customer=customer, region="eu"))
        accept(client, ["us"], traits=of(customer="a", region="us"))
        claimed = client.due(quotas={"flow": both})
        assert len(claimed) == 2 + ("us" in claimed and "a0" not in claimed)
        assert len({name[0] for name in claimed if name != "us"}) == 2
        assert client.due(quotas={"flow": both}) == []

    @pytest.mark.parametrize("value", UGLY)
    def test_a_key_may_be_any_text(self, limiting: Client, value: str) -> None:
        client, quotas = limiting, {"flow": ONE}
        accept(client, ["one", "two"], traits=of(customer=value))
        accept(client, ["other"], traits=of(customer=f"{value} "))
        assert sorted(client.due(quotas=quotas)) == ["one", "other"]
        assert client.due(quotas=quotas) == []

    def test_runs_without_the_key_are_not_limited(self, limiting: Client) -> None:
        client = limiting
        accept(client, ["1", "2", "3"])
        accept(client, ["4", "5"], traits=of(region="eu"))
        assert len(client.due(quotas={"flow": ONE})) == 5

    def test_limits_of_one_flow_bind_no_other(self, limiting: Client) -> None:
        client = limiting
        for flow in ("f", "g"):
            accept(
                client, [f"{flow}{k}" for k in range(3)], flow_id=flow, traits=of(customer="a", tenant="t")
            )
        claimed = client.due(names=["f", "g"], quotas={"f": ONE})
        assert Counter(name[0] for name in claimed) == {"f": 1, "g": 3}

    def test_a_halted_run_makes_room_and_needs_it_again(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": ONE}
        answer(client, ["answered"], traits=of(customer="a"))
        accept(client, ["next"], traits=of(customer="a"))
        [first] = client.due(1, quotas=quotas)
        assert client.due(quotas=quotas) == []
        lease = client.row(first).lease
        assert lease is not None
        client.release(lease)
        assert len(client.due(1, quotas=quotas)) == 1

    def test_no_more_start_in_a_while_than_the_rate_allows(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": THREE}
        accept(client, [f"{number}" for number in range(9)], traits=of(tenant="t"))
        assert client.due(2, quotas=quotas) == ["0", "1"]
        client.clock.advance(SPAN / 2)
        assert client.due(quotas=quotas) == ["2"]
        client.clock.advance(SPAN / 2)
        assert client.due(quotas=quotas) == []
        client.clock.advance(0.001)
        assert client.due(quotas=quotas) == ["3", "4"]
        client.clock.advance(SPAN / 2)
        assert client.due(quotas=quotas) == ["5"]

    def test_each_key_has_a_rate_of_its_own(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": THREE}
        for tenant in ("t", "u"):
            accept(client, [f"{tenant}{number}" for number in range(5)], traits=of(tenant=tenant))
        assert Counter(name[0] for name in client.due(quotas=quotas)) == {"t": 3, "u": 3}

    def test_only_a_first_claim_is_a_start(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": THREE}
        accept(client, ["a", "b", "c", "d"], traits=of(tenant="t"))
        assert client.due(quotas=quotas) == ["a", "b", "c"]
        lease = client.row("b").lease
        assert lease is not None
        client.release(lease)
        halt(client, ["halted"], traits=of(tenant="t"))
        assert sorted(client.due(quotas=quotas)) == ["b", "halted"]

    def test_a_run_that_begins_at_a_time_starts_then(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": THREE}
        names = [f"{number:03}" for number in range(25)]
        halt(client, names, traits=of(tenant="t"), has_lease=False)
        halt(client, ["single 1", "single 2"], traits=alone("a"), has_lease=False, flow_id="single")
        halt(client, ["begun"], traits=of(tenant="t"))
        claimed = client.due(names=["flow", "single"], quotas={**quotas, "single": SINGLE})
        assert Counter(name.split()[0] for name in claimed if name[0] not in "0123456789") == {
            "single": 1,
            "begun": 1,
        }
        assert len(claimed) == 2 + 3
        assert client.due(names=["flow", "single"], quotas={**quotas, "single": SINGLE}) == []

    def test_who_looks_for_the_next_due_time_hears_when_a_rate_has_room(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": THREE}
        accept(client, [f"{number}" for number in range(4)], traits=of(tenant="t"))
        began = client.clock.now()
        client.due(quotas=quotas)
        assert client.due(quotas=quotas) == []
        due = client.next_due(after=began)
        assert due is not None
        assert abs(due - began - SPAN) < timedelta(seconds=5)

    def test_a_key_that_is_full_hides_no_other(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": THREE}
        many = client.crowd(1000)
        accept(client, [f"full {number}" for number in range(many)], traits=of(tenant="full"))
        client.clock.advance(1)
        accept(client, ["rare 1", "rare 2"], traits=of(tenant="rare"))
        claimed = client.due(2, quotas=quotas)
        assert {name.split()[0] for name in claimed} == {"full", "rare"}
        assert len(client.due(quotas=quotas)) == 3
        accept(client, ["late"], traits=of(tenant="late"))
        assert client.due(quotas=quotas) == ["late"]

    def test_many_keys_that_are_full_hide_no_other(self, limiting: Client) -> None:
        client = limiting
        one = {"flow": Quota(limits=(KeyLimit(name="tenant", starts=1, span=timedelta(hours=1)),))}
        many = client.crowd(250)
        for number in range(many):
            accept(client, [f"{number} a", f"{number} b"], traits=of(tenant=f"t{number:03}"))
        assert len(client.due(many, quotas=one)) == many
        accept(client, ["late"], traits=of(tenant="zzz"))
        assert client.due(1, quotas=one) == ["late"]
        assert client.due(1, quotas=one) == []

    def test_a_run_that_is_named_gets_a_lease_only_if_there_is_room(self, limiting: Client) -> None:
        client = limiting
        accept(client, ["one", "two"], traits=of(customer="a"))
        lease = lease_within(client, "one", ONE)
        assert client.row("one").lease == lease
        with pytest.raises(NoRoom) as refused:
            lease_within(client, "two", ONE)
        assert refused.value.details["key"] == "customer=a"
        with pytest.raises(LeaseConflict):
            lease_within(client, "one", ONE)
        assert lease_within(client, "one", ONE, void_epoch=lease.epoch).epoch == lease.epoch + 1
        with pytest.raises(NoRoom):
            lease_within(client, "two", ONE)
        with pytest.raises(RunNotFound):
            lease_within(client, "none", ONE)

    def test_a_run_that_is_named_counts_as_a_start(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": THREE}
        accept(client, [f"{number}" for number in range(5)], traits=of(tenant="t"))
        lease_within(client, "4", THREE)
        assert client.due(quotas=quotas) == ["0", "1"]
        with pytest.raises(NoRoom) as refused:
            lease_within(client, "3", THREE)
        until = refused.value.details["until"]
        assert isinstance(until, datetime)
        client.clock.advance(SPAN * 1.01)
        lease_within(client, "3", THREE)

    def test_of_a_key_that_one_run_has_at_a_time_the_others_wait_until_it_has_ended(
        self, limiting: Client
    ) -> None:
        client, quotas = limiting, {"flow": SINGLE}
        accept(client, ["a1", "a2"], traits=alone("a"))
        accept(client, ["b1"], traits=alone("b"))
        accept(client, ["free"])
        assert sorted(client.due(quotas=quotas)) == ["a1", "b1", "free"]
        assert client.due(quotas=quotas) == []
        given_back(client, "a1")
        assert client.due(quotas=quotas) == ["a1"]
        ended(client, "a1")
        assert client.due(quotas=quotas) == ["a2"]

    def test_a_halted_run_has_its_key_alone(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": SINGLE}
        answer(client, ["halted"], traits=alone("a"))
        assert client.due(quotas=quotas) == ["halted"]
        accept(client, ["next"], traits=alone("a"))
        assert client.due(quotas=quotas) == []
        given_back(client, "halted")
        assert client.due(quotas=quotas) == ["halted"]
        ended(client, "halted")
        assert client.due(quotas=quotas) == ["next"]

    def test_a_run_that_is_named_waits_for_the_one_that_has_its_key_alone(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": SINGLE}
        accept(client, ["one", "two", "three"], traits=alone("a"))
        lease = lease_within(client, "two", SINGLE)
        for name in ("one", "three"):
            with pytest.raises(NoRoom, match="'two' has not ended"):
                lease_within(client, name, SINGLE)
        assert client.due(quotas=quotas) == []
        client.release(lease)
        again = lease_within(client, "two", SINGLE)
        ended(client, "two")
        assert client.due(quotas=quotas) == ["one"]
        # What is to go on after its end waits as well.
        with pytest.raises(NoRoom, match="'one' has not ended"):
            lease_within(client, "two", SINGLE)
        ended(client, "one")
        assert lease_within(client, "two", SINGLE).epoch == again.epoch + 1

    def test_a_run_that_has_its_key_is_found_behind_a_crowd_that_waits_for_it(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": SINGLE}
        many = client.crowd(300)
        accept(client, [f"{number:03}" for number in range(many)], traits=alone("a"))
        last = f"{many - 1:03}"
        client.release(lease_within(client, last, SINGLE))
        assert client.due(3, quotas=quotas) == [last]
        given_back(client, last)
        assert client.due(3, quotas=quotas) == [last]
        ended(client, last)
        assert client.due(3, quotas=quotas) == ["000"]

    def test_a_run_that_is_erased_has_no_key(self, limiting: Client) -> None:
        client, quotas = limiting, {"flow": SINGLE}
        if not client.store.capabilities.retains:
            pytest.skip("it declares that it erases no runs")
        accept(client, ["one", "two"], traits=alone("a"))
        assert client.due(quotas=quotas) == ["one"]
        given_back(client, "one")
        store = cast(RetainingStore, client.store)
        client.call(store.erase("one", head=client.row("one").checkpoints, reason="test"))
        assert client.due(quotas=quotas) == ["two"]

    def test_of_clients_that_claim_at_once_one_gets_a_run_of_a_key(
        self, limiting: Client, store_kit: StoreKit
    ) -> None:
        for key in ("a", "b", "c"):
            accept(limiting, [f"{key}{number}" for number in range(4)], traits=alone(key))
        claimed: list[str] = []

        def work() -> None:
            mine = Client(store_kit)
            claimed.extend(mine.due(5, quotas={"flow": SINGLE}))
            for number in range(4):
                with suppress(NoRoom, LeaseConflict):
                    claimed.append(lease_within(mine, f"a{number}", SINGLE).run_id)
            mine.close()

        _at_once([work] * WORKERS)
        assert sorted(name[0] for name in claimed) == ["a", "b", "c"]

    def test_a_state_is_changed_by_one_after_the_other(self, limiting: Client, store_kit: StoreKit) -> None:
        client = limiting

        def add(body: bytes | None, now: datetime) -> tuple[bytes | None, int]:
            state = KeyState.of(body)
            state.log.append((micros_at(now), 1))
            return state.body(), len(state.log)

        def work(said: list[int]) -> None:
            mine = Client(store_kit)
            store = cast(LimitingStore, mine.store)
            said.extend(mine.call(store.change_limit("node é openai", add)) for _ in range(5))
            mine.close()

        said: list[int] = []
        _at_once([lambda: work(said)] * WORKERS)
        assert sorted(said) == list(range(1, 5 * WORKERS + 1))
        store = cast(LimitingStore, client.store)
        kept = client.call(store.limit_states("node "))
        assert list(kept) == ["node é openai"]
        assert len(KeyState.of(kept["node é openai"]).log) == 5 * WORKERS
        assert client.call(store.change_limit("node é openai", lambda body, now: (None, body))) is not None
        assert client.call(store.limit_states("node ")) == {}

    def test_keys_of_limits_are_listed_page_by_page(self, limiting: Client) -> None:
        store, names = cast(LimitingStore, limiting.store), ["node a", "node b", "node ü", "soon x"]
        for name in names:
            limiting.call(store.change_limit(name, lambda body, now: (b"kept", None)))
        first = limiting.call(store.limit_states("node ", limit=2))
        assert list(first) == names[:2]
        assert limiting.call(store.limit_states("node ", limit=2, after="node b")) == {"node ü": b"kept"}
        assert limiting.call(store.limit_states("node ", after="node ü")) == {}

    def test_of_clients_that_claim_at_once_none_exceeds_a_limit(
        self, limiting: Client, store_kit: StoreKit
    ) -> None:
        both = Quota(
            limits=(
                KeyLimit(name="customer", running=2),
                KeyLimit(name="tenant", starts=7, span=timedelta(hours=1)),
            )
        )
        for number in range(6):
            names = [f"{number} {k}" for k in range(6)]
            accept(limiting, names, traits=of(customer=f"c{number}", tenant=f"t{number % 2}"))
        claimed: list[str] = []

        def work() -> None:
            mine = Client(store_kit)
            for _ in range(6):
                claimed.extend(mine.due(3, quotas={"flow": both}))
            mine.close()

        _at_once([work] * WORKERS)
        claimed += limiting.due(quotas={"flow": both})
        assert len(claimed) == len(set(claimed))
        by_customer = Counter(name.split()[0] for name in claimed)
        assert max(by_customer.values()) <= 2
        by_tenant = Counter(int(name.split()[0]) % 2 for name in claimed)
        assert by_tenant == {0: 6, 1: 6}


@for_many_writers
class Holding(Suite):
    def test_runs_whose_lease_holds_are_found_whatever_their_status(self, client: Client) -> None:
        process = Process("boot", "pid:[1]", 7, 99)
        client.admit("running", process=process)
        client.halted("halted", "w")
        client.claim("halted", process=process)
        failed = client.admit("failed")
        client.accept(failed, failed.final(Status.FAILED))
        client.claim("failed")
        client.halted("no worker's", "w2")
        accept(client, ["accepted"])
        ended = client.admit("ended")
        client.accept(ended, ended.final())
        assert sorted(client.leased()) == ["failed", "halted", "running"]
        rows = client.call(client.store.leased())
        assert all(row == client.row(row.run_id) for row in rows)
        client.clock.advance(TTL)
        assert client.leased() == []

    def test_who_lost_the_reply_to_a_claim_finds_what_it_got(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        accept(client, ["a", "b", "c", "d"])
        made: list[str] = []

        def new_owner() -> str:
            made.append(f"owner {len(made)}")
            return made[-1]

        claimed = client.claim_due(2, new_owner=new_owner)
        other.claim_due()
        found = client.call(client.store.leased(made))
        assert {row.run_id: row.lease for row in found} == {row.run_id: lease for row, lease in claimed}
        assert client.leased([]) == client.leased(["unknown"]) == []
        [(row, lease), _] = claimed
        client.release(lease)
        assert row.run_id not in client.leased(made)


@for_many_writers
class Repairs(Suite):
    @pytest.mark.parametrize("status", [Status.RUNNING, Status.HALTED])
    def test_a_run_that_was_set_aside_is_left_alone_until_it_is_claimed(
        self, clients: Callable[[], Client], status: Status
    ) -> None:
        client, other = clients(), clients()
        (accept if status is Status.RUNNING else halt)(client, ["run"])
        [(_, lease)] = client.claim_due()
        assert client.set_aside("run", lease.epoch, "record 3 is damaged: 漢字") is True
        row = other.row("run")
        assert (row.needs_repair, row.lease, row.status) == ("record 3 is damaged: 漢字", None, status)
        client.clock.advance(10 * TTL)
        assert client.due() == other.due() == client.leased() == []
        other.call(other.store.request_stop("run", StopRequest.CANCEL))
        assert client.due() == []
        claimed = other.claim("run")
        assert other.row("run").needs_repair is None
        other.release(claimed)
        assert client.due() == ["run"]

    def test_a_run_that_was_claimed_since_is_not_set_aside(self, client: Client) -> None:
        chain = client.admit("run")
        client.clock.advance(TTL)
        lease = client.claim("run")
        assert client.set_aside("run", chain.epoch) is False
        assert client.row("run").needs_repair is None
        assert client.row("run").lease == lease
        assert client.set_aside("unknown", 1) is False

    def test_a_lease_that_was_given_back_leaves_its_epoch(self, client: Client) -> None:
        chain = client.admit("run")
        client.release(chain.lease())
        assert client.set_aside("run", chain.epoch) is True
        assert client.put(chain.following()) == [Verdict.ACCEPTED]

    @pytest.mark.parametrize("status", [s for s in Status if s.is_final])
    def test_a_run_that_ended_is_not_set_aside(self, client: Client, status: Status) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.final(status))
        assert client.set_aside("run", chain.epoch) is False

    def test_damaged_runs_can_be_listed(self, client: Client) -> None:
        for number in range(6):
            chain = client.admit(f"run-{number}", flow_id="odd" if number % 2 else "even")
            if number < 4:
                assert client.set_aside(chain.run_id, chain.epoch)
        assert client.listing(needs_repair=True) == ["run-3", "run-2", "run-1", "run-0"]
        assert client.listing(needs_repair=True, flow_id="odd", limit=1) == ["run-3"]
        assert client.listing(needs_repair=True, before="run-2") == ["run-1", "run-0"]
        assert len(client.listing()) == 6


def worker(worker_id: str, client: Client, **about: Any) -> WorkerRow:
    fields: dict[str, Any] = {
        "worker_id": worker_id,
        "host": "näme",
        "pid": 7,
        "flows": ("a", "b c"),
        "concurrency": 32,
        "started_at": client.clock.now(),
    }
    return WorkerRow(**(fields | about))


@for_many_writers
class Workers(Suite):
    def test_what_a_worker_says_of_itself_is_kept(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        assert other.workers() == []
        since = client.clock.now() - timedelta(seconds=5, microseconds=1)
        said = worker(
            "w1",
            client,
            driving=2,
            longest=(Driven(run_id="r", flow_id="a", since=since),),
            is_stopping=True,
            is_slowed=True,
            process=Process("boot", "pid:[1]", 7, 99),
            started_at=since,
        )
        client.report(said)
        assert other.workers() == [msgspec.structs.replace(said, seen_at=client.clock.now())]

    def test_the_last_report_counts(self, client: Client) -> None:
        said = worker("w1", client)
        client.report(said)
        client.clock.advance(10)
        client.report(msgspec.structs.replace(said, driving=3))
        [row] = client.workers()
        assert (row.driving, row.seen_at) == (3, client.clock.now())

    def test_a_worker_that_says_nothing_disappears_by_the_clock_of_the_store(self, client: Client) -> None:
        client.report(worker("w1", client))
        client.clock.advance(10)
        client.report(worker("w2", client))
        client.clock.advance(TTL - timedelta(seconds=10, microseconds=1))
        assert [row.worker_id for row in client.workers()] == ["w1", "w2"]
        client.clock.advance(timedelta(microseconds=1))
        assert [row.worker_id for row in client.workers()] == ["w2"]
        client.report(worker("w1", client))
        assert [row.worker_id for row in client.workers()] == ["w2", "w1"]

    def test_a_worker_that_leaves_is_gone_at_once(self, clients: Callable[[], Client]) -> None:
        client, other = clients(), clients()
        for name in ("w1", "w2"):
            client.report(worker(name, client))
        other.call(other.store.leave("w1"))
        other.call(other.store.leave("unknown"))
        assert [row.worker_id for row in client.workers()] == ["w2"]

    def test_workers_touch_no_lease(self, client: Client) -> None:
        accept(client, ["run"])
        [(_, lease)] = client.claim_due()
        client.report(worker("w1", client))
        client.call(client.store.leave("w1"))
        assert client.row("run").lease == lease
        with pytest.raises(LeaseConflict):
            client.claim("run")
        assert client.renew(lease) == [Lease("run", lease.owner, lease.epoch, client.clock.now() + TTL)]


PATIENCE, REST = 10.0, 0.5
"""Seconds until a pause is counted at the latest, and until what was written before it is."""


@for_many_writers
class Pausing(Suite):
    """Only for stores that declare `pauses`; any other must not have the methods either."""

    @pytest.fixture
    def pausing(self, client: Client, store_kit: StoreKit) -> Client:
        has_it = client.store.capabilities.pauses
        assert has_it is store_kit.capabilities.pauses is isinstance(client.store, PausingStore)
        if not has_it:
            pytest.skip("it declares that nothing can be paused")
        return client

    def test_its_counter_tells_of_pauses_if_it_says_so(
        self, pausing: Client, clients: Callable[[], Client]
    ) -> None:
        client, store = pausing, store_of(pausing)
        if not store.tells_pauses:
            assert store.looks_every > 1, "who has to look each time should not do it often"
            pytest.skip("its owners look whatever its counter says")
        client.admit("run")
        watcher, lane = clients().store, LanePause(flow_id="f", since=client.clock.now())
        seen = watcher.changes()
        for pause in (store.mark("run", was=None, mark=mark_of(client)), store.pause_lane(lane)):
            time.sleep(REST if watcher.capabilities.remote else 0.0)
            seen = watcher.changes()
            assert client.call(pause) is True
            ends = time.monotonic() + PATIENCE
            while watcher.changes() == seen:
                assert time.monotonic() < ends, "nothing was counted"
                time.sleep(0.01)

    def test_a_paused_run_is_not_claimed_until_it_goes_on(self, pausing: Client) -> None:
        client = pausing
        client.admit("run", has_lease=False)
        mark = mark_of(client)
        assert set_mark(client, "run", None, mark)
        assert client.due() == []
        row = client.row("run")
        assert (row.is_paused, row.needs_repair, row.status) == (True, mark, Status.RUNNING)
        found = pause_of(row.needs_repair)
        assert found == Pause(client.clock.now(), Act("ann", "a line\nand one"))
        assert set_mark(client, "run", mark, None)
        assert [row.run_id for row, _ in client.claim_due()] == ["run"]
        assert client.row("run").needs_repair is None

    def test_a_mark_is_set_only_if_it_is_what_was_read(self, pausing: Client) -> None:
        client = pausing
        client.admit("run")
        mark = mark_of(client)
        assert not set_mark(client, "run", mark, None)
        assert not set_mark(client, "unknown", None, mark)
        assert set_mark(client, "run", None, mark)
        assert not set_mark(client, "run", None, "paused: since 2026-01-01T00:00:00+00:00")
        assert client.row("run").needs_repair == mark

    def test_an_owner_goes_on_writing_and_gives_the_run_back(self, pausing: Client) -> None:
        client = pausing
        chain = client.admit("run")
        mark = mark_of(client)
        assert set_mark(client, "run", None, mark)
        client.accept(chain, chain.following())
        lease = client.row("run").lease
        assert lease is not None
        assert [type(one) for one in client.call(client.store.renew([lease], TTL))] == [type(lease)]
        client.call(client.store.release_lease(lease))
        assert (client.row("run").lease, client.row("run").needs_repair) == (None, mark)
        assert client.due() == []
        assert set_mark(client, "run", mark, None)
        [(_, taken)] = client.claim_due()
        assert taken.takeovers == 0

    def test_a_run_that_is_claimed_by_name_stays_paused(self, pausing: Client) -> None:
        client = pausing
        client.admit("run", has_lease=False)
        assert set_mark(client, "run", None, mark_of(client))
        lease = client.call(client.store.lease("run", owner="me", ttl=TTL, process=None))
        assert client.row("run").is_paused
        with pytest.raises(LeaseConflict):
            client.call(client.store.lease("run", owner="you", ttl=TTL, process=None))
        client.call(client.store.release_lease(lease))
        assert client.row("run").is_paused and client.due() == []

    def test_a_run_that_ends_is_paused_no_more(self, pausing: Client) -> None:
        client = pausing
        chain = client.admit("run")
        mark = mark_of(client)
        assert set_mark(client, "run", None, mark)
        assert client.listing(paused=True) == ["run"]
        client.accept(chain, chain.final(status=Status.FAILED))
        assert not client.row("run").is_paused
        assert client.listing(paused=True) == client.listing(needs_repair=True) == []
        assert held(client, "run") == Held()
        assert not set_mark(client, "run", mark, None)
        client.call(client.store.lease("run", owner="me", ttl=TTL, process=None))
        assert client.row("run").needs_repair is None

    def test_who_cancels_a_run_lets_workers_have_it(self, pausing: Client) -> None:
        client = pausing
        client.admit("run", has_lease=False)
        assert set_mark(client, "run", None, mark_of(client))
        assert client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert not client.row("run").is_paused
        assert not set_mark(client, "run", None, mark_of(client))
        assert [row.stop_request for row, _ in client.claim_due()] == [StopRequest.CANCEL]

    def test_damage_is_told_apart_from_a_pause(self, pausing: Client) -> None:
        client = pausing
        for name in ("paused", "damaged", "neither"):
            client.admit(name)
        assert set_mark(client, "paused", None, mark_of(client))
        epoch = client.row("damaged").lease.epoch  # type: ignore[union-attr]  # it was just admitted
        assert client.call(client.store.set_aside("damaged", epoch=epoch, reason="paused by a stone"))
        assert client.listing(paused=True) == ["paused"]
        assert client.listing(needs_repair=True) == ["damaged"]
        assert client.listing() == ["neither", "damaged", "paused"]
        assert not set_mark(client, "damaged", None, mark_of(client))
        assert list(held(client, "paused", "damaged", "neither", "unknown").runs) == ["paused"]

    def test_flows_and_groups_are_paused_once_and_listed(self, pausing: Client) -> None:
        client = pausing
        store, now = store_of(client), client.clock.now()
        lanes = [
            LanePause(group="tenant", since=now),
            LanePause(flow_id="a b/ü", since=now, note=b'{"by":"ann"}'),
            LanePause(flow_id="a b/ü", group="tenant", since=now),
        ]
        for lane in reversed(lanes):
            assert client.call(store.pause_lane(lane)) is True
        again = LanePause(flow_id="a b/ü", since=now + TTL, note=b'{"by":"bob"}')
        assert client.call(store.pause_lane(again)) is False
        assert held(client) == Held({}, tuple(lanes))
        assert lanes[1].pause == Pause(now, Act("ann"))
        assert client.call(store.unpause_lane("a b/ü", "")) is True
        assert client.call(store.unpause_lane("a b/ü", "")) is False
        assert held(client).lanes == (lanes[0], lanes[2])

    def test_a_pause_and_its_row_in_the_audit_log_are_one_act(self, pausing: Client) -> None:
        client = pausing
        if not client.store.capabilities.audits:
            pytest.skip("it declares that it keeps no audit log")
        client.admit("run")
        store, lane = store_of(client), LanePause(flow_id="f", since=client.clock.now())
        assert client.call(store.mark("run", was=None, mark=mark_of(client), audit=audit("1", "run")))
        assert not client.call(store.mark("run", was=None, mark="paused: no", audit=audit("2", "run")))
        assert client.call(store.pause_lane(lane, audit=audit("3")))
        assert not client.call(store.pause_lane(lane, audit=audit("4")))
        assert client.call(store.unpause_lane("f", "", audit=audit("5")))
        assert not client.call(store.unpause_lane("f", "", audit=audit("6")))
        rows = client.call(cast("AuditStore", client.store).audit(AuditFilter()))
        assert [row.audit_id for row in rows] == ["1", "3", "5"]

    def test_an_owner_may_ask_from_the_thread_of_its_leases(self, pausing: Client) -> None:
        client = pausing
        if not isinstance(client.store, BlockingPauses):
            pytest.skip("it has only calls to await")
        client.admit("run")
        mark = mark_of(client)
        assert client.store.held_blocking(["run"]) == Held()
        assert set_mark(client, "run", None, mark)
        assert client.store.held_blocking(["run", "other"]) == Held({"run": mark})
        assert client.store.held_blocking([]) == Held()

    def test_a_fork_of_a_paused_run_is_not_paused(self, pausing: Client) -> None:
        client = pausing
        chain = client.admit("run")
        assert set_mark(client, "run", None, mark_of(client))
        assert chain.head is not None
        fork = fork_of(chain.head, "fork", client.clock)
        client.accept(fork, fork.admission())
        assert client.row("fork").needs_repair is None

    def test_a_claim_passes_over_groups_that_are_paused(self, pausing: Client) -> None:
        client = pausing
        for k, group in enumerate(["a", "b", None, "a"]):
            client.admit(f"run-{k}", has_lease=False, traits=Traits(group=group))
        assert client.due(quotas={"flow": Quota(paused=("a",), per_group=5)}) == ["run-2", "run-1"]
        assert client.due(quotas={"flow": Quota(paused=("b",))}) == ["run-0", "run-3"]


def mark_of(client: Client) -> str:
    return Pause(client.clock.now(), Act("ann", "a line\nand one")).mark()


def store_of(client: Client) -> PausingStore:
    return cast("PausingStore", client.store)


def set_mark(client: Client, run_id: str, was: str | None, mark: str | None) -> bool:
    return client.call(store_of(client).mark(run_id, was=was, mark=mark))


def held(client: Client, *run_ids: str) -> Held:
    return client.call(store_of(client).held(run_ids))


def audit(audit_id: str, run_id: str | None = None) -> AuditRow:
    return AuditRow(audit_id=audit_id, act="pause", by="ann", run_id=run_id)


def _at_once(jobs: Sequence[Callable[[], None]]) -> None:
    """Do all of it on threads of their own, and raise what went wrong."""
    failures: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
