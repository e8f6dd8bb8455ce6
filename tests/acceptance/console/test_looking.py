"""Every view in a real browser, over a store of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Route, expect

from everstep import Host
from everstep.server.console.files import assets
from tests.acceptance.console.axis import ASKED
from tests.acceptance.console.conftest import KEY, Console, Tab, tab_of, until
from tests.acceptance.console.test_accessible import findings

SHOP = Path(__file__).with_name("shop.py")


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


def test_filters_are_narrowed_by_a_flow_and_stay(tab: Tab) -> None:
    page = tab.open("/ui/?status=failed")
    page.get_by_role("link", name="refunds").click()
    expect(page).to_have_url(re.compile("status=failed&flow=refunds"))
    expect(page.get_by_role("link", name="refund-1")).to_be_visible()
    expect(page.get_by_role("link", name="A17")).to_have_count(0)


def test_who_did_what_to_a_run_is_told_where_nothing_is_selected(tab: Tab) -> None:
    page = tab.open("/ui/runs/A18")
    told = page.get_by_role("listitem").filter(has_text="cleo")
    expect(told).to_contain_text("release “paid before”")
    told.get_by_role("button", name="release").click()
    expect(page).to_have_url(re.compile("/A18/release"))


def test_a_bad_query_is_told_with_its_place_and_a_fix(tab: Tab) -> None:
    page = tab.open()
    page.locator("[data-search]").fill("statu = failed and x")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("alert").first).to_contain_text("status")
    expect(page.get_by_role("alert").first).to_contain_text("at character 1 ")


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


def test_a_seek_gives_up_the_one_before_it(tab: Tab) -> None:
    page = tab.open("/ui/runs/count-1@6")
    expect(page.locator(".panes")).to_have_attribute("data-sequence", "6")
    given_up: list[str] = []
    page.on("requestfailed", lambda request: given_up.append(request.url))
    held: list[Route] = []
    page.route("**/runs/count-1%405/nodes*", lambda route: held.append(route))  # never answered
    page.keyboard.press("[")
    expect(page).to_have_url(re.compile("count-1@5"))
    page.wait_for_timeout(100)
    page.keyboard.press("[")
    expect(page.locator(".panes")).to_have_attribute("data-sequence", "4")
    assert held and any("count-1%405/nodes" in url for url in given_up)


def test_a_click_on_a_node_selects_it_everywhere(tab: Tab) -> None:
    page = tab.open("/ui/runs/A15")
    page.get_by_role("button", name=re.compile("^price, ")).click()
    expect(page).to_have_url(re.compile("/A15/price"))
    expect(page.get_by_role("heading", name="price")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="price")).to_be_visible()


def test_what_lies_within_a_folded_node_is_marked_where_it_lies(tab: Tab) -> None:
    page = tab.open("/ui/runs/import-june/read%2313/read_row")
    expect(page.get_by_role("heading", name="read#13/read_row")).to_be_visible()
    expect(page.locator("svg .node.picked")).to_have_attribute("aria-label", re.compile("^read, map"))
    lane = page.get_by_role("region", name="Timeline").locator("g", has=page.locator(".picked-lane"))
    expect(lane.get_by_role("button")).to_have_text(re.compile("^read"))
    expect(page.locator(".bucket.picked")).to_have_count(1)


def test_what_is_selected_far_below_is_scrolled_to(tab: Tab) -> None:
    page = tab.open("/ui/runs/paper-1/publish")
    expect(page.locator("svg .node.picked")).to_be_in_viewport(ratio=0.9)
    page.get_by_role("button", name="Fold research").press("Enter")
    folded = page.get_by_role("button", name=re.compile("^research, "))
    expect(folded).to_be_visible()
    folded.press("Enter")
    folded.press("Enter")
    expect(page.get_by_role("button", name="Fold research")).to_be_visible()


def test_the_console_goes_without_a_mouse(tab: Tab) -> None:
    page = tab.open("/ui/runs/A16")
    expect(page.get_by_role("heading", name="A16")).to_be_visible()
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("/A16/take$"))
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("/A16/price$"))
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile("/A16/take$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page).to_have_url(re.compile("/ui/$"))
    expect(page.get_by_role("link", name="A16")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("status = failed and flow = orders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="A16")).to_have_count(0)
    expect(page.get_by_role("link", name="A17")).to_be_visible()
    page.locator("[data-search]").blur()
    for key in ("j", "x", "j"):
        page.keyboard.press(key)
    expect(page.get_by_text("1 run selected:")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/runs/A1[79]"))


def test_rounds_of_a_loop_are_gone_through_and_what_each_changed_is_shown(tab: Tab) -> None:
    page = tab.open("/ui/runs/paper-1/shorten@2")
    expect(page.locator(".rounds")).to_contain_text("2 of 2")
    page.get_by_role("button", name="Round of shorten before").click()
    expect(page.locator(".not-live")).to_contain_text("As it was at checkpoint")
    expect(page.locator(".rounds")).to_contain_text("1 of 2")
    page.get_by_role("button", name="Round of shorten after").click()
    expect(page.locator(".not-live")).to_have_count(0)
    page.get_by_role("tab", name="Changed").click()
    row = page.get_by_role("region", name="Selected step").get_by_role("row").filter(has_text="draft")
    expect(row.locator(".before")).to_contain_text("shortened 1 times")
    expect(row.locator(".after")).to_contain_text("shortened 2 times")


def test_a_timeline_is_zoomed_into_and_unfolded(tab: Tab) -> None:
    page = tab.open("/ui/runs/A16")
    lanes = page.get_by_role("region", name="Timeline")
    expect(lanes.locator(".gap-band")).to_have_count(1)
    page.keyboard.press("f")
    expect(lanes.locator(".gap-band")).to_have_count(0)
    page.keyboard.press("f")
    box = lanes.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 180, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 60, steps=3)
    page.mouse.up()
    expect(lanes.get_by_role("button", name="All of it")).to_be_visible()
    expect(page).to_have_url(re.compile("A16$"))  # a drag is no click
    lanes.get_by_role("button", name="All of it").click()
    expect(lanes.get_by_role("button", name="All of it")).to_have_count(0)


def test_the_process_that_takes_a_run_over_is_named_in_its_timeline(tab: Tab) -> None:
    page = tab.open("/ui/runs/transfer-1")
    mark = page.locator(".mark.grave").first
    expect(mark).to_be_attached()
    expect(page.get_by_role("region", name="Timeline")).to_contain_text(re.compile(r"takeover by \d+ on"))


def test_a_map_is_a_strip_with_those_that_failed_first(tab: Tab) -> None:
    page = tab.open("/ui/runs/import-june/read")
    expect(page.locator(".bucket").first).to_have_class(re.compile("failed"))
    page.locator(".bucket").first.click()
    expect(page).to_have_url(re.compile("import-june/read%2313/read_row"))
    expect(page.get_by_role("region", name="Selected step")).to_contain_text("line 13 has no date")


def test_a_large_map_is_few_rows_in_the_page(tab: Tab) -> None:
    page = tab.open("/ui/runs/import-july/read")
    expect(page.locator(".bucket")).to_have_count(60)
    assert page.locator("tr, .seg, svg .node").count() <= 300
    page = tab.open("/ui/runs/import-july?as=table")
    expect(page.locator(".pane.graph tbody tr").first).to_be_visible()
    assert page.locator("tr, .seg, svg .node").count() <= 300


def test_what_happens_often_is_asked_for_four_times_a_second(tab: Tab) -> None:
    page = tab.open("/ui/store")
    files = page.locator("script[type=module]").get_attribute("src")
    assert files is not None
    asked = page.evaluate(
        """async (module) => {
          const { sparse } = await import(module);
          let asked = 0;
          const call = sparse(() => { asked += 1; });
          const end = performance.now() + 1000;
          while (performance.now() < end) { call(); await new Promise((done) => setTimeout(done, 1)); }
          call.stop();
          return asked;
        }""",
        files.replace("app.js", "live.js"),
    )
    assert 2 <= asked <= 5


def test_logs_are_searched_and_images_and_tables_are_shown_as_such(tab: Tab) -> None:
    page = tab.open("/ui/runs/A17/charge")
    step = page.get_by_role("region", name="Selected step")
    step.get_by_role("tab", name="Logs").click()
    expect(step.get_by_text(re.compile("asking the bank for 20"))).to_have_count(3)
    step.get_by_label("Search the logs").fill("attempt 2")
    expect(step.get_by_text("asking the bank for 20, attempt 2")).to_be_visible()
    expect(step.get_by_text("asking the bank for 20, attempt 1")).to_have_count(0)
    page = tab.open("/ui/runs/chart-1/draw")
    expect(step.locator("img[alt^=chart]")).to_be_visible()
    page = tab.open("/ui/runs/import-june")
    rows = step.locator("tbody tr")
    before = rows.count()
    step.get_by_role("button", name=re.compile("rows more")).click()
    expect(rows.nth(before + 5)).to_be_visible()
    page = tab.open("/ui/runs/chart-1/describe")
    text = step.locator(".text").filter(has_text="Sales rose.")
    step.get_by_role("button", name="more", exact=True).click()
    expect(step.get_by_role("button", name="more", exact=True)).to_have_count(0)
    assert len(text.inner_text()) > 4500
    page = tab.open("/ui/runs/import-july/split")
    step.locator("summary").first.click()
    step.get_by_role("button", name="100 more").click()
    expect(step.get_by_text("199: 199")).to_be_attached()


def test_a_table_takes_the_place_of_the_graph_and_is_searched(tab: Tab) -> None:
    page = tab.open("/ui/runs/paper-1")
    expect(page.get_by_role("button", name=re.compile("^judge, "))).to_be_visible()
    page.keyboard.press("t")
    expect(page).to_have_url(re.compile("as=table"))
    page.get_by_label("Search steps").fill("shorten")
    expect(page.locator(".pane.graph tbody tr")).to_have_count(4)
    page = tab.open("/ui/runs/import-july?as=table")
    page.get_by_label("Search steps").fill("#13")  # an item, far behind the first page
    expect(page.get_by_role("button", name="read@1#13", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="read@1#139", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="read@1#12", exact=True)).to_have_count(0)


def test_the_views_that_people_see_most_shut_no_one_out(tab: Tab) -> None:
    for view in ("/ui/", "/ui/runs/A17"):
        page = tab.open(view)
        expect(page.get_by_text("A17").first).to_be_visible()
        page.wait_for_timeout(300)
        assert findings(page) == []


def test_a_flow_that_no_one_has_the_code_of_says_what_to_start(tab: Tab) -> None:
    page = tab.open("/ui/flows/orders")
    expect(page.get_by_text("everstep worker FILE.py")).to_be_visible()
    expect(page.get_by_role("img", name="charge, node", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="How long it takes")).to_be_visible()


@pytest.mark.soak
def test_a_live_worker_says_of_a_flow_what_only_its_code_knows(tab: Tab, store: str) -> None:
    command = [sys.executable, "-m", "everstep", "worker", f"{SHOP}:orders", "--store", store, "--json"]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "EVERSTEP_KEY": KEY})
    try:
        with Host(store, key=KEY) as host:
            until(lambda: bool(host.fleet.workers()))
        page = tab.open("/ui/flows/orders")
        expect(page.get_by_role("heading", name="What a crash would cost")).to_be_visible(timeout=15_000)
        expect(page.get_by_role("heading", name="Findings")).to_be_visible()
        expect(page.get_by_text(re.compile("^[0-9]+ continues"))).to_be_visible()
        page = tab.open("/ui/workers")
        expect(page.get_by_role("article")).to_contain_text("orders")
    finally:
        worker.terminate()
        worker.wait(timeout=30)


@pytest.mark.soak
def test_an_empty_store_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    with Host(f"sqlite:///{tmp_path}/empty.db", key=KEY):
        pass
    served = Console(f"sqlite:///{tmp_path}/empty.db", "--no-auth")
    try:
        with tab_of(browser, served.address) as tab:
            for view in ("", "waits", "flows", "workers", "schedules", "guards", "store", "audit", "compare"):
                page = tab.open(f"/ui/{view}")
                expect(page.get_by_role("heading", level=1)).to_be_attached()
            tab.open("/ui/")
            expect(page.get_by_text("There are no runs yet")).to_be_visible()
    finally:
        served.stop()


def test_the_axis_is_monotone_invertible_and_folds_only_what_stood_still(browser: Browser) -> None:
    page = browser.new_page()
    told = page.evaluate(ASKED, f"data:text/javascript,{quote(assets()['axis.js'].body)}")
    page.close()
    assert told["wrong"] == []
    assert told["breaks"] > 100  # or nothing was tried
