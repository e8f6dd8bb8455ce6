"""Logging in to the console, and what a cookie may and may not do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from everstep.server.access.admission import Claims
from everstep.server.access.sessions import ACTS, CODE_LASTS, LASTS, LOOKS, NAMED, Sessions
from everstep.server.access.token_file import digest_of
from everstep.server.api.events import _stream
from everstep.testing import ManualClock
from tests.integration.server.serving import TOKEN, Serving, ask_text, code_of, plain, served, serving

ACT = {"Everstep-Console": "1"}
OWN = {**ACT, "Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}


def browser_of(s: Serving, base: str = "http://localhost") -> httpx.AsyncClient:
    """Return a client without a bearer token, which keeps cookies."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(s.app), base_url=base)


async def logged_in(s: Serving, holder: str = ACTS) -> httpx.AsyncClient:
    browser = browser_of(s)
    code = s.app.service.access.sessions.code(holder)
    response = await browser.get(f"/ui/login?code={code}")
    assert (response.status_code, response.headers["location"]) == (303, "/ui/")
    return browser


@asynccontextmanager
async def open_until_done(browser: httpx.AsyncClient) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await browser.aclose()


@served()
async def test_the_top_leads_to_the_console_and_its_page_asks_nothing_of_elsewhere(s: Serving) -> None:
    async with browser_of(s) as browser:
        top = await browser.get("/")
        assert (top.status_code, top.headers["location"]) == (307, "/ui/")
        page = await browser.get("/ui/runs/A17@12/charge")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "<style" not in page.text and "style=" not in page.text and "<script>" not in page.text
        assert "//" not in page.text.replace("<!doctype html>", "")


@served()
async def test_a_code_works_once_and_becomes_a_cookie_that_scripts_do_not_see(s: Serving) -> None:
    code = s.app.service.access.sessions.code(ACTS)
    async with browser_of(s) as first, browser_of(s) as second:
        response = await first.get(f"/ui/login?code={code}")
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and code not in cookie
        assert (await first.get("/me")).json()["acts"] is True
        again = await second.get(f"/ui/login?code={code}")
        assert again.status_code == 401 and "set-cookie" not in again.headers
        assert code_of(await second.get("/me")) == (401, "request.unauthorized")


