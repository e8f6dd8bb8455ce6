"""The page behind a link, as a browser without scripts uses it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from everstep import Context, Flow, node, wait
from everstep.server.pages import look
from tests.integration.server.serving import (
    NO_SUCH_TOKEN,
    Serving,
    ask_choice,
    ask_number,
    ask_text,
    ask_yes,
    cool_down,
    expense,
    paid,
    served,
)


@node(output="said", halts=True)
def ask_anything() -> wait.Wait:
    return wait.Wait(prompt="Say something.")


@node(output="said", halts=True)
def ask_numbers() -> wait.Wait | dict[str, int]:
    return wait.Wait()


own = Flow("own", [ask_anything])
typed = Flow("typed", [ask_numbers])
anything = Flow("anything", [wait.question("w", kind="text", answer_type=dict)])


class Page(HTMLParser):
    """What a browser makes of a page: its text, its form, and whatever it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fields: list[dict[str, str | None]] = []
        self.forms: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self._is_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self._is_style = tag == "style"
        self.loads += [
            v or "" for k, v in attrs if k in ("src", "href", "action", "style") or k.startswith("on")
        ]
        if tag == "form":
            self.forms.append(found)
        if tag in ("input", "textarea", "button"):
            self.fields.append({"tag": tag, **found})

    def handle_endtag(self, tag: str) -> None:
        self._is_style = False

    def handle_data(self, data: str) -> None:
        if not self._is_style:
            self.text += data


async def page_of(s: Serving, token: str | None) -> Page:
    response = await s.client.get(f"/w/{token}", headers={"Authorization": ""})
    assert response.status_code == 200
    return Page(response.text)


@served(headers={})
async def test_the_page_shows_what_is_asked_and_needs_nothing_from_elsewhere(s: Serving) -> None:
    waiting = await s.halted(expense, amount=7)
    page = await page_of(s, waiting.token)
    for text in (
        "Pay this expense?",
        "expense",
        "decision",
        "Ann",
        "4 January 2030, 00:00 UTC",
        "<b>bold</b> & more",
    ):
        assert text in page.text
    assert "b" not in page.tags
    assert not {"script", "link", "img", "iframe"} & {*page.tags}
    assert page.loads == []
    assert page.forms == [{"method": "post"}]
    assert [(f["tag"], f.get("name"), f.get("value")) for f in page.fields] == [
        ("input", "by", ""),
        ("textarea", "comment", None),
        ("button", "approved", "true"),
        ("button", "approved", "false"),
    ]


