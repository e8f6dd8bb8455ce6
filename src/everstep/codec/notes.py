"""What a store keeps of a wait beside the chain, encrypted where payloads are: what is asked, and the answer.

It is bound to the id of the wait, which stays when a run's last checkpoints become a fork.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.payload import AES_GCM, FORMAT, HEADER, body_of, layers_of
from everstep.errors import EverstepError, KeyUnavailable, StateCorrupted
from everstep.model.acts import Act
from everstep.model.waits import WaitRow

_details = msgspec.json.Decoder(dict[str, Any])
_answers = msgspec.json.Decoder()
_acts = msgspec.json.Decoder(Act)
DETAILS = b"details"
ANSWER = b"answer"
SIGNAL = b"signal"


def close_note(codecs: Codecs, wait_id: str, what: bytes, note: bytes) -> bytes:
    """Return JSON as the store keeps it."""
    return codecs.close(HEADER + note, wait_id, what) if codecs.encrypts else note


def open_wait(codecs: Codecs, row: WaitRow) -> WaitRow:
    """Return a wait with what is asked and the answer as JSON."""
    details = _open(codecs, row.wait_id, DETAILS, row.details)
    answer = None if row.answer is None else _open(codecs, row.wait_id, ANSWER, row.answer)
    _check(row.wait_id, details, answer)
    if (details, answer) == (row.details, row.answer):
        return row
    return msgspec.structs.replace(row, details=details, answer=answer)


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
    notes = [(DETAILS, row.details)] + ([] if row.answer is None else [(ANSWER, row.answer)])
    if all(_is_closed(note) and codecs.is_current(note, row.wait_id) for _, note in notes):
        return None
    plain = open_wait(codecs, row)
    answer = None if plain.answer is None else close_note(codecs, row.wait_id, ANSWER, plain.answer)
    return close_note(codecs, row.wait_id, DETAILS, plain.details), answer


def close_act(codecs: Codecs, run_id: str, act: Act) -> bytes:
    """Return who left a signal as the store keeps it."""
    return close_note(codecs, run_id, SIGNAL, msgspec.json.encode(act))


def look_at_act(codecs: Codecs, run_id: str, note: bytes) -> Act | None:
    """Return who left a signal; none if that cannot be read here, as the signal counts all the same."""
    try:
        return _acts.decode(_open(codecs, run_id, SIGNAL, note))
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


def _is_closed(note: bytes) -> bool:
    return note[:1] == bytes((FORMAT,))  # with which no JSON begins
