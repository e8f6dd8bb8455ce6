"""Who may call what, how much they may send, and what the logs show of it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator

import pytest

from everstep.errors import BadRequest
from everstep.server.endpoint import Endpoint, Guard
from everstep.server.guards import check_token, is_loopback
from everstep.server.redaction import redacted
from everstep.server.routes import ENDPOINTS
from everstep.server.serving import listen
from tests.integration.server.serving import (
    NO_SUCH_TOKEN,
    NO_SUCH_WAIT,
    TOKEN,
    Serving,
    code_of,
    expense,
    served,
)

WITHOUT_BEARER = {
    ("GET", "/healthz"),
    ("POST", "/answers/{token}"),
    ("GET", "/w/{token}"),
    ("POST", "/w/{token}"),
}
"""Every way in that asks for no bearer token. A new one is a decision, not an accident."""


def path_of(endpoint: Endpoint) -> str:
    names = {"run_id": "A1", "wait_id": NO_SUCH_WAIT, "token": NO_SUCH_TOKEN}
    return re.sub(r"{(\w+)}", lambda m: names[m[1]], endpoint.path)


def test_only_listed_endpoints_ask_for_no_bearer_token() -> None:
    assert {(e.method, e.path) for e in ENDPOINTS if e.guard is not Guard.BEARER} == WITHOUT_BEARER


@served(headers={})
async def test_every_other_endpoint_refuses_whoever_has_no_token_or_a_wrong_one(s: Serving) -> None:
    wrong = [
        "",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer ü",
    ]
    for endpoint in ENDPOINTS:
        if (endpoint.method, endpoint.path) in WITHOUT_BEARER:
            continue
        for header in wrong:
            headers = {b"Authorization": header.encode()}
            response = await s.client.request(
                endpoint.method, path_of(endpoint), headers=headers, content=b"{"
            )
            assert code_of(response) == (401, "request.unauthorized"), (endpoint.path, header)
            assert response.headers["www-authenticate"] == "Bearer"


@served()
async def test_with_the_token_no_endpoint_says_unauthorized(s: Serving) -> None:
    for endpoint in ENDPOINTS:
        response = await s.client.request(endpoint.method, path_of(endpoint), content=b"{")
        assert "request.unauthorized" not in response.text, endpoint.path


@served(token=None, headers={})
async def test_without_a_token_only_this_machine_is_served(s: Serving) -> None:
    for host in ("localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000"):
        assert (await s.client.get("/runs", headers={"Host": host})).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "", "[", "10.0.0.1"):
        response = await s.client.get("/runs", headers={"Host": host})
        assert code_of(response) == (403, "request.forbidden"), host


@served(token=None, headers={})
async def test_without_a_token_a_web_page_elsewhere_can_do_nothing(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    for origin in ("https://evil.example", "null"):
        for path in (f"/runs/{waiting.run_id}/cancel", f"/waits/{waiting.id}/answer", "/resume"):
            response = await s.client.post(path, headers={"Origin": origin}, content=b'{"approved": true}')
            assert code_of(response) == (403, "request.forbidden"), (origin, path)
    own = await s.client.post(f"/runs/{waiting.run_id}/cancel", headers={"Origin": "http://localhost:8000"})
    assert own.status_code == 200


@served()
async def test_no_answer_allows_other_origins(s: Serving) -> None:
    for method in ("GET", "OPTIONS"):
        response = await s.client.request(method, "/runs", headers={"Origin": "https://elsewhere.example"})
        assert not [name for name in response.headers if name.startswith("access-control")]
    assert (await s.client.options("/runs")).status_code == 405


@served(max_body=100)
async def test_a_body_is_cut_off_while_it_comes_in(s: Serving) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            assert sent < 20, "the service goes on reading"
            yield b" " * 10

    waiting = await s.halted(expense, amount=1)
    takes_body = [e for e in ENDPOINTS if e.body is not None]
    assert len(takes_body) > 5
    for endpoint in takes_body:
        path = path_of(endpoint).replace(NO_SUCH_TOKEN, waiting.token or "").replace(NO_SUCH_WAIT, waiting.id)
        sent = 0
        response = await s.client.request(endpoint.method, path, content=endless())
        assert response.status_code == 413, path
        long = {"Content-Length": "9" * 30, "Transfer-Encoding": ""}
        response = await s.client.request(endpoint.method, path, content=b"", headers=long)
        assert response.status_code == 413, path
    assert await s.is_open(waiting)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b'"\\ud800"',
        b'{"\\ud800": 1}',
        b"[" * 200_000,
        b"[" * 101 + b"]" * 101,
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"1" * 5000,
        b"{'a': 1}",
    ],
)
def test_what_is_not_json_is_refused_by_name(body: bytes) -> None:
    @served()
    async def check(s: Serving) -> None:
        assert code_of(await s.client.post("/runs", content=body)) == (400, "request.invalid")

    check()


@served()
async def test_deep_json_within_the_limit_is_taken(s: Serving) -> None:
    deep: object = 1
    for _ in range(90):
        deep = [deep]
    response = await s.client.post("/runs", content=json.dumps({"flow": "plain", "inputs": {"x": deep}}))
    assert code_of(response) == (422, "run.bad_input")


@served()
async def test_a_trailing_slash_is_another_path_and_redirects_nobody(s: Serving) -> None:
    response = await s.client.get("/runs/", headers={"Host": "evil.example"})
    assert code_of(response) == (404, "request.no_such_path")


@served()
async def test_a_wrong_method_is_told_the_right_ones(s: Serving) -> None:
    response = await s.client.request("DELETE", "/runs")
    assert code_of(response) == (405, "request.bad_method")
    assert response.headers["allow"] == "GET, HEAD, POST"


@served(base_url="https://flows.example")
async def test_links_never_come_from_the_host_header(s: Serving) -> None:
    await s.halted(expense, amount=1)
    for path in ("/waits", "/openapi.json"):
        response = await s.client.get(path, headers={"Host": "evil.example"})
        assert "evil.example" not in response.text
    assert "https://flows.example" in response.text


def test_no_log_and_no_error_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    @served()
    async def check(s: Serving) -> None:
        waiting = await s.halted(expense, amount=1)
        token = waiting.token or ""
        for path in (
            f"/answers/{token}",
            f"/answers/{token}/",
            f"/w/{token}",
            f"/w/{token}x",
            f"/waits/{token}",
            f"/runs/{token}",
            f"/elsewhere/{token}?t={token}",
        ):
            for method in ("GET", "POST"):
                response = await s.client.request(method, path, content=b"[]")
                assert token not in response.text, path
        await s.client.post("/resume", json={"token": token, "answer": {}})
        await s.client.post("/resume", json={"wait_id": token})
        await s.client.post("/resume", json={"checkpoint_id": token})
        await s.client.post(f"/answers/{token}", json={"approved": True})
        # httpx, the client, logs what it asks for; that is the other side.
        ours = [r for r in caplog.records if r.name.startswith("everstep")]
        assert len(ours) > 10
        assert not [r for r in ours if token in r.getMessage() or TOKEN in r.getMessage()]

    check()


def test_a_path_in_the_log_stays_on_one_short_line() -> None:
    assert redacted("/answers/et_abc/x\ny") == "/answers/…"
    assert redacted("/runs/A1\n\x1b[31m") == "/runs/A1\ufffd\ufffd[31m"
    assert redacted(f"/x/{NO_SUCH_TOKEN}/y") == "/x/et_…/y"
    assert len(redacted("/" + "x" * 9999)) == 200


def test_an_unforeseen_error_is_logged_and_tells_the_client_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @served()
    async def check(s: Serving) -> None:
        s.app.service.document["odd"] = object()
        response = await s.client.get("/openapi.json")
        assert code_of(response) == (500, "internal")
        assert "serializable" not in response.text

    check()
    assert "not JSON serializable" in caplog.text


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "with a blank in it", "ümläüt-ümläüt-ümläüt"])
def test_a_weak_bearer_token_is_refused(token: str) -> None:
    with pytest.raises(BadRequest, match="16 or more"):
        check_token(token, "the file")


def test_a_bearer_token_may_end_with_a_line_break() -> None:
    assert check_token(f"{TOKEN}\n", "the file") == TOKEN


def test_without_a_token_nobody_listens_beyond_this_machine() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(BadRequest, match="other machines"):
            listen(host, 0, has_token=False)
    with listen("127.0.0.1", 0, has_token=False) as taken, pytest.raises(BadRequest, match="cannot listen"):
        listen("127.0.0.1", taken.getsockname()[1], has_token=False)
    with pytest.raises(BadRequest, match="no address"):
        listen("no.such.host.invalid", 0, has_token=True)


def test_loopback_is_recognised() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.8.8", "::1"]))
    assert not any(
        map(is_loopback, ["", "0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com"])
    )
