"""Markup and scripts in every field that a person or a flow can fill: each is shown, and none runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from everstep import Breaker, Context, Flow, Host, Retry, node, route, wait
from tests.acceptance.console.conftest import KEY, Console, tab_of

EVIL = """<img src=x onerror="window.evil=1"><script>window.evil=1</script>"><svg onload=alert(1)>"""
LINK = "javascript:window.evil=1//"
log = logging.getLogger("evil")


class Evil(Exception):
    """Its name is what a page shows of it."""


Evil.__name__ = Evil.__qualname__ = EVIL


@node(output="spoken", retry=Retry(1, first=0))
def speak(text: str, ctx: Context) -> dict[str, object]:
    log.warning("%s", EVIL)
    ctx.emit("token", text=EVIL)
    ctx.spend(usd="0.10")
    if ctx.attempt == 1:
        raise Evil(EVIL)
    return {EVIL: EVIL, "href": LINK, "rows": [{EVIL: EVIL}, {EVIL: LINK}], "bytes": EVIL.encode()}


@node(output="messages")
def chat(spoken: dict[str, object]) -> list[dict[str, str]]:
    return [{"role": EVIL, "content": EVIL}, {"role": "user", "content": LINK}]


@route("choose_on", halts=True)
def choose(messages: list[dict[str, str]]) -> wait.Wait:
    return wait.Wait(kind="choice", prompt=EVIL, context={EVIL: EVIL}, options=["choose_on"])


@node(output="chosen")
def choose_on(messages: list[dict[str, str]]) -> str:
    raise Evil(EVIL)


asked = wait.question("asked", options=[EVIL, "no"], prompt=EVIL, context="text", timeout="3d")
signed = wait.approval("signed", approvers=[EVIL, "ann"], quorum=2, prompt=EVIL, context="text", timeout="3d")
heard = wait.signal("heard", signal=EVIL, timeout="3d")
told = wait.event("told", event=EVIL, timeout="3d")
words = Flow("words", [speak, chat, choose, choose_on], durability="strong", logs=True, streams=True)
waits = Flow("waits", [asked, signed, heard, told], durability="strong")


@node(output="failed", retry=Retry(1, first=0))
def fail(n: int) -> int:
    raise Evil(EVIL)


broken = Flow("broken", [fail], durability="strong", breakers=[Breaker("it", failures=2, shared=True)])
VIEWS = (
    *("/ui/", "/ui/runs/W1", "/ui/runs/W1/speak", "/ui/runs/W1/chat", "/ui/runs/W2/asked"),
    *("/ui/runs/W2/signed", "/ui/runs/W2/heard", "/ui/runs/W2/told", "/ui/runs/B1/fail", "/ui/runs/F1"),
    *("/ui/runs/W1?as=table", "/ui/compare?a=W1&b=F1", "/ui/waits", "/ui/flows", "/ui/flows/words"),
    *(
        "/ui/workers",
        "/ui/schedules",
        "/ui/guards",
        "/ui/store",
        "/ui/audit",
        f"/ui/?where={EVIL}",
        f"/ui/flows/{EVIL}",
    ),
    *(f"/ui/runs/{EVIL}", f"/ui/compare?a={EVIL}&b=W1"),
)
DIALOGS = (("W1", ("Fork", "Tags", "Unpin")), ("W2", ("Send", "Cancel", "Pause")), ("B1", ("Pin",)))
RAN = """() => window.evil !== undefined || document.querySelector(
    'img[src="x"], svg[onload], main script, [onerror], a[href^="javascript:"]') !== null"""


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    url = f"sqlite:///{tmp_path_factory.mktemp('evil')}/runs.db"
    with Host(url, key=KEY) as host:
        who: dict[str, Any] = {"by": EVIL[:190], "comment": EVIL}
        labels: dict[str, Any] = {"tags": {"tag": EVIL}, "attributes": {"attribute": EVIL}}
        host.run(words, {"text": EVIL}, run_id="W1", **who, **labels)
        host.run(waits, {"text": EVIL}, run_id="W2", **who)
        host.run(broken, {"n": 1}, run_id="B1", **who)
        host.fork("W1", at=2, fork_id="F1", inputs={"text": LINK}, **who)
        host.retention.pin("W1", EVIL, **who)
        host.fleet.pause("F1", **who)
        host.fleet.pause(flow="waits", group=EVIL, **who)
        host.send("W2", EVIL + "!", {EVIL: EVIL}, **who)
    served = Console(url, "--no-auth")
    yield served
    served.stop()


def is_quiet(page: Page) -> None:
    assert page.evaluate(RAN) is False, page.url


@pytest.mark.parametrize(
    "views", [VIEWS[:3], pytest.param(VIEWS, marks=pytest.mark.soak)], ids=["few", "all"]
)
def test_no_field_of_any_view_runs_what_is_in_it(
    browser: Browser, evil: Console, views: tuple[str, ...]
) -> None:
    with tab_of(browser, evil.address) as tab:
        tab.page.on("dialog", lambda dialog: tab.problems.append(f"a script ran: {dialog.message}"))
        shown = 0
        for view in views:
            page = tab.open(view)
            expect(page.get_by_role("main")).not_to_contain_text("Loading")
            page.wait_for_timeout(150)
            is_quiet(page)
            for name in page.get_by_role("tab").all_text_contents():
                page.get_by_role("tab", name=name, exact=True).click()
                page.wait_for_timeout(100)
                is_quiet(page)
                shown += "onerror" in page.get_by_role("main").inner_text()
        assert shown >= len(views) // 2  # or what was written is not looked at
        tab.problems = [one for one in tab.problems if "404" not in one]


@pytest.mark.soak
def test_no_dialog_runs_what_a_run_says(browser: Browser, evil: Console) -> None:
    with tab_of(browser, evil.address) as tab:
        tab.page.on("dialog", lambda dialog: tab.problems.append(f"a script ran: {dialog.message}"))
        for run, acts in DIALOGS:
            page = tab.open(f"/ui/runs/{run}")
            for name in acts:
                page.get_by_role("button", name="Acts").click()
                page.get_by_role("button", name=re.compile(f"^{name}")).first.click()
                dialog = page.get_by_role("dialog")
                expect(dialog).to_be_visible()
                page.wait_for_timeout(300)
                is_quiet(page)
                dialog.get_by_role("button", name="Leave it").click()


@pytest.mark.soak
def test_a_name_that_a_person_types_is_shown_and_not_run(browser: Browser, evil: Console) -> None:
    with tab_of(browser, evil.address) as tab:
        page = tab.open("/ui/")
        page.locator("button.who").click()
        page.get_by_label("Acts are recorded as done by").fill(EVIL[:100])
        page.get_by_role("button", name="Keep").click()
        page.reload()
        expect(page.locator("button.who")).to_contain_text("onerror")
        is_quiet(page)
