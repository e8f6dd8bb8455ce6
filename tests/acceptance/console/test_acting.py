"""Every act, done by hand in a browser, with what is told before it is done and what became of it."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from everstep import Host
from tests.acceptance.console.conftest import KEY, Tab
from tests.acceptance.console.shop import orders


def act(page: Page, name: str) -> None:
    """Choose an act of the run that is shown."""
    page.get_by_role("button", name="Acts").click()
    page.get_by_role("button", name=re.compile(f"^{name}")).click()


def do(page: Page, name: str) -> None:
    """Press the button of a dialog, and see that it closes."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=name, exact=True).click()
    expect(dialog).to_have_count(0)


def sign(page: Page, name: str) -> None:
    """Say who acts."""
    page.locator("button.who").click()
    page.get_by_label("Acts are recorded as done by").fill(name)
    page.get_by_role("button", name="Keep").click()


def test_a_retry_tells_what_it_begins_with_and_who_would_take_it(tab: Tab, store: str) -> None:
    page = tab.open("/ui/runs/A19")
    page.get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_text(["charge"])
    expect(dialog).to_contain_text("2 nodes that finished are not done again")
    expect(dialog).to_contain_text("no worker is alive")
    dialog.get_by_label(re.compile("^Comment")).fill("the card works again")
    do(page, "Retry")
    expect(page.locator(".run-head")).to_contain_text("no worker is alive")
    with Host(store, key=KEY) as host:
        assert host.info("A19").status == "running"
        [row] = [one for one in host.fleet.audit("A19") if one.act == "reopen"]
        assert row.comment == "the card works again"


def test_an_effect_that_never_reported_is_settled(tab: Tab, store: str) -> None:
    page = tab.open("/ui/runs/transfer-1")
    expect(page.get_by_role("button", name="Settle transfer")).to_be_visible()
    page.get_by_label(re.compile("^It happened")).fill('"sent 13"')
    page.get_by_role("button", name="It happened", exact=True).click()
    expect(page.get_by_role("button", name="It happened", exact=True)).to_have_count(0)
    with Host(store, key=KEY) as host:
        [wait] = host.waits("transfer-1", status=None)
        assert (wait.status, wait.answer) == ("settled", {"done": "sent 13"})


def test_forms_are_made_of_what_a_wait_asks_for(tab: Tab, store: str) -> None:
    page = tab.open("/ui/runs/buy-1/ask")
    answer = page.get_by_role("button", name="Answer", exact=True)
    expect(answer).to_be_disabled()
    page.get_by_label("price").fill("12")
    page.get_by_label("size").select_option("medium")
    page.get_by_label("express").check()
    page.get_by_label(re.compile("^weight")).fill("1.5")
    answer.click()
    expect(answer).to_have_count(0)
    page.get_by_role("button", name="colour, wait").click()
    page.get_by_role("button", name="blue").click()
    expect(page.get_by_role("button", name="blue")).to_have_count(0)
    page.get_by_role("button", name="stock, wait").click()
    page.get_by_label(re.compile("^Signal stock")).fill('{"left": 3}')
    page.get_by_role("button", name="Send it").click()
    expect(page.get_by_role("button", name="Send it")).to_have_count(0)
    page.get_by_role("button", name="cool_down, wait").click()
    page.get_by_role("button", name="Let it fire now").click()
    expect(page.get_by_role("button", name="Let it fire now")).to_have_count(0)
    sign(page, "bob")
    page.get_by_role("button", name="sign, wait").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("ann, cleo may still vote")).to_be_visible()
    with Host(store, key=KEY) as host:
        told = {wait.node: wait for wait in host.waits("buy-1", status=None)}
        assert told["ask"].answer == {"price": 12, "size": "medium", "express": True, "weight": 1.5}
        assert told["colour"].answer == "blue"
        assert told["cool_down"].status == "settled" and told["stock"].status == "settled"
        assert told["sign"].voting is not None and [one.by for one in told["sign"].voting.votes] == ["bob"]


def test_a_fork_from_the_playhead_edits_values_and_tells_what_comes_of_it(tab: Tab, store: str) -> None:
    page = tab.open("/ui/runs/A16@4")
    act(page, "Fork")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It would begin with release")
    dialog.get_by_label("Edit a value").select_option("price")
    expect(dialog).to_contain_text("charge may do again what was done to the world")
    dialog.get_by_role("textbox", name="price").fill("nothing like")
    expect(dialog.get_by_role("button", name="Fork", exact=True)).to_be_disabled()
    dialog.get_by_role("textbox", name="price").fill("99")
    do(page, "Fork")
    expect(page.get_by_text("fork of")).to_be_visible()
    with Host(store, key=KEY) as host:
        [fork] = host.runs(parent="A16")
        assert host.state(fork.run_id)["price"] == 99


