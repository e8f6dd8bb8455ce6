"""What a store keeps of a wait beside the chain, encrypted where payloads are: what is asked, and the answer.

It is bound to the id of the wait, which stays when a run's last checkpoints become a fork.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.payload import AES_GCM, FORMAT, HEADER, body_of, layers_of
from everstep.errors import EverstepError, KeyUnavailable, StateCorrupted
from everstep.model.acts import Act
from everstep.model.waits import EVENT_KIND, LISTENING, SIGNAL_KIND, SettledBy, WaitRow

_details = msgspec.json.Decoder(dict[str, Any])
_answers = msgspec.json.Decoder()
_acts = msgspec.json.Decoder(Act)
DETAILS = b"details"
ANSWER = b"answer"
STOP = b"signal"
INBOX = b"inbox"
EVENT = b"event"
EVENTS = "@events"
"""What the values of events are bound to, as they are for any wait that they match."""
DUE = "due_at"
FIRED = "fired"
"""What encrypted details say of the time of a wait besides the column, which others can write."""
TOKEN = "token"
"""What the details of a wait call the notes of its token."""
_SKEW = timedelta(minutes=1)
"""By how much the clocks of a store and of a host may differ."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signal or an event as it is kept: what was sent, by whom, and under which id."""

    id: str
    name: str
    value: Any = None
    act: Act | None = None


_messages = msgspec.json.Decoder(Message)


def close_signal(codecs: Codecs, run_id: str, message: Message) -> bytes:
    """Return a signal as the store keeps it, in the inbox and as the answer of a wait."""
    return close_note(codecs, run_id, INBOX, msgspec.json.encode(message))


def open_signal(codecs: Codecs, run_id: str, note: bytes) -> Message:
    """Return a signal as it was sent; `StateCorrupted` if it was altered, or another run's."""
    return _message(run_id, _plain_signal(codecs, run_id, note))


def _plain_signal(codecs: Codecs, run_id: str, note: bytes) -> bytes:
    if codecs.encrypts and not _is_closed(note) and not codecs.believes_plain_answers:
        raise StateCorrupted(f"a signal of run {run_id!r} is not encrypted, and this host has keys.")
    return _open(codecs, run_id, INBOX, note)


def _message(run_id: str, note: bytes) -> Message:
    try:
        return _messages.decode(note)
    except msgspec.DecodeError as error:
        raise StateCorrupted(f"a signal of run {run_id!r} was altered: {error}.") from error


def close_event(codecs: Codecs, message: Message) -> bytes:
    """Return an event as the store keeps it, by itself and as the answer of waits."""
    return close_note(codecs, EVENTS, EVENT, msgspec.json.encode(message))


def message_of(row: WaitRow) -> Message | None:
    """Return what settled a wait for a signal or an event, of a row that was opened; none of others."""
    if row.kind not in LISTENING or row.answer is None:
        return None
    return _messages.decode(row.answer)


def _place_of_answer(row: WaitRow) -> tuple[str, bytes]:
    """Return what the answer of a wait is bound to: its own id, or that for which the value was sent."""
    if row.kind == SIGNAL_KIND:
        return row.run_id, INBOX
    return (EVENTS, EVENT) if row.kind == EVENT_KIND else (row.wait_id, ANSWER)


def close_note(codecs: Codecs, wait_id: str, what: bytes, note: bytes) -> bytes:
    """Return JSON as the store keeps it."""
    return codecs.close(HEADER + note, wait_id, what) if codecs.encrypts else note


def open_wait(codecs: Codecs, row: WaitRow) -> WaitRow:
    """Return a wait with what is asked and the answer as JSON."""
    details = _open(codecs, row.wait_id, DETAILS, row.details)
    answer = None if row.answer is None else _open(codecs, *_place_of_answer(row), row.answer)
    _check(row.wait_id, details, answer)
    if (details, answer) == (row.details, row.answer):
        return row
    return msgspec.structs.replace(row, details=details, answer=answer)


def open_settled(codecs: Codecs, row: WaitRow, now: datetime) -> WaitRow:
    """Return a settled wait as `open_wait`, for its run to go on with.

    Where there are keys, those who can only write to the store settle nothing: an answer counts if it is
    encrypted, and the clock counts if the time is over that was encrypted with the question.
    """
    plain = open_wait(codecs, row)
    if not codecs.encrypts:
        return plain
    is_sealed = _is_closed(row.details)
    if row.answer is not None and not _is_closed(row.answer):
        if is_sealed or not codecs.believes_plain_answers:
            raise StateCorrupted(
                f"the answer of wait {row.wait_id} is not encrypted, and this host has keys.",
                fix="If it was given before there was a key: resume the run with KeyRing(required=False), or "
                "EVERSTEP_ENCRYPT_REQUIRED=0.",
            )
    elif row.settled_by is SettledBy.CLOCK and is_sealed:
        said = _details.decode(plain.details)
        due = said.get(DUE)
        if DUE in said and not said.get(FIRED) and (due is None or _moment(due) > now + _SKEW):
            raise StateCorrupted(f"the time of wait {row.wait_id} was altered: it was not over yet.")
    return plain


def sealed_due(codecs: Codecs, details: bytes, due_at: datetime | None) -> bytes:
    """Return what a wait asks together with its time, where that is to be encrypted with it."""
    if not codecs.encrypts:
        return details
    due = due_at.isoformat() if due_at is not None else None
    return msgspec.json.encode({**_details.decode(details), DUE: due})


