"""Notifying of a wait: the console, a webhook on a real server, functions of any kind."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from everstep import notify
from everstep.errors import BadRequest, NotifyFailed, UnknownNotifier
from everstep.ports.durability import Notice
from everstep.runtime.system import RealSystem
from everstep.runtime.waits.notifiers import Notifiers, console
from everstep.runtime.waits.webhooks import Webhook, sign, verify
from everstep.testing import ManualClock

SECRET = "between you and me"
TOKEN = "et_" + "T" * 43
LINK = f"https://flows.example.com/w/{TOKEN}"
NOTICE = Notice(
    wait_id="w-1",
    run_id="A17",
    flow="expense",
    node="approve",
    kind="approval",
    context={"amount": 12.5, "by": "Zoë"},
    prompt="Pay it?",
    due_at=datetime(2030, 1, 4, 9, tzinfo=UTC),
    token=TOKEN,
    link=LINK,
)


class Receiver(ThreadingHTTPServer):
    """A server that keeps what it gets and answers as it is told, the last answer again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, dict[str, str]]] = [(200, {})]
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.hung = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.got.append((self.path, dict(self.headers), body))
        status, headers = (
            self.server.answers[0] if len(self.server.answers) == 1 else self.server.answers.pop(0)
        )
        if status == 0:
            self.server.hung.wait(10)
        if status > 0:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.hung.set()
        server.shutdown()
        thread.join()


def tell(webhook: Webhook) -> None:
    async def story() -> None:
        await webhook(NOTICE)

    asyncio.run(story())


def test_a_webhook_posts_the_notice_as_json(receiver: Receiver) -> None:
    tell(Webhook(f"{receiver.url}/hook?x=1", headers={"Authorization": "Bearer b"}))
    [(path, headers, body)] = receiver.got
    assert path == "/hook?x=1"
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "w-1"
    assert headers["Authorization"] == "Bearer b"
    assert "X-Everstep-Signature" not in {name.title() for name in headers}
    assert json.loads(body) == {
        "wait_id": "w-1",
        "run_id": "A17",
        "flow": "expense",
        "node": "approve",
        "kind": "approval",
        "context": {"amount": 12.5, "by": "Zoë"},
        "prompt": "Pay it?",
        "due_at": "2030-01-04T09:00:00Z",
        "token": TOKEN,
        "link": LINK,
    }


def test_a_webhook_signs_what_it_sends_and_the_receiver_can_verify_it(receiver: Receiver) -> None:
    clock = ManualClock()
    tell(Webhook(receiver.url, secret=SECRET, clock=clock))
    [(_, headers, body)] = receiver.got
    signature = {name.title(): value for name, value in headers.items()}["X-Everstep-Signature"]
    assert signature.startswith(f"t={int(clock.now().timestamp())},v1=")
    assert verify(body, signature, SECRET, now=clock.now())
    assert verify(body, signature, SECRET.encode(), now=clock.now() + timedelta(seconds=300))
    assert not verify(body, signature, SECRET, now=clock.now() + timedelta(seconds=301))
    assert not verify(body, signature, SECRET, now=clock.now() - timedelta(seconds=301))
    assert verify(body, signature, SECRET, now=clock.now() + timedelta(seconds=301), tolerance=400)
    assert not verify(body + b" ", signature, SECRET, now=clock.now())
    assert not verify(body, signature, SECRET + "!", now=clock.now())


def test_a_signature_is_an_hmac_of_time_and_body() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert sign(b"{}", "secret", now=now) == (
        "t=1893456000,v1=0dc4b21877b8bd555122d892762124a586f19304f1bf1147e6a69b3fd5689845"
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: None,
        lambda s: "",
        lambda s: s.partition(",")[0],
        lambda s: s.partition(",")[2],
        lambda s: s.replace("t=", "t=-"),
        lambda s: s.replace("t=1", "t=2"),
        lambda s: f"t=5,{s}",
        lambda s: s.replace("v1=", "v2="),
        lambda s: s[:-1],
        lambda s: s + "é",
        lambda s: "t=٣,v1=x",
        lambda s: "t=" + "9" * 5000 + ",v1=x",
        lambda s: "v1," * 1000,
    ],
)
def test_a_damaged_signature_is_refused_and_never_raises(damage: Any) -> None:
    now = ManualClock().now()
    good = sign(b"body", SECRET, now=now)
    assert verify(b"body", good, SECRET, now=now)
    assert not verify(b"body", damage(good), SECRET, now=now)


def test_one_of_several_signatures_is_enough_while_a_secret_changes() -> None:
    now = ManualClock().now()
    old, new = (sign(b"body", secret, now=now) for secret in ("old", "new"))
    assert verify(b"body", f"{old},{new.partition(',')[2]}", "new", now=now)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_webhook_tries_again_with_growing_pauses(receiver: Receiver, status: int) -> None:
    receiver.answers = [(status, {}), (status, {}), (204, {})]
    clock = ManualClock(auto=True)
    start = clock.now()
    tell(Webhook(receiver.url, secret=SECRET, clock=clock))
    assert len(receiver.got) == 3
    assert clock.now() - start == timedelta(seconds=1.5)
    for _, headers, body in receiver.got:
        assert headers["Idempotency-Key"] == "w-1"
        assert body == receiver.got[0][2]


