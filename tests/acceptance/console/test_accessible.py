"""What axe, which knows how people with other senses use a page, says of every view."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.console.conftest import Console, tab_of

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
VIEWS = (
    *("/ui/", "/ui/runs/A17", "/ui/runs/A21", "/ui/runs/import-june", "/ui/runs/count-1@4/step@2"),
    *("/ui/compare?a=count-1@2&b=count-1@6", "/ui/waits", "/ui/flows", "/ui/flows/orders", "/ui/workers"),
    *(
        "/ui/schedules",
        "/ui/guards",
        "/ui/store",
        "/ui/audit",
        "/ui/runs/buy-1/ask",
        "/ui/runs/import-june/read",
    ),
    *("/ui/runs/transfer-1", "/ui/runs/paper-1?as=table", "/ui/runs/chart-1/draw"),
)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 400, "height": 800}},
}


def findings(page: Page) -> list[str]:
    """Return what axe finds serious in a page."""
    page.evaluate(AXE)
    told = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:150]}"
        for one in told["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.soak
@pytest.mark.parametrize("look", LOOKS)
def test_no_view_shuts_anyone_out(browser: Browser, console: Console, look: str) -> None:
    found: dict[str, list[str]] = {}
    with tab_of(browser, console.address, **LOOKS[look]) as tab:
        for view in VIEWS:
            page = tab.open(view)
            expect(page.get_by_role("heading", level=1).first).to_be_attached()
            page.wait_for_timeout(400)
            wrong = findings(page)
            if wrong:
                found[view] = wrong
    assert found == {}


@pytest.mark.soak
def test_a_narrow_window_never_scrolls_sideways(browser: Browser, console: Console) -> None:
    with tab_of(browser, console.address, viewport={"width": 400, "height": 800}) as tab:
        for view in VIEWS:
            page = tab.open(view)
            expect(page.get_by_role("heading", level=1).first).to_be_attached()
            page.wait_for_timeout(300)
            wide = page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= 400, f"{view} is {wide} pixels wide"
