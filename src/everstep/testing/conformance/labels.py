"""Tags and attributes of runs: kept by the store, changed by the acts that may, and runs found by them;
and what they say of undoing.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from everstep.graph.labels import LONGEST, attribute, value_of
from everstep.model.commits import NO_LABELS, Attribute, Labels, Tag, Tagging
from everstep.model.enums import Status
from everstep.model.leases import Lease
from everstep.ports.labels import LabelRange, LabelStore, Search, SearchingStore
from everstep.ports.restoring import Restored, RestoringStore
from everstep.ports.retention import RetainingStore
from everstep.ports.store import RunFilter, RunRow, StopRequest, Verdict
from everstep.testing.conformance.kit import Chain, Client, StoreKit, Suite
from everstep.testing.conformance.restoring import whole_run

UGLY = "a\x1a'\"\\{}\n\u2028é🙂;:%"
AT = datetime(2026, 1, 31, 9, 0, 0, 250_001, tzinfo=UTC)


class Attributes(Suite):
    """Only for stores that declare `has_labels`; any other must not have the methods either."""

    @pytest.fixture
    def labelled(self, client: Client, store_kit: StoreKit) -> Client:
        has_it = client.store.capabilities.has_labels
        assert has_it is store_kit.capabilities.has_labels is isinstance(client.store, LabelStore)
        if not has_it:
            pytest.skip("it declares that its runs have no labels")
        return client

    def test_a_run_has_the_labels_that_it_was_admitted_with(self, labelled: Client) -> None:
        client = labelled
        given = attributes_of(customer="7", total=12.5, count=12, late=True, at=AT)
        client.admit("plain")
        chain = Chain("run", client.clock, tags=(Tag("vip"), Tag("team", "blue")))
        client.accept(chain, chain.admission(attributes=given))
        found = labels_of(client, "run")
        assert found.tags == (Tag("team", "blue"), Tag("vip"))
        assert [one.name for one in found.attributes] == ["at", "count", "customer", "late", "total"]
        values = {one.name: value_of(one) for one in found.attributes}
        assert values == {"customer": "7", "total": 12.5, "count": 12, "late": True, "at": AT}
        assert [type(values[name]) for name in ("total", "count", "late")] == [float, int, bool]
        assert labels_of(client, "plain") == labels_of(client, "unknown") == NO_LABELS

    def test_a_put_sets_attributes_and_leaves_the_others(self, labelled: Client) -> None:
        client = labelled
        chain = client.admit("run")
        client.accept(chain, chain.following(attributes=attributes_of(a="1", b=2)))
        client.accept(chain, chain.following())
        client.accept(chain, chain.following(attributes=attributes_of(b="two", c=False)))
        client.accept(chain, chain.final())
        assert labels_of(client, "run").attributes == attributes_of(a="1", b="two", c=False)
        assert client.row("run").status is Status.COMPLETED

    def test_a_refused_put_sets_none(self, labelled: Client) -> None:
        client = labelled
        chain = client.admit("run")
        new = attributes_of(a="1")
        assert client.put(chain.following(epoch=9, attributes=new)) == [Verdict.FENCED]
        assert client.put(chain.following(base="other", attributes=new)) == [Verdict.MOVED]
        client.call(client.store.request_stop("run", StopRequest.CANCEL))
        assert client.put(chain.following(attributes=new)) == [Verdict.STOP_REQUESTED]
        taken = Chain("run", client.clock, tags=(Tag("late"),))
        assert client.put(taken.admission(attributes=new)) == [Verdict.EXISTS]
        assert labels_of(client, "run") == NO_LABELS

    def test_a_put_whose_reply_was_lost_sets_nothing_back(self, labelled: Client) -> None:
        client = labelled
        chain = Chain("run", client.clock, tags=(Tag("old"),))
        first = client.accept(chain, chain.admission(attributes=attributes_of(a=1)))
        assert client.put(first) == [Verdict.ACCEPTED]
        assert tag(client, "run", remove=["old"]) is Tagging.TAGGED
        second = client.accept(chain, chain.following(attributes=attributes_of(a=2)))
        client.accept(chain, chain.following(attributes=attributes_of(a=3)))
        assert client.put(first) == client.put(second) == [Verdict.ACCEPTED]
        assert labels_of(client, "run") == Labels((), attributes_of(a=3))

    def test_runs_of_one_put_get_their_own(self, labelled: Client) -> None:
        client = labelled
        chains = [Chain(f"run-{k}", client.clock, tags=(Tag(f"t{k}"),)) for k in range(3)]
        commits = [chain.admission(attributes=attributes_of(k=k)) for k, chain in enumerate(chains)]
        assert client.put(*commits) == [Verdict.ACCEPTED] * 3
        found = client.call(cast("LabelStore", client.store).labels(["run-2", "run-0", "unknown"]))
        assert found == {f"run-{k}": Labels((Tag(f"t{k}"),), attributes_of(k=k)) for k in (0, 2)}

    def test_tags_are_changed_without_a_lease_also_of_a_run_that_has_ended(self, labelled: Client) -> None:
        client = labelled
        chain = client.admit("run")
        assert tag(client, "run", [Tag("a"), Tag("b", "1")]) is Tagging.TAGGED
        client.accept(chain, chain.final())
        assert tag(client, "run", [Tag("b", "2"), Tag("c")], ["a", "unknown"]) is Tagging.TAGGED
        assert labels_of(client, "run").tags == (Tag("b", "2"), Tag("c"))
        assert tag(client, "run", [Tag("c", "back")], ["c"]) is Tagging.TAGGED
        assert tag(client, "run") is tag(client, "run", (), ["b"]) is Tagging.TAGGED
        assert labels_of(client, "run").tags == (Tag("c", "back"),)
        assert tag(client, "unknown", [Tag("a")]) is tag(client, "unknown") is Tagging.UNKNOWN_RUN

    def test_a_run_gets_no_more_tags_than_it_may_have(self, labelled: Client) -> None:
        client = labelled
        client.admit("run")
        assert tag(client, "run", [Tag("a"), Tag("b")], most=2) is Tagging.TAGGED
        assert tag(client, "run", [Tag("c")], most=2) is Tagging.FULL
        assert tag(client, "run", [Tag("c"), Tag("b", "new")], ["a"], most=2) is Tagging.TAGGED
        assert labels_of(client, "run").tags == (Tag("b", "new"), Tag("c"))

    def test_ugly_and_long_values_come_back_as_they_were(self, labelled: Client) -> None:
        client, name = labelled, "a.b:c-d_e"
        values: dict[str, Any] = {
            name: UGLY,
            "long": "x" * LONGEST,
            "empty": "",
            "whole": 2**53,
            "small": -1e-300,
        }
        chain = Chain("run", client.clock, tags=(Tag(name, UGLY),))
        client.accept(chain, chain.admission(attributes=attributes_of(**values)))
        found = labels_of(client, "run")
        assert {one.name: value_of(one) for one in found.attributes} == values
        assert found.tags == (Tag(name, UGLY),)

    def test_an_erased_run_leaves_none_behind(self, labelled: Client) -> None:
        client = labelled
        if not isinstance(client.store, RetainingStore):
            pytest.skip("nothing can be erased")
        chain = Chain("run", client.clock, tags=(Tag("vip"),))
        client.accept(chain, chain.admission(attributes=attributes_of(a=1)))
        client.accept(chain, chain.final())
        client.call(client.store.erase("run", head=2, reason="test"))
        assert labels_of(client, "run") == NO_LABELS
        assert tag(client, "run", [Tag("a")]) is Tagging.UNKNOWN_RUN
        client.call(client.store.forget(["run"]))
        client.admit("run")
        assert labels_of(client, "run") == NO_LABELS


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
        assert undoing_of(client, "run") == ""
        client.accept(chain, chain.following(undoing="undoing", answers_stop=True))
        assert (undoing_of(client, "run"), undoing_of(client, "other")) == ("undoing", "")
        client.accept(chain, chain.following())
        assert undoing_of(client, "run") == "undoing"
        client.accept(chain, chain.final(Status.FAILED, undoing="2 skipped"))
        assert undoing_of(client, "run") == "2 skipped"
        assert client.row("run").status is Status.FAILED
        assert undoing_of(client, "unknown") == ""

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
        assert undoing_of(client, "run") == ""

    def test_a_put_that_is_repeated_takes_nothing_back(self, undoing: Client) -> None:
        client = undoing
        chain = client.admit("run")
        begun = chain.following(undoing="undoing", answers_stop=True)
        client.accept(chain, begun)
        assert client.put(begun) == [Verdict.ACCEPTED]
        client.accept(chain, chain.final(Status.CANCELLED, undoing="complete"))
        assert client.put(begun) == [Verdict.ACCEPTED]
        assert undoing_of(client, "run") == "complete"

    def test_it_stands_beside_tags(self, undoing: Client) -> None:
        client = undoing
        chain = client.admit("run", tags=(Tag("vip"),))
        client.accept(chain, chain.following(undoing="undoing", answers_stop=True))
        assert labels_of(client, "run") == Labels((Tag("vip"),), (), "undoing")

    def test_it_comes_along_with_a_whole_run(self, undoing: Client) -> None:
        client = undoing
        if not client.store.capabilities.restores:
            pytest.skip("it declares that it restores no runs")
        run = msgspec.structs.replace(whole_run("run", client.clock), labels=Labels(undoing="complete"))
        store = cast("RestoringStore", client.store)
        assert client.call(store.restore(run)) is Restored.RESTORED
        assert undoing_of(client, "run") == "complete"

    def test_an_erased_run_says_nothing_any_more(self, undoing: Client) -> None:
        client = undoing
        if not client.store.capabilities.retains:
            pytest.skip("it declares that it erases no runs")
        chain = client.admit("run")
        client.accept(chain, chain.final(Status.FAILED, undoing="complete"))
        head = client.row("run").checkpoints
        client.call(cast("RetainingStore", client.store).erase("run", head=head, reason="old"))
        assert labels_of(client, "run") == NO_LABELS


def undoing_of(client: Client, run_id: str) -> str:
    return labels_of(client, run_id).undoing


class Searches(Suite):
    """Only for stores that declare `searches`; any other must not have the method either."""

    @pytest.fixture
    def searching(self, client: Client, store_kit: StoreKit) -> Client:
        has_it = client.store.capabilities.searches
        assert has_it is store_kit.capabilities.searches is isinstance(client.store, SearchingStore)
        if not has_it:
            pytest.skip("it declares that it searches nothing")
        return client

    def test_a_store_without_labels_finds_none(self, searching: Client) -> None:
        assert search(searching, name="a") == search(searching) == []
        searching.admit("run")
        assert search(searching, name="a") == search(searching, tag=True, name="a") == []
        assert search(searching) == ["run"]

    def test_a_search_finds_what_a_listing_and_the_labels_say(self, searching: Client) -> None:
        """Runs drawn at random, searches drawn at random, in pages of any size that look at any number."""
        client, chance = searching, random.Random(7)
        rows: list[RunRow] = []
        for k in range(40):
            rows.insert(0, _drawn_run(client, chance, f"run-{k}"))
            client.clock.advance(chance.choice([0, 1, 60]))
        labels = client.call(cast("LabelStore", client.store).labels([row.run_id for row in rows]))
        times = [row.created_at for row in rows]
        for _ in range(120):
            by, wanted = _drawn_search(chance, times)
            fits = [
                r.run_id for r in rows if wanted.matches(r) and _meets(r, labels.get(r.run_id, NO_LABELS), by)
            ]
            size, most = chance.choice([1, 3, 100]), chance.choice([1, 7, 5000])
            found = search(client, wanted, by=msgspec.structs.replace(by, most=most), limit=size)
            extra = set(found) - set(fits)
            assert [name for name in found if name not in extra] == fits, (by, wanted, size, most)
            assert len(set(found)) == len(found)
            assert not extra or by.ranges != (), (by, wanted)

    def test_runs_are_tallied_by_flow_and_label(self, searching: Client) -> None:
        client, store = searching, cast("SearchingStore", searching.store)
        assert client.call(store.tally("flow")) == client.call(store.tally("tag")) == {}
        client.admit("plain")
        assert client.call(store.tally("tag.p")) == client.call(store.tally("attribute.a")) == {"": 1}
        for k, value in enumerate([1, 1.0, True, "x", ""]):
            chain = Chain(f"run-{k}", client.clock, flow_id=f"flow-{k % 2}", tags=(Tag("p", "xy"[k % 2]),))
            client.accept(chain, chain.admission(attributes=attributes_of(a=value)))
        assert client.call(store.tally("flow")) == {"flow": 1, "flow-0": 3, "flow-1": 2}
        assert client.call(store.tally("tag")) == {"p": 5}
        assert client.call(store.tally("tag.p")) == {"x": 3, "y": 2, "": 1}
        assert client.call(store.tally("attribute.a")) == {"1": 2, "true": 1, "x": 1, "": 2}

    def test_a_search_goes_on_from_a_run_that_was_erased_meanwhile(self, searching: Client) -> None:
        client = searching
        for k in range(3):
            chain = Chain(f"run-{k}", client.clock)
            client.accept(chain, chain.admission(attributes=attributes_of(a=1)))
            client.accept(chain, chain.final())
        store, by = (
            cast("SearchingStore", client.store),
            Search(name="a", ranges=(LabelRange(low=1, high=1),)),
        )
        page = client.call(store.search(RunFilter(limit=2), by))
        assert [row.run_id for row in page.rows] == ["run-2", "run-1"] and page.following == "run-1"
        client.call(cast("RetainingStore", client.store).erase("run-1", head=2, reason="test"))
        page = client.call(store.search(RunFilter(limit=2, before="run-1"), by))
        assert [row.run_id for row in page.rows] == ["run-0"] and page.following is None


def attributes_of(**values: Any) -> tuple[Attribute, ...]:
    return tuple(attribute(name, values[name]) for name in sorted(values))


def labels_of(client: Client, run_id: str) -> Labels:
    return client.call(cast("LabelStore", client.store).labels([run_id])).get(run_id, NO_LABELS)


def tag(
    client: Client, run_id: str, add: Sequence[Tag] = (), remove: Collection[str] = (), most: int = 20
) -> Tagging:
    return client.call(cast("LabelStore", client.store).tag(run_id, add=add, remove=remove, most=most))


def search(
    client: Client,
    wanted: RunFilter | None = None,
    *,
    limit: int = 100,
    by: Search | None = None,
    **about: Any,
) -> list[str]:
    """Return what all pages of a search find."""
    found: list[str] = []
    wanted = msgspec.structs.replace(wanted or RunFilter(), limit=limit)
    while True:
        page = client.call(cast("SearchingStore", client.store).search(wanted, by or Search(**about)))
        assert len(page.rows) <= limit
        found += [row.run_id for row in page.rows]
        if page.following is None:
            return found
        wanted = msgspec.structs.replace(wanted, before=page.following)


def _drawn_run(client: Client, chance: random.Random, run_id: str) -> RunRow:
    tags = tuple(Tag(name, chance.choice(["", "x", "y"])) for name in "pq" if chance.random() < 0.5)
    values = [0, 1, 2.5, -3, True, "x", "", "1", AT, AT + timedelta(days=1)]
    drawn = {name: chance.choice(values) for name in "abc" if chance.random() < 0.6}
    chain = Chain(run_id, client.clock, flow_id=chance.choice(["flow", "other"]), tags=tags)
    client.accept(chain, chain.admission(attributes=attributes_of(**drawn)))
    if chance.random() < 0.5:
        client.accept(chain, chain.final(chance.choice([Status.COMPLETED, Status.FAILED])))
    return client.row(run_id)


def _drawn_search(chance: random.Random, times: Sequence[datetime]) -> tuple[Search, RunFilter]:
    edges = sorted(chance.choices(times, k=2))
    texts = [LabelRange(text=text) for text in ("x", "", "1", "no")]
    numbers = [LabelRange(low=low, high=high) for low, high in [(1, 1), (0, 2.5), (None, 0), (1e6, None)]]
    is_tag = chance.random() < 0.3
    by = Search(
        tag=is_tag,
        name=chance.choice([None, *("pqr" if is_tag else "abd")]),
        ranges=tuple(chance.sample(texts if is_tag else texts + numbers, chance.choice([0, 1, 1, 2]))),
        since=chance.choice([None, edges[0]]),
        until=chance.choice([None, edges[1]]),
    )
    status = chance.choice([None, None, Status.COMPLETED, Status.FAILED, Status.RUNNING])
    return by, RunFilter(flow_id=chance.choice([None, "flow"]), status=status)


def _meets(row: RunRow, labels: Labels, by: Search) -> bool:
    """Say what a search says, the plain way."""
    if not (by.since or row.created_at) <= row.created_at <= (by.until or row.created_at):
        return False
    held: Iterable[tuple[str, str | None, float | None]]
    held = (
        [(t.name, t.value, None) for t in labels.tags]
        if by.tag
        else [(a.name, a.text, a.number) for a in labels.attributes]
    )
    return by.name is None or any(
        name == by.name and (not by.ranges or any(_is_in(text, number, one) for one in by.ranges))
        for name, text, number in held
    )


def _is_in(text: str | None, number: float | None, one: LabelRange) -> bool:
    if one.text is not None:
        return text == one.text
    if number is None:
        return False
    return (one.low is None or one.low <= number) and (one.high is None or number <= one.high)
