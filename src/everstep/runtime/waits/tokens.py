"""The secrets with which outsiders answer waits. Only their hashes are kept."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from everstep.codec.chain import Codecs
from everstep.codec.notes import token_note
from everstep.errors import (
    AnswerTooLate,
    BadRequest,
    InvalidDelay,
    TokenExpired,
    TokenInvalid,
    TokenUsed,
    WaitClosed,
    WaitNotFound,
    WaitSettled,
)
from everstep.model.acts import AuditRow
from everstep.model.durations import span_of
from everstep.model.waits import SettledBy, TokenConfig, WaitChange, WaitRow, WaitStatus
from everstep.on_demand import on_demand
from everstep.ports.durability import Handle
from everstep.ports.store import CheckpointStore
from everstep.ports.system import Clock

if TYPE_CHECKING:
    from everstep.runtime.waits.voting import change_details
else:
    change_details = on_demand("everstep.runtime.waits.voting:change_details")

PREFIX: Final = "et_"
_SHORTEST_KEY: Final = 16
_LONGEST_METADATA: Final = 4096
_TOKEN: Final = rf"{PREFIX}[A-Za-z0-9_-]{{43}}"
_TRACE: Final = rf"{PREFIX}[A-Za-z0-9_-]{{16,}}"


def hash_of(token: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def looks_like_token(text: object) -> bool:
    """Say whether this is, or holds, a token, and should not be shown; no wait id does."""
    return isinstance(text, str) and (text.strip().startswith(PREFIX) or re.search(_TRACE, text) is not None)


def without_tokens(text: str) -> str:
    """Return a text with whatever looks like a token left out."""
    return re.sub(_TRACE, f"{PREFIX}…", text)


def key_of(key: str | bytes) -> bytes:
    """Return the key of a host from what its owner gave."""
    if not isinstance(key, str | bytes) or len(key) < _SHORTEST_KEY:
        raise BadRequest(
            f"the key of the host is no text of at least {_SHORTEST_KEY} characters.",
            fix="Make one with: python -c 'import secrets; print(secrets.token_hex())'",
        )
    return hashlib.sha256(key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")).digest()


class Tokens:
    """Makes tokens for waits and finds the waits of tokens.

    With a key, a token can be shown again to a holder of the key; without one it is shown once.
    """

    def __init__(
        self,
        store: CheckpointStore,
        clock: Clock,
        key: str | bytes | None = None,
        *,
        chance: Callable[[int], bytes],
        codecs: Codecs | None = None,
    ) -> None:
        self._store = store
        self._codecs = codecs or Codecs(chance)
        self._clock = clock
        self._key = key_of(key) if key is not None else None
        self._chance = chance

    def issue(self, wait_id: str, generation: int) -> str:
        """Return the token of a wait in one of its generations; without a key another one each time."""
        if self._key is None:
            secret = self._chance(32)
        else:
            message = f"everstep token 1:{wait_id}:{generation}".encode()
            secret = hmac.new(self._key, message, hashlib.sha256).digest()
        return PREFIX + base64.urlsafe_b64encode(secret).rstrip(b"=").decode()

    def shown(self, row: WaitRow) -> str | None:
        """Return the token of a wait, if this host can know it."""
        if self._key is None or row.token_hash is None:
            return None
        token = self.issue(row.wait_id, row.generation)
        return token if hmac.compare_digest(hash_of(token), row.token_hash) else None

    async def create_token(
        self, handle: Handle, config: TokenConfig, *, audit: AuditRow | None = None
    ) -> str:
        """Return a new token for an open wait; one that it had dies."""
        ttl = None if config.ttl is None else span_of(config.ttl, "ttl")
        if ttl == timedelta(0):
            raise InvalidDelay("a token with a ttl of 0s is expired at once.", fix='Give a ttl such as "3d".')
        row = await self._store.wait(handle.wait_id)
        if row is None:
            raise WaitNotFound(f"there is no wait {handle.wait_id!r}.", fix="Look with: everstep waits")
        generation = row.generation + 1
        token = self.issue(row.wait_id, generation)
        change = WaitChange(
            token_hash=hash_of(token),
            token_expires_at=None if ttl is None else self._clock.now() + ttl,
            generation=generation,
            single_use=config.single_use,
        )
        metadata = _checked_metadata(config.metadata)
        if token_note(self._codecs, row, metadata) is not msgspec.UNSET:

            def make(row: WaitRow) -> WaitChange:
                return msgspec.structs.replace(change, details=token_note(self._codecs, row, metadata))

            changed = await change_details(self._store, self._codecs, row, make, audit)
        elif audit is None:
            changed = await self._store.change_wait(row.wait_id, change)
        else:
            changed = await self._store.change_wait(row.wait_id, change, audit=audit)
        if changed is None or changed.status is not WaitStatus.OPEN:
            refuse_change(changed or row)
        return token

    async def find(self, token: str) -> WaitRow:
        """Return the wait that a token leads to.

        Of a wait that has its answer only a token for more than one use still tells.
        """
        row = await self.wait_of(token)
        if row.token_expires_at is not None and row.token_expires_at <= self._clock.now():
            raise TokenExpired(
                f"this token expired at {row.token_expires_at:%Y-%m-%d %H:%M:%S} UTC.",
                fix="Ask the operator of the flow for a new one.",
            )
        if row.status is WaitStatus.CLOSED and row.settled_at is None:
            raise WaitClosed("the run that this token belongs to no longer wants an answer.")
        if row.settled_by is SettledBy.CLOCK:
            raise too_late(row)
        if row.single_use and row.status is not WaitStatus.OPEN:
            raise TokenUsed("this token was used already, or its wait was settled otherwise.")
        return row

    async def run_of(self, token: str) -> str:
        """Return the run that a token belongs to, also once it has answered."""
        return (await self.wait_of(token)).run_id

    async def resolve_token(self, token: str) -> Handle:
        """Return what a token leads to; an error that says why if to nothing.

        It is one of `TokenInvalid`, `TokenExpired`, `TokenUsed`, `AnswerTooLate` and `WaitClosed`.
        """
        return await handle_of(self._store, await self.find(token))

    async def revoke_token(self, token: str) -> None:
        """Make a token worthless; its wait stays open.

        One for more than one use still tells of a wait that is over, and cannot be taken back then.
        """
        row = await self.wait_of(token)
        changed = await self._store.change_wait(row.wait_id, WaitChange(token_hash=None))
        if changed is not None and changed.token_hash == row.token_hash and not changed.single_use:
            refuse_change(changed)

    async def wait_of(self, token: str) -> WaitRow:
        """Return the wait that a token belongs to, also once it has answered."""
        if isinstance(token, str) and re.fullmatch(_TOKEN, token):
            token_hash = hash_of(token)
            row = await self._store.wait_of_token(token_hash)
            if row is not None and hmac.compare_digest(row.token_hash or b"", token_hash):
                return row
        raise TokenInvalid(
            "this token belongs to no wait: it is mistyped, was revoked, or was replaced by a newer one.",
            fix="Ask the operator of the flow for a new one.",
        )


async def handle_of(store: CheckpointStore, row: WaitRow) -> Handle:
    """Return what leads back to a wait, with the newest checkpoint of its run."""
    run = await store.run(row.run_id)
    newest = [] if run is None else await store.get(row.run_id, first=run.checkpoints)
    checkpoint_id = newest[-1].checkpoint_id if newest else ""
    return Handle(run_id=row.run_id, flow_id=row.flow_id, wait_id=row.wait_id, checkpoint_id=checkpoint_id)


def _checked_metadata(metadata: object) -> dict[str, Any] | None:
    if metadata is None:
        return None
    try:
        text = json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(
            f"what is said of a token is no JSON: {error}.", fix="Give a dict of plain data."
        ) from None
    if not isinstance(metadata, dict) or len(text) > _LONGEST_METADATA:
        raise BadRequest(
            "what is said of a token is no object, or too long.",
            fix=f"Give a dict of up to {_LONGEST_METADATA:,} characters as JSON.",
        )
    return metadata


def too_late(row: WaitRow) -> AnswerTooLate:
    """Return the error for an answer to a wait that its clock has settled."""
    due = "" if row.due_at is None else f", which was {row.due_at:%Y-%m-%d %H:%M:%S} UTC"
    return AnswerTooLate(
        f"wait {row.wait_id} of run {row.run_id!r} takes answers until its time{due}; it was settled by its "
        f"clock, at {row.settled_at:%Y-%m-%d %H:%M:%S} UTC.",
        fix="The run goes on with what the clock says. To ask again, fork it from before the wait.",
    )


def refuse_change(row: WaitRow) -> NoReturn:
    """Say that a wait is over, so nothing of it can be changed."""
    if row.settled_at is None:
        raise WaitClosed(f"wait {row.wait_id} of run {row.run_id!r} is closed.")
    raise WaitSettled(f"wait {row.wait_id} of run {row.run_id!r} has its answer already.")
