"""Take the pictures of the console that the documentation shows: `python scripts/console_pictures.py`.

They are of the real thing: a store is filled, served, and looked at with a Chromium. With `--all FOLDER`
every view is taken, light and dark, wide and narrow, to be looked at.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402  (behind the path to our own)

from everstep import Host  # noqa: E402
from tests.acceptance.console.conftest import FLAGS, KEY, Console, chromium  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
FLOWS = ROOT / "tests" / "acceptance" / "console" / "shop.py"
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
NARROW: dict[str, Any] = {"viewport": {"width": 400, "height": 860}}


class Shot(NamedTuple):
    """A view, and what is done in it before it is taken."""

    name: str
    path: str
    do: Callable[[Page], object] = lambda page: None
    look: dict[str, Any] = WIDE
    scheme: str = "light"


def _retry(page: Page) -> None:
    page.get_by_role("button", name="Retry").click()
    page.get_by_text("It would begin with").wait_for()


def _fork(page: Page) -> None:
    page.get_by_role("button", name="Acts").click()
    page.get_by_role("button", name="Fork").click()
    page.get_by_label("Edit a value").select_option("price")


SHOWN = (
    Shot("console-run", "/ui/runs/A17"),
    Shot("console-run-dark", "/ui/runs/paper-1/judge@2", scheme="dark"),
    Shot("console-runs", "/ui/"),
    Shot("console-map", "/ui/runs/import-july/read"),
    Shot("console-compare", "/ui/compare?a=A16&b=A18"),
    Shot("console-fork", "/ui/runs/A16@4", _fork),
    Shot("console-flow", "/ui/flows/paper"),
    Shot("console-waits-narrow", "/ui/waits", look=NARROW),
)
"""What is in the documentation."""

VIEWS = (
    *("/ui/", "/ui/runs/A17", "/ui/runs/A18/release", "/ui/runs/A20", "/ui/runs/A22", "/ui/runs/count-2@9"),
    *("/ui/runs/import-july/read", "/ui/runs/paper-1/judge@2", "/ui/runs/buy-1/ask", "/ui/runs/transfer-1"),
    *("/ui/runs/chart-1/describe", "/ui/runs/paper-1?as=table", "/ui/compare?a=A16&b=A18", "/ui/waits"),
    *("/ui/flows", "/ui/flows/paper", "/ui/workers", "/ui/guards", "/ui/store", "/ui/audit"),
    "/ui/compare?a=count-1&b=count-2",
)


def shop() -> ModuleType:
    """Load the flows by a path that says nothing of this machine: tracebacks are in the pictures."""
    os.chdir(FLOWS.parent)
    found = ModuleType("shop")
    sys.modules["shop"] = found
    exec(compile(FLOWS.read_text(encoding="utf-8"), FLOWS.name, "exec"), vars(found))
    return found


@contextmanager
def served() -> Iterator[Console]:
    """Fill a store and serve it, with a worker beside the service."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/runs.db"
        flows = shop()
        clock = flows.clock_of_last_week()
        with Host(url, key=KEY, clock=clock) as host:
            flows.fill(host, clock)
        os.chdir(ROOT)
        console = Console(url, "--no-auth")
        command = [sys.executable, "-m", "everstep", "worker", str(FLOWS), "--store", url, "--json"]
        worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with Host(url, key=KEY) as host:
                while not host.fleet.workers() or host.info("count-4").status != "completed":
                    time.sleep(0.2)
            yield console
        finally:
            worker.terminate()
            worker.wait()
            console.stop()


def take(browser: Browser, address: str, shot: Shot, folder: Path) -> None:
    """Take one picture."""
    context = browser.new_context(**shot.look, color_scheme=shot.scheme, locale="en-GB", timezone_id="UTC")  # type: ignore[arg-type]  # a word of a few
    page = context.new_page()
    page.goto(address + shot.path)
    page.get_by_role("heading").first.wait_for()
    page.wait_for_load_state("networkidle") if "runs" not in shot.path else page.wait_for_timeout(1500)
    shot.do(page)
    page.wait_for_timeout(800)
    page.screenshot(path=folder / f"{shot.name}.png")
    context.close()


def everything() -> Iterator[Shot]:
    """Yield every view in every look."""
    for path in VIEWS:
        name = path.removeprefix("/ui/").replace("/", "-").replace("?", "-").replace("&", "-") or "runs"
        for scheme in ("light", "dark"):
            yield Shot(f"{name}-wide-{scheme}", path, scheme=scheme)
            yield Shot(f"{name}-narrow-{scheme}", path, look=NARROW, scheme=scheme)
    yield Shot("retry", "/ui/runs/A17", _retry)
    yield Shot("fork", "/ui/runs/A16@4", _fork)


def main() -> None:
    """Take the pictures of the documentation, or all."""
    is_all = sys.argv[1:2] == ["--all"]
    folder = Path(sys.argv[2]) if is_all else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with served() as console, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for shot in everything() if is_all else SHOWN:
            take(browser, console.address, shot, folder)
            print(folder / f"{shot.name}.png")
        browser.close()


if __name__ == "__main__":
    main()
