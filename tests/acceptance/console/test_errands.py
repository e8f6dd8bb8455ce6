"""What people come for, in few clicks: five errands, each begun at the list of runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from everstep import Host
from tests.acceptance.console.conftest import KEY, Console, tab_of

pytestmark = pytest.mark.soak
MOST_CLICKS = 5
MOST_SECONDS = 60


class Errand:
    """A person at the list of runs: each press counts, be it of a button or of Enter."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def choose(self, what: Locator, name: str) -> None:
        """Open a list and take one of it: two presses."""
        self.clicks += 2
        what.select_option(name)

    def find(self, text: str) -> None:
        """Type into the box, and press Enter."""
        self.page.locator("[data-search]").fill(text)
        self.clicks += 1
        self.page.keyboard.press("Enter")


@contextmanager
def errand(browser: Browser, console: Console) -> Iterator[Errand]:
    with tab_of(browser, console.address) as tab:
        page = tab.open("/ui/")
        expect(page.get_by_role("link", name="A17")).to_be_visible()
        began = time.monotonic()
        one = Errand(page)
        yield one
        assert one.clicks <= MOST_CLICKS
        assert time.monotonic() - began <= MOST_SECONDS


def test_why_did_a_run_fail(browser: Browser, console: Console) -> None:
    with errand(browser, console) as one:
        one.find("A17")
        step = one.page.get_by_role("region", name="Selected step")
        expect(step).to_contain_text("the card of customer 13 was declined: insufficient funds")
        expect(step).to_contain_text("in charge")


def test_who_approved(browser: Browser, console: Console) -> None:
    with errand(browser, console) as one:
        one.click(one.page.get_by_role("link", name="A18"))
        one.click(one.page.get_by_role("button", name=re.compile("^release, wait")))
        expect(one.page.get_by_role("region", name="Selected step")).to_contain_text(
            "Done by cleo “paid before”"
        )


def test_which_item_was_slow(browser: Browser, console: Console) -> None:
    with errand(browser, console) as one:
        one.click(one.page.get_by_role("link", name="import-july"))
        one.click(one.page.get_by_role("button", name=re.compile("^read, map")))
        slow = one.page.get_by_role("row").filter(has_text="6.50 s")
        one.click(slow.get_by_role("button", name="#117"))
        step = one.page.get_by_role("region", name="Selected step")
        expect(step).to_contain_text("took 6.50 s")
        expect(step).to_contain_text("line: 117")


def test_what_differs_from_the_run_before(browser: Browser, console: Console) -> None:
    with errand(browser, console) as one:
        one.click(one.page.get_by_role("link", name="A18"))
        one.click(one.page.get_by_role("link", name="compare").last)
        main = one.page.get_by_role("main")
        expect(main).to_contain_text("The first difference: price@1")
        expect(one.page.get_by_role("row").filter(has_text="rate")).to_contain_text("10")
        expect(one.page.get_by_role("row").filter(has_text="rate")).to_contain_text("12")


def test_retry_all_that_failed_of_one_flow(browser: Browser, console: Console, store: str) -> None:
    with errand(browser, console) as one:
        one.click(one.page.get_by_role("link", name="Flows"))
        row = one.page.get_by_role("row").filter(has_text="orders")
        one.click(row.get_by_role("link", name=re.compile("failed")))
        expect(one.page.get_by_role("link", name="A19")).to_be_visible()
        one.choose(one.page.get_by_label("Act", exact=True), "retry")
        expect(one.page.get_by_role("dialog")).to_contain_text("2 runs would be acted on")
        one.click(one.page.get_by_role("button", name="retry them"))
        expect(one.page.locator(".run-head")).to_contain_text("everstep.bulk")
    with Host(store, key=KEY) as host:
        [bulk] = host.runs(flow="everstep.bulk")
        assert host.fleet.drive_bulk(bulk.run_id).done == 2
        assert {host.info(run_id).status for run_id in ("A17", "A19")} == {"running"}
