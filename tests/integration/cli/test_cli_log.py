"""`everstep log` reads no more of a run than it shows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep import END, Flow, Host, Retry, node, route, wait
from everstep.cli.commands.runs import checkpoints as listing
from everstep.cli.commands.runs import show as showing
from everstep.cli.commands.runs import step as stepping
from everstep.cli.commands.runs.checkpoints import checkpoints
from everstep.cli.commands.runs.log import log
from everstep.cli.commands.runs.show import show
from everstep.cli.view import lookup
from everstep.stores.sqlite.store import SqliteStore

ROUNDS = 600


@node(output="n")
def count_up(n: int) -> int:
    return n + 1


@route("count_up", END)
def again(n: int) -> str:
    return END if n >= ROUNDS else "count_up"


long = Flow("long", [count_up, again], entry="count_up", durability="strong")


class Reads:
    """Counts the records that are read from SQLite."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.records = 0
        for name in ("get", "tail"):
            patch.setattr(SqliteStore, name, self._counted(getattr(SqliteStore, name)))

    def _counted(self, read: Any) -> Any:
        async def counted(store: SqliteStore, *args: Any, **named: Any) -> Any:
            found = await read(store, *args, **named)
            self.records += len(found)
            return found

        return counted


def told(url: str, *words: str, command: Any = log) -> Any:
    done = CliRunner().invoke(command, [*words, "--store", url], standalone_mode=False)
    assert done.exception is None, done.output
    if "--json" in words:
        return json.loads(done.stdout)
    return [line.split() for line in done.stdout.splitlines()]  # columns are as wide as what stands in them


def test_the_last_checkpoints_of_a_long_run_are_read_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(long, {"n": 0}, run_id="A")
        host.fork("A", fork_id="B", state={"n": 5})
        whole = host.info("A").checkpoints
        assert whole > ROUNDS
    everything = told(url, "A", "--json")["checkpoints"]
    text = told(url, "A", "--all")
    assert len(text) == whole + 1
    reads = Reads(monkeypatch)
    shown = told(url, "A")
    assert shown[0][1:3] == [f"{whole - lookup.PAGE}", "checkpoints"]
    assert shown[2:] == text[-lookup.PAGE :]
    by_default, reads.records = reads.records, 0
    assert by_default < 6 * lookup.PAGE
    assert told(url, "A", "--last", "5", "--json")["checkpoints"] == everything[-5:]
    in_json, reads.records = reads.records, 0
    assert told(url, "A", "--last", "5")[-5:] == text[-5:]
    in_text, reads.records = reads.records, 0
    forked = told(url, "B", "--last", "1", "--json")["checkpoints"][0]["steps"][0]
    assert [(w["name"], w["version"], w["value"]) for w in forked["writes"]] == [("n", ROUNDS + 2, 5)]
    assert max(in_json, in_text, reads.records) < whole


def test_a_log_twice_as_long_reads_twice_as_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(long, {"n": ROUNDS - 200}, run_id="A")
        host.run(long, {"n": ROUNDS - 400}, run_id="B")
    monkeypatch.setattr(lookup, "PAGE", 20)
    reads = Reads(monkeypatch)
    told(url, "A", "--all")
    half, reads.records = reads.records, 0
    told(url, "B", "--all")
    assert reads.records < 2.5 * half


def test_a_long_run_at_a_glance_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(long, {"n": 0}, run_id="A")
    whole = told(url, "A", command=show)
    monkeypatch.setattr(showing, "RECENT", 50)
    reads = Reads(monkeypatch)
    shown = told(url, "A", command=show)
    assert reads.records < 8 * 50 + 300  # and what lies between a keyframe and one of them
    assert ["counted", "attempts,", "times"] in [line[:3] for line in shown]
    assert [line[:2] for line in shown if line[0] != "counted"] == [line[:2] for line in whole]
    assert [line[-2:] for line in shown[-2:]] == [line[-2:] for line in whole[-2:]]
    assert told(url, "A", "--full", command=show) == whole


@node(output="part", retry=Retry(1, first=0.001))
def shaky(n: int) -> int:
    TRIED.append(n)
    if n % 7 == 3 and TRIED.count(n) < 4:  # fails the run at its second attempt, and ends at the fourth
        raise ValueError(f"not yet: {n}")
    return n


@node(output="whole")
def after(part: int) -> int:
    return part


@route("count_up", END)
def back(whole: int) -> str:
    return END if whole >= ROUNDS else "count_up"


TRIED: list[int] = []
inner = Flow("inner", [shaky, after])
mixed = Flow("mixed", [count_up, inner.as_node(), back], entry="count_up", durability="strong")


def test_one_step_of_a_long_run_is_found_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    TRIED.clear()
    with Host(url) as host:
        result = host.run(mixed, {"n": ROUNDS - 40}, run_id="A")
        while result.status != "completed":
            result = host.resume("A", mixed)
        records = host.history("A")
        last = host.info("A").checkpoints
    steps = Counter((s.path, s.visit) for record in records for s in record.steps if s.path[0] != "@")
    again = next(place for place, count in steps.items() if count == 4)
    assert again[0].endswith("shaky")  # its attempts before a resume, and those after it
    wanted = [f"{path}@{visit}" for path, visit in [again, *sorted(steps)[::7]]]
    wanted += ["count_up", "inner", "inner/shaky", "inner@2/after", "back", "inputs"]
    wanted += ["1", str(last // 2), str(last)]
    whole = {step: told(url, "A", step, "--json", "--full", command=show) for step in wanted}
    monkeypatch.setattr(stepping, "RECENT", 20)
    monkeypatch.setattr(lookup, "PAGE", 10)
    for step in wanted:
        assert told(url, "A", step, "--json", command=show) == whole[step], step


def test_the_checkpoints_of_a_long_run_are_listed_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(long, {"n": 0}, run_id="A")
    monkeypatch.setattr(listing, "PAGE", 20)
    whole = told(url, "A", "--all", command=checkpoints)
    reads = Reads(monkeypatch)
    shown = told(url, "A", command=checkpoints)
    assert shown[0][1:3] == [f"{len(whole) - 21:,}", "checkpoints"]
    assert shown[2:] == whole[-20:]
    assert told(url, "A", "--last", "3", command=checkpoints)[1:] == whole[-3:]
    assert reads.records < 50
    assert len(told(url, "A", "--json", command=checkpoints)["checkpoints"]) == len(whole) - 1


def test_a_host_gives_the_newest_checkpoints_as_they_are_in_the_whole_history(tmp_path: Path) -> None:
    with Host(f"sqlite:///{tmp_path}/runs.db") as host:
        host.run(long, {"n": ROUNDS - 5}, run_id="A")
        host.fork("A", fork_id="B", at=4)
        for run_id in ("A", "B"):
            whole = host.history(run_id)
            for count in (1, 3, len(whole), len(whole) + 5):
                assert host.history(run_id, count=count) == whole[-count:]
            assert host.history(run_id, last=3, count=2) == whole[1:3]


def test_the_end_of_a_map_and_a_join_is_told_as_in_the_whole_log(tmp_path: Path) -> None:
    @node(output="out")
    def each(item: int) -> int:
        if item == 2:
            raise ValueError("two")
        return item

    mapped = each.map_over("item", on_error="collect").with_inputs(item="items").with_outputs("outs")
    flow = Flow("f", [mapped, wait.question("ok", kind="text")], durability="strong")
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(flow, {"items": [1, 2, 3]}, run_id="A")
    text = told(url, "A")
    for last in range(1, len(text)):
        assert text[-1] == told(url, "A", "--last", str(last))[-1]
