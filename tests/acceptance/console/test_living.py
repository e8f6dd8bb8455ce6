"""What happens elsewhere is seen as it happens: answers, deaths, takeovers, restarts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from everstep import Host
from tests.acceptance.console.conftest import KEY, Console, Tab, tab_of, until
from tests.acceptance.console.shop import count
from tests.acceptance.console.slow_flow import slow

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
