"""A run as one HTML file: the same views without a service, and nothing in it that was to stay behind."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from everstep import Flow, Host, node
from everstep.server.console.file import LARGEST
from everstep.server.console.files import assets
from everstep.server.console.linking import linked
from tests.acceptance.console.conftest import KEY, Tab, tab_of


def exported(store: str, run: str, out: Path, *options: str) -> str:
    words = ["export", run, str(out), "--form", "html", "--store", store, *options]
    done = subprocess.run(
        [sys.executable, "-m", "everstep", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def opened(tab: Tab, path: Path) -> None:
    tab.address = f"file://{path}"
    tab.page.goto(tab.address)


def test_a_file_shows_graph_timeline_step_and_checkpoints(
    browser: Browser, store: str, tmp_path: Path
) -> None:
    path = tmp_path / "order.html"
    assert "written" in exported(store, "A17", path)
    with tab_of(browser, "") as tab:
        opened(tab, path)
        page = tab.page
        expect(page.get_by_role("region", name="Selected step")).to_contain_text("was declined")
        page.get_by_role("button", name=re.compile("^take, ")).click()
        expect(page.get_by_role("heading", name="take")).to_be_visible()
        expect(
            page.get_by_role("region", name="Timeline").get_by_role("button", name="charge")
        ).to_be_visible()
        page.keyboard.press("[")
        expect(page.get_by_text("As it was at checkpoint")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_role("tab", name="Emitted")).to_have_count(0)  # no one can be asked for it
        assert page.locator("img[src=x]").count() == 0
        expect(page.get_by_role("button", name="Acts")).to_have_count(0)


def test_what_a_bundle_leaves_out_is_nowhere_in_the_file(tmp_path: Path) -> None:
    @node(output="api_key")
    def fetch(name: str) -> str:
        return f"sesame-{name}-open"

    @node(output="seen")
    def use(api_key: str) -> int:
        return len(api_key)

    store = f"sqlite:///{tmp_path}/secret.db"
    with Host(store, key=KEY) as host:
        host.run(Flow("secret", [fetch, use], durability="strong"), {"name": "ann"}, run_id="S1")
    path = tmp_path / "S1.html"
    exported(store, "S1", path)
    assert "sesame-ann-open" in path.read_text()
    assert "left out" in exported(store, "S1", path, "--without-secrets", "--force")
    assert "sesame" not in path.read_text()


@pytest.mark.soak
def test_items_images_and_every_checkpoint_of_a_map_are_in_the_file(
    browser: Browser, store: str, tmp_path: Path
) -> None:
    path, chart = tmp_path / "june.html", tmp_path / "chart.html"
    exported(store, "import-june", path)
    exported(store, "chart-1", chart)
    assert path.stat().st_size < 1_000_000
    with tab_of(browser, "") as tab:
        opened(tab, path)
        page = tab.page
        step = page.get_by_role("region", name="Selected step")
        page.get_by_role("button", name=re.compile("^read, map")).click()
        step.get_by_role("button", name="#13").click()
        expect(step).to_contain_text("line 13 has no date")
        page.goto(f"{tab.address}#/runs/import-june@2")
        expect(page.get_by_text("As it was at checkpoint 2")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("^total, node, did not run"))).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
    with tab_of(browser, "") as tab:
        opened(tab, chart)
        tab.page.get_by_role("button", name=re.compile("^draw, ")).click()
        image = tab.page.locator("img[alt^=chart]")
        expect(image).to_have_attribute("src", re.compile("^data:image/png;base64,"))
        assert image.evaluate("async (it) => { await it.decode(); return it.naturalWidth; }") > 0


@pytest.mark.soak
def test_nothing_that_a_run_says_runs_in_the_file(browser: Browser, tmp_path: Path) -> None:
    evil = "</script><script>window.evil=1</script><img src=x onerror=window.evil=1><!--<script>"

    @node(output="said")
    def say(text: str) -> dict[str, str]:
        return {text: text}

    store = f"sqlite:///{tmp_path}/evil.db"
    with Host(store, key=KEY) as host:
        host.run(Flow("evil", [say], durability="strong"), {"text": evil}, run_id="E1")
    path = tmp_path / "E1.html"
    exported(store, "E1", path)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', path.read_text())
    assert policy is not None and "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    assert "http:" not in policy[1] and "*" not in policy[1] and policy[1].count("sha256-") == 2
    with tab_of(browser, "") as tab:
        opened(tab, path)
        tab.page.get_by_role("button", name=re.compile("^say, ")).click()
        expect(tab.page.get_by_text(evil).first).to_be_visible()
        assert tab.page.evaluate("() => window.evil") is None
        added = """() => {
          const it = document.createElement("script");
          it.text = "window.evil = 2";
          document.body.append(it);
        }"""
        tab.page.evaluate(added)
        assert tab.page.evaluate("() => window.evil") is None
        tab.problems.clear()  # the policy says what it blocked


@pytest.mark.soak
def test_a_run_that_is_too_large_is_cut_and_the_file_says_so(browser: Browser, tmp_path: Path) -> None:
    flow = Flow("large", [node(output=f"v{k}")(_step(k)) for k in range(150)], durability="strong")
    store = f"sqlite:///{tmp_path}/large.db"
    with Host(store, key=KEY) as host:
        assert host.run(flow, {"v": "x" * 2000}, run_id="L1").status == "completed"
    path = tmp_path / "L1.html"
    exported(store, "L1", path)
    assert path.stat().st_size <= LARGEST
    with tab_of(browser, "") as tab:
        opened(tab, path)
        expect(tab.page.get_by_text("too large for one file")).to_be_visible()


def _step(k: int) -> Callable[..., str]:
    names: dict[str, Any] = {}
    before = "v" if k == 0 else f"v{k - 1}"
    exec(f"def step{k}({before}: str) -> str:\n    return {before}[::-1] + '{k}'\n", names)
    made: Callable[..., str] = names[f"step{k}"]
    return made


@pytest.mark.parametrize("name", sorted(one for one in assets() if one.endswith(".js") and "/" not in one))
def test_every_module_that_a_file_has_is_linked_without_imports(name: str) -> None:
    if name == "app.js":
        with pytest.raises(ValueError, match="style that is not known"):
            linked(name)  # it loads views when they are looked at
        return
    script = linked(name)
    assert not re.search(r"^\s*(?:import|export)\b", script, re.M)
