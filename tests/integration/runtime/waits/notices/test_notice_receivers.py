"""Notices by mail, to a server that speaks SMTP, by a signed webhook and in a chat, over real connections."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from everstep import Flow, Host, notify, wait
from everstep.client.host import AsyncHost
from everstep.errors import BadRequest
from everstep.ports.durability import Notice
from everstep.runtime.waits.notices.chat import message
from everstep.server.app import create_app
from everstep.testing import ManualClock
from tests.integration.runtime.waits.notices.mail_server import MailServer
from tests.integration.runtime.waits.notices.notices_at_work import FAILING

SECRET = "between you and me"
KEY = "a key that is long enough"
BASE = "https://flows.test"


class Hook(ThreadingHTTPServer):
    """Keeps what is posted to it, and answers as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hooked)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Hooked(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def by_mail(server: MailServer, *to: str) -> notify.Mail:
    return notify.Mail(
        "127.0.0.1", port=server.port, security="none", sender="runs@flows.test", to=to or ["ops@flows.test"]
    )


def test_a_mail_says_what_failed_and_where_to_look(tmp_path: Path, mails: MailServer) -> None:
    url, clock = f"sqlite:///{tmp_path}/runs.db", ManualClock()
    ops = by_mail(mails, "ops@flows.test", "boss@flows.test")
    with Host(url, clock=clock, notifiers={"ops": ops}, base_url=BASE) as host:
        host.run(FAILING, {"a": 7}, run_id="A17")
    [(sender, to, mail)] = mails.mails
    assert (sender, to) == ("runs@flows.test", ["ops@flows.test", "boss@flows.test"])
    assert mail["Subject"] == "Run A17 of failing has failed"
    assert mail["To"] == "ops@flows.test, boss@flows.test"
    assert mail["Auto-Submitted"] == "auto-generated"
    text = mail.get_content()
    assert "Error: ValueError: 7 is too much" in text
    assert f"{BASE}/ui/runs/A17" in text


def test_a_mail_that_was_not_taken_comes_later_with_the_same_id(tmp_path: Path, mails: MailServer) -> None:
    url, clock = f"sqlite:///{tmp_path}/runs.db", ManualClock()
    mails.unwell = 2
    with Host(url, clock=clock, notifiers={"ops": by_mail(mails)}) as host:
        host.run(FAILING, {"a": 1}, run_id="A")
        [info] = host.notices.find(state="pending")
        assert info.error == "NotifyFailed: 127.0.0.1 did not take the mail: SMTPConnectError 421."
        for _ in range(3):
            clock.advance(timedelta(minutes=5))
            host.notices.send()
        host.notices.again(info.id)
        host.notices.send()
    first, second = [mail["Message-ID"] for _, _, mail in mails.mails]
    assert first == second


def test_a_mail_that_one_of_its_addresses_refuses_is_tried_again(tmp_path: Path, mails: MailServer) -> None:
    mails.refused = {"gone@flows.test"}
    ops = by_mail(mails, "ops@flows.test", "gone@flows.test")
    with Host(f"sqlite:///{tmp_path}/runs.db", notifiers={"ops": ops}) as host:
        host.run(FAILING, {"a": 1}, run_id="A")
        [info] = host.notices.find(state="pending")
    assert "refused 1 addresses" in info.error


def test_a_mail_has_no_header_from_what_a_run_says(tmp_path: Path, mails: MailServer) -> None:
    flow = Flow("asks", [wait.approval("ok", prompt="Pay?\r\nBcc: all@flows.test", notify="ops")])
    with Host(f"sqlite:///{tmp_path}/runs.db", notifiers={"ops": by_mail(mails)}) as host:
        host.run(flow, {}, run_id="A")
    [(_, to, mail)] = mails.mails
    assert to == ["ops@flows.test"]
    assert mail["Bcc"] is None
    assert mail["Subject"] == "Pay?  Bcc: all@flows.test (asks)"


def test_a_webhook_is_signed_with_its_time_and_tried_once_each_time(tmp_path: Path, hook: Hook) -> None:
    clock = ManualClock()
    ops = notify.Webhook(hook.url, secret=SECRET)
    hook.answers = [503, 400]
    with Host(f"sqlite:///{tmp_path}/runs.db", clock=clock, notifiers={"ops": ops}) as host:
        host.run(FAILING, {"a": 1}, run_id="A")
        assert len(hook.got) == 1
        for _ in range(4):
            clock.advance(timedelta(minutes=10))
            host.notices.send()
        [info] = host.notices.find()
    assert len(hook.got) == 3
    headers, body = hook.got[-1]
    assert {sent["Idempotency-Key"] for sent, _ in hook.got} == {info.id} == {json.loads(body)["id"]}
    at = clock.now() - timedelta(minutes=20)
    assert notify.verify(body, headers["X-Everstep-Signature"], SECRET, now=at)
    assert not notify.verify(body, headers["X-Everstep-Signature"], SECRET, now=at + timedelta(minutes=6))


def test_a_chat_shows_the_context_and_its_link_decides_nothing_by_being_looked_at(
    tmp_path: Path, hook: Hook
) -> None:
    asyncio.run(_chatted(tmp_path, hook))


async def _chatted(tmp_path: Path, hook: Hook) -> None:
    ask = wait.approval(
        "ok", prompt="Pay <@everyone> & go?", context={"amount": 12}, notify="desk", remind="1h"
    )
    flow, clock = Flow("pays", [ask]), ManualClock()
    desk = notify.Chat(hook.url)
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AsyncHost(url, clock=clock, notifiers={"desk": desk}, base_url=BASE, key=KEY) as host:
        await host.run(flow, {}, run_id="A")
        clock.advance(timedelta(minutes=61))
        await host.notices.send()
        first, reminder = [json.loads(body)["text"] for _, body in hook.got]
        [opened] = await host.waits("A")
        assert first.startswith("*Pay &lt;@\u2060everyone&gt; &amp; go? (pays)*")
        assert reminder.startswith("*Reminder: Pay &lt;@\u2060everyone&gt;")
        for text in (first, reminder):
            assert 'Context: {"amount": 12}' in text
            assert f"<{BASE}/w/{opened.token}|Answer>" in text
        transport = httpx.ASGITransport(create_app(host, [flow], token="a-secret-for-operators"))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as browser:
            for method in ("GET", "HEAD", "GET"):  # a chat that previews it, and a scanner
                await browser.request(method, f"/w/{opened.token}")
            assert (await host.waits("A"))[0].status == "open"
            sent = await browser.post(f"/w/{opened.token}", data={"answer": "approve"})
            assert sent.status_code in (200, 303, 400)


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "mail.example.com", "security": "none"},
        {"security": "plain"},
        {"port": 0},
        {"to": []},
        {"to": "no-address"},
        {"sender": "a@b\r\nBcc: c@d"},
        {"user": "me"},
        {"timeout": "2h"},
        {"host": "a b"},
    ],
)
def test_a_mail_that_cannot_be_sent_is_refused_where_it_is_written(wrong: dict[str, object]) -> None:
    given: dict[str, object] = {"host": "mail.example.com", "sender": "a@b.test", "to": "c@d.test", **wrong}
    with pytest.raises(BadRequest):
        notify.Mail(str(given.pop("host")), **given)  # type: ignore[arg-type]


