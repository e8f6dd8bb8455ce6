"""One projection of a run: read page by page, it tells what the whole run tells."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from click.testing import CliRunner

from everstep import END, Flow, Host, node, route
from everstep.cli.commands.runs import show
from everstep.cli.main import cli
from everstep.cli.view import lookup
from everstep.client.projection import NodeInfo, Projection, fold
from everstep.model.records import CheckpointRecord


@node(output="n")
def count_up(n: int) -> int:
    return n + 1


@route("count_up", END)
def again(n: int) -> str:
    return END if n >= 7 else "count_up"


rounds = Flow("rounds", [count_up, again], entry="count_up", durability="strong")


def infos(projection: Projection) -> list[NodeInfo]:
    return [line.info(is_pending=False) for line in projection.nodes([])]


@pytest.fixture
def records(host: Host) -> list[CheckpointRecord]:
    host.run(rounds, {"n": 0}, run_id="A", by="ada")
    return host.history("A")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pages_tell_what_the_whole_run_tells(records: list[CheckpointRecord], size: int) -> None:
    paged = Projection()
    for start in range(0, len(records), size):
        paged.take(records[start : start + size])
    whole = Projection()
    whole.take(records)
    assert infos(paged) == infos(whole) == [line.info(is_pending=False) for line in fold(records, [])]
    assert (paged.cursor, paged.acts) == (records[-1].sequence, whole.acts)
    assert [(act.by, act.checkpoint) for act in paged.acts] == [("ada", 1)]
    assert [(info.node, info.visits) for info in infos(paged)] == [("count_up", 7), ("again", 7)]


def test_what_was_taken_before_is_passed_by(records: list[CheckpointRecord]) -> None:
    paged = Projection()
    paged.take(records[:5])
    paged.take(records[2:])
    whole = Projection()
    whole.take(records)
    assert infos(paged) == infos(whole)


def test_show_reads_a_run_page_by_page(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.run(rounds, {"n": 0}, run_id="A")
    asked: list[int] = []
    real = Host.history

    def history(self: Host, run_id: str, **how: int) -> list[CheckpointRecord]:
        asked.append(how["count"])
        return real(self, run_id, **how)

    monkeypatch.setattr(Host, "history", history)
    monkeypatch.setattr(lookup, "PAGE", 4)
    told, since = show.projected(host, "A", host.state("A"), whole=False)
    assert since == 0
    assert told.cursor == host.info("A").checkpoints
    assert asked == [4] * (told.cursor // 4 + 1)


@pytest.mark.parametrize(
    "words", [["log", "A", "--all"], ["log", "A", "--json"], ["show", "A"], ["show", "A", "again@3"]]
)
def test_no_command_holds_more_than_a_few_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(rounds, {"n": 0}, run_id="A")
    pages: list[weakref.ref[Page]] = []
    most = 0
    real = Host.history

    def history(self: Host, run_id: str, **how: int) -> Page:
        nonlocal most
        gc.collect()
        most = max(most, sum(page() is not None for page in pages))
        found = Page(real(self, run_id, **how))
        pages.append(weakref.ref(found))
        return found

    monkeypatch.setattr(Host, "history", history)
    monkeypatch.setattr(lookup, "PAGE", 2)
    gc.freeze()  # what other tests left in this process need not be looked through for each page
    done = CliRunner().invoke(cli, [*words, "--store", url])
    assert done.exit_code == 0, done.output
    assert len(pages) >= 8
    assert most <= 2


class Page(list[CheckpointRecord]):
    """A list that can be referred to weakly."""
