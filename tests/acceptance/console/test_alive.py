"""Workers that take a run, and nodes that emit, while one looks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from everstep import Context, Flow, Host, node
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