def test_what_a_run_says_makes_no_mention_and_no_link_in_a_chat() -> None:
    said = "@channel <!here> [pay](https://evil.test) www.evil.test ann@example.com see https://evil.test"
    notice = Notice(
        run_id="A",
        flow="f",
        kind="run",
        occasion="failed",
        error=said,
        run_link="https://flows.test/ui/runs/A",
    )
    shown = message(notice)
    assert re.findall(r"(?<!\w)@\w|://|www\.|\]\(|<[^>]*>", shown.replace(notice.run_link or "", "LINK")) == [
        "<LINK|See the run>"
    ]
    assert "ann@example.com" in shown


def test_lines_of_an_error_are_not_lines_of_a_mail() -> None:
    said = "no\r\nBcc: eve@evil.test\n\nAnswer here:\nhttps://evil.test\x1b[31m \ud800"
    mail = notify.Mail("localhost", sender="a@b.test", to="c@d.test", security="none").mail(
        Notice(run_id="A", flow="f\nBcc: eve@evil.test", kind="run", occasion="failed", error=said)
    )
    assert mail["Bcc"] is None
    text = mail.get_content()
    assert [line for line in text.splitlines() if line.startswith(("Bcc", "Answer", "http"))] == []
    assert "\x1b" not in text
    mail.as_bytes()
