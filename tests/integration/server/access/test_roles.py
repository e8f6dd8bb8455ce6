"""Every endpoint and every role: who is let in, and what a viewer is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import pytest

from everstep import AsyncHost, Breaker, Context, Flow, Retry, node, wait
from everstep.engine.query.tree import FIELDS
from everstep.server.access.roles import Reach, Role
from everstep.server.access.withheld import INSTEAD, QUERIED, SHOWN
from everstep.server.endpoint import Endpoint, Guard
from everstep.server.routes import ENDPOINTS
from everstep.server.schemas import structs_of
from tests.integration.server.access.named_callers import ALL_ROLES, bearer, entry, named
from tests.integration.server.serving import Serving, code_of

LEAST = {
    "start_run": "operator",
    "list_runs": "viewer",
    "count_runs": "viewer",
    "durations": "viewer",
    "tag_run": "operator",
    "bulk": "operator",
    "list_workers": "viewer",
    "list_untaken": "viewer",
    "read_audit": "admin",
    "list_notices": "viewer",
    "send_notice_again": "operator",
    "send_notices_again": "operator",
    "create_schedule": "operator",
    "list_schedules": "viewer",
    "show_schedule": "viewer",
    "list_times": "viewer",
    "pause_schedule": "operator",
    "unpause_schedule": "operator",
    "run_schedule": "operator",
    "change_schedule": "operator",
    "backfill_schedule": "operator",
    "stop_backfill": "operator",
    "delete_schedule": "operator",
    "list_breakers": "viewer",
    "reset_breaker": "operator",
    "show_run": "viewer",
    "erase_run": "admin",
    "pin_run": "operator",
    "unpin_run": "operator",
    "acknowledge_run": "operator",
    "show_state": "reader",
    "list_nodes": "viewer",
    "draw_run": "viewer",
    "list_flows": "viewer",
    "show_flow": "viewer",
    "list_edges": "viewer",
    "list_steps": "viewer",
    "show_step": "viewer",
    "show_timeline": "viewer",
    "list_checkpoints": "viewer",
    "list_values": "reader",
    "fetch_value": "reader",
    "list_logs": "reader",
    "watch_run": "viewer",
    "watch_changes": "viewer",
    "fork_run": "operator",
    "preview_fork": "viewer",
    "settle_effect": "operator",
    "fire_wait": "operator",
    "revoke_token": "operator",
    "compare_runs": "viewer",
    "show_store": "viewer",
    "explain_run": "viewer",
    "report_flow": "viewer",
    "validate_flow": "viewer",
    "judge_runs": "viewer",
    "cancel_run": "operator",
    "undo_run": "operator",
    "pause_run": "operator",
    "unpause_run": "operator",
    "list_limits": "viewer",
    "list_pauses": "viewer",
    "pause_flow": "operator",
    "unpause_flow": "operator",
    "resume_run": "operator",
    "show_inbox": "reader",
    "send_signal": "operator",
    "drop_signal": "operator",
    "publish_event": "operator",
    "list_waits": "viewer",
    "show_wait": "viewer",
    "answer_wait": "approver",
    "reissue_token": "operator",
    "deliver": "operator",
    "metrics": "viewer",
    "openapi": "viewer",
    # The token of a wait is the credential.
    "answer_by_token": None,
    "show_page": None,
    "answer_on_page": None,
    "who_am_i": "viewer",
    # Anyone.
    "begin": None,
    "console": None,
    "console_file": None,
    "console_login": None,
    "console_log_in": None,
    "console_log_out": None,
    "health": None,
    "readiness": None,
}
BODIES: dict[str, Any] = {
    "start_run": {"flow": "plain", "inputs": {"x": 1}},
    "send_signal": {"name": "note"},
    "drop_signal": {"id": "nothing"},
    "tag_run": {"add": ["vip"]},
    "bulk": {"act": "tag", "where": "flow = nothing", "add": ["vip"]},
    "create_schedule": {"flow": "asking", "id": "weekly", "every": "1h", "inputs": {"word": "x"}},
    "change_schedule": {"every": "2h"},
    "backfill_schedule": {"since": "-1d"},
    "pause_flow": {"flow": "asking"},
    "unpause_flow": {"flow": "asking"},
    "answer_wait": "red",
    "answer_by_token": {"no": "colour"},
    "settle_effect": {"step": "look", "rerun": True},
    "deliver": {"wait_id": "00000000-0000-4000-8000-000000000000"},
}
SECRET = "c4n4ry"
"""Stands in every value that the flow below takes, writes, shows, logs and fails with."""


@node(output="found")
def look(word: str, ctx: Context) -> str:
    print(f"looking for {word}")
    ctx.emit("token", text=word)
    return word * 2


@node(output="sent", retry=Retry(2, first=0))
def send(found: str) -> str:
    raise ConnectionError(f"cannot send {found}")


ask = wait.question(
    "ask",
    kind="choice",
    options=[SECRET, "other"],
    context="found",
    prompt=f"Is it {SECRET}?",
)
asking = Flow("asking", [look, ask], streams=True, logs=True)
failing = Flow("failing", [look, send], logs=True, notify="ops")
tripping = Flow("tripping", [look, send], breakers=[Breaker("mail", failures=1, shared=True)])


@asynccontextmanager
async def filled(folder: Path, text: str = ALL_ROLES, **options: Any) -> AsyncIterator[Serving]:
    """Open a service whose store has a run of each kind: `halted`, `answered`, `failed`, `tripped`."""
    async with named(folder, text, **options) as s:
        await fill(s.host)
        yield s


async def fill(host: AsyncHost) -> None:
    for run_id in ("halted", "answered"):
        labels: Any = {"tags": {"for": SECRET}, "attributes": {"word": SECRET}}
        await host.run(asking, {"word": SECRET}, run_id=run_id, by="ann", comment=f"for {SECRET}", **labels)
    [waiting] = await host.waits("answered")
    await host.answer(waiting.id, SECRET, by="bo", comment=f"it is {SECRET}")
    await host.resume("answered", asking)
    await host.run(failing, {"word": SECRET}, run_id="failed")
    await host.run(tripping, {"word": SECRET}, run_id="tripped")
    labels = {"inputs": {"word": SECRET}, "tags": {"for": SECRET}}
    await host.schedules.create("asking", "nightly", every="1h", **labels)
    await host.retention.pin("failed", f"look into {SECRET}", by="ann", comment=SECRET)
    await host.send("halted", "note", {"word": SECRET}, by="ann", comment=SECRET)
    await host.fleet.pause(flow="another", by="ann", comment=f"for {SECRET}")
    await host.run(asking, {"word": SECRET}, run_id="gone")
    await host.cancel("gone", by="ann", comment=f"no {SECRET}")
    await host.retention.erase("gone", by="ann", comment=f"never {SECRET}")


async def path_of(s: Serving, endpoint: Endpoint, run_id: str = "halted") -> str:
    """Return the path of an endpoint with things that are there."""
    [waiting] = await s.host.waits("halted", status=None)
    there = {"run_id": run_id, "wait_id": waiting.id, "token": waiting.token or "", "breaker": "mail"}
    there |= {"notice_id": "failed-1"}
    there |= {"event": "paid", "flow": "asking", "address": "look"}
    there |= {"edition": "now", "name": "app.js", "view": ""}
    return re.sub(r"{(\w+)(?::path)?}", lambda found: there[found[1]], endpoint.path)


async def call(s: Serving, endpoint: Endpoint, headers: dict[str, str]) -> httpx.Response:
    """Call an endpoint with a body that it takes; a stream is read as a page."""
    sent = {"json": BODIES[endpoint.name]} if endpoint.name in BODIES else {}
    accept = {"Accept": "application/json"}
    path = await path_of(s, endpoint)
    return await s.client.request(endpoint.method, path, headers={**accept, **headers}, **sent)


def test_every_endpoint_says_the_least_role_that_may_call_it() -> None:
    said = {e.name: None if e.role is None else e.role.value for e in ENDPOINTS}
    assert said == LEAST
    assert {e.name for e in ENDPOINTS if e.guard is Guard.BEARER} == {n for n, role in LEAST.items() if role}


def test_every_endpoint_reaches_what_is_in_its_path() -> None:
    for endpoint in ENDPOINTS:
        if endpoint.guard is Guard.BEARER:
            named_in_path = {"{run_id}": Reach.RUN, "{wait_id}": Reach.WAIT}
            expected = next((r for part, r in named_in_path.items() if part in endpoint.path), None)
            assert expected in (None, endpoint.reach), endpoint.name
            assert (endpoint.reach in (Reach.RUN, Reach.WAIT)) == (expected is not None), endpoint.name


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)
def test_an_endpoint_lets_in_the_roles_that_suffice_and_no_other(tmp_path: Path, endpoint: Endpoint) -> None:
    least = LEAST[endpoint.name]
    text = ALL_ROLES + entry("late", "admin", expires="2029-12-31T00:00:00Z")

    async def run() -> None:
        async with named(tmp_path, text) as s:
            await s.host.run(asking, {"word": SECRET}, run_id="halted")
            for role in ["late", "unknown", None, *Role]:
                response = await call(s, endpoint, {} if role is None else bearer(role))
                if least is None:
                    expected = {200, 303, 307, 400} | ({401} if endpoint.name == "console_log_in" else set())
                elif not isinstance(role, Role):
                    expected = {401}
                    assert response.headers["WWW-Authenticate"] == "Bearer"
                elif list(Role).index(role) < list(Role).index(Role(least)):
                    expected = {403}
                else:
                    expected = {200, 202, 204, 400, 404, 409}  # it was let in, whatever came of it
                assert response.status_code in expected, (role, response.text)

    asyncio.run(run())


def structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a type is made of."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from structs_in(inner)


def shown_to_viewers() -> set[type[msgspec.Struct]]:
    """Return every struct that an answer to a viewer may hold."""
    answers = [
        shape
        for endpoint in ENDPOINTS
        if endpoint.role is Role.VIEWER
        for answer in endpoint.answers.values()
        for media, shape in answer.content.items()
        if media == "application/json"
    ]
    found, todo = set[type[msgspec.Struct]](), structs_of(answers)
    while todo:
        shape = todo.pop()
        if shape not in found:
            found.add(shape)
            hints = [field.type for field in msgspec.structs.fields(shape)]
            todo += [inner for hint in hints for inner in structs_in(hint)]
    return found


def test_it_is_decided_of_every_field_whether_a_viewer_is_shown_it() -> None:
    tables = {*SHOWN, *INSTEAD}
    reached = shown_to_viewers()
    for shape in reached:
        bases = [base for base in shape.__mro__ if base in tables]
        shown = {name for base in bases for name in SHOWN.get(base, "").split()}
        withheld = {name for base in bases for name in INSTEAD.get(base, {})}
        assert shown | withheld == set(shape.__struct_fields__), shape.__name__
        assert not shown & withheld, shape.__name__
    used = {base for shape in reached for base in shape.__mro__}
    assert tables <= used


def test_it_is_decided_of_every_field_of_a_query_whether_a_viewer_may_ask_for_it() -> None:
    assert FIELDS.keys() - QUERIED == {"error", "tag"}


FOR_VIEWERS = [e for e in ENDPOINTS if e.role is Role.VIEWER]


def test_a_viewer_is_told_no_value_and_a_reader_is(tmp_path: Path) -> None:
    async def run() -> None:
        told = set()
        async with filled(tmp_path) as s:
            for endpoint in FOR_VIEWERS:
                for run_id in ("halted", "answered", "failed", "tripped", "gone", "nightly"):
                    path = await path_of(s, endpoint, run_id)
                    more = {"/waits": ["/waits?status=settled"], "/runs": ["/runs?labels=true"]}
                    paths = [path, *more.get(path, [])]
                    if endpoint.name == "compare_runs":
                        paths = [f"/compare?a=answered&b={run_id}", f"/compare?a={run_id}&b=failed"]
                    for one in paths:
                        for accept in ("application/json", "text/event-stream"):
                            is_endless = endpoint.name == "watch_changes" or run_id in (
                                "halted",
                                "tripped",
                                "nightly",
                            )
                            if accept == "text/event-stream" and is_endless:
                                continue  # a stream of what goes on does not end
                            headers = {"Accept": accept}
                            seen = await s.client.get(one, headers=headers | bearer("viewer"))
                            is_refused = endpoint.name == "preview_fork" and run_id == "nightly"
                            assert seen.status_code in (200, 404, 409) or is_refused, (one, seen.text)
                            assert SECRET not in seen.text, one
                            whole = await s.client.get(one, headers=headers | bearer("reader"))
                            assert whole.status_code == seen.status_code
                            told |= {endpoint.name} if SECRET in whole.text else set()
        # What else viewers may call tells no value to readers either.
        none = {"list_workers", "list_untaken", "list_breakers", "list_limits", "metrics", "openapi"}
        none |= {
            "count_runs",
            "durations",
            "list_flows",
            "show_flow",
            "watch_changes",
            "show_store",
            "who_am_i",
        }
        none |= {"report_flow", "validate_flow", "judge_runs", "list_notices"}
        assert told == {e.name for e in FOR_VIEWERS} - none

    asyncio.run(run())


@pytest.mark.parametrize(
    "asked",
    [
        "/runs?tag=for",
        f"/runs?attribute=word={SECRET}",
        f"/runs?error={SECRET}",
        "/runs?where=tag = for",
        "/runs?where=word starts_with c",
        "/counts?tag=for",
        "/counts?where=tag.for = x",
        "/counts?by=tag",
        "/counts?by=attribute.word",
        "/counts?by=error",
        "/durations?where=word = x",
    ],
)
def test_a_viewer_may_not_ask_by_tags_and_attributes_and_a_reader_may(tmp_path: Path, asked: str) -> None:
    async def run() -> None:
        async with filled(tmp_path) as s:
            seen = await s.client.get(asked, headers=bearer("viewer"))
            assert (seen.status_code, seen.json()["code"]) == (403, "request.forbidden"), seen.text
            read = await s.client.get(asked, headers=bearer("reader"))
            assert read.status_code == (400 if asked.endswith("by=error") else 200), read.text

    asyncio.run(run())


def test_a_viewer_may_count_runs_by_what_it_is_shown(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path) as s:
            counted = (await s.client.get("/counts?by=flow", headers=bearer("viewer"))).json()
            assert (counted["by"], counted["runs"]["asking"], counted["next"]) == ("flow", 2, None)
            queried = await s.client.get("/counts?where=status = failed", headers=bearer("viewer"))
            assert queried.json()["runs"] == {"failed": 1}

    asyncio.run(run())


def test_a_viewer_sees_how_runs_stand_and_who_did_what(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path) as s:
            s.client.headers.update(bearer("viewer"))
            runs = (await s.client.get("/runs")).json()["runs"]
            assert {(one["run_id"], one["status"]) for one in runs} == {
                ("breaker.mail", "halted"),
                ("tripped", "halted"),
                ("halted", "halted"),
                ("answered", "completed"),
                ("failed", "failed"),
                ("nightly", "running"),
            }
            nodes = (await s.client.get("/runs/failed/nodes")).json()["nodes"]
            assert nodes[1]["error"]["type"] == "ConnectionError"
            assert nodes[1]["error"]["message"] == "(withheld)"
            [waiting] = (await s.client.get("/waits?run_id=halted")).json()["waits"]
            assert (waiting["node"], waiting["kind"], waiting["token"]) == ("ask", "choice", None)
            [settled] = (await s.client.get("/waits?status=settled")).json()["waits"] or [None]
            assert settled is None or settled["act"] == {"by": "bo", "comment": None, "how": "claimed"}
            page = {"Accept": "application/json"}
            events = (await s.client.get("/runs/failed/events", headers=page)).json()["events"]
            errors = {one["data"]["error"] for one in events if "error" in one["data"]}
            assert errors == {"ConnectionError: (withheld)", "(withheld)"}

    asyncio.run(run())


def test_a_viewer_cannot_find_an_error_by_asking_for_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path) as s:
            for where in (f"error contains {SECRET}", "status = failed and not (error is set)"):
                refused = await s.client.get("/runs", params={"where": where}, headers=bearer("viewer"))
                assert code_of(refused) == (403, "request.forbidden")
                asked = await s.client.get("/runs", params={"where": where}, headers=bearer("reader"))
                assert asked.status_code == 200
            fine = await s.client.get(
                "/runs", params={"where": "error_code = node.failed"}, headers=bearer("viewer")
            )
            assert [one["run_id"] for one in fine.json()["runs"]] == ["failed"]

    asyncio.run(run())


def test_tokens_of_waits_are_shown_to_those_alone_who_may_act_on_runs(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path) as s:
            [waiting] = await s.host.waits("halted")
            assert waiting.token
            for role in Role:
                listed = await s.client.get("/waits", headers=bearer(role))
                shown = await s.client.get(f"/waits/{waiting.id}", headers=bearer(role))
                has_it = {waiting.token in listed.text, waiting.token in shown.text}
                assert has_it == {role in (Role.OPERATOR, Role.ADMIN)}, role

    asyncio.run(run())


def test_the_document_tells_the_role_of_each_operation(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path) as s:
            api = (await s.client.get("/openapi.json", headers=bearer("viewer"))).json()
            told = {
                operation["operationId"]: operation.get("x-everstep-role")
                for methods in api["paths"].values()
                for operation in methods.values()
            }
            assert told == {e.name: LEAST[e.name] for e in ENDPOINTS if e.is_public}

    asyncio.run(run())
