"""Workers that take a run, and nodes that emit, while one looks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from everstep import END, Context, Flow, Host, ifelse, node
from tests.acceptance.console.conftest import KEY, Tab, until
from tests.acceptance.console.slow_flow import slow

pytestmark = pytest.mark.soak
SLOW = Path(__file__).with_name("slow_flow.py")


@contextmanager
def working(store: str, flows: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    command = [sys.executable, "-m", "everstep", "worker", flows, "--store", store, "--json"]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "EVERSTEP_KEY": KEY})
    try:
        with Host(store, key=KEY) as host:
            until(lambda: any(one.pid == worker.pid for one in host.fleet.workers()))
        yield worker
    finally:
        worker.terminate()
        worker.wait(timeout=60)


def test_the_page_names_the_worker_that_takes_a_run(tab: Tab, store: str) -> None:
    with Host(store, key=KEY) as host:
        host.start(slow, {"x": 3}, run_id="taken-1")
    page = tab.open("/ui/runs/taken-1")
    expect(page.locator(".run-head")).to_contain_text("no worker is alive")
    with working(store, str(SLOW)) as worker:
        expect(page.locator(".run-head")).to_contain_text(f"driven by process {worker.pid}", timeout=15_000)
        expect(page.locator(".run-head .badge")).to_contain_text("completed", timeout=30_000)


def test_what_a_node_emits_is_seen_as_it_comes(tab: Tab, store: str) -> None:
    @node(output="words")
    def say(text: str, ctx: Context) -> int:
        for word in text.split():
            ctx.emit("token", text=word)
            time.sleep(0.5)
        return len(text.split())

    flow = Flow("saying", [say], durability="strong", streams=True)

    def work() -> None:
        with Host(store, key=KEY) as host:
            host.run(flow, {"text": "one word after the other, and some more of them"}, run_id="say-1")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with Host(store, key=KEY) as host:
            until(lambda: any(one.run_id == "say-1" for one in host.runs(flow="saying")))
        page = tab.open("/ui/runs/say-1/say")
        page.get_by_role("tab", name="Emitted").click()
        step = page.get_by_role("region", name="Selected step")
        expect(step.locator("pre")).to_contain_text('"text":"after"', timeout=10_000)
        expect(page.locator(".run-head .badge")).to_contain_text("completed", timeout=15_000)
    finally:
        thread.join()


SLOW_NETWORK = """() => {
  const real = window.fetch;
  window.fetch = async (...asked) => {
    const answer = await real(...asked);
    await new Promise((done) => setTimeout(done, 700));
    if (asked[1]?.signal?.aborted) throw new DOMException("given up", "AbortError");
    return answer;
  };
}"""


def test_far_from_the_service_one_sees_a_busy_run_go_on_too(tab: Tab, store: str) -> None:
    """Answers that take longer than runs take to change are not given up for newer ones."""
    is_over = threading.Event()

    @node(output="n")
    def tick(n: int) -> int:
        time.sleep(0.05)
        return n + 1

    @ifelse(when_true="tick", when_false=END)
    def goes_on(n: int) -> bool:
        return not is_over.is_set()

    flow = Flow("ticking", [tick, goes_on], entry="tick", durability="strong", max_steps=100_000)

    def work() -> None:
        with Host(store, key=KEY) as host:
            host.run(flow, {"n": 0}, run_id="far-1")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with Host(store, key=KEY) as host:
            until(lambda: any(one.run_id == "far-1" for one in host.runs(flow="ticking")))
            tab.page.add_init_script(f"({SLOW_NETWORK})()")
            page = tab.open("/ui/runs/far-1/tick?as=table")
            row = page.get_by_role("region", name="Graph").locator("tbody tr")
            lanes = page.get_by_role("region", name="Timeline")
            expect(row.first).to_be_visible()
            rows, sequence = row.count(), int(shown_sequence(page))
            until(lambda: row.count() > rows and int(shown_sequence(page)) > sequence)
            expect(lanes).to_contain_text(re.compile("tick ×"))
            before = lanes.inner_text()
            until(lambda: lanes.inner_text() != before)
            assert host.info("far-1").status == "running"
    finally:
        is_over.set()
        thread.join()


def shown_sequence(page: Page) -> str:
    """Return the checkpoint that a page shows."""
    return page.locator(".panes").get_attribute("data-sequence") or "0"
