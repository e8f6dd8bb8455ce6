"""Runs that are large, or of which not all is there: each says what is missing, and shows the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from everstep import Flow, Host, KeyRing, node
from everstep.model.bundles import LeaveOut
from tests.acceptance.console.conftest import KEY, Console, tab_of
from tests.acceptance.console.shop import count

pytestmark = pytest.mark.soak


def numbered(k: int) -> Any:
    """Return a node that reads what the one before it wrote."""
    names: dict[str, Any] = {}
    exec(f"def s{k}({f'v{k - 1}' if k else 'v'}: int) -> int:\n    return {k}\n", names)
    return node(output=f"v{k}")(names[f"s{k}"])


def test_what_cannot_be_read_was_left_out_or_is_gone_is_said(browser: Browser, tmp_path: Path) -> None:
    @node(output="api_key")
    def fetch(name: str) -> str:
        return f"sesame-{name}-open"

    @node(output="seen")
    def use(api_key: str) -> int:
        return len(api_key)

    flow = Flow("secret", [fetch, use], durability="strong")
    url, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("runs", "other"))
    with Host(other, key=KEY) as host:
        host.run(flow, {"name": "ann"}, run_id="left-out")
        host.transfer.export("left-out", tmp_path / "it.everstep", leave_out=LeaveOut.secrets())
    with Host(url, key=KEY, encrypt=KeyRing({"k1": b"1" * 32})) as host:
        host.run(flow, {"name": "ann"}, run_id="encrypted")
    with Host(url, key=KEY) as host:
        host.transfer.import_(tmp_path / "it.everstep")
        host.run(count, {"n": 0, "limit": 30}, run_id="trimmed")
        host.retention.clean_up("trimmed", keep=1)
        oldest = host.info("trimmed").trimmed_before
    served = Console(url, "--no-auth")
    try:
        with tab_of(browser, served.address) as tab:
            page = tab.open("/ui/runs/encrypted/use")
            step = page.get_by_role("region", name="Selected step")
            expect(step.get_by_text("encrypted, and the key is not here")).to_have_count(2)
            tab.open("/ui/runs/left-out/use")
            expect(step.get_by_text("left out")).to_be_visible()
            assert "sesame" not in page.content()
            tab.open("/ui/runs/trimmed")
            lanes = page.get_by_role("region", name="Timeline")
            expect(lanes).to_contain_text(f"{oldest - 1} checkpoints before are not shown")
            tab.open("/ui/runs/trimmed/step@1")
            expect(step).to_contain_text(re.compile("has not run|removed"))
    finally:
        served.stop()


def test_of_a_graph_that_is_too_large_the_nodes_near_the_selected_one_are_drawn(
    browser: Browser, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    inner = Flow("inner", [numbered(k) for k in range(301)])
    with Host(url, key=KEY) as host:
        host.start(Flow("chain", [numbered(k) for k in range(2_100)]), {"v": 1}, run_id="chain-1")
        host.start(Flow("outer", [inner.as_node()]), {"v": 1}, run_id="outer-1")
    served = Console(url, "--no-auth")
    try:
        with tab_of(browser, served.address) as tab:
            page = tab.open("/ui/runs/chain-1/s2000")
            tools = page.get_by_role("region", name="Graph")
            expect(tools.get_by_text("300 of 2100 nodes: those near s2000")).to_be_visible()
            picked = page.locator("svg .node.picked")
            expect(picked).to_have_attribute("aria-label", re.compile("^s2000, "))
            expect(picked).to_be_in_viewport()
            page = tab.open("/ui/runs/outer-1")
            expect(tools.get_by_text("▸ 301")).to_be_visible()
            assert page.locator("svg .node").count() < 10
            tools.get_by_text("▸ 301").click()
            expect(page.get_by_role("button", name="inner/s300, node, did not run")).to_be_attached()
    finally:
        served.stop()
