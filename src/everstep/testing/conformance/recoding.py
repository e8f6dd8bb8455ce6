"""Bytes that are replaced by others that mean the same: values encrypted with another key."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from everstep.codec.records import digest_of, with_payloads
from everstep.errors import RunNotFound
from everstep.model.waits import WaitStatus
from everstep.ports.store import Recoded, RecodedWait, RecodingStore
from everstep.testing.conformance.forks import sealed, sealed_run
from everstep.testing.conformance.kit import Client, StoreKit, Suite

_NEW = [b"other bytes"]


class Recoding(Suite):
    """Only for stores that declare `recodes`; any other must not have the method either."""

    @pytest.fixture
    def recoding(self, store_kit: StoreKit, client: Client) -> Client:
        has_it = isinstance(client.store, RecodingStore)
        assert has_it is store_kit.capabilities.recodes
        if not has_it:
            pytest.skip("it declares that it does not recode")
        return client

    def test_a_record_gets_other_bytes_and_keeps_its_digest(self, recoding: Client) -> None:
        client = recoding
        chain, digests = sealed_run(client, "run", length=4, keyframes=(3,))
        before = client.get("run")
        body = with_payloads(before[2].body, _NEW)
        assert _recode(client, Recoded(3, before[2].checkpoint_id, body)) == 1
        after = client.get("run")
        assert after[2].body == body and digest_of(after[2].body) == digests[2]
        assert after[2].keyframe and after[2].checkpoint_id == before[2].checkpoint_id
        assert [after[k] for k in (0, 1, 3)] == [before[k] for k in (0, 1, 3)]
        client.extend(chain, [b"5"])

    def test_the_newest_record_may_be_replaced_under_its_owner(
        self, recoding: Client, clients: Callable[[], Client]
    ) -> None:
        client, owner = recoding, clients()
        chain, _ = sealed_run(owner, "run", length=2, keyframes=())
        newest = client.get("run")[-1]
        assert _recode(client, Recoded(2, newest.checkpoint_id, with_payloads(newest.body, _NEW))) == 1
        owner.extend(chain, [b"3"])
        assert len(client.get("run")) == 3

    def test_another_digest_another_record_and_a_stub_are_left_alone(self, recoding: Client) -> None:
        client = recoding
        sealed_run(client, "run", length=4, keyframes=(3,))
        first, second, third, fourth = client.get("run")
        client.trim("run", 3)
        before = client.get("run")
        assert (
            _recode(
                client,
                Recoded(2, second.checkpoint_id, with_payloads(second.body, _NEW)),
                Recoded(3, third.checkpoint_id, sealed(9)[0]),
                Recoded(4, third.checkpoint_id, with_payloads(fourth.body, _NEW)),
                Recoded(5, first.checkpoint_id, with_payloads(first.body, _NEW)),
            )
            == 0
        )
        assert client.get("run") == before

    def test_a_run_that_is_not_there_is_named(self, recoding: Client) -> None:
        with pytest.raises(RunNotFound):
            _recode(recoding, run_id="unknown")

    def test_the_records_of_a_fork_are_its_own(self, recoding: Client) -> None:
        client = recoding
        sealed_run(client, "run", length=2, keyframes=())
        sealed_run(client, "other", length=2, keyframes=())
        [_, theirs] = client.get("other")
        assert _recode(client, Recoded(2, theirs.checkpoint_id, with_payloads(theirs.body, _NEW))) == 0
        assert client.get("other")[1] == theirs

    def test_a_wait_gets_other_bytes_while_it_says_what_was_read(self, recoding: Client) -> None:
        client = recoding
        client.halted("run", "w")
        row = client.wait("w")
        new = RecodedWait("w", (row.details, None), b"\x01\x00details", None)
        assert _recode(client, waits=[new]) == 1
        assert (client.wait("w").details, client.wait("w").answer) == (b"\x01\x00details", None)
        assert _recode(client, waits=[new]) == 0
        assert client.settle("w", answer=b"yes")
        late = RecodedWait("w", (b"\x01\x00details", None), b"lost", None)
        assert _recode(client, waits=[late]) == 0
        answered = RecodedWait("w", (b"\x01\x00details", b"yes"), b"new", b"\x01\x00answer")
        assert _recode(client, waits=[answered]) == 1
        row = client.wait("w")
        assert (row.details, row.answer, row.status) == (b"new", b"\x01\x00answer", WaitStatus.SETTLED)
        assert client.due() == ["run"]

    def test_a_wait_keeps_its_place_and_its_token(self, recoding: Client) -> None:
        client = recoding
        chain = client.admit("run")
        client.halt(chain, chain.wait("w", token_hash=b"t" * 32))
        row = client.wait("w")
        assert _recode(client, waits=[RecodedWait("w", (row.details, None), b"new", None)]) == 1
        found = client.call(client.store.wait_of_token(b"t" * 32))
        assert found is not None and found.wait_id == "w" and found.details == b"new"
        assert client.settle("w", answer=b"yes")


def _recode(
    client: Client, *records: Recoded, run_id: str = "run", waits: list[RecodedWait] | None = None
) -> int:
    store = cast(RecodingStore, client.store)
    return client.call(store.recode(run_id, records, waits or ()))