@served()
async def test_an_act_needs_the_header_the_origin_and_a_name_that_is_ours(s: Serving) -> None:
    await s.host.start(plain, {"x": 1}, run_id="A1")
    browser = await logged_in(s)
    async with open_until_done(browser):
        refused = [
            {},
            {"Origin": "http://localhost"},
            {**OWN, "Origin": "http://evil.test", "Sec-Fetch-Site": "cross-site"},
            {**ACT, "Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
            {**OWN, "Host": "evil.test"},
        ]
        for headers in refused:
            response = await browser.post("/runs/A1/cancel", headers=headers)
            assert code_of(response) == (403, "request.forbidden"), headers
        assert (await s.host.info("A1")).status == "running"
        assert (await browser.post("/runs/A1/cancel", headers=OWN)).status_code == 200
        assert (await s.host.info("A1")).status == "cancelled"


@served()
async def test_another_site_cannot_have_a_browser_look_with_its_cookie(s: Serving) -> None:
    browser = await logged_in(s)
    async with open_until_done(browser):
        for site in ("cross-site", "same-site"):
            assert (await browser.get("/runs", headers={"Sec-Fetch-Site": site})).status_code == 403
        assert (await browser.get("/runs", headers={"Sec-Fetch-Site": "same-origin"})).status_code == 200
        assert (await browser.get("/runs", headers={"Host": "evil.test"})).status_code == 403


@served()
async def test_a_console_that_looks_does_nothing(s: Serving) -> None:
    await s.host.start(plain, {"x": 1}, run_id="A1")
    browser = await logged_in(s, LOOKS)
    async with open_until_done(browser):
        assert (await browser.get("/me")).json()["acts"] is False
        assert (await browser.get("/runs/A1/state")).status_code == 200
        for method, path in (("POST", "/runs/A1/cancel"), ("DELETE", "/runs/A1"), ("POST", "/bulk")):
            response = await browser.request(method, path, headers=OWN)
            assert code_of(response) == (403, "request.forbidden")
            assert "--act" in response.json()["fix"]


@served()
async def test_the_token_of_the_service_logs_in_and_a_wrong_one_does_not(s: Serving) -> None:
    async with browser_of(s) as browser:
        wrong = await browser.post("/ui/login", data={"token": "no-such-token-anywhere"})
        assert wrong.status_code == 401 and "set-cookie" not in wrong.headers
        assert "no-such-token" not in wrong.text
        elsewhere = await browser.post(
            "/ui/login", data={"token": TOKEN}, headers={"Origin": "http://evil.test"}
        )
        assert elsewhere.status_code == 403 and "set-cookie" not in elsewhere.headers
        right = await browser.post("/ui/login", data={"token": TOKEN}, headers={"Origin": "http://localhost"})
        assert right.status_code == 303
        assert (await browser.get("/me")).json()["can_log_out"] is True
        out = await browser.post("/ui/logout", headers={"Origin": "http://localhost"})
        assert out.status_code == 303
        assert (await browser.get("/me")).status_code == 401


def test_a_session_of_a_named_token_has_its_role_and_ends_with_it(tmp_path: Path) -> None:
    secret = "et-reader-0123456789abcdef"
    file = tmp_path / "tokens.toml"
    line = f'[tokens.ann]\nrole = "reader"\nhashes = [{{ sha256 = "{digest_of(secret)}" }}]\n'
    file.write_text(line)

    async def main() -> None:
        async with serving(token=None, tokens=file) as s, browser_of(s) as browser:
            await s.host.start(plain, {"x": 1}, run_id="A1")
            assert (await browser.post("/ui/login", data={"token": secret})).status_code == 303
            me = (await browser.get("/me")).json()
            assert (me["name"], me["role"]) == ("ann", "reader")
            assert code_of(await browser.post("/runs/A1/cancel", headers=OWN)) == (403, "request.forbidden")
            foreign = {"Origin": "http://evil.test", "Sec-Fetch-Site": "cross-site"}
            for headers in ({}, ACT | foreign):  # a page of another site has the browser send it
                assert code_of(await browser.post("/runs/A1/pause", headers=headers))[0] == 403
            rows = [(row.act, row.by, row.outcome) for row in await s.host.fleet.audit()]
            assert rows == [(act, "ann", "refused") for act in ("cancel", "pause", "pause")]
            file.write_text(
                line.replace("tokens.ann", "tokens.bob").replace(digest_of(secret), digest_of("x"))
            )
            s.clock.advance(2)
            assert (await browser.get("/me")).status_code == 401

    asyncio.run(main())


@served()
async def test_a_cookie_counts_no_more_once_its_browser_has_logged_out(s: Serving) -> None:
    first, second = await logged_in(s), await logged_in(s)
    sessions = s.app.service.access.sessions
    async with open_until_done(first), open_until_done(second):
        kept = first.cookies[sessions.cookie]
        assert (await first.post("/ui/logout", headers={"Origin": "http://localhost"})).status_code == 303
        first.cookies.set(sessions.cookie, kept)
        assert code_of(await first.get("/me")) == (401, "request.unauthorized")
        assert (await second.get("/me")).status_code == 200  # it logged in at the same second


@pytest.mark.parametrize("how", ["logs out", "its time is over"])
@pytest.mark.parametrize("holder", [LOOKS, ACTS])
def test_a_stream_ends_with_the_session_that_opened_it(how: str, holder: str) -> None:
    async def main() -> None:
        async with serving() as s:
            access = s.app.service.access
            cookie = access.sessions.begin(holder)
            claims = Claims(authorization=[], users=lambda _: [], peer=None)
            caller = access.admit(replace(claims, cookies={access.sessions.cookie: cookie}))
            waiting = await s.halted(ask_text)
            source = _stream(s.app.service, s.host.follow(waiting.run_id), caller)
            seen = [await anext(source) for _ in range(4)]
            assert b"run_started" in b"".join(seen)
            if how == "logs out":
                access.sessions.end(cookie)
            else:
                s.clock.advance(LASTS + timedelta(seconds=1))
            assert [chunk async for chunk in source] == []

    asyncio.run(main())


@pytest.mark.parametrize("flaw", ["cut", "longer", "another holder", "another key", "later"])
def test_a_cookie_that_was_altered_is_none(flaw: str) -> None:
    clock = ManualClock()
    ours = Sessions(clock.now, b"secret")
    cookie = ours.begin(LOOKS)
    found = ours.read(cookie)
    assert found is not None and found.holder == LOOKS
    until, _, nonce, signature = cookie.split(".")
    forged = {
        "cut": cookie[:-1],
        "longer": cookie + "0",
        "another holder": f"{until}.{ours.begin(ACTS).split('.')[1]}.{nonce}.{signature}",
        "another key": Sessions(clock.now, b"other").begin(ACTS),
        "later": f"{int(until) + 1}.{cookie.split('.')[1]}.{nonce}.{signature}",
    }[flaw]
    assert ours.read(forged) is None


def test_cookies_outlive_a_restart_with_the_same_secret_and_end_in_time() -> None:
    clock = ManualClock()
    cookie = Sessions(clock.now, b"secret").begin(NAMED + "abc")
    after = Sessions(clock.now, b"secret")
    found = after.read(cookie)
    assert found is not None and found.holder == NAMED + "abc"
    assert Sessions(clock.now).read(cookie) is None  # a service without a secret makes one of its own
    clock.advance(LASTS + timedelta(seconds=1))
    assert after.read(cookie) is None


def test_a_code_counts_for_ten_minutes() -> None:
    clock = ManualClock()
    sessions = Sessions(clock.now)
    code = sessions.code(ACTS)
    clock.advance(CODE_LASTS + timedelta(seconds=1))
    assert sessions.use(code) is None
    assert sessions.read("") is None and sessions.read("1.2.3") is None and sessions.use("") is None


@served()
async def test_a_stolen_link_of_a_wait_opens_nothing_but_that_wait_until_it_is_made_anew(s: Serving) -> None:
    waiting, other = await s.halted(ask_text), await s.halted(ask_text)
    stolen, cookie = str(waiting.token), s.app.service.access.sessions.cookie
    async with browser_of(s) as thief:
        for headers in ({"Authorization": f"Bearer {stolen}"}, {"Cookie": f"{cookie}={stolen}"}):
            for method, path in (
                ("GET", "/runs"),
                ("GET", f"/runs/{waiting.run_id}/values"),
                ("GET", f"/waits/{waiting.id}"),
                ("POST", f"/runs/{waiting.run_id}/cancel"),
                ("POST", f"/waits/{other.id}/answer"),
                ("POST", f"/waits/{waiting.id}/reissue"),
            ):
                answer = await thief.request(method, path, headers={**OWN, **headers})
                assert answer.status_code == 401, (headers, path)
        entered = [
            await thief.get(f"/ui/login?code={stolen}"),
            await thief.post("/ui/login", data={"token": stolen}),
        ]
        assert [one.status_code for one in entered] == [401, 401]
        assert not any("set-cookie" in one.headers for one in entered)
        renewed = await s.host.waiting.reissue(waiting.id)
        assert (await thief.post(f"/w/{stolen}", data={"answer": "mine"})).status_code == 401
        assert await s.is_open(waiting) and await s.is_open(other)
        assert (await thief.get(f"/w/{renewed.token}")).status_code == 200