def test_a_webhook_waits_as_long_as_it_is_asked_to_within_reason(receiver: Receiver) -> None:
    receiver.answers = [(429, {"Retry-After": "20"}), (503, {"Retry-After": "99999"}), (200, {})]
    clock = ManualClock(auto=True)
    start = clock.now()
    tell(Webhook(receiver.url, clock=clock))
    assert clock.now() - start == timedelta(seconds=80)


def test_a_webhook_gives_up_after_its_attempts(receiver: Receiver) -> None:
    receiver.answers = [(500, {})]
    with pytest.raises(NotifyFailed, match=r"127\.0\.0\.1:\d+ answered 500 \(tried 2 times\)"):
        tell(Webhook(f"{receiver.url}/secret-path", attempts=2, clock=ManualClock(auto=True)))
    assert len(receiver.got) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_a_refusal_is_final(receiver: Receiver, status: int) -> None:
    receiver.answers = [(status, {})]
    with pytest.raises(NotifyFailed, match=rf"answered {status} \(tried once\)"):
        tell(Webhook(receiver.url, clock=ManualClock(auto=True)))
    assert len(receiver.got) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/elsewhere"])
def test_redirects_are_not_followed(receiver: Receiver, status: int, to: str) -> None:
    receiver.answers = [(status, {"Location": to})]
    with pytest.raises(NotifyFailed, match="redirects are not followed"):
        tell(Webhook(receiver.url, clock=ManualClock(auto=True)))
    assert len(receiver.got) == 1


def test_a_server_that_cuts_the_connection_or_hangs_is_tried_again(receiver: Receiver) -> None:
    receiver.answers = [(-1, {}), (0, {}), (200, {})]
    tell(Webhook(receiver.url, timeout=0.2, clock=ManualClock(auto=True)))
    assert len(receiver.got) == 3


def test_a_server_that_is_not_there_is_named_without_the_rest_of_the_url(receiver: Receiver) -> None:
    port = receiver.server_address[1]
    receiver.shutdown()
    receiver.server_close()
    with pytest.raises(NotifyFailed, match=r"could not be reached: .*refused.* \(tried 3 times\)") as caught:
        tell(Webhook(f"http://localhost:{port}/T0K3N?key=K3Y", secret=SECRET, clock=ManualClock(auto=True)))
    said = f"{caught.value} {caught.value.to_wire()}"
    assert not any(secret in said for secret in ("T0K3N", "K3Y", SECRET, TOKEN))


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "example.com/hook",
            "file:///etc/passwd",
            "ftp://example.com/x",
            "https://",
            "https:///x",
            "//x",
        ),
        *(
            "http://example.com/hook",
            "https://user:pw@example.com/",
            "https://exa mple.com/",
            "https://a/\nb",
        ),
        *("https://example.com:port/", "https://[::1/", "javascript:alert(1)", None, 5),
    ],
)
def test_only_a_safe_url_is_taken_and_a_refused_one_is_not_shown(url: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        Webhook(url)
    assert "pw@" not in str(caught.value)


def test_plain_http_is_for_this_machine_unless_allowed() -> None:
    for url in ("http://localhost:8080/x", "http://127.0.0.1/x", "http://[::1]/x", "https://example.com/x"):
        assert Webhook(url)
    assert Webhook("http://example.com/x", allow_http=True)


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": "10"},
        {"secret": ""},
        {"secret": 5},
        {"headers": {"X-A": "one\r\nX-B: two"}},
        {"headers": {"X A": "one"}},
        {"headers": {"X-A": "€"}},
        {"headers": {"X-A": 1}},
    ],
)
def test_odd_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        Webhook("https://example.com", **options)


def test_headers_of_the_user_do_not_replace_the_signature(receiver: Receiver) -> None:
    clock = ManualClock()
    tell(Webhook(receiver.url, secret=SECRET, clock=clock, headers={"x-everstep-signature": "mine"}))
    [(_, headers, body)] = receiver.got
    assert [
        verify(body, v, SECRET, now=clock.now())
        for n, v in headers.items()
        if n.lower() == "x-everstep-signature"
    ] == [True]


def test_a_webhook_shows_its_host_and_nothing_else() -> None:
    webhook = Webhook("https://example.com:8443/T0K3N?key=K3Y", secret=SECRET, headers={"A": "B3AR3R"})
    assert repr(webhook) == "<Webhook to https://example.com:8443>"


