"""`log`, `show`, live progress, Python and HTTP say the same of one run: one projection serves them all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
import pytest
from click import Command
from click.testing import CliRunner

from everstep import AsyncHost, Flow, Host, Retry, node, route, wait
from everstep.cli.commands.runs.log import log
from everstep.cli.commands.runs.show import show
from everstep.client.projection import ItemsInfo, Maps, Projection, StepLine, fold
from everstep.model.address import Address, plain_of
from everstep.results import Event, as_json
from everstep.runtime.drive import chain_writer
from everstep.server.app import create_app

TRIED: Counter[str] = Counter()


@node(output="n", retry=Retry(2, first=0))
def count_up(n: int) -> int:
    TRIED["count_up"] += 1
    if TRIED["count_up"] == 2:
        raise ConnectionError("try again")
    return n + 1


@route("count_up", "begin")
def again(n: int) -> str:
    return "begin" if n >= 3 else "count_up"


@node(output="words")
def begin(n: int) -> list[str]:
    return ["a", "bad", "c", "d"]


@node(output="text")
def read(words: str) -> str:
    if words == "bad":
        raise ValueError("no such word")
    return words.upper()


@node(output="page")
def bind(n: int) -> str:
    return f"page {n}"


@node(output="done")
def close(text: list[Any], page: str, sign: wait.ApprovalOutput) -> bool:
    return sign.approved


FLOW = Flow(
    "book",
    [
        count_up,
        again,
        begin,
        Flow("reading", [read]).as_node().map_over("words", on_error="collect", max_concurrency=2),
        Flow("binding", [bind]).as_node(),
        wait.approval("sign", context="page", timeout="3d"),
        close,
    ],
    entry="count_up",
    durability="strong",
)


class Ran(NamedTuple):
    url: str
    events: list[Event]


@pytest.fixture(params=["halted", "ended"])
def ran(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ran]:
    TRIED.clear()
    found = Ran(f"sqlite:///{tmp_path}/runs.db", [])
    with Host(found.url, on_event=found.events.append) as host:
        result = host.run(FLOW, {"n": 0}, run_id="A", by="ada")
        if request.param == "ended":
            host.answer(result.waits[0].id, {"approved": True}, by="bo")
            host.resume("A", FLOW)
    yield found


def told(command: Command, url: str, *words: str) -> Any:
    done = CliRunner().invoke(command, [*words, "--json", "--store", url], standalone_mode=False)
    assert done.exception is None, done.output
    return json.loads(done.stdout)


def served(url: str, path: str) -> Any:
    async def ask() -> Any:
        async with AsyncHost(url) as host:
            app = create_app(host, [FLOW], token="t" * 32)
            transport = httpx.ASGITransport(app)
            headers = {"Authorization": f"Bearer {'t' * 32}"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", headers=headers
            ) as web:
                found = await web.get(path)
                assert found.status_code == 200, found.text
                return found.json()

    return asyncio.run(ask())


def pages(url: str, size: int) -> list[dict[str, Any]]:
    """Return every line that HTTP gives, however many pages it takes."""
    found, after = [], 0
    while True:
        page = served(url, f"/runs/A/steps?after={after}&limit={size}&full=true")
        found += page["steps"]
        if page["next"] is None:
            return found
        after = page["next"]


SAME = ("node", "status", "visits", "attempts", "items", "decision", "wait")
"""What an event tells as well; of errors it has the text, and of acts those of answers."""


def same(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: line[key] for key in SAME} for line in nodes]


def test_show_python_and_http_give_the_same_nodes(ran: Ran) -> None:
    with Host(ran.url) as host:
        found = as_json(host.debug.nodes("A"))
    by_shell, by_http = told(show, ran.url, "A"), served(ran.url, "/runs/A/nodes")
    for line in (*found["nodes"], *by_shell["nodes"]):
        line["error"] = line["error"] and {key: line["error"][key] for key in ("type", "code", "message")}
    assert by_http == found
    assert {key: by_shell[key] for key in ("nodes", "acts", "guards")} == {
        key: found[key] for key in ("nodes", "acts", "guards")
    }
    lines = {line["node"]: line for line in found["nodes"]}
    assert (lines["count_up"]["visits"], lines["count_up"]["attempts"]) == (3, 4)
    assert lines["reading"]["items"] == {"count": 4, "completed": 3, "failed": 1}
    assert lines["binding/bind"]["visits"] == 1
    assert lines["sign"]["wait"]["kind"] == "approval"


def test_live_progress_shows_what_the_records_say_afterwards(ran: Ran) -> None:
    heard = Projection()
    for event in ran.events:
        heard.hear(event)
    with Host(ran.url) as host:
        found = [line for line in as_json(host.debug.nodes("A"))["nodes"] if line["status"] is not None]
    live = [as_json(line.info(is_pending=False)) for line in heard.nodes(())]
    assert sorted(same(live), key=str) == sorted(same(found), key=str)
    seconds = {line["node"]: line["seconds"] for line in live}
    assert seconds == pytest.approx({line["node"]: line["seconds"] for line in found}, abs=1e-3)


def test_events_of_the_records_tell_what_the_records_say(ran: Ran) -> None:
    heard = Projection()
    with Host(ran.url) as host:
        for event in host.events("A", live=False):
            heard.hear(event)
        found = [line for line in as_json(host.debug.nodes("A"))["nodes"] if line["status"] is not None]
    assert same([as_json(line.info(is_pending=False)) for line in heard.nodes(())]) == same(found)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_steps_of_log_and_http_are_the_same_and_add_up_to_the_nodes(ran: Ran, size: int) -> None:
    logged = [
        (record["sequence"], step["address"], step["status"], step["attempts"], step["decision"])
        for record in told(log, ran.url, "A")["checkpoints"]
        for step in record["steps"]
    ]
    lines = [line for line in pages(ran.url, size) if line["address"] is not None]
    assert logged == [
        tuple(line[key] for key in ("checkpoint", "address", "status", "attempts", "decision"))
        for line in lines
    ]
    visits: dict[str, set[str]] = {}
    for line in lines:
        if Address.parse(line["address"]) is not None and "#" not in line["address"]:
            visits.setdefault(plain_of(line["address"]), set()).add(line["address"])
    shown = told(show, ran.url, "A")["nodes"]
    counts = {line["node"]: line["visits"] for line in shown if line["visits"]}
    assert {name: len(found) for name, found in visits.items() if name in counts} == counts


def test_a_cancelled_run_waits_for_nothing(tmp_path: Path) -> None:
    url, heard, events = f"sqlite:///{tmp_path}/runs.db", Projection(), list[Event]()
    with Host(url, on_event=events.append) as host:
        host.run(Flow("signed", [wait.approval("sign")]), {}, run_id="A")
        assert host.debug.nodes("A").nodes[0].wait is not None
        host.cancel("A")
        for event in host.events("A", live=False):
            heard.hear(event)
    assert [line["wait"] for line in told(show, url, "A")["nodes"]] == [None]
    assert [line.info(is_pending=False).wait for line in heard.nodes(())] == [None]
    shown = CliRunner().invoke(show, ["A", "--store", url], standalone_mode=False).output
    assert "waits for" not in shown


def test_items_are_counted_from_page_to_page(ran: Ran) -> None:
    with Host(ran.url) as host:
        last = host.info("A").checkpoints
        found = [host.debug.steps("A", after=n, limit=1).steps for n in range(last)]
        whole = host.debug.steps("A", limit=1000).steps
    counted = [line.items for page in found for line in page if line.items is not None]
    assert counted[-1] == next(line.items for line in reversed(whole) if line.items is not None)
    assert (counted[-1].completed, counted[-1].failed) == (3, 1)
    assert sum(line.steps for page in found for line in page) == sum(line.steps for line in whole)


BROKEN = [True]


@node(output="y")
def double(x: int) -> int:
    if x == 3 and BROKEN[0]:
        raise ValueError("three")
    return x * 2


def nested(on_error: Literal["stop", "collect", "finish"]) -> Flow:
    each = Flow("each", [double]).as_node().map_over("x", max_concurrency=1, on_error=on_error)
    rows = Flow("rows", [each]).as_node().map_over("x", max_concurrency=1)
    return Flow("table", [rows], durability="strong")


@pytest.fixture(params=["stop", "collect", "finish"])
def table(host: Host, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Flow:
    """A map in a map that ran as A: item 1 of the second row fails."""
    monkeypatch.setattr(chain_writer, "KEYFRAME_BYTES", 0)
    monkeypatch.setattr(chain_writer, "_NODE_COST", 0)
    BROKEN[0] = True
    flow = nested(request.param)
    host.run(flow, {"x": [[1, 2], [1, 3, 4], [5]]}, run_id="A")
    return flow


def in_full(host: Host, size: int) -> list[StepLine]:
    found, after = [], 0
    while True:
        page = host.debug.steps("A", after=after, limit=size, full=True)
        found += page.steps
        if page.next is None:
            return found
        after = page.next


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_maps_in_maps_are_counted_the_same_on_every_page(
    host: Host, table: Flow, size: int, is_resumed: bool
) -> None:
    if is_resumed:
        BROKEN[0] = False
        host.resume("A", table)
    whole = in_full(host, 1000)
    assert in_full(host, size) == whole
    ends = {line.address: line.items for line in whole if line.items is not None and line.ended_at}
    assert ends["rows@1#0/each@1"] == ItemsInfo(count=2, completed=2, failed=0)


def test_the_end_of_a_map_in_a_map_tells_how_its_items_ended(host: Host) -> None:
    BROKEN[0] = True
    host.run(nested("collect"), {"x": [[1, 3, 4]]}, run_id="A")
    ends = {line.address: line.items for line in in_full(host, 1000) if line.ended_at and line.items}
    assert ends == {
        "rows@1#0/each@1": ItemsInfo(count=3, completed=2, failed=1),
        "rows@1": ItemsInfo(count=1, completed=1, failed=0),
    }


def test_records_that_begin_inside_a_map_tell_of_its_visit_and_its_items(host: Host, table: Flow) -> None:
    records = host.history("A")
    whole = fold(records, ())
    starts = [k for k, record in enumerate(records) if record.keyframe]
    assert starts
    for start in starts:
        for line, its in zip(fold(records[start:], ()), whole, strict=True):
            assert (line.name, line.status, line.visits) == (its.name, its.status, 1)
            if line.items is not None and its.items is not None:
                assert line.items.info() == its.items.info()


def test_what_completed_after_a_resume_is_no_failure_any_more(host: Host) -> None:
    BROKEN[0], flow = True, nested("stop")
    host.run(flow, {"x": [[1, 2], [1, 3]]}, run_id="A")
    (line,) = fold(host.history("A"), ())
    assert line.items is not None
    assert [step.path for step in line.items.lasting] == ["rows#1/each#1/double", "rows#1/each"]
    BROKEN[0] = False
    host.resume("A", flow)
    (line,) = fold(host.history("A"), ())
    assert line.items is not None
    assert line.items.lasting == []
    assert line.items.info() == ItemsInfo(count=2, completed=2, failed=0)


def test_what_a_map_in_a_map_collects_stays_a_failure(host: Host) -> None:
    BROKEN[0] = True
    host.run(nested("collect"), {"x": [[1, 3]]}, run_id="A")
    (line,) = fold(host.history("A"), ())
    assert line.items is not None
    assert "rows#0/each#1/double" in [step.path for step in line.items.lasting]


def test_maps_inside_items_are_let_go_once_they_have_ended(host: Host) -> None:
    BROKEN[0] = True
    host.run(nested("collect"), {"x": [[1, 3]] * 20}, run_id="A")
    maps, most = Maps(), 0
    for record in host.history("A"):
        for step in record.steps:
            maps.take(step)
            most = max(most, len(maps))
    assert most <= 3


def test_every_face_tells_of_an_item_that_has_not_ended(tmp_path: Path) -> None:
    BROKEN[0], url = True, f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.run(nested("stop"), {"x": [[1, 3], [2]]}, run_id="A")
        nodes = as_json(host.debug.nodes("A/rows#0"))["nodes"]
        steps = as_json(host.debug.steps("A/rows#0"))["steps"]
        deeper = [line.node for line in host.debug.nodes("A/rows#0/each#1").nodes]
    assert [(line["node"], line["status"], line["items"]["count"]) for line in nodes] == [
        ("rows/each", "failed", 2)
    ]
    assert deeper == ["rows/each/double"]
    logged = [s["address"] for r in told(log, url, "A/rows#0")["checkpoints"] for s in r["steps"]]
    assert [line["address"] for line in steps] == logged
    assert [step["address"] for step in told(show, url, "A/rows#0")["steps"]] == logged
    shown = CliRunner().invoke(show, ["A/rows#0", "--store", url], standalone_mode=False).output
    assert shown.startswith("rows@1#0  has not ended")
    assert "ValueError: three" in shown
    assert same(served(url, "/runs/A%2Frows%230/nodes")["nodes"]) == same(nodes)
    assert served(url, "/runs/A%2Frows%230/steps")["steps"] == steps


def test_a_part_tells_of_nothing_outside_it(host: Host, table: Flow) -> None:
    for part in ("A/rows#0", "A/rows#1", "A/rows#0/each"):
        assert [line.node for line in host.debug.nodes(part).nodes if line.status] in (
            ["rows", "rows/each"],
            ["rows/each"],
        )


@pytest.mark.parametrize("size", [1, 1000])
def test_failures_follow_the_line_that_counts_them(host: Host, size: int) -> None:
    BROKEN[0] = True
    host.run(nested("stop"), {"x": [[1, 3], [2]]}, run_id="A")
    found, after = [], 0
    while True:
        page = host.debug.steps("A", after=after, limit=size)
        found += page.steps
        if page.next is None:
            break
        after = page.next
    failed = [(line.address, line.steps) for line in found if line.status == "failed"]
    assert failed == [("rows@1#0/each@1#1/double@1", 0), ("rows@1#0/each@1", 0), ("rows@1", 1)]
    assert sum(line.steps for line in found) == len(in_full(host, 1000))
