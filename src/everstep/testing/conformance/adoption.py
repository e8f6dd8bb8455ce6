"""Runs whose flow has changed: a put may bring another version of it, and workers find the older ones."""

from __future__ import annotations

from everstep.model.enums import Status
from everstep.ports.store import Adoption, Verdict
from everstep.testing.conformance.kit import Client, Suite

OLD, NEW = "0" * 64, "1" * 64
NEXT = Adoption(flow_version="2", flow_hash=NEW, blueprint=b"new structure")


class Adoptions(Suite):
    def test_a_put_takes_its_run_over_to_another_version_of_its_flow(self, client: Client) -> None:
        chain = client.admit("run")
        assert client.row("run").adopted_at is None
        client.accept(chain, chain.following(b"moved", keyframe=True, adopts=NEXT))
        row = client.row("run")
        assert (row.flow_version, row.flow_hash, row.adopted_at) == ("2", NEW, 2)
        assert (row.status, row.lease) == (Status.RUNNING, chain.lease())
        assert client.call(client.store.blueprint(NEW)) == b"new structure"
        client.extend(chain, [b"3"])
        assert client.row("run").adopted_at == 2

    def test_a_refused_put_takes_nothing_over(self, client: Client) -> None:
        chain = client.admit("run")
        stale = chain.following(adopts=NEXT)
        client.clock.advance(3600)
        client.claim("run")
        assert client.put(stale) == [Verdict.FENCED]
        moved = chain.following(base="another chain's", epoch=2, adopts=NEXT)
        assert client.put(moved) == [Verdict.MOVED]
        row = client.row("run")
        assert (row.flow_hash, row.adopted_at) == (OLD, None)
        assert client.call(client.store.blueprint(NEW)) is None

    def test_a_put_whose_reply_was_lost_takes_over_once(self, client: Client) -> None:
        chain = client.admit("run")
        commit = client.accept(chain, chain.following(adopts=NEXT))
        before = client.row("run")
        assert client.put(commit) == [Verdict.ACCEPTED]
        assert client.row("run") == before

    def test_a_run_that_was_taken_over_is_due_under_its_new_version(self, client: Client) -> None:
        chain = client.admit("run")
        client.accept(chain, chain.following(adopts=NEXT))
        client.clock.advance(3600)
        assert client.due(flows=[OLD]) == []
        assert client.due(flows=[NEW]) == ["run"]

    def test_a_halted_run_stays_halted_when_it_is_taken_over(self, client: Client) -> None:
        chain = client.halted("run", "w")
        chain.epoch = client.claim("run").epoch
        client.accept(chain, chain.following(adopts=NEXT))
        assert client.row("run").status is Status.HALTED
        client.clock.advance(3600)
        assert client.settle("w")
        assert client.due(flows=[NEW]) == ["run"]

    def test_older_versions_of_unfinished_runs_are_found(self, client: Client) -> None:
        client.admit("running", flow_hash="a" * 64)
        client.halted("halted", "w", flow_hash="b" * 64)
        ended = client.admit("ended", flow_hash="c" * 64)
        client.accept(ended, ended.final())
        client.admit("of another flow", flow_id="other", flow_hash="d" * 64)
        older = client.call(client.store.introduce("flow", NEW, b"new structure"))
        assert older == ["a" * 64, "b" * 64]
        assert client.call(client.store.blueprint(NEW)) == b"new structure"

    def test_a_version_that_became_known_later_is_not_older(self, client: Client) -> None:
        client.admit("old")
        assert client.call(client.store.introduce("flow", NEW, b"new structure")) == [OLD]
        client.admit("new", flow_hash=NEW)
        assert client.call(client.store.introduce("flow", OLD, b"structure")) == []
        assert client.call(client.store.introduce("flow", NEW, b"new structure")) == [OLD]