def test_what_json_does_not_know_is_sent_as_text(receiver: Receiver) -> None:
    async def story() -> None:
        await Webhook(receiver.url)(
            Notice(**{**{f: getattr(NOTICE, f) for f in NOTICE.__struct_fields__}, "context": {"x": 1j}})
        )

    asyncio.run(story())
    assert json.loads(receiver.got[0][2])["context"] == {"x": "1j"}


def test_the_console_gets_two_plain_lines_with_the_link(capsys: pytest.CaptureFixture[str]) -> None:
    console(NOTICE)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "everstep: approval 'approve' of run A17 (expense) waits until 2030-01-04 09:00:00 UTC: Pay it?",
        f"  {LINK}",
    ]


def test_the_console_names_the_command_if_there_is_no_link(capsys: pytest.CaptureFixture[str]) -> None:
    console(Notice(wait_id="w-1", run_id="A17", flow="f", node="n", kind="question", prompt="a\nb\x1b[31m"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["everstep: question 'n' of run A17 (f) waits: a b [31m", "  everstep answer w-1"]


def told(notifiers: Notifiers, *aliases: str) -> list[tuple[str, str]]:
    return [(alias, error) for alias, error in asyncio.run(notifiers.tell(aliases, NOTICE))]


def test_functions_of_every_kind_are_called_once_each() -> None:
    seen: list[str] = []
    threads: set[str] = set()

    def plain(notice: Notice) -> None:
        seen.append("plain")
        threads.add(threading.current_thread().name)

    async def waiting(notice: Notice) -> None:
        await asyncio.sleep(0)
        seen.append("async")

    class Object:
        async def __call__(self, notice: Notice) -> None:
            seen.append("object")

    async def named(name: str, notice: Notice) -> None:
        seen.append(name)

    notifiers = Notifiers(
        {
            "a": plain,
            "b": waiting,
            "c": Object(),
            "d": functools.partial(named, "partial"),
            "e": lambda notice: named("lambda", notice),
        },
        RealSystem(ManualClock()),
    )
    assert told(notifiers, "a", "b", "c", "d", "e", "a") == []
    assert sorted(seen) == ["async", "lambda", "object", "partial", "plain"]
    assert threading.current_thread().name not in threads


def test_one_that_fails_keeps_no_other_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def fails(notice: Notice) -> None:
        raise OSError(f"could not POST {notice.link}\nwith {notice.token}")

    def works(notice: Notice) -> None:
        seen.append(notice.wait_id)

    failures = told(
        Notifiers({"bad": fails, "good": works}, RealSystem(ManualClock())), "bad", "good", "godo"
    )
    assert seen == ["w-1"]
    assert failures == [
        ("bad", "OSError: could not POST <link> with et_…"),
        (
            "godo",
            "UnknownNotifier: this host has no notifier 'godo'. Did you mean 'good'? It has 'bad', 'good'.",
        ),
    ]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "'bad' failed for wait w-1" in caplog.text
    assert TOKEN not in caplog.text


def test_a_webhook_that_fails_is_reported_without_secrets(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [(500, {})]
    clock = ManualClock(auto=True)
    start = clock.now()
    hook = Webhook(f"{receiver.url}/T0K3N", secret=SECRET, headers={"Authorization": "B3AR3R"})
    [(alias, error)] = told(Notifiers({"hook": hook}, RealSystem(clock)), "hook")
    assert (alias, error) == ("hook", f"NotifyFailed: {receiver.url} answered 500 (tried 3 times).")
    assert clock.now() - start == timedelta(seconds=1.5)
    assert not any(secret in caplog.text for secret in ("T0K3N", "B3AR3R", SECRET, TOKEN))


def test_a_webhook_keeps_a_clock_of_its_own(receiver: Receiver) -> None:
    receiver.answers = [(500, {}), (200, {})]
    own, hosts = ManualClock(auto=True), ManualClock()
    assert told(Notifiers({"hook": Webhook(receiver.url, clock=own)}, RealSystem(hosts)), "hook") == []
    assert own.now() > hosts.now()


def test_an_unknown_alias_is_refused_with_those_that_there_are() -> None:
    assert Notifiers({"finance": console}, RealSystem(ManualClock())).of("finance") is console
    with pytest.raises(UnknownNotifier) as caught:
        Notifiers({"finance": console}, RealSystem(ManualClock())).of("finanse")
    assert caught.value.fix == "Did you mean 'finance'? It has 'finance'."
    with pytest.raises(UnknownNotifier) as caught:
        Notifiers({}, RealSystem(ManualClock())).of("finance")
    assert caught.value.fix == "It has none; give the host notifiers={'finance': ...}."


@pytest.mark.parametrize("odd", [{"": console}, {"a": 5}, {5: console}])
def test_what_is_no_notifier_is_refused_at_once(odd: Any) -> None:
    with pytest.raises(BadRequest):
        Notifiers(odd, RealSystem(ManualClock()))


def test_users_import_them_from_one_module() -> None:
    assert notify.__all__ == sorted(notify.__all__)
    assert (notify.console, notify.Webhook, notify.verify) == (console, Webhook, verify)
