"""A mail server on loopback, as far as a client needs one: it speaks SMTP and keeps what it gets."""

from __future__ import annotations

import socketserver
from email import message_from_bytes, policy
from email.message import EmailMessage


class MailServer(socketserver.ThreadingTCPServer):
    """Takes mail, or answers the first command of each connection with an error while it is unwell."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[tuple[str, list[str], EmailMessage]] = []
        """From whom, to whom, and what."""
        self.unwell = 0
        """So many connections are turned away."""
        self.refused: set[str] = set()
        """Addresses that it does not know."""

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Session(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        if self.server.unwell:
            self.server.unwell -= 1
            self._say("421 mail.test is busy")
            return
        self._say("220 mail.test ESMTP")
        sender, to = "", list[str]()
        while line := self.rfile.readline().decode().strip():
            verb = line.partition(" ")[0].upper()
            if verb in ("EHLO", "HELO"):
                self._say("250-mail.test", "250 8BITMIME")
            elif verb == "MAIL":
                sender, to = _address(line), []
                self._say("250 OK")
            elif verb == "RCPT" and _address(line) in self.server.refused:
                self._say("550 no such mailbox")
            elif verb == "RCPT":
                to.append(_address(line))
                self._say("250 OK")
            elif verb == "DATA":
                self._say("354 go on")
                self.server.mails.append((sender, to, self._body()))
                self._say("250 kept")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 OK" if verb == "RSET" else "502 not known")

    def _body(self) -> EmailMessage:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line[1:] if line.startswith(b"..") else line)
        return message_from_bytes(b"".join(lines), policy=policy.default)

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]
