"""Telling people of a wait or a run by mail, over SMTP."""

from __future__ import annotations

import asyncio
import hashlib
import smtplib
import ssl
from collections.abc import Iterable
from copy import copy
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial
from typing import Any, Final, Self

from everstep.errors import BadRequest, NotifyFailed
from everstep.model.durations import Span, seconds_of
from everstep.ports.durability import Notice
from everstep.ports.system import Clock
from everstep.runtime.drive.node_threads import apart
from everstep.runtime.system import SystemClock, spawn
from everstep.runtime.waits.notices.words import can_be_answered, lines, plain, subject

_LONGEST: Final = 3600.0
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Mail:
    """Sends a notice as a mail in plain text. Its `Message-ID` is the same each time it is sent.

    `security` is "starttls", "tls", or "none", which is for a server on this machine.
    """

    def __init__(
        self,
        host: str,
        *,
        sender: str,
        to: str | Iterable[str],
        port: int | None = None,
        user: str | None = None,
        password: str | None = None,
        security: str = "starttls",
        timeout: Span = 20.0,
        clock: Clock | None = None,
    ) -> None:
        if security not in ("starttls", "tls", "none"):
            raise BadRequest(f"security is {security!r:.40}.", fix='Use "starttls", "tls" or "none".')
        if security == "none" and host not in _LOOPBACK:
            raise BadRequest(
                f"mail to {host} would get tokens unencrypted.", fix='Use security="starttls" or "tls".'
            )
        self._host = _checked(host, "the mail server")
        self._port = port if port is not None else {"tls": 465, "starttls": 587, "none": 25}[security]
        if type(self._port) is not int or not 0 < self._port < 65_536:
            raise BadRequest(f"port is {port!r:.40}.", fix="Give the port of the mail server, such as 587.")
        self._sender = _address(sender)
        given = [to] if isinstance(to, str) else list(to)
        if not given:
            raise BadRequest("a mail has no address.", fix='Give an address: to="ops@example.com".')
        self._to = [_address(one) for one in given]
        if (user is None) != (password is None):
            raise BadRequest(
                "a mail server is given a user or a password alone.", fix="Give both, or neither."
            )
        self._login = None if user is None or password is None else (user, password)
        self._security = security
        self._timeout = seconds_of(timeout, "timeout")
        if self._timeout >= _LONGEST:
            raise BadRequest(f"timeout is {timeout!r:.60}.", fix="Give less than an hour, such as '20s'.")
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Mail by {self._host}>"

    def with_clock(self, clock: Clock) -> Self:
        """Return the same notifier on this clock, unless it has one of its own."""
        if self._clock is not None:
            return self
        twin = copy(self)
        twin._clock = clock
        return twin

    async def __call__(self, notice: Notice) -> None:
        """Send a notice, or raise `NotifyFailed`."""
        await asyncio.wrap_future(apart(spawn, partial(self._send, self.mail(notice))))

    def mail(self, notice: Notice) -> EmailMessage:
        """Return the mail of a notice."""
        mail = EmailMessage()
        mail["Subject"] = plain(subject(notice))[:200]
        mail["From"], mail["To"] = self._sender, ", ".join(self._to)
        mail["Date"] = format_datetime((self._clock or SystemClock()).now())
        mail["Message-ID"] = f"<{hashlib.sha256(notice.key.encode()).hexdigest()[:32]}@everstep>"
        mail["Auto-Submitted"] = "auto-generated"
        told = [f"{name}: {_inset(text)}" for name, text in lines(notice)]
        if notice.link is not None:
            told += ["", "Answer here:", notice.link]
        elif can_be_answered(notice):
            told += ["", f"Answer with: everstep answer {notice.wait_id}"]
        if notice.run_link is not None:
            told += ["", "The run:", notice.run_link]
        mail.set_content("\n".join(told) + "\n")
        return mail

    def _send(self, mail: EmailMessage) -> None:
        """Hand a mail to the server. Blocking. Who refuses one of several addresses refuses the mail."""
        try:
            with self._connected() as server:
                refused = server.send_message(mail, self._sender, self._to)
        except (OSError, smtplib.SMTPException) as error:
            raise NotifyFailed(
                f"{self._host} did not take the mail: {_why(error)}.", host=self._host
            ) from None
        if refused:
            raise NotifyFailed(f"{self._host} refused {len(refused)} addresses.", host=self._host)

    def _connected(self) -> smtplib.SMTP:
        context = ssl.create_default_context()
        if self._security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=self._timeout, context=context
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=self._timeout)
        try:
            if self._security == "starttls":
                server.starttls(context=context)
            if self._login is not None:
                server.login(*self._login)
        except BaseException:
            server.close()
            raise
        return server


def _why(error: Exception) -> str:
    """Return what went wrong without what the server was told."""
    code: Any = getattr(error, "smtp_code", None)
    return f"{type(error).__name__} {code}" if code is not None else type(error).__name__


def _inset(text: str) -> str:
    """Return a text whose further lines cannot be taken for lines of ours."""
    return "\n    ".join(plain(line) for line in text.splitlines())


def _checked(text: object, what: str) -> str:
    if not isinstance(text, str) or not text or not text.isprintable() or " " in text:
        raise BadRequest(f"{what} is {text!r:.60}.", fix="Give a name such as mail.example.com.")
    return text


def _address(text: object) -> str:
    if not isinstance(text, str) or "@" not in text or not text.isprintable() or "," in text:
        raise BadRequest(f"{text!r:.60} is no address for mail.", fix="Give one such as ops@example.com.")
    return text