@served(headers={})
async def test_the_page_is_locked_down_by_its_headers(s: Serving) -> None:
    waiting = await s.halted(expense, amount=7)
    for response in (
        await s.client.get(f"/w/{waiting.token}"),
        await s.client.get(f"/w/{NO_SUCH_TOKEN}"),
        await s.client.post(f"/w/{waiting.token}", data={}),
    ):
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        style = re.search(r"<style>(.*?)</style>", response.text, re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in policy
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert str(waiting.token) not in response.text


@served(headers={})
async def test_looking_settles_nothing_however_often(s: Serving) -> None:
    waiting = await s.halted(expense, amount=7)
    for method in ("GET", "HEAD"):
        for query in ("", "?approved=true", "?approved=true&answer=1"):
            assert (await s.client.request(method, f"/w/{waiting.token}{query}")).status_code == 200
    assert await s.is_open(waiting)


ANSWERS: list[tuple[Flow, dict[str, str], Any, str]] = [
    (expense, {"approved": "true"}, {"approved": True}, "You approved it."),
    (
        expense,
        {"approved": "false", "by": " Bo ", "comment": "too much"},
        {"approved": False, "approver": "Bo", "comment": "too much"},
        "You rejected it.",
    ),
    (ask_yes, {"answer": "true"}, True, ""),
    (ask_yes, {"answer": "false"}, False, ""),
    (ask_choice, {"option": "1"}, "blue", ""),
    (ask_text, {"answer": "Ann\r\nLee"}, "Ann\nLee", ""),
    (ask_number, {"answer": " 42 "}, 42, ""),
    (paid, {"answer": '{"sum": [1, 2]}'}, {"sum": [1, 2]}, ""),
    (own, {"answer": '{"sum": 3}'}, {"sum": 3}, ""),
    (typed, {"answer": '{"answer": 3}'}, {"answer": 3}, ""),
    (anything, {"answer": '{"answer": {"a": 1}}'}, {"answer": {"a": 1}}, ""),
    (anything, {"answer": '{"a": 1}'}, {"a": 1}, ""),
]


@pytest.mark.parametrize(("flow", "form", "answer", "said"), ANSWERS)
def test_a_form_gives_the_answer_it_means(flow: Flow, form: dict[str, str], answer: Any, said: str) -> None:
    @served(headers={})
    async def check(s: Serving) -> None:
        waiting = await s.halted(flow, **({"amount": 7} if flow is expense else {}))
        page = await page_of(s, waiting.token)
        assert form.keys() <= {f["name"] for f in page.fields if "name" in f}
        response = await s.client.post(f"/w/{waiting.token}", data=form)
        assert response.status_code == 200
        assert "Thank you" in response.text
        assert said in response.text
        assert (await s.host.wait(waiting.id)).answer == answer
        assert (await s.host.resume(waiting.run_id, flow)).status == "completed"

    check()


WRONG: list[tuple[Flow, dict[str, str], str]] = [
    (expense, {}, "No button was pressed."),
    (expense, {"approved": "perhaps", "comment": "keep <me>"}, "No button was pressed."),
    (ask_yes, {"answer": "1"}, "No button was pressed."),
    (ask_choice, {}, "Nothing was chosen."),
    (ask_choice, {"option": "2"}, "Nothing was chosen."),
    (ask_choice, {"option": "-1"}, "Nothing was chosen."),
    (ask_choice, {"option": "²"}, "Nothing was chosen."),
    (ask_number, {"answer": "many"}, "This is not a number."),
    (ask_number, {"answer": "1.5"}, "cannot take this answer"),
    (paid, {"answer": "{"}, "This is not JSON"),
]


@pytest.mark.parametrize(("flow", "form", "told"), WRONG)
def test_a_form_filled_in_wrongly_comes_back_with_what_is_wrong(
    flow: Flow, form: dict[str, str], told: str
) -> None:
    @served(headers={})
    async def check(s: Serving) -> None:
        waiting = await s.halted(flow, **({"amount": 7} if flow is expense else {}))
        response = await s.client.post(f"/w/{waiting.token}", data=form)
        assert response.status_code == 400
        page = Page(response.text)
        assert told in page.text
        assert page.forms == [{"method": "post"}]
        if "comment" in form:
            assert form["comment"] in page.text
        assert await s.is_open(waiting)

    check()


@served(headers={})
async def test_a_person_can_let_a_timer_go_on(s: Serving) -> None:
    waiting = await s.halted(cool_down)
    renewed = await s.host.waiting.reissue(waiting.id)
    page = await page_of(s, renewed.token)
    assert "Goes on at 3 January 2030, 00:00 UTC" in page.text
    assert (await s.client.post(f"/w/{renewed.token}")).status_code == 200
    assert (await s.host.resume(waiting.run_id, cool_down)).status == "completed"


def heading(response: httpx.Response) -> tuple[int, str]:
    found = re.search("<h1>(.*?)</h1>", response.text)
    assert found is not None
    return response.status_code, found[1]


@served(headers={})
async def test_a_link_that_leads_to_nothing_says_why(s: Serving) -> None:
    async def both(token: str | None) -> set[tuple[int, str]]:
        form = {"approved": "true"}
        return {
            heading(await s.client.get(f"/w/{token}")),
            heading(await s.client.post(f"/w/{token}", data=form)),
        }

    assert await both(NO_SUCH_TOKEN) == {(401, "This link does not work")}
    assert await both("nonsense") == {(401, "This link does not work")}
    answered = await s.halted(expense, amount=1)
    await s.host.answer(answered.id, {"approved": True})
    assert await both(answered.token) == {(409, "Already answered")}
    cancelled = await s.halted(expense, amount=2)
    await s.host.cancel(cancelled.run_id)
    assert await both(cancelled.token) == {(409, "No longer needed")}
    timed = await s.halted(expense, amount=3)
    token = (await s.host.waiting.reissue(timed.id, ttl="1m")).token
    s.clock.advance(61)
    assert await both(token) == {(401, "This link has expired")}
    shared = await s.halted(paid)
    token = (await s.host.waiting.reissue(shared.id, single_use=False)).token
    await s.host.answer(shared.id, 1)
    assert await both(token) == {(409, "Already answered")}


@served(headers={}, max_body=50)
async def test_a_form_that_is_too_large_or_none_is_refused_as_a_page(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    large = await s.client.post(f"/w/{waiting.token}", data={"comment": "x" * 100})
    assert heading(large) == (413, "Too much text")
    odd = await s.client.post(f"/w/{waiting.token}", content=b"\xff")
    assert heading(odd) == (400, "This did not work")
    many = await s.client.post(f"/w/{waiting.token}", content=b"&".join([b"a=1"] * 21)[:50])
    assert many.status_code == 400
    assert await s.is_open(waiting)


CONTEXTS: list[tuple[Any, str]] = [
    ("plain <text>", "plain <text>"),
    ({"is_paid": True, "left": None, "n": 1.5}, "is paidyesleft—n1.5"),
    ({"parts": ["a", "<i>"]}, "partsa\n<i>"),
    ({"deep": {"x": ["<s>"]}}, "<s>"),
    ([1, {"a": 2}], '"a": 2'),
    (["x" * 30_000], "…"),
    ({}, "{}"),
]


@pytest.mark.parametrize(("context", "shown"), CONTEXTS)
def test_a_context_is_shown_readably_and_as_text_only(context: Any, shown: str) -> None:
    page = Page(look.context_html(context))
    assert shown in page.text
    assert not {"i", "s", "text"} & {*page.tags}


def test_a_confirmation_has_words_of_its_own() -> None:
    sure = Flow("sure", [wait.question("sure", kind="confirm")])

    @served(headers={})
    async def check(s: Serving) -> None:
        waiting = await s.halted(sure)
        assert "ConfirmDecline" in (await page_of(s, waiting.token)).text

    check()


@served(headers={})
async def test_every_page_asks_for_a_name_and_a_comment(s: Serving) -> None:
    for flow, form in ((ask_choice, {"option": "0"}), (ask_text, {"answer": "hm"})):
        waiting = await s.halted(flow)
        assert 'name="by"' in (await s.client.get(f"/w/{waiting.token}")).text
        sent = await s.client.post(
            f"/w/{waiting.token}", data={**form, "by": "Bo", "comment": "two\r\nlines"}
        )
        assert sent.status_code == 200
        act = (await s.host.wait(waiting.id)).act
        assert act is not None and (act.by, act.comment) == ("Bo", "two\nlines")
    waiting = await s.halted(ask_text)
    again = await s.client.post(f"/w/{waiting.token}", data={"answer": "hm", "by": "x" * 201})
    assert again.status_code == 400 and "at most 200" in again.text and "hm" in again.text


@node(output="sent", halts=True)
def publish(topic: str, ctx: Context) -> list[object]:
    draft = ctx.step("write", f"A page about {topic}.".upper)
    said = ctx.wait(wait.approval("ok", context=draft, prompt="Publish it?"))
    return [said.approved, said.approver, ctx.wait(wait.Wait(kind="text", prompt="Where?"))]


inside = Flow("inside", [publish])


@served(headers={})
async def test_the_page_answers_a_wait_in_the_middle_of_a_node(s: Serving) -> None:
    waiting = await s.halted(inside, topic="rain")
    page = await page_of(s, waiting.token)
    for text in ("Publish it?", "A PAGE ABOUT RAIN.", "publish/$ok"):
        assert text in page.text
    answer = {"approved": "true", "by": "Ann", "comment": ""}
    assert (await s.client.post(f"/w/{waiting.token}", data=answer)).status_code == 200
    [second] = (await s.host.resume(waiting.run_id, inside)).waits
    assert "Where?" in (await page_of(s, second.token)).text
    assert (await s.client.post(f"/w/{second.token}", data={"answer": '"here"', "by": ""})).status_code == 200
    result = await s.host.resume(waiting.run_id, inside)
    assert result["sent"] == [True, "Ann", "here"]
