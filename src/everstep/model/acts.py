"""Who did something to a run, and why: what answers, decisions and commands carry."""

import re
import unicodedata
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from everstep.errors import BadRequest
from everstep.model.shapes import HIDDEN, OrNull, understood

LONGEST_NAME = 200
"""Characters of a name."""
LONGEST_COMMENT = 4000
"""Characters of a comment."""
_LINES = "\n\t"
"""The control characters that a comment may hold."""
UNSEEN: Final = (
    r"\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb" + "\U000e0000-\U000e0fff"
)
"""What is not seen in a text, or has others shown in another order than they stand in: ranges, as a regular
expression has them. Joiners and variants of signs, which words and emoji need, are not among them."""
UNSEEN_IN_NAMES: Final = UNSEEN + (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u2800\u3164\ufe00-\ufe0f\uffa0"
)
"""Besides these what makes two names of one, to the eye."""


_TOKEN = r"(et_(?=[A-Za-z0-9_-]{16})|everstep_(?=[A-Za-z0-9_-]{24}))[A-Za-z0-9_-]+"


class Known(StrEnum):
    """How a name is known."""

    CLAIMED = "claimed"
    """The caller says so."""
    AUTHENTICATED = "authenticated"
    """A token that belongs to that name says so."""
    UNNAMED = "unnamed"
    """No name was said: the audit log has a word for what let the caller in."""


BY_SERVICE_TOKEN: Final = "(service token)"
"""What the audit log calls who acts over HTTP with the token of the service, which belongs to no name."""
BY_NOTHING: Final = "(no token)"
"""What it calls the user of a machine whose service asks for no token."""
BY_LINK: Final = "(link)"
"""What it calls who answers with the token of a wait."""
BY_PROGRAM: Final = "(program)"
"""What it calls a program that says no name, of the few acts that always have a row."""
_UNNAMED = (BY_SERVICE_TOKEN, BY_NOTHING, BY_LINK, BY_PROGRAM)
"""No person can be called so."""


class Verified(str):
    """A name that a credential belongs to: an act by it is `authenticated`, by any other text `claimed`."""

    __slots__ = ()


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who did something, why, and how that is known. Nothing is kept where neither was said."""

    by: OrNull = ""
    comment: OrNull = ""
    how: Known = Known.CLAIMED
    sealed: Annotated[bytes, HIDDEN] = b""
    """Where a record is encrypted: SHA-256 of name and comment, which are kept behind the record."""


class AuditOutcome(StrEnum):
    """What came of an act."""

    DONE = "done"
    REFUSED = "refused"


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One act in the audit log. It has no values and no tokens, and outlives the run that it tells of."""

    audit_id: str
    """Made by who acts: a row that is written twice, for the reply was lost, is one row."""
    act: str
    """What was done, by the name of the call: `cancel`, `answer`."""
    by: str
    run_id: str | None = None
    about: str = ""
    """What besides the run it was done to: the id of a wait, the name of a breaker or an event."""
    how: Known = Known.CLAIMED
    comment: str = ""
    outcome: AuditOutcome = AuditOutcome.DONE
    code: str = ""
    """Of the error with which it was refused."""
    number: int = 0
    """Rises with every row; the store says it, and when the act was done."""
    at: datetime | None = None
    once: bool = False
    """True if the act is not to be done once a row of this id is there. It is not kept."""

    def details(self) -> bytes:
        """Return as JSON what has no column of its own."""
        kept = {name: getattr(self, name) for name in _DETAILS}
        return msgspec.json.encode({name: value for name, value in kept.items() if value})


_DETAILS = ("about", "how", "comment", "outcome", "code")


def without_tokens(text: str) -> str:
    """Return a text without tokens: those of waits, and those that `everstep token new` makes."""
    return re.sub(_TOKEN, r"\1…", text)


def act_of(by: str | None, comment: str | None, how: Known = Known.CLAIMED) -> Act | None:
    """Return who does something and why, checked; none if neither is said."""
    if by is None and comment is None:
        return None
    name = _checked("by", by, LONGEST_NAME, UNSEEN_IN_NAMES)
    why = _checked("comment", comment, LONGEST_COMMENT, UNSEEN, _LINES)
    if name and likeness(name) in _UNNAMED:
        raise BadRequest(f"`by` is {name!r}, which stands for who has no name.", fix="Say who you are.")
    if isinstance(by, Verified):
        how = Known.AUTHENTICATED
    return Act(name, why, how) if name or why else None


def likeness(name: str) -> str:
    """Return what names have in common that people take for the same: letters in another case or form, spaces
    and signs that are not seen count for nothing."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    seen = "".join(sign for sign in plain if unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFKC", " ".join(seen.split()))


def _checked(what: str, text: str | None, longest: int, unseen: str, besides: str = "") -> str:
    if text is None:
        return ""
    if not isinstance(text, str):
        raise BadRequest(f"`{what}` is {type(text).__name__}, not text.", fix="Give it as text.")
    text = text.replace("\r\n", "\n").strip()
    if len(text) > longest:
        raise BadRequest(
            f"`{what}` has {len(text):,} characters; at most {longest:,} are kept.", fix="Shorten it."
        )
    for sign in text:
        if unicodedata.category(sign) in ("Cc", "Cs") and sign not in besides:
            raise BadRequest(f"`{what}` holds {sign!a}, a control character.", fix="Leave it out.")
    if not text.isascii() and (found := re.search(f"[{unseen}]", text)) is not None:
        raise BadRequest(
            f"`{what}` holds {found[0]!a}, which is not seen or turns others around.", fix="Leave it out."
        )
    return text


def as_kept(by: object, comment: object) -> Act | None:
    """Return what an earlier release kept of who answered, shortened to what is kept today."""
    name = " ".join(by.split())[:LONGEST_NAME] if isinstance(by, str) else ""
    why = comment[:LONGEST_COMMENT] if isinstance(comment, str) else ""
    return Act(name, why) if name or why else None


# Pins, tombstones and marks of imported runs are one text in every store. Who wanted them stands on its last
# line, as JSON, so that older releases still show the reason first.


def with_act(reason: str, act: Act | None) -> str:
    """Return the reason of a pin, a tombstone or a mark, with who wanted it and why."""
    return f"{reason}\n{msgspec.json.encode(act).decode()}" if act is not None else one_reason(reason)


def one_reason(reason: str) -> str:
    """Return a reason that cannot be mistaken for one with a name."""
    return " ".join(reason.split("\n")) if _act_in(reason) is not None else reason


def split_act(text: str) -> tuple[str, Act | None]:
    """Return a reason, and who wanted it if that is known."""
    act = _act_in(text)
    return (text.rpartition("\n")[0], act) if act is not None else (text, None)


def _act_in(text: str) -> Act | None:
    _, line, last = text.rpartition("\n")
    if not line or not last.startswith("{"):
        return None
    try:
        return msgspec.json.decode(last, type=understood(Act))
    except (msgspec.DecodeError, ValueError):
        return None
