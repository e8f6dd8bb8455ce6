"""Every view in a real browser, over a store of its own."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.acceptance.console.conftest import Tab


def test_runs_are_listed_filtered_and_found_by_id(tab: Tab) -> None:
    page = tab.open()
    expect(page.get_by_role("row")).to_have_count(24)
    page.get_by_role("button", name=re.compile("failed")).click()
    expect(page).to_have_url(re.compile("status=failed"))
    expect(page.get_by_role("link", name="A17")).to_be_visible()
    expect(page.get_by_role("link", name="A20")).to_have_count(0)
    page.locator("[data-search]").fill("A20")
    page.get_by_role("button", name="Find").click()
    expect(page).to_have_url(re.compile("/ui/runs/A20"))
    expect(page.get_by_role("heading", name="A20")).to_be_visible()


def test_a_bad_query_is_told_with_its_place_and_a_fix(tab: Tab) -> None:
    page = tab.open()
    page.locator("[data-search]").fill("statu = failed and x")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("alert").first).to_contain_text("status")


def test_a_failed_run_opens_at_its_failed_step(tab: Tab) -> None:
    page = tab.open("/ui/runs/A17")
    expect(page).to_have_url(re.compile("/ui/runs/A17/charge"))
    inspector = page.get_by_role("region", name="Selected step")
    expect(inspector).to_contain_text("the card of customer 13 was declined")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()


def test_a_halted_run_opens_at_its_wait_and_says_who_can_act(tab: Tab) -> None:
    page = tab.open("/ui/runs/A21")
    expect(page).to_have_url(re.compile("/ui/runs/A21/release"))
    expect(page.get_by_text("anyone with the role approver")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_be_visible()


def test_the_playhead_goes_back_and_escape_returns_to_live(tab: Tab) -> None:
    page = tab.open("/ui/runs/count-1@4")
    expect(page.get_by_text("As it was at checkpoint 4")).to_be_visible()
    page.keyboard.press("[")
    expect(page).to_have_url(re.compile("count-1@3"))
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(r"count-1$"))
    expect(page.get_by_text("As it was at checkpoint")).to_have_count(0)


def test_a_click_on_a_node_selects_it_everywhere(tab: Tab) -> None:
    page = tab.open("/ui/runs/A15")
    page.get_by_role("button", name=re.compile("^price, ")).click()
    expect(page).to_have_url(re.compile("/A15/price"))
    expect(page.get_by_role("heading", name="price")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="price")).to_be_visible()


def test_no_markup_of_values_or_errors_runs(tab: Tab) -> None:
    tab.page.on("dialog", lambda dialog: tab.problems.append(f"a script ran: {dialog.message}"))
    for path in ("A17", "A17/take", "A15/take", "A21/release", "A15"):
        page = tab.open(f"/ui/runs/{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_timeout(300)
        assert page.locator("img[src=x], .pane script").count() == 0
