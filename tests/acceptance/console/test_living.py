"""What happens elsewhere is seen as it happens: answers, deaths, takeovers, restarts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from everstep import Host
from tests.acceptance.console.conftest import KEY, Console, Tab, free_port, tab_of, until
from tests.acceptance.console.shop import count
from tests.acceptance.console.slow_flow import slow
from tests.servers.proxy import proxy_before

pytestmark = pytest.mark.soak
SLOW = Path(__file__).with_name("slow_flow.py")


def test_a_run_is_killed_and_taken_over_while_one_looks(tab: Tab, store: str) -> None:
    owner = subprocess.Popen([sys.executable, str(SLOW), store, "killed-1", "30"])
    try:
        with Host(store, key=KEY) as host:
            until(lambda: any(run.run_id == "killed-1" for run in host.runs(flow="slow")))
            page = tab.open("/ui/runs/killed-1")
            expect(page).to_have_url(re.compile("killed-1/second"))
            expect(page.locator(".run-head").get_by_text("running")).to_be_visible()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with Host(store, key=KEY) as host:
        until(lambda: not host.info("killed-1").is_driven, seconds=60)
        fork = host.fork("killed-1", inputs={"x": -1}, at=1)  # the second node of this one does not sleep
        assert host.resume(fork.run_id, slow).status == "completed"
        host.cancel("killed-1")
    expect(page.locator(".run-head").get_by_text("cancelled")).to_be_visible()
    page = tab.open(f"/ui/runs/{fork.run_id}")
    expect(page.get_by_text("fork of")).to_be_visible()
    page.get_by_role("link", name="compare").click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()


def test_new_runs_appear_and_nothing_is_missed_over_a_restart(browser: Browser, store: str) -> None:
    served = Console(store, "--no-auth")
    try:
        with tab_of(browser, served.address) as tab, Host(store, key=KEY) as host:
            page = tab.open()
            expect(page.locator(".live.good")).to_be_visible()
            host.run(count, {"n": 5}, run_id="new-1")
            expect(page.get_by_role("link", name="new-1")).to_be_visible()
            served.stop()
            host.run(count, {"n": 5}, run_id="new-2")
            served.start()
            expect(page.get_by_role("link", name="new-2")).to_be_visible(timeout=30_000)
            tab.problems = [one for one in tab.problems if "ERR_" not in one]
    finally:
        served.stop()


def test_eight_tabs_of_a_browser_share_one_connection(browser: Browser, console: Console, store: str) -> None:
    context = browser.new_context()
    try:
        asked: list[str] = []
        pages = [context.new_page() for _ in range(8)]
        for page in pages:
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"{console.address}/ui/")
            expect(page.locator(".live.good")).to_be_visible()
        assert sum("/changes" in url for url in asked) == 1
        with Host(store, key=KEY) as host:
            host.run(count, {"n": 5}, run_id="eight-1")
        for page in pages:
            expect(page.get_by_role("link", name="eight-1")).to_be_visible()
        pages[0].close()  # the others go on: one of them has the connection now
        with Host(store, key=KEY) as host:
            host.run(count, {"n": 5}, run_id="eight-2")
        for page in pages[1:]:
            expect(page.get_by_role("link", name="eight-2")).to_be_visible()
    finally:
        context.close()


def test_times_are_those_of_the_reader(browser: Browser, console: Console) -> None:
    said = []
    for zone in ("Asia/Tokyo", "America/New_York"):
        with tab_of(browser, console.address, timezone_id=zone, locale="en-GB") as tab:
            page = tab.open("/ui/runs/A15")
            said.append(page.locator(".facts [title]").first.get_attribute("title"))
    assert said[0] != said[1] and "GMT+9" in str(said[0])


def test_what_changes_while_another_tab_takes_over_is_not_missed(
    browser: Browser, console: Console, store: str
) -> None:
    context = browser.new_context()
    try:
        first, second = context.new_page(), context.new_page()
        for page in (first, second):
            page.goto(f"{console.address}/ui/")
            expect(page.locator(".live.good")).to_be_visible()
        asked: list[str] = []

        def late(route: Route) -> None:
            asked.append(route.request.url)
            with Host(store, key=KEY) as host:
                host.run(count, {"n": 5}, run_id="between-1")
            second.wait_for_timeout(1500)  # the service has told others of it by then
            route.continue_()

        second.route("**/changes*", late)
        first.close()
        expect(second.get_by_role("link", name="between-1")).to_be_visible()
        assert "after=" in asked[0]
    finally:
        context.close()


def test_a_page_goes_on_after_a_proxy_said_that_the_service_is_gone(
    browser: Browser, console: Console, store: str
) -> None:
    """A browser gives a stream up for good once its answer is none."""
    with tab_of(browser, console.address) as tab:
        said: list[int] = []

        def gone(route: Route) -> None:
            said.append(502)
            route.fulfill(status=502, body="bad gateway") if len(said) < 2 else route.continue_()

        tab.page.route("**/changes*", gone)
        page = tab.open()
        expect(page.locator(".live.good")).to_be_visible()
        with Host(store, key=KEY) as host:
            host.run(count, {"n": 5}, run_id="gateway-1")
        expect(page.get_by_role("link", name="gateway-1")).to_be_visible()
        tab.problems.clear()


def test_a_hidden_tab_has_no_connection_and_is_as_new_when_it_is_seen_again(
    browser: Browser, console: Console, store: str
) -> None:
    with tab_of(browser, console.address) as tab:
        ended: list[str] = []
        tab.page.on("requestfailed", lambda request: ended.append(request.url))
        page = tab.open()
        expect(page.locator(".live.good")).to_be_visible()
        look(page, is_hidden=True)
        page.wait_for_timeout(300)
        assert [url for url in ended if "/changes" in url]
        before = len(tab.requests)
        with Host(store, key=KEY) as host:
            host.run(count, {"n": 5}, run_id="hidden-1")
        page.wait_for_timeout(1500)
        assert tab.requests[before:] == []
        look(page, is_hidden=False)
        expect(page.get_by_role("link", name="hidden-1")).to_be_visible()


def look(page: Page, *, is_hidden: bool) -> None:
    """Tell a page that no one sees it, or someone does."""
    page.evaluate(
        """(is) => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => is });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_a_store_that_does_not_answer_is_told_and_so_that_it_does_again(
    browser: Browser, postgres_url: str
) -> None:
    with proxy_before(postgres_url) as (proxy, through), Host(postgres_url, key=KEY) as host:
        host.run(count, {"n": 5}, run_id="before-1")
        served = Console(through, "--no-auth")
        try:
            with tab_of(browser, served.address) as tab:
                page = tab.open()
                expect(page.get_by_role("link", name="before-1")).to_be_visible()
                proxy.is_down = True
                proxy.drop_all()
                told = page.get_by_text("The store does not answer.")
                expect(told).to_be_visible(timeout=30_000)
                expect(page.get_by_role("link", name="before-1")).to_be_visible()
                store_page = tab.open("/ui/store")
                expect(store_page.get_by_role("alert").first).to_be_visible(timeout=30_000)
                tab.open()
                proxy.is_down = False
                expect(page.get_by_role("link", name="before-1")).to_be_visible(timeout=30_000)
                expect(told).to_have_count(0)
                host.run(count, {"n": 5}, run_id="after-1")
                expect(page.get_by_role("link", name="after-1")).to_be_visible(timeout=30_000)
                tab.problems.clear()  # 503, while it was gone
        finally:
            served.stop()


