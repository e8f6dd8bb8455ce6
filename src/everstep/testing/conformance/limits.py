"""Limits: of runs with the same key so many are driven at once, and so many start in a while."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import pytest

from everstep.engine.limits.rates import micros_at
from everstep.errors import LeaseConflict, NoRoom, RunNotFound
from everstep.model.leases import KeyLimit, KeyState, Lease, Quota, group_of
from everstep.ports.limits import LimitingStore
from everstep.ports.store import Traits
from everstep.testing.conformance.fleet import accept, answer, halt
from everstep.testing.conformance.kit import TTL, Client, StoreKit, Suite, for_many_writers

WORKERS = 4
ONE = Quota(limits=(KeyLimit(name="customer", running=1),))
SPAN = TTL / 3
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
