"""A real service, and a real Chromium that looks at its console."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from everstep import Host
from tests.acceptance.console.shop import clock_of_last_week, fill

HERE = Path(__file__).parent
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
KEY = "k" * 32
PATIENCE = 15_000
"""Milliseconds for what a page does: on a machine with much else to do it takes seconds."""
expect.set_options(timeout=PATIENCE)


def chromium() -> str | None:
    """Return where a Chromium is."""
    named = os.environ.get("EVERSTEP_TEST_CHROMIUM")
    return named or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium. Not for longer than a module: while it is open, no other test can run an event loop."""
    where = chromium()
    if where is None:
        reason = "there is no Chromium: install one, or name it in EVERSTEP_TEST_CHROMIUM"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=where, args=list(FLAGS))
        yield found
        found.close()


class Tab:
    """A page of the console, and all that went wrong in it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._asked)
        page.on("response", self._answered)

    def _heard(self, message: ConsoleMessage) -> None:
        # What Chromium says of an answer that is an error is judged by its status.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def _answered(self, response: Response) -> None:
        if response.status >= 500:
            self.problems.append(f"{response.status} {response.url}")

    def open(self, path: str = "/ui/") -> Page:
        """Go to a path of the service."""
        self.page.goto(self.address + path)
        return self.page

    def check(self) -> None:
        """Raise if a script failed, the service did, or anything was asked of elsewhere."""
        assert self.problems == []
        assert [url for url in self.requests if not url.startswith((self.address, "data:", "blob:"))] == []


class Console:
    """A service in a process of its own."""

    def __init__(
        self, store: str, *options: str, port: int = 0, environ: dict[str, str] | None = None
    ) -> None:
        self.store = store
        self._options = options
        self.port = port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._environ = {**os.environ, "EVERSTEP_KEY": KEY, **(environ or {})}
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "everstep", "serve", "--store", self.store, "--port", str(self.port)]
        self._process = subprocess.Popen(
            [*command, "--no-work", "-q", *self._options],
            env=self._environ,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(self.answers, seconds=90)

    @property
    def process(self) -> subprocess.Popen[str] | None:
        """The process that serves, while it does."""
        return self._process

    def answers(self) -> bool:
        """Say whether it takes requests."""
        assert self._process is not None and self._process.poll() is None, "the service has ended"
        try:
            with urllib.request.urlopen(f"{self.address}/healthz", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=30)
            self._process = None


@contextmanager
def opened(store: str, *options: str) -> Iterator[str]:
    """Run `everstep console`, and give the address that it prints."""
    command = [sys.executable, "-m", "everstep", "console", "--store", store, "--no-browser", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        try:
            yield next(line.strip() for line in process.stdout if "/ui/login" in line)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def until(is_so: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has runs of many shapes."""
    folder = tmp_path_factory.mktemp("filled")
    clock = clock_of_last_week()
    with Host(f"sqlite:///{folder}/runs.db", key=KEY, clock=clock) as host:
        fill(host, clock)
    return folder


@pytest.fixture(scope="module")
def store(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with runs of many shapes; the tests of a module share it."""
    folder = tmp_path_factory.mktemp("console")
    shutil.copytree(filled, folder, dirs_exist_ok=True)
    return f"sqlite:///{folder}/runs.db"


@pytest.fixture(scope="module")
def console(store: str) -> Iterator[Console]:
    served = Console(store, "--no-auth")
    yield served
    served.stop()


@contextmanager
def tab_of(browser: Browser, address: str, **about: Any) -> Iterator[Tab]:
    """Open a tab with a profile of its own, and see in the end that nothing went wrong in it."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **about})
    context.set_default_timeout(PATIENCE)
    tab = Tab(context.new_page(), address)
    try:
        yield tab
        tab.check()
    finally:
        try:
            context.close()
        except Error as error:  # the browser itself is gone: the test has failed for that
            assert re.search("closed", str(error))


@pytest.fixture
def tab(browser: Browser, console: Console) -> Iterator[Tab]:
    with tab_of(browser, console.address) as found:
        yield found