class _Below(BaseHTTPRequestHandler):
    """A proxy that shows a service below a path, and nothing else."""

    port = 0
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        if self.path.startswith("/flows/"):
            self._pass_on()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.do_GET()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = f"http://127.0.0.1:{self.port}{self.path.removeprefix('/flows')}"
        asked = Request(url, body or None, dict(self.headers), method=self.command)
        try:
            answer = build_opener(_Stays).open(asked, timeout=60)
        except HTTPError as refused:
            answer = refused
        with answer:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # the browser has gone
                while chunk := answer.read1(65536):
                    self.wfile.write(chunk)
                    self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None: ...


class _Stays(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@contextmanager
def below_a_path(port: int) -> Iterator[str]:
    """Show a service at `/flows` of another port."""
    handler = type("_BelowOne", (_Below,), {"port": port})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_it_works_below_a_path_of_a_proxy(browser: Browser, store: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token := "a-token-of-the-whole-service-0123456789")
    port = free_port()
    with below_a_path(port) as proxy:
        options = ("--token-file", str(tmp_path / "token"), "--base-url", f"{proxy}/flows")
        served = Console(store, *options, port=port)
        try:
            with tab_of(browser, f"{proxy}/flows") as tab, Host(store, key=KEY) as host:
                page = tab.open("/")
                expect(page).to_have_url(f"{proxy}/flows/ui/login")
                page.get_by_label("Token").fill(token)
                page.get_by_role("button", name="Log in").click()
                expect(page).to_have_url(f"{proxy}/flows/ui/")
                expect(page.locator(".live.good")).to_be_visible()
                host.run(count, {"n": 5}, run_id="below-1")
                page.get_by_role("link", name="below-1").click()
                expect(page).to_have_url(f"{proxy}/flows/ui/runs/below-1")
                page.get_by_role("button", name="Acts").click()
                page.get_by_role("button", name="Pin").click()
                page.get_by_role("dialog").get_by_label(re.compile("^Comment")).fill("below")
                page.get_by_role("dialog").get_by_role("button", name="Pin", exact=True).click()
                expect(page.get_by_text("pinned: below")).to_be_visible()
                page.get_by_role("button", name="Log out").click()
                expect(page).to_have_url(f"{proxy}/flows/ui/login")
        finally:
            served.stop()
