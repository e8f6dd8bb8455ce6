"""Tokens with names while the service goes on: whose name counts, rotation, and a file that changes."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path

import pytest

from everstep.errors import BadRequest
from everstep.server.access.roles import Principal, Role
from everstep.server.access.token_file import digest_of
from everstep.server.api.events import _stream
from tests.integration.server.access.named_callers import ALL_ROLES, bearer, entry, named, token_of
from tests.integration.server.serving import BEARER, Serving, ask_text, code_of, expense, plain

START = {"flow": "plain", "inputs": {"x": 1}}


async def status_of(s: Serving, name: str) -> int:
    return (await s.client.get("/runs", headers=bearer(name))).status_code


def write(folder: Path, text: str) -> None:
    """Put another version of the file in its place, as one should."""
    (folder / "new").write_text(text)
    (folder / "new").replace(folder / "tokens.toml")


def test_who_has_a_named_token_did_it_and_the_record_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path) as s:
            s.client.headers.update(bearer("operator"))
            await s.client.post("/runs", json={**START, "run_id": "A", "comment": "as asked"})
            first = (await s.host.history("A"))[0]
            assert first.act is not None
            assert (first.act.by, first.act.comment, first.act.how) == (
                "operator",
                "as asked",
                "authenticated",
            )
            waiting = await s.halted(expense, amount=1)
            settled = await s.client.post(f"/waits/{waiting.id}/answer", json={"approved": True})
            assert settled.json()["act"] == {"by": "operator", "comment": None, "how": "authenticated"}
            assert settled.json()["answer"]["approver"] == "operator"
            pinned = await s.client.post("/runs/A/pin", json={"by": "operator"})
            assert pinned.json()["pinned_by"]["how"] == "authenticated"

    asyncio.run(run())


def test_a_request_that_names_another_is_refused_and_does_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path) as s:
            s.client.headers.update(bearer("operator"))
            waiting = await s.halted(expense, amount=1)
            answer = {"approved": True}
            sent = [
                s.client.post("/runs", json={**START, "by": "bo"}),
                s.client.post("/runs", json=START, headers={"Everstep-By": "bo"}),
                s.client.post(f"/runs/{waiting.run_id}/cancel", json={"by": "bo"}),
                s.client.post(f"/waits/{waiting.id}/answer", json={"approved": True, "approver": "bo"}),
                s.client.post("/resume", json={"wait_id": waiting.id, "answer": answer, "by": "bo"}),
            ]
            for refused in [await one for one in sent]:
                assert refused.status_code == 400, refused.text
            assert await s.is_open(waiting)
            assert len(await s.host.runs()) == 1

    asyncio.run(run())


def test_the_token_of_the_service_is_an_admin_without_a_name(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, token="a-token-for-the-tests") as s:
            started = await s.client.post("/runs", json={**START, "run_id": "A", "by": "bo"}, headers=BEARER)
            assert started.status_code == 202
            first = (await s.host.history("A"))[0]
            assert first.act is not None
            assert (first.act.by, first.act.how) == ("bo", "claimed")
            await s.host.run(plain, run_id="A")
            assert (await s.client.delete("/runs/A", headers=BEARER)).status_code == 200
            assert await status_of(s, "viewer") == 200

    asyncio.run(run())


def test_two_tokens_of_a_name_work_until_the_old_one_is_taken_out_or_its_time_is_over(tmp_path: Path) -> None:
    def both(expires: str) -> str:
        first = f'sha256 = "{digest_of(token_of("old"))}"\nexpires = {expires}\n'
        second = f'sha256 = "{digest_of(token_of("new"))}"\n'
        head = '[tokens.ann]\nrole = "reader"\n'
        return f"{head}[[tokens.ann.hashes]]\n{first}[[tokens.ann.hashes]]\n{second}"

    async def run() -> None:
        async with named(tmp_path, both("2030-01-01T00:01:00Z")) as s:
            assert (await status_of(s, "old"), await status_of(s, "new")) == (200, 200)
            s.clock.advance(timedelta(seconds=59))
            assert await status_of(s, "old") == 200
            s.clock.advance(timedelta(seconds=1))
            late = await s.client.get("/runs", headers=bearer("old"))
            assert (*code_of(late), late.json()["message"]) == (
                401,
                "request.unauthorized",
                "the time of this token is over.",
            )
            assert await status_of(s, "new") == 200
            write(tmp_path, entry("ann", "reader", token=token_of("new")))
            s.clock.advance(timedelta(seconds=1))
            assert (await status_of(s, "old"), await status_of(s, "new")) == (401, 200)

    asyncio.run(run())


def test_a_file_that_changes_counts_within_a_second(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, entry("ann", "viewer")) as s:
            assert await status_of(s, "bo") == 401
            # Of the same length, and written in the same tick of the clock of the disk.
            (tmp_path / "tokens.toml").write_text(entry("bob", "admin", token=token_of("bo")))
            s.clock.advance(timedelta(seconds=1))
            assert (await status_of(s, "ann"), await status_of(s, "bo")) == (401, 200)

    asyncio.run(run())


def test_a_file_that_is_being_written_is_not_taken_in_before_it_has_settled(tmp_path: Path) -> None:
    whole = entry("ann", "viewer") + entry("bo", "operator", flows=("plain",))
    half = "".join(line for line in whole.splitlines(keepends=True) if not line.startswith("flows"))
    path = tmp_path / "tokens.toml"

    async def run() -> None:
        async with named(tmp_path, entry("ann", "viewer")) as s:

            def written(text: str) -> None:
                path.write_text(text)
                now = s.clock.now().timestamp()
                os.utime(path, (now, now))

            async def seen() -> int:
                response = await s.client.get("/counts", headers=bearer("bo"))
                return response.status_code

            s.clock.advance(timedelta(seconds=1))
            written(half)  # without the line that restricts bo
            assert await seen() == 401
            s.clock.advance(timedelta(seconds=0.6))
            written(whole)
            s.clock.advance(timedelta(seconds=0.6))
            assert await seen() == 401
            s.clock.advance(timedelta(seconds=1))
            assert await seen() == 403 and await status_of(s, "ann") == 200

    asyncio.run(run())


def test_a_file_from_a_machine_whose_clock_is_ahead_is_taken_in_after_two_looks(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, entry("ann", "viewer")) as s:
            write(tmp_path, entry("bo", "viewer"))
            ahead = s.clock.now().timestamp() + 3600
            os.utime(tmp_path / "tokens.toml", (ahead, ahead))
            s.clock.advance(timedelta(seconds=1))
            assert (await status_of(s, "ann"), await status_of(s, "bo")) == (200, 401)
            s.clock.advance(timedelta(seconds=1))
            assert (await status_of(s, "ann"), await status_of(s, "bo")) == (401, 200)

    asyncio.run(run())


@pytest.mark.parametrize(
    "broken",
    [
        "[tokens.ann",
        "",
        '[tokens.ann]\nrole = "boss"\nhashes = [{sha256 = "' + "0" * 64 + '"}]',
        '[tokens.ann]\nrole = "admin"\nhashes = ["' + token_of("ann") + '"]',
        None,
    ],
    ids=["cut off", "empty", "no such role", "a token itself", "gone"],
)
def test_a_file_that_cannot_be_used_leaves_the_last_one_standing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    async def run() -> None:
        async with named(tmp_path) as s:
            assert (await s.client.get("/readyz")).json() == {"status": "ready", "reason": None}
            if broken is None:
                (tmp_path / "tokens.toml").unlink()
            else:
                write(tmp_path, broken)
            for _ in range(3):
                s.clock.advance(timedelta(seconds=1))
                assert await status_of(s, "viewer") == 200
            assert [record.levelno for record in caplog.records if "tokens.toml" in record.message] == [
                logging.ERROR
            ]
            assert token_of("ann") not in caplog.text
            ready = await s.client.get("/readyz")
            assert (ready.status_code, ready.json()["reason"]) == (200, "tokens.stale")
            told = (await s.client.get("/metrics", headers=bearer("viewer"))).text
            assert "everstep_tokens_stale 1" in told.splitlines()
            write(tmp_path, entry("ann", "viewer"))
            s.clock.advance(timedelta(seconds=1))
            assert (await status_of(s, "viewer"), await status_of(s, "ann")) == (401, 200)
            assert (await s.client.get("/readyz")).json()["reason"] is None

    asyncio.run(run())


def test_requests_while_the_file_is_written_again_and_again_are_all_let_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, entry("ann", "reader")) as s:

            async def rewrite() -> None:
                for k in range(60):
                    if k % 3 == 0:
                        (tmp_path / "tokens.toml").write_text("[tokens.")  # an editor half-way
                    else:
                        write(tmp_path, entry("ann", "reader") + entry(f"other{k}", "admin"))
                    s.clock.advance(timedelta(seconds=1))
                    await asyncio.sleep(0)

            rewriting = asyncio.ensure_future(rewrite())
            statuses = []
            while not rewriting.done():
                statuses += await asyncio.gather(*(status_of(s, "ann") for _ in range(3)))
            assert set(statuses) == {200}
            assert len(statuses) > 20

    asyncio.run(run())


def test_a_stream_ends_once_its_token_is_taken_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, ALL_ROLES) as s:
            waiting = await s.halted(ask_text)
            digest = digest_of(token_of("reader"))
            reader = Principal(name="reader", role=Role.READER, credential=digest)
            source = _stream(s.app.service, s.host.follow(waiting.run_id), reader)
            seen = [await anext(source) for _ in range(4)]
            assert b"run_started" in b"".join(seen)
            write(tmp_path, ALL_ROLES.replace(digest, "0" * 64))
            s.clock.advance(timedelta(seconds=1))
            assert [chunk async for chunk in source] == []

    asyncio.run(run())


def test_a_file_that_everyone_may_write_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens.toml"

    async def run() -> None:
        file.touch(0o600)
        async with named(tmp_path) as s:
            assert "write it" not in caplog.text
            file.chmod(0o666)
            s.clock.advance(timedelta(seconds=1))
            assert await status_of(s, "viewer") == 200
            assert "every user of this machine may write it" in caplog.text
        with pytest.raises(BadRequest, match="every user of this machine may write it"):
            async with named(tmp_path):
                pass
        file.chmod(0o660)
        caplog.clear()
        async with named(tmp_path):
            assert "others than the owner" in caplog.text

    asyncio.run(run())


def test_no_token_is_in_a_log_an_error_or_a_stored_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        async with named(tmp_path, url=f"sqlite:///{tmp_path}/runs.db") as s:
            good, bad = token_of("operator"), token_of("stranger")
            s.client.headers.update(bearer("operator"))
            said = []
            for token in (good, bad):
                said += [
                    await s.client.get("/runs", headers={"Authorization": f"Bearer {token}"}),
                    await s.client.get("/runs", headers={"Authorization": token}),
                    await s.client.get("/runs", headers={"Authorization": f"Basic {token}"}),
                    await s.client.get(f"/runs/{token}"),
                    await s.client.get(f"/runs/{token}/state"),
                    await s.client.get(f"/{token}"),
                    await s.client.get(f"/waits/{token}"),
                    await s.client.get("/runs", params={"where": token}),
                    await s.client.get("/runs", params={"status": token}),
                    await s.client.get("/runs", params={token: "1"}),
                    await s.client.post("/runs", json={"flow": token}),
                    await s.client.post("/runs", json={"flow": "plain", token: 1}),
                    await s.client.post(f"/events/{token}x", json={"by": token}),
                    await s.client.post(f"/answers/{token}", json=1),
                    await s.client.get(f"/w/{token}"),
                ]
            for response in said:
                for token in (good, bad):
                    assert token[:24] not in response.text, response.request.url
                    assert token[:24] not in str(response.headers)
            assert good[:24] not in caplog.text.replace(f"GET http://localhost/{good}", "")
        kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.name.startswith("runs.db"))
        assert good.encode() not in kept
        assert bad.encode() not in kept

    logging.getLogger("httpx").setLevel(logging.WARNING)  # what a client logs of itself is not ours
    asyncio.run(run())


def test_a_refused_request_is_told_in_the_log_with_who_what_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with named(tmp_path) as s:
            await s.client.post("/runs/A17/cancel", headers=bearer("reader"))

    asyncio.run(run())
    [line] = [record.message for record in caplog.records if "refused" in record.message]
    assert line == "'reader' was refused cancel_run of 'A17': request.forbidden"