def test_a_run_is_held_let_go_on_kept_and_cancelled(tab: Tab, store: str) -> None:
    page = tab.open("/ui/runs/A21")
    act(page, "Pause")
    do(page, "Pause")
    expect(page.locator(".run-head .badge")).to_contain_text("paused")
    page.get_by_role("button", name="Let it go on").click()
    do(page, "Let it go on")
    act(page, "Pin")
    page.get_by_role("dialog").get_by_label(re.compile("^Comment")).fill("for the audit")
    do(page, "Pin")
    expect(page.get_by_text("pinned: for the audit")).to_be_visible()
    act(page, "Send a signal")
    page.get_by_label("Name").fill("hurry")
    do(page, "Send")
    act(page, "Cancel")
    expect(page.get_by_role("dialog")).to_contain_text("1 wait would close: release")
    do(page, "Cancel")
    expect(page.locator(".run-head .badge")).to_contain_text("cancelled")
    with Host(store, key=KEY) as host:
        acts = {one.act for one in host.fleet.audit("A21")}
        assert acts >= {"pause", "unpause", "pin", "send", "cancel"}


def test_to_erase_a_run_tells_what_goes_and_is_refused_for_one_that_is_kept(tab: Tab, store: str) -> None:
    page = tab.open("/ui/runs/count-3")
    act(page, "Erase")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It would be refused: run.pinned")
    expect(dialog.get_by_role("button", name="Erase", exact=True)).to_be_disabled()
    dialog.get_by_role("button", name="Leave it").click()
    page = tab.open("/ui/runs/import-june")
    act(page, "Erase")
    expect(dialog).to_contain_text(re.compile(r"\d+ checkpoints would go"))
    do(page, "Erase")
    expect(page).to_have_url(re.compile("/ui/$"))
    expect(page.get_by_role("link", name="import-june")).to_have_count(0)
    tab.open("/ui/runs/import-june")
    expect(page.get_by_role("alert")).to_contain_text("was removed")


def test_all_failed_runs_of_a_flow_are_retried_after_a_look_at_what_that_would_do(
    tab: Tab, store: str
) -> None:
    page = tab.open("/ui/?flow=orders&status=failed")
    expect(page.get_by_role("link", name="A17")).to_be_visible()
    page.get_by_label("Act", exact=True).select_option("retry")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 run would be acted on")
    dialog.get_by_role("button", name="retry them").click()
    expect(page.locator(".run-head")).to_contain_text("everstep.bulk")
    with Host(store, key=KEY) as host:
        [bulk] = host.runs(flow="everstep.bulk")
        assert host.fleet.drive_bulk(bulk.run_id).done == 1
        assert host.info("A17").status == "running"


def test_a_flow_is_held_and_let_go_on(tab: Tab, store: str) -> None:
    page = tab.open("/ui/flows/count")
    page.get_by_role("button", name="Pause all its runs").click()
    expect(page.get_by_role("button", name="Let it go on")).to_be_visible()
    with Host(store, key=KEY) as host:
        assert [one.flow for one in host.fleet.pauses(runs=False)] == ["count"]
    page.get_by_role("button", name="Let it go on").click()
    expect(page.get_by_role("button", name="Pause all its runs")).to_be_visible()


def test_breakers_and_what_stands_still_for_a_budget_are_shown(tab: Tab) -> None:
    page = tab.open("/ui/guards")
    row = page.get_by_role("row").filter(has_text="bank")
    expect(row.first).to_contain_text("open")
    expect(page.get_by_role("row").filter(has_text="digest-1")).to_contain_text("1.20 of 1.00 usd are spent")
    row.first.get_by_role("button", name="Close it").click()
    expect(row.first).to_contain_text("closed")


def test_an_approval_in_the_browser_lets_the_run_go_on_before_ones_eyes(tab: Tab, store: str) -> None:
    page = tab.open("/ui/runs/A20")
    page.get_by_label("Comment").fill("looks right")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    with Host(store, key=KEY) as host:
        [settled] = [one for one in host.waits("A20", status=None) if one.kind == "approval"]
        assert settled.answer["approved"] is True and settled.answer["comment"] == "looks right"
        host.resume("A20", orders)
    head = page.locator(".run-head")
    expect(head.get_by_text("completed")).to_be_visible()
    page.get_by_role("button", name=re.compile("^pack, ")).click()
    expect(page.get_by_role("region", name="Selected step")).to_contain_text("released")