def due_anew(codecs: Codecs, row: WaitRow, due_at: datetime | None) -> bytes | None:
    """Return what a store is to keep of a wait that gets another time; none if it stays as it is."""
    if not codecs.encrypts or not _is_closed(row.details):
        return None
    noted = sealed_due(codecs, open_wait(codecs, row).details, due_at)
    return close_note(codecs, row.wait_id, DETAILS, noted)


def fired_note(codecs: Codecs, row: WaitRow, more: dict[str, Any]) -> bytes | None:
    """Return what a store is to keep of a wait whose time is declared over; none if it stays as it is."""
    is_sealed = codecs.encrypts and _is_closed(row.details)
    if not is_sealed and not more:
        return None
    noted = {
        **_details.decode(open_wait(codecs, row).details),
        **more,
        **({FIRED: True} if is_sealed else {}),
    }
    return close_note(codecs, row.wait_id, DETAILS, msgspec.json.encode(noted))


def token_note(codecs: Codecs, row: WaitRow, metadata: dict[str, Any] | None) -> bytes | msgspec.UnsetType:
    """Return what a store is to keep of a wait whose new token has these notes; unset if it stays."""
    try:
        plain = _details.decode(open_wait(codecs, row).details)
    except KeyUnavailable:
        if metadata is not None:
            raise
        return msgspec.UNSET  # who lacks the key may still make a token
    if plain.get(TOKEN) == metadata:
        return msgspec.UNSET
    noted = {name: said for name, said in plain.items() if name != TOKEN}
    if metadata is not None:
        noted[TOKEN] = metadata
    return close_note(codecs, row.wait_id, DETAILS, msgspec.json.encode(noted))


def _moment(text: Any) -> datetime:
    return msgspec.convert(text, datetime)


def look_at_wait(codecs: Codecs, row: WaitRow) -> WaitRow:
    """Return a wait as `open_wait`, or one that says so if it cannot be read or the key is not at hand."""
    try:
        return open_wait(codecs, row)
    except KeyUnavailable as error:
        said = f"(encrypted with the key {error.details.get('key_id')!r})"
    except EverstepError as error:
        said = f"(cannot be read: {error.message})"
    return msgspec.structs.replace(row, details=msgspec.json.encode({"prompt": said}), answer=None)


def wait_anew(codecs: Codecs, row: WaitRow) -> tuple[bytes, bytes | None] | None:
    """Return what a store keeps of a wait encrypted with the active key; none if it is already."""
    place, what = _place_of_answer(row)
    notes = [(row.wait_id, row.details)] + ([] if row.answer is None else [(place, row.answer)])
    if all(_is_closed(note) and codecs.is_current(note, bound) for bound, note in notes):
        return None
    if row.answer is not None and _is_closed(row.details) and not _is_closed(row.answer):
        raise StateCorrupted(f"the answer of wait {row.wait_id} is not encrypted, though its question is.")
    plain = open_wait(codecs, row)
    answer = None if plain.answer is None else close_note(codecs, place, what, plain.answer)
    return close_note(codecs, row.wait_id, DETAILS, plain.details), answer


def signal_anew(codecs: Codecs, run_id: str, note: bytes) -> bytes | None:
    """Return what a store keeps of a signal encrypted with the active key; none if it is already."""
    if _is_closed(note) and codecs.is_current(note, run_id):
        return None
    plain = _plain_signal(codecs, run_id, note)
    _message(run_id, plain)
    return close_note(codecs, run_id, INBOX, plain)


def close_act(codecs: Codecs, run_id: str, act: Act) -> bytes:
    """Return who asked a run to stop as the store keeps it."""
    return close_note(codecs, run_id, STOP, msgspec.json.encode(act))


def look_at_act(codecs: Codecs, run_id: str, note: bytes) -> Act | None:
    """Return who asked a run to stop; none if that cannot be read here: the request counts all the same."""
    try:
        return _acts.decode(_open(codecs, run_id, STOP, note))
    except (EverstepError, msgspec.DecodeError, ValueError):
        return None


def _check(wait_id: str, details: bytes, answer: bytes | None) -> None:
    """Raise unless what was kept of a wait is what was written at least by its shape."""
    try:
        _details.decode(details)
        if answer is not None:
            _answers.decode(answer)
    except (msgspec.DecodeError, ValueError) as error:  # of text that is none, too
        raise StateCorrupted(f"what wait {wait_id} asks or was answered was altered: {error}.") from error


def _open(codecs: Codecs, wait_id: str, what: bytes, note: bytes) -> bytes:
    if not _is_closed(note):
        if not codecs.requires_key:
            return note
        note = HEADER + note
    where = f"{what.decode()} of wait {wait_id}"
    if AES_GCM not in [layer.codec for layer in layers_of(note, where)[0][-1:]] and not codecs.requires_key:
        raise StateCorrupted(f"{where} was altered.")  # what is not encrypted is kept as it is
    return bytes(body_of(codecs.open(note, wait_id, what, where, None), where))


def is_plain(note: bytes) -> bool:
    """True if what a store keeps beside a chain is JSON as it is."""
    return not _is_closed(note)


def _is_closed(note: bytes) -> bool:
    return note[:1] == bytes((FORMAT,))  # with which no JSON begins
