"""Answers that a client has already are not sent again, and long ones are packed for who can unpack them."""

from __future__ import annotations

import gzip

from tests.integration.server.serving import Serving, expense, plain, served

PLAIN = {"Accept-Encoding": "identity"}
ACCEPT = {"Accept": "application/json"}


async def filled(s: Serving) -> None:
    for k in range(8):
        await s.host.run(plain, {"x": k}, run_id=f"A{k}")


@served()
async def test_what_a_client_has_is_not_sent_again_until_it_changes(s: Serving) -> None:
    await filled(s)
    first = await s.client.get("/runs", headers=PLAIN)
    tag = first.headers["etag"]
    same = await s.client.get("/runs", headers=PLAIN | {"If-None-Match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert "content-length" not in same.headers and "content-type" not in same.headers
    for said in (f"W/{tag}", f'"other", {tag}', "*"):
        again = await s.client.get("/runs", headers=PLAIN | {"If-None-Match": said})
        assert again.status_code == 304, said
    await s.host.run(plain, {"x": 9})
    changed = await s.client.get("/runs", headers=PLAIN | {"If-None-Match": tag})
    assert changed.status_code == 200 and changed.headers["etag"] != tag


@served()
async def test_long_answers_are_packed_only_for_who_asks(s: Serving) -> None:
    await filled(s)
    bare = await s.client.get("/runs", headers=PLAIN)
    assert "content-encoding" not in bare.headers and len(bare.content) > 1024
    async with s.client.stream("GET", "/runs", headers={"Accept-Encoding": "br;q=1, gzip;q=0.5"}) as packed:
        raw = b"".join([chunk async for chunk in packed.aiter_raw()])
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert int(packed.headers["content-length"]) == len(raw) < len(bare.content) / 2
    assert gzip.decompress(raw) == bare.content
    assert packed.headers["etag"] != bare.headers["etag"], "other bytes have another tag"
    for tag in (packed.headers["etag"], bare.headers["etag"]):
        same = await s.client.get("/runs", headers={"Accept-Encoding": "gzip", "If-None-Match": tag})
        assert same.status_code == 304
    refused = await s.client.get("/runs", headers={"Accept-Encoding": "gzip;q=0, br"})
    assert "content-encoding" not in refused.headers


@served()
async def test_short_answers_errors_and_pages_with_tokens_are_not_packed(s: Serving) -> None:
    waiting = await s.halted(expense, amount=1)
    for path, status in [("/healthz", 200), ("/runs/A9", 404), (f"/w/{waiting.token}", 200)]:
        response = await s.client.get(path, headers={"Accept-Encoding": "gzip"})
        assert (response.status_code, "content-encoding" in response.headers) == (status, False), path
    assert "etag" not in (await s.client.get(f"/w/{waiting.token}")).headers
    assert "etag" not in (await s.client.get("/runs/A9")).headers
    posted = await s.client.post("/runs", json={"flow": "plain", "inputs": {"x": 1}})
    assert "etag" not in posted.headers


@served()
async def test_streams_are_sent_as_they_come(s: Serving) -> None:
    await s.host.run(plain, {"x": 1}, run_id="A1")
    response = await s.client.get("/runs/A1/events", headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert not {"content-encoding", "etag"} & response.headers.keys()


@served()
async def test_the_head_of_an_answer_says_what_the_answer_says(s: Serving) -> None:
    await filled(s)
    for headers in (PLAIN, {"Accept-Encoding": "gzip"}):
        full = await s.client.get("/runs", headers=headers)
        head = await s.client.head("/runs", headers=headers)
        assert head.content == b""
        wanted = ("etag", "content-length", "content-encoding", "vary", "content-type")
        assert [head.headers.get(one) for one in wanted] == [full.headers.get(one) for one in wanted]
    tag = full.headers["etag"]
    assert (await s.client.head("/runs", headers={"If-None-Match": tag})).status_code == 304


@served()
async def test_a_drawing_that_a_client_has_packed_is_not_drawn_again(
    s: Serving,
) -> None:
    await s.host.run(expense, {"amount": 1}, run_id="A1")
    packed = {"Accept-Encoding": "gzip"}
    first = await s.client.get("/runs/A1/drawing", headers=packed)
    assert first.headers["content-encoding"] == "gzip"
    tag = first.headers["etag"]
    same = await s.client.get("/runs/A1/drawing", headers=packed | {"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
