"""Questions that are put to a store as one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from everstep.errors import StoreError, StoreUnavailable
from everstep.stores.threads import Gathered


def ask(gathered: Gathered[str, int], *keys: str) -> list[int | BaseException]:
    async def asking() -> list[int | BaseException]:
        async with asyncio.timeout(60):
            return await asyncio.gather(*map(gathered.get, keys), return_exceptions=True)

    return asyncio.run(asking())


def test_what_is_asked_in_one_turn_is_one_question() -> None:
    asked: list[list[str]] = []

    async def lengths(keys: list[str]) -> Mapping[str, int]:
        asked.append(keys)
        return {key: len(key) for key in keys}

    assert ask(Gathered(lengths), "a", "bb", "a") == [1, 2, 1]
    assert asked == [["a", "bb"]]


def test_a_question_without_an_answer_raises_and_so_do_those_beside_it() -> None:
    async def forgetful(keys: list[str]) -> Mapping[str, int]:
        return {keys[0]: 1}

    first, second = ask(Gathered(forgetful), "a", "b")
    assert isinstance(first, KeyError) and isinstance(second, KeyError)
    assert ask(Gathered(forgetful), "a") == [1]


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()])
def test_what_the_store_raises_everyone_who_asked_hears(error: BaseException) -> None:
    async def failing(keys: list[str]) -> Mapping[str, int]:
        raise error

    assert [type(found) for found in ask(Gathered(failing), "a", "b")] == [type(error)] * 2


def test_a_question_that_cannot_be_asked_leaves_the_others_their_answers() -> None:
    async def lengths(keys: list[str]) -> dict[str, int]:
        if "bad" in keys:
            raise StoreError("out of range.")
        return {key: len(key) for key in keys}

    first, second, third = ask(Gathered(lengths), "a", "bad", "cc")
    assert (first, third) == (1, 2)
    assert isinstance(second, StoreError)


def test_a_store_that_cannot_be_reached_is_asked_once() -> None:
    asked = []

    async def silent(keys: list[str]) -> dict[str, int]:
        asked.append(keys)
        raise StoreUnavailable("no answer.")

    assert all(isinstance(answer, StoreUnavailable) for answer in ask(Gathered(silent), "a", "b"))
    assert asked == [["a", "b"]]
