"""A run that is interrupted at any write goes on to the same end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any

import pytest

from everstep import Durability, Flow, Host, Status, ifelse, node
from everstep.errors import BadRequest, StoreError
from everstep.registry import Opened
from everstep.testing.conformance.kit import StoreKit, Suite
from everstep.testing.killing import killing

TTL = Durability().lease_ttl


class Loss(StrEnum):
    """How a write is interrupted."""

    BEFORE = "the process dies before the write"
    AFTER = "the process dies after the write and never learns of it"
    HICCUP = "one write fails and the store is well again"


class Interruption:
    """Counts the writes of one process, and interrupts the n-th. A dead process writes nothing more."""

    def __init__(self, at: int, loss: Loss) -> None:
        self.hit: str | None = None
        self._at = at
        self._loss = loss
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def write(self, kind: str) -> Iterator[None]:
        """Surround a write, and interrupt it if it is the one. Renewals come when they will, so they pass."""
        is_struck = kind != "renew" and self._strikes(kind)
        if is_struck and self._loss is not Loss.AFTER:
            raise StoreError(f"interrupted at {kind}.")
        yield
        if is_struck:
            raise StoreError(f"interrupted at {kind}.")

    def _strikes(self, kind: str) -> bool:
        with self._lock:
            if self.hit is not None:
                if self._loss is Loss.HICCUP:
                    return False
                raise StoreError("the process is dead.")
            self._count += 1
            if self._count == self._at:
                self.hit = kind
            return self.hit is not None


def interrupted(inner: Opened, interruption: Interruption) -> Opened:
    """Return the same store with its n-th write interrupted."""
    return killing(inner, by=interruption)


class Workshop:
    """A small flow with a loop, an effect, a retry, an artifact, and a node that is broken until fixed."""

    def __init__(self) -> None:
        self.is_fixed = False
        self._tries: Counter[int] = Counter()

        @node(output="count")
        def add(count: int) -> int:
            return count + 1

        @ifelse(when_true="add", when_false="widen")
        def again(count: int) -> bool:
            return count < 3

        @node(output="wide")
        def widen(count: int) -> str:
            return "wide" * 1000 * count

        @node(output="sent", effects="effectful", idempotency_key="auto", retry=2)
        def send(wide: str, salt: int) -> int:
            self._tries[salt] += 1
            if self._tries[salt] == 1:
                raise ConnectionError("try again")
            return len(wide) + salt

        @node(output="total")
        def add_up(sent: int, count: int) -> int:
            if not self.is_fixed:
                raise RuntimeError("broken")
            return sent + count

        self.flow = Flow(
            "workshop",
            [add, again, widen, send, add_up],
            entry="add",
            durability=Durability(mode="strong", blob_threshold=1024),
        )

    def work(self, opened: Opened, kit: StoreKit, run_id: str, salt: int) -> dict[str, Any]:
        """Run until the broken node fails, fix it, resume; what is already done of that is not repeated."""
        with Host(opened, clock=kit.clock) as host:
            inputs = {"count": 0, "salt": salt}
            result = host.run(self.flow, inputs, run_id=run_id)
            if result.status is Status.FAILED:
                self.is_fixed = True
                result = host.resume(run_id, self.flow)
            assert result.status is Status.COMPLETED, result.error
            return dict(result)


class Crashes(Suite):
    @pytest.mark.parametrize("loss", Loss)
    def test_a_run_interrupted_at_any_write_comes_to_the_same_end(
        self, store_kit: StoreKit, loss: Loss
    ) -> None:
        store_kit.clock.auto = True
        kinds: Counter[str] = Counter()
        for at in range(1, 100):
            shop, run_id = Workshop(), f"run-{at}"
            interruption = Interruption(at, loss)
            try:
                result = shop.work(interrupted(store_kit.open(), interruption), store_kit, run_id, at)
            except StoreError:
                if loss is not Loss.HICCUP:
                    store_kit.clock.advance(TTL)
                result = shop.work(store_kit.open(), store_kit, run_id, at)
            assert result == {"count": 3, "wide": "wide" * 3000, "sent": 12_000 + at, "total": 12_003 + at}
            if interruption.hit is None:
                break
            kinds[interruption.hit] += 1
        else:
            pytest.fail("the run never came to an end without being interrupted")
        assert kinds.keys() == {"put", "lease", "blob"}
        assert kinds["put"] >= 10

    @pytest.mark.parametrize("loss", Loss)
    def test_a_cancellation_interrupted_at_any_write_can_be_repeated(
        self, store_kit: StoreKit, loss: Loss
    ) -> None:
        store_kit.clock.auto = True
        kinds: list[str] = []
        for at in range(1, 20):
            shop, run_id = Workshop(), f"run-{at}"
            with pytest.raises(StoreError):
                shop.work(interrupted(store_kit.open(), Interruption(3, Loss.BEFORE)), store_kit, run_id, at)
            store_kit.clock.advance(TTL)
            interruption = Interruption(at, loss)
            try:
                status = self._cancel(interrupted(store_kit.open(), interruption), store_kit, run_id)
            except StoreError:
                store_kit.clock.advance(TTL)
                status = self._cancel(store_kit.open(), store_kit, run_id)
            assert status is Status.CANCELLED
            if interruption.hit is None:
                break
            kinds.append(interruption.hit)
        assert kinds == ["request_stop", "lease", "put"]

    @pytest.mark.parametrize("loss", Loss)
    def test_a_fork_interrupted_at_any_write_is_there_whole_or_not_at_all(
        self, store_kit: StoreKit, loss: Loss
    ) -> None:
        store_kit.clock.auto = True
        shop, kinds = Workshop(), []
        result = shop.work(store_kit.open(), store_kit, "run", 0)
        with Host(store_kit.open(), clock=store_kit.clock) as host:
            before = host.history("run")
        for at in range(1, 20):
            fork_id, interruption = f"fork-{at}", Interruption(at, loss)
            opened = interrupted(store_kit.open(), interruption)
            with suppress(StoreError), Host(opened, clock=store_kit.clock) as host:
                host.fork("run", at=3, inputs={"salt": at}, channel={"note": "x" * 10**6}, fork_id=fork_id)
            with Host(store_kit.open(), clock=store_kit.clock) as host:
                with suppress(BadRequest):
                    host.fork("run", at=3, inputs={"salt": at}, fork_id=fork_id)
                forked = host.resume(fork_id, shop.flow)
                assert dict(forked) == result | {"sent": 12_000 + at, "total": 12_003 + at}
                assert host.history("run") == before
            if interruption.hit is None:
                break
            kinds.append(interruption.hit)
        assert kinds == ["blob", "put"]

    def _cancel(self, opened: Opened, kit: StoreKit, run_id: str) -> Status:
        with Host(opened, clock=kit.clock) as host:
            host.cancel(run_id)
            return host.info(run_id).status
