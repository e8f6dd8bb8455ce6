"""Tokens: made, shown again, found, replaced, used up and revoked, on every store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from everstep import Flow, Host, KeyRing, wait
from everstep.errors import (
    BadRequest,
    EverstepError,
    InvalidDelay,
    TokenExpired,
    TokenInvalid,
    TokenUsed,
    WaitClosed,
    WaitNotFound,
    WaitSettled,
)
from everstep.model.waits import SettledBy, TokenConfig, WaitChange, WaitRow, WaitStatus
from everstep.ports.durability import Handle, ResumeSignalSource
from everstep.ports.store import CheckpointStore
from everstep.registry import open_store
from everstep.runtime.system import random_bytes
from everstep.runtime.waits.tokens import Tokens, hash_of, key_of, looks_like_token, without_tokens
from everstep.testing import ManualClock
from tests.integration.runtime.waits.open_waits import cancel_run, handle_of, open_wait

KEY = "a key that no one knows"
Story = Callable[["World"], Awaitable[None]]


class World:
    """A store with one open wait and its token."""

    def __init__(self, store: CheckpointStore, clock: ManualClock, key: str | None) -> None:
        self.store = store
        self.clock = clock
        self.tokens = Tokens(store, clock, key, chance=random_bytes)
        self.row: WaitRow
        self.token = ""

    async def open(self, **fields: Any) -> None:
        self.row = await open_wait(self.store, self.clock, **fields)
        self.token = await self.tokens.create_token(handle_of(self.row), TokenConfig())

    async def now(self) -> WaitRow:
        row = await self.store.wait(self.row.wait_id)
        assert row is not None
        return row

    async def settle(self) -> None:
        done, _ = await self.store.settle(self.row.wait_id, by=SettledBy.ANSWER, answer=b"1")
        assert done


@pytest.fixture(params=[KEY, None], ids=["key", "no key"])
def play(request: pytest.FixtureRequest, url: str) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def whole() -> None:
            clock = ManualClock()
            store = open_store(url, clock).store
            world = World(store, clock, request.param)
            await world.open()
            await story(world)
            await store.close()

        asyncio.run(whole())

    return run


def test_a_token_leads_to_its_wait_and_only_its_hash_is_kept(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        assert isinstance(world.tokens, ResumeSignalSource)
        row = await world.tokens.find(world.token)
        assert row == await world.now()
        assert row.token_hash == hash_of(world.token)
        assert (row.generation, row.single_use, row.token_expires_at) == (2, True, None)
        run = await world.store.run(world.row.run_id)
        assert run is not None
        [newest] = await world.store.get(run.run_id, first=run.checkpoints)
        whole = msgspec.structs.replace(handle_of(world.row), checkpoint_id=newest.checkpoint_id)
        assert await world.tokens.resolve_token(world.token) == whole
        assert world.token.encode() not in msgspec.msgpack.encode(row)

    play(story)


def test_a_token_has_256_bits_and_looks_like_one(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        others = {world.tokens.issue(world.row.wait_id, generation) for generation in range(100)}
        assert len(others) == 100
        assert {len(token) for token in others} == {46}
        assert all(looks_like_token(token) for token in others)

    play(story)


def test_a_new_token_replaces_the_old_one(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        newer = await world.tokens.create_token(handle_of(world.row), TokenConfig(single_use=False))
        assert newer != world.token
        assert not (await world.tokens.find(newer)).single_use
        assert (await world.now()).generation == 3
        with pytest.raises(TokenInvalid):
            await world.tokens.find(world.token)

    play(story)


def test_a_token_expires(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        token = await world.tokens.create_token(handle_of(world.row), TokenConfig(ttl=timedelta(hours=1)))
        world.clock.advance(timedelta(minutes=59))
        assert (await world.tokens.find(token)).wait_id == world.row.wait_id
        world.clock.advance(timedelta(minutes=1))
        with pytest.raises(TokenExpired, match="2030-01-01 01:00:00 UTC"):
            await world.tokens.find(token)
        with pytest.raises(TokenExpired):
            await world.tokens.resolve_token(token)
        without = await world.tokens.create_token(handle_of(world.row), TokenConfig())
        world.clock.advance(timedelta(days=1000))
        assert (await world.tokens.find(without)).token_expires_at is None

    play(story)


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1)])
def test_a_token_that_never_lives_is_not_made(play: Callable[[Story], None], ttl: timedelta) -> None:
    async def story(world: World) -> None:
        with pytest.raises(InvalidDelay):
            await world.tokens.create_token(handle_of(world.row), TokenConfig(ttl=ttl))
        assert await world.tokens.find(world.token)

    play(story)


def test_a_token_for_one_use_is_used_once_its_wait_is_over(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.settle()
        with pytest.raises(TokenUsed):
            await world.tokens.find(world.token)

    play(story)


@pytest.mark.parametrize("single_use", [True, False])
def test_the_token_of_a_run_that_was_cancelled_leads_nowhere(
    play: Callable[[Story], None], single_use: bool
) -> None:
    async def story(world: World) -> None:
        token = await world.tokens.create_token(handle_of(world.row), TokenConfig(single_use=single_use))
        await cancel_run(world.store, world.row)
        with pytest.raises(WaitClosed):
            await world.tokens.find(token)

    play(story)


def test_a_token_for_more_uses_still_finds_a_wait_that_is_over(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        token = await world.tokens.create_token(handle_of(world.row), TokenConfig(single_use=False))
        await world.settle()
        assert (await world.tokens.find(token)).status is WaitStatus.SETTLED
        with pytest.raises(WaitSettled):
            await world.tokens.revoke_token(token)

    play(story)


def test_a_wait_that_is_over_gets_no_new_token(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.settle()
        with pytest.raises(WaitSettled):
            await world.tokens.create_token(handle_of(world.row), TokenConfig())
        await world.open()
        await cancel_run(world.store, world.row)
        with pytest.raises(WaitClosed):
            await world.tokens.create_token(handle_of(world.row), TokenConfig())
        nowhere = Handle(run_id="r", flow_id="f", wait_id="gone")
        with pytest.raises(WaitNotFound):
            await world.tokens.create_token(nowhere, TokenConfig())

    play(story)


def test_a_revoked_token_is_worthless_and_the_wait_stays_open(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.tokens.revoke_token(world.token)
        with pytest.raises(TokenInvalid):
            await world.tokens.find(world.token)
        with pytest.raises(TokenInvalid):
            await world.tokens.revoke_token(world.token)
        row = await world.now()
        assert (row.status, row.token_hash, world.tokens.shown(row)) == (WaitStatus.OPEN, None, None)
        assert await world.tokens.create_token(handle_of(world.row), TokenConfig()) != world.token

    play(story)


def test_a_used_token_can_be_revoked_in_vain(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.settle()
        await world.tokens.revoke_token(world.token)
        with pytest.raises(TokenUsed):
            await world.tokens.find(world.token)

    play(story)


@pytest.mark.parametrize("change", [str.lower, lambda t: t[:-1], lambda t: t + "A", lambda t: " " + t])
def test_no_other_text_is_the_token(play: Callable[[Story], None], change: Callable[[str], str]) -> None:
    async def story(world: World) -> None:
        with pytest.raises(TokenInvalid):
            await world.tokens.find(change(world.token))

    play(story)


@pytest.mark.parametrize("odd", ["", "et_", "et_" + "é" * 43, "et_" + "\ud800" * 43, "A17", None, 5, b"et_"])
def test_what_is_no_token_is_invalid(play: Callable[[Story], None], odd: Any) -> None:
    async def story(world: World) -> None:
        with pytest.raises(TokenInvalid):
            await world.tokens.find(odd)

    play(story)


def test_no_error_and_no_log_holds_a_token(
    play: Callable[[Story], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        caplog.set_level(logging.DEBUG)
        old, config = world.token, TokenConfig(ttl=timedelta(hours=1))
        new = await world.tokens.create_token(handle_of(world.row), config)
        errors: list[EverstepError] = []
        for token in (old, new[:-1], new):
            try:
                await world.tokens.find(token)
            except EverstepError as error:
                errors.append(error)
            world.clock.advance(timedelta(hours=1))
        await world.settle()
        assert [type(error) for error in errors] == [TokenInvalid, TokenInvalid, TokenExpired]
        said = f"{[e.to_wire() for e in errors]} {world.tokens!r} {caplog.text}"
        assert not looks_like_token(said)
        assert KEY not in said

    play(story)


def test_the_holder_of_the_key_is_shown_a_token_again(url: str) -> None:
    async def story() -> None:
        clock = ManualClock()
        store = open_store(url, clock).store
        world = World(store, clock, KEY)
        await world.open()
        row = await world.now()
        assert world.tokens.shown(row) == world.token
        assert Tokens(store, clock, KEY, chance=random_bytes).shown(row) == world.token
        assert Tokens(store, clock, KEY + "!", chance=random_bytes).shown(row) is None
        assert Tokens(store, clock, chance=random_bytes).shown(row) is None
        unkeyed = await Tokens(store, clock, chance=random_bytes).create_token(handle_of(row), TokenConfig())
        assert world.tokens.shown(await world.now()) is None
        assert (await world.tokens.find(unkeyed)).wait_id == row.wait_id
        await store.change_wait(row.wait_id, WaitChange(token_hash=hash_of(world.token)))
        assert world.tokens.shown(await world.now()) is None
        await store.close()

    asyncio.run(story())


def test_a_key_gives_each_wait_and_generation_a_token_of_its_own() -> None:
    clock = ManualClock()
    tokens = Tokens(open_store("memory:", clock).store, clock, KEY, chance=random_bytes)
    made = {tokens.issue(wait_id, generation) for wait_id in ("a", "b", "a:1") for generation in (1, 2, 11)}
    assert len(made) == 9
    assert tokens.issue("a", 1) == tokens.issue("a", 1)


@pytest.mark.parametrize("key", ["", "short", b"", b"x" * 15, 5])
def test_a_short_key_is_refused_without_being_shown(key: Any) -> None:
    with pytest.raises(BadRequest, match="at least 16 characters") as caught:
        key_of(key)
    assert "short" not in str(caught.value)
    clock = ManualClock()
    with pytest.raises(BadRequest):
        Tokens(open_store("memory:", clock).store, clock, key, chance=random_bytes)


def test_a_key_is_text_or_bytes() -> None:
    assert key_of("k" * 16) == key_of(b"k" * 16) != key_of("k" * 17)
    assert len(key_of("é" * 5000)) == 32


def test_ids_of_waits_do_not_look_like_tokens() -> None:
    assert not looks_like_token("6f9619ff-8b86-4011-b42d-00cf4fc964ff")
    assert not looks_like_token("a net_amount")
    assert not looks_like_token(None)
    assert looks_like_token(" et_short")
    assert looks_like_token("https://example.com/w/et_" + "A" * 43)


def test_tokens_are_taken_out_of_a_text() -> None:
    assert without_tokens("POST https://x/w/et_" + "A" * 43 + " failed") == "POST https://x/w/et_… failed"
    assert without_tokens("the net_amount is 3") == "the net_amount is 3"


@pytest.mark.parametrize("keys", [None, KeyRing({"k": b"k" * 32})], ids=["plain", "encrypted"])
def test_what_is_noted_of_a_token_is_shown_with_its_wait_until_there_is_another(keys: KeyRing | None) -> None:
    with Host("memory:", encrypt=keys or False) as host:
        [asked] = host.run(Flow("f", [wait.approval("ok", context="who pays?")]), run_id="r").waits
        assert asked.token_metadata is None
        made = host.waiting.reissue(asked.id, metadata={"for": "ann"})
        assert made.token is not None
        assert host.wait(made.token).token_metadata == host.waits()[0].token_metadata == {"for": "ann"}
        assert host.wait(asked.id).context == "who pays?"
        assert host.waiting.reissue(asked.id).token_metadata is None
        for wrong in ([1], {"x": object()}, {"x": float("nan")}, {"x": "y" * 5000}):
            with pytest.raises(BadRequest, match="what is said of a token"):
                host.waiting.reissue(asked.id, metadata=wrong)  # type: ignore[arg-type]
