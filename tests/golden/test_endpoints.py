"""What every endpoint of the service answers, as golden files have it."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from everstep import AsyncHost
from everstep.model.leases import Driven, WorkerRow
from everstep.registry import open_store
from everstep.server.app import create_app
from everstep.server.routes import ENDPOINTS
from everstep.testing import ManualClock
from tests.golden import shop
from tests.golden.comparing import Told, differences

SKUS = {"skus": ["tea", "gone", "cup"]}
APPROVED = {"approved": True, "approver": "Bo", "comment": "fine"}
JSON = {"Accept": "application/json"}


class Case(NamedTuple):
    """A request, and the endpoint of the route table that it is for."""

    name: str
    endpoint: str
    body: Any = None
    status: int = 200
    headers: dict[str, str] | None = None
    in_path: str = ""
    """What stands in the place of `{run_id}` and its like."""
    query: str = ""


CASES = [
    Case("start", "start_run", {"flow": "order", "inputs": SKUS, "run_id": "A1", "by": "ann"}, 202),
    Case(
        "start-grouped",
        "start_run",
        {"flow": "counter", "inputs": {"n": 0}, "run_id": "C1", "group": "g"},
        202,
    ),
    Case("start-refused", "start_run", {"flow": "counter", "inputs": {"m": 0}}, 422),
    Case("resume-halted", "resume_run", {"by": "ann"}, 202, in_path="A1"),
    Case("resume-ended", "resume_run", {}, in_path="C1"),
    Case(
        "start-odd", "start_run", {"flow": "oddities", "inputs": {"plain": {"$type": 1}}, "run_id": "O1"}, 202
    ),
    Case("resume-odd", "resume_run", {}, in_path="O1"),
    Case("state-odd", "show_state", in_path="O1"),
    Case("runs", "list_runs"),
    Case("runs-page", "list_runs", query="?limit=1"),
    Case("run", "show_run", in_path="A1"),
    Case("run-missing", "show_run", status=404, in_path="nothing"),
    Case("workers", "list_workers"),
    Case("untaken", "list_untaken"),
    Case("notices", "list_notices"),
    Case("notices-dead", "list_notices", query="?state=dead"),
    Case("notice-again", "send_notice_again", {"by": "ann"}, in_path="P1-1"),
    Case("notice-again-missing", "send_notice_again", status=404, in_path="P1-9"),
    Case("notices-again", "send_notices_again", {"by": "ann"}),
    Case("breakers", "list_breakers"),
    Case("breaker-reset", "reset_breaker", in_path="prices"),
    Case("state", "show_state", in_path="A1"),
    Case("state-at", "show_state", in_path="A1", query="?at=2"),
    Case("nodes", "list_nodes", in_path="A1"),
    Case("nodes-failed", "list_nodes", in_path="P1"),
    Case("flows", "list_flows"),
    Case("flow", "show_flow", in_path="counter"),
    Case("flow-not-loaded", "show_flow", in_path="pricing", query="?open="),
    Case("edges", "list_edges", in_path="C1"),
    Case("drawing", "draw_run", in_path="A1"),
    Case("logs", "list_logs", in_path="A1"),
    Case("steps", "list_steps", in_path="A1"),
    Case("steps-page", "list_steps", in_path="A1", query="?after=2&limit=2&full=true"),
    Case("timeline", "show_timeline", in_path="A1"),
    Case("timeline-at", "show_timeline", in_path="A1@5", query="?most=3"),
    Case("checkpoints", "list_checkpoints", in_path="A1", query="?limit=2"),
    Case("values", "list_values", in_path="A1"),
    Case("value-part", "list_values", in_path="A1", query="?name=lines&pointer=/0/sku&from=1&count=1"),
    Case("value-file", "fetch_value", in_path="A1", query="?name=lines&pointer=/0"),
    Case("step", "show_step", in_path="A1", query="?at=2"),
    Case("events", "watch_run", in_path="A1", headers=JSON),
    Case("events-streamed", "watch_run", in_path="C1"),
    Case("explain", "explain_run", in_path="A1"),
    Case("explain-not-loaded", "explain_run", status=409, in_path="P1"),
    Case("report", "report_flow", in_path="order"),
    Case("findings", "validate_flow", in_path="order"),
    Case("compat", "judge_runs", in_path="order"),
    Case("waits", "list_waits"),
    Case("wait", "show_wait", in_path="{wait}"),
    Case("reissue", "reissue_token", {"ttl_seconds": 60, "metadata": {"for": "bo"}}, in_path="{wait}"),
    Case("revoke", "revoke_token", {"by": "ann"}, in_path="{wait}"),
    Case("reissue-again", "reissue_token", {}, in_path="{wait}"),
    Case("page", "show_page", in_path="{token}"),
    Case("answer-refused", "answer_by_token", "perhaps", 400, in_path="{token}"),
    Case("answer-by-token", "answer_by_token", APPROVED, in_path="{token}"),
    Case("deliver", "deliver", {"checkpoint_id": "{checkpoint}"}),
    Case("pin", "pin_run", {"reason": "the audit", "by": "ann"}, in_path="A1"),
    Case("audit", "read_audit", query="?act=pin&by=ann"),
    Case("unpin", "unpin_run", in_path="A1"),
    Case("tag", "tag_run", {"add": {"vip": "", "team": "blue"}, "remove": ["old"]}, in_path="A1"),
    Case(
        "bulk-dry-run",
        "bulk",
        {"act": "tag", "where": "flow = order", "add": ["vip"], "dry_run": True},
    ),
    Case("bulk", "bulk", {"act": "pin", "where": "flow = nothing", "by": "ann"}, 202),
    Case("bulk-refused", "bulk", {"act": "pin", "where": "flw = order"}, 400),
    Case("count", "count_runs"),
    Case("durations", "durations", query="?flow=pricing"),
    Case("ack", "acknowledge_run", in_path="A1"),
    Case("start-another", "start_run", {"flow": "order", "inputs": SKUS, "run_id": "A2"}, 202),
    Case("resume-another", "resume_run", {}, 202, in_path="A2"),
    Case("answer", "answer_wait", {"approved": True}, in_path="{wait}", headers={"Everstep-By": "ann"}),
    Case("start-fourth", "start_run", {"flow": "order", "inputs": SKUS, "run_id": "A5"}, 202),
    Case("resume-fourth", "resume_run", {}, 202, in_path="A5"),
    Case("fire", "fire_wait", {"by": "ann"}, in_path="{wait}"),
    Case("settle-refused", "settle_effect", {"step": "charge", "rerun": True}, 404, in_path="A5"),
    Case("start-third", "start_run", {"flow": "order", "inputs": SKUS, "run_id": "A3"}, 202),
    Case("resume-third", "resume_run", {}, 202, in_path="A3"),
    Case("turn-halted", "send_signal", {"name": "hurry", "drive": True}, 202, in_path="A3"),
    Case("page-answered", "answer_on_page", in_path="{token}"),
    Case("send", "send_signal", {"name": "note", "value": [1], "id": "n1", "by": "ann"}, in_path="A3"),
    Case("turn", "send_signal", {"name": "note", "value": 1, "drive": True}, in_path="A2"),
    Case("publish", "publish_event", {"value": {"order": "A3"}, "id": "p1"}, in_path="paid"),
    Case("inbox", "show_inbox", in_path="A3"),
    Case("drop", "drop_signal", {"id": "n1", "by": "ann", "comment": "no text"}, in_path="A3"),
    Case("pause", "pause_run", {"by": "ann", "comment": "a look"}, in_path="A3"),
    Case("pause-flow", "pause_flow", {"flow": "order", "group": "acme", "by": "ann"}),
    Case("pauses", "list_pauses"),
    Case("pauses-of-flows", "list_pauses", query="?runs=false"),
    Case("limits", "list_limits"),
    Case(
        "schedule-create",
        "create_schedule",
        {"flow": "order", "id": "hourly", "every": "1h", "inputs": SKUS, "by": "ann"},
    ),
    Case("schedules", "list_schedules"),
    Case("schedule", "show_schedule", in_path="hourly"),
    Case("schedule-times", "list_times", query="?count=2", in_path="hourly"),
    Case("schedule-pause", "pause_schedule", {"by": "ann"}, in_path="hourly"),
    Case("schedule-unpause", "unpause_schedule", in_path="hourly"),
    Case("schedule-run", "run_schedule", {"id": "now"}, 202, in_path="hourly"),
    Case("schedule-change", "change_schedule", {"overlap": "queue"}, 202, in_path="hourly"),
    Case("schedule-backfill", "backfill_schedule", {"since": "-1d", "at_most": 3}, 202, in_path="hourly"),
    Case("schedule-stop", "stop_backfill", {}, 202, in_path="hourly"),
    Case("schedule-delete", "delete_schedule", in_path="hourly"),
    Case("schedule-missing", "show_schedule", status=404, in_path="A1"),
    Case("unpause", "unpause_run", in_path="A3"),
    Case("unpause-flow", "unpause_flow", {"flow": "order", "group": "acme"}),
    Case("undo-refused", "undo_run", {"by": "ann"}, 400, in_path="A1"),
    Case("cancel", "cancel_run", in_path="A3"),
    Case(
        "fork", "fork_run", {"at": 2, "fork_id": "A4", "state": {"lines": []}, "by": "ann"}, 202, in_path="A1"
    ),
    Case("fork-preview", "preview_fork", in_path="A1", query="?at=2&state=lines"),
    Case("compare", "compare_runs", query="?a=A1&b=A4"),
    Case("fork-refused", "fork_run", {"inputs": {"nothing": 1}}, 422, in_path="A1"),
    Case("changes", "watch_changes", headers=JSON),
    Case("erase", "erase_run", in_path="A3"),
    Case("store", "show_store"),
    Case("me", "who_am_i"),
    Case("health", "health"),
    Case("readiness", "readiness"),
    Case("openapi", "openapi"),
]
"""All endpoints but the metrics, which are numbers alone, and the console, which is pages."""


def test_every_endpoint_answers_what_its_golden_file_says(quick_folder: Path) -> None:
    different = differences("endpoints", asyncio.run(_played(quick_folder)))
    assert not different, "\n".join(different)


def test_every_endpoint_has_a_golden_file() -> None:
    pages = {e.name for e in ENDPOINTS if e.path == "/" or e.path.startswith("/ui/")}
    assert {e.name for e in ENDPOINTS} - {case.endpoint for case in CASES} - pages == {"metrics"}


async def _played(folder: Path) -> dict[str, Any]:
    clock = ManualClock()
    url = f"sqlite:///{folder}/runs.db"
    async with AsyncHost(url, clock=clock, key="k" * 32, base_url="http://flows.test") as host:
        await _report_worker(url, clock)
        await host.run(shop.pricing, {"sku": "tea"}, run_id="P1")
        app = create_app(host, [shop.order, shop.counter, shop.oddities], token="t" * 32)
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        headers = {"Authorization": f"Bearer {'t' * 32}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as client:
            return {case.name: await _answered(case, client, host, folder) for case in CASES}


async def _report_worker(url: str, clock: ManualClock) -> None:
    row = WorkerRow(
        worker_id="w1",
        host="box",
        pid=7,
        flows=("counter", "order"),
        concurrency=8,
        started_at=clock.now(),
        driving=1,
        longest=(Driven(run_id="C0", flow_id="counter", since=clock.now()),),
    )
    await open_store(url, clock).store.report(row, timedelta(days=1))


async def _answered(case: Case, client: httpx.AsyncClient, host: AsyncHost, folder: Path) -> Any:
    endpoint = next(e for e in ENDPOINTS if e.name == case.endpoint)
    waits = await host.waits()
    known = {"{wait}": waits[0].id, "{token}": waits[0].token or ""} if waits else {}
    body = case.body
    if case.endpoint == "deliver":
        body = {"checkpoint_id": (await host.latest("A1")).checkpoint_id}
    path = endpoint.path.replace("{address}", "cart")
    path = re.sub(r"{\w+}", known.get(case.in_path, case.in_path), path) + case.query
    form = {"data": {"approved": "true"}} if endpoint.errors_in == "text/html" else {"json": body}
    sent = {} if endpoint.body is None else form
    response = await client.request(endpoint.method, path, headers=case.headers, **sent)
    assert response.status_code == case.status, (case, response.text)
    told = Told(folder)
    if response.headers["content-type"].startswith("application/json"):
        return told.plain(response.json())
    return told.text(re.sub(r"(?s)<style>.*?</style>", "", response.text))
