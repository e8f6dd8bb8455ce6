"""Runs that undo what they did: the row says so, and what came of it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from everstep.model.commits import NO_LABELS, Labels, StopRequest, Tag, Verdict
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.ports.labels import LabelStore
from everstep.ports.restoring import Restored, RestoringStore
from everstep.ports.retention import RetainingStore
from everstep.testing.conformance.kit import Client, Suite
from everstep.testing.conformance.restoring import whole_run


class Undoes(Suite):
    """Only for stores that declare `undoes`; they are `LabelStore`s."""

    @pytest.fixture
    def undoing(self, client: Client) -> Client:
        if not client.store.capabilities.undoes:
            pytest.skip("it declares that its runs say nothing of undoing")
        return client

    def test_a_row_says_that_its_run_undoes_and_what_came_of_it(self, undoing: Client) -> None:
        client = undoing
        chain = client.admit("run")
        client.admit("other")
        assert said(client, "run") == ""
        client.accept(chain, chain.following(undoing="undoing", answers_stop=True))
        assert (said(client, "run"), said(client, "other")) == ("undoing", "")
        client.accept(chain, chain.following())
        assert said(client, "run") == "undoing"
        client.accept(chain, chain.final(Status.FAILED, undoing="2 skipped"))
        assert said(client, "run") == "2 skipped"
        assert client.row("run").status is Status.FAILED
        assert said(client, "unknown") == ""

    def test_beginning_to_undo_answers_the_request_to_stop(self, undoing: Client) -> None:
        client = undoing
        chain = client.admit("run")
        lease = client.row("run").lease
        assert lease is not None
        assert client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.renew(lease) == [Verdict.STOP_REQUESTED]
        assert client.put(chain.following()) == [Verdict.STOP_REQUESTED]
        assert client.row("run").stop_request is StopRequest.CANCEL
        client.accept(chain, chain.following(undoing="undoing", answers_stop=True))
        assert client.row("run").stop_request is None
        assert client.call(client.store.stop_note("run")) is None
        [renewed] = client.renew(lease)
        assert isinstance(renewed, Lease)
        client.accept(chain, chain.following())

    def test_a_run_can_be_asked_to_undo(self, undoing: Client) -> None:
        client = undoing
        chain = client.halted("run", "w")
        assert client.call(client.store.request_stop("run", StopRequest.UNDO, b"note"))
        assert client.row("run").stop_request is StopRequest.UNDO
        assert client.call(client.store.stop_note("run")) == b"note"
        [(row, lease)] = client.claim_due()
        assert (row.run_id, row.stop_request) == ("run", StopRequest.UNDO)
        chain.epoch = lease.epoch
        commit = chain.following(
            status=Status.HALTED, waits=(chain.wait("again"),), undoing="undoing", answers_stop=True
        )
        client.accept(chain, commit)
        assert client.row("run").status is Status.HALTED
        assert client.claim_due() == []  # it waits for a person, and is asked for nothing any more

    def test_a_refused_put_says_nothing_of_it(self, undoing: Client) -> None:
        client = undoing
        chain = client.admit("run")
        commit = chain.following(undoing="undoing", answers_stop=True, epoch=7)
        assert client.put(commit) == [Verdict.FENCED]
        assert said(client, "run") == ""

    def test_a_put_that_is_repeated_takes_nothing_back(self, undoing: Client) -> None:
        client = undoing
        chain = client.admit("run")
        begun = chain.following(undoing="undoing", answers_stop=True)
        client.accept(chain, begun)
        assert client.put(begun) == [Verdict.ACCEPTED]
        client.accept(chain, chain.final(Status.CANCELLED, undoing="complete"))
        assert client.put(begun) == [Verdict.ACCEPTED]
        assert said(client, "run") == "complete"

    def test_it_stands_beside_tags(self, undoing: Client) -> None:
        client = undoing
        chain = client.admit("run", tags=(Tag("vip"),))
        client.accept(chain, chain.following(undoing="undoing", answers_stop=True))
        assert labels_of(client, "run") == Labels((Tag("vip"),), (), "undoing")

    def test_it_comes_along_with_a_whole_run(self, undoing: Client) -> None:
        client = undoing
        if not client.store.capabilities.restores:
            pytest.skip("it declares that it restores no runs")
        run = replace(whole_run("run", client.clock), labels=Labels(undoing="complete"))
        store = cast("RestoringStore", client.store)
        assert client.call(store.restore(run)) is Restored.RESTORED
        assert said(client, "run") == "complete"

    def test_an_erased_run_says_nothing_any_more(self, undoing: Client) -> None:
        client = undoing
        if not client.store.capabilities.retains:
            pytest.skip("it declares that it erases no runs")
        chain = client.admit("run")
        client.accept(chain, chain.final(Status.FAILED, undoing="complete"))
        head = client.row("run").checkpoints
        client.call(cast("RetainingStore", client.store).erase("run", head=head, reason="old"))
        assert labels_of(client, "run") == NO_LABELS


def labels_of(client: Client, run_id: str) -> Labels:
    found: Any = client.call(cast("LabelStore", client.store).labels([run_id]))
    labels: Labels = found.get(run_id, NO_LABELS)
    return labels


def said(client: Client, run_id: str) -> str:
    return labels_of(client, run_id).undoing
