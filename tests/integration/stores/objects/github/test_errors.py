"""What a GitHub can say that the one of the tests never does: each is waited out, judged or named."""

from __future__ import annotations

import base64
import json

import httpx2
import pytest

from everstep.errors import BadRequest, StoreError, StoreNotWritable, StoreUnavailable
from everstep.stores.objects.github import tree
from everstep.stores.objects.github.address import read_address
from everstep.stores.objects.github.api import hurries
from everstep.stores.objects.github.bucket import blob_name
from everstep.testing import ManualClock
from tests.integration.stores.objects.github.meddling import NOW, always, first, pair_at, quota, says
from tests.servers.github import GUEST_TOKEN

PRIMARY = "API rate limit exceeded for user ID 1."
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


@pytest.mark.parametrize("status", [403, 429])
def test_a_quota_that_is_used_up_is_waited_for_until_five_seconds_after_the_reset(open_bucket, status):
    clock = ManualClock(auto=True)
    bucket, meddler = open_bucket(first(1, "PUT", lambda: says(status, PRIMARY, quota(0, 200))), clock=clock)
    assert bucket.create("x", b"one")
    assert clock.monotonic() == 205
    assert meddler.count("PUT") == 2


def test_a_reset_that_is_too_far_away_is_not_waited_for_and_github_is_left_alone(open_bucket):
    clock = ManualClock(auto=True)
    bucket, meddler = open_bucket(first(1, "PUT", lambda: says(403, PRIMARY, quota(0, 296))), clock=clock)
    with pytest.raises(StoreUnavailable, match="takes no more calls for 301 s") as refused:
        bucket.create("x", b"one")
    assert refused.value.details["retry_after"] == 301
    assert bucket.is_rationed
    before = len(meddler.calls)
    with pytest.raises(StoreUnavailable):
        bucket.create("x", b"one")
    assert (len(meddler.calls), clock.monotonic()) == (before, 0)
    clock.advance(301)
    assert bucket.create("x", b"one")
    assert not bucket.is_rationed


def test_the_time_to_wait_goes_by_the_clock_of_github(open_bucket):
    clock = ManualClock(auto=True)
    assert abs(clock.now().timestamp() - NOW) > 1_000_000
    bucket, _ = open_bucket(first(1, "GET", lambda: says(403, PRIMARY, quota(0, 10))), clock=clock)
    assert bucket.get("x") is None
    assert clock.monotonic() == 15


@pytest.mark.parametrize(
    ("headers", "waits"),
    [({"retry-after": "30"}, 35), ({}, 60), ({"retry-after": "Sun, 17 Mar 2030 17:47:40 GMT"}, 65)],
)
def test_a_secondary_limit_is_waited_for_as_it_asks_or_a_minute(open_bucket, headers, waits):
    clock = ManualClock(auto=True)
    bucket, _ = open_bucket(first(1, "PUT", lambda: says(403, SECONDARY, headers)), clock=clock)
    assert bucket.create("x", b"one")
    assert clock.monotonic() == waits


def test_a_secondary_limit_that_stays_is_not_asked_more_than_three_times(open_bucket):
    clock = ManualClock(auto=True)
    bucket, meddler = open_bucket(always("PUT", lambda: says(403, SECONDARY)), clock=clock)
    with pytest.raises(StoreUnavailable, match="takes no more calls"):
        bucket.create("x", b"one")
    assert meddler.count("PUT") == 3
    assert clock.monotonic() == 60 + 120


def test_who_hurries_does_not_wait_for_the_quota(open_bucket):
    clock = ManualClock(auto=True)
    bucket, _ = open_bucket(first(1, "PUT", lambda: says(403, PRIMARY, quota(0, 10))), clock=clock)
    token = hurries.set(True)
    try:
        with pytest.raises(StoreUnavailable, match="for 15 s"):
            bucket.create("x", b"one")
    finally:
        hurries.reset(token)
    assert clock.monotonic() == 0


def test_a_quota_under_a_hundred_is_said_once_and_known(open_bucket, caplog):
    def low(request: httpx2.Request) -> httpx2.Response:
        answer: httpx2.Response = meddler.pass_on(request)
        answer.headers.update(quota(99, 600) | {"date": says(200).headers["date"]})
        return answer

    clock = ManualClock()
    bucket, meddler = open_bucket(low, clock=clock)
    bucket.mark(["a", "b"])
    assert bucket.is_rationed
    assert caplog.text.count("99 calls left") == 1
    told = bucket.quota
    assert (told.last_remaining, told.last_reset, told.calls_this_run) == (99, NOW + 600, len(meddler.calls))
    clock.advance(600)
    assert not bucket.is_rationed


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda: says(403, "Resource not accessible by personal access token"), "does not allow this"),
        (lambda: says(403, "Repository was archived so is read-only."), "read-only"),
        (lambda: says(404, "Not Found"), "may not see or write"),
        (lambda: says(401, "Bad credentials"), "does not take the token"),
        (lambda: says(301, "Moved Permanently", {"location": "http://elsewhere.example/"}), "has moved"),
        (lambda: says(413, "too large"), "takes no file of this size"),
        (lambda: says(418, "teapot"), "refused a call with 418"),
        (lambda: httpx2.Response(403), "does not allow this"),
    ],
)
def test_other_refusals_fail_at_once_with_what_to_do_and_without_the_token(
    open_bucket, github_token, answer, match
):
    clock = ManualClock(auto=True)
    bucket, meddler = open_bucket(always("PUT", answer), clock=clock)
    with pytest.raises(StoreError, match=match) as refused:
        bucket.create("x", b"one")
    assert not isinstance(refused.value, StoreUnavailable)
    assert refused.value.fix
    assert github_token not in f"{refused.value!r} {refused.value.to_wire()} {refused.value.__cause__!r}"
    assert (meddler.count("PUT"), clock.monotonic()) == (1, 0)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: says(403, "Your account is over its disk quota", quota(0, 100)),
        lambda: says(422, "Could not update file: repository is over quota"),
    ],
)
def test_a_repository_that_is_full_takes_nothing_for_now(open_bucket, answer):
    clock = ManualClock(auto=True)
    bucket, meddler = open_bucket(always("PUT", answer), clock=clock)
    with pytest.raises(StoreNotWritable, match="is full") as refused:
        bucket.create("x", b"one")
    assert refused.value.fix
    assert (meddler.count("PUT"), clock.monotonic()) == (1, 0)


def test_a_branch_that_moved_is_read_again_and_tried_again(open_bucket):
    moved = "is at 1234 but expected 5678"
    bucket, meddler = open_bucket(first(2, "PUT", lambda: says(409, moved)))
    assert bucket.create("x", b"one")
    assert meddler.count("PUT") == 3
    bucket, meddler = open_bucket(first(2, "PUT", lambda: says(409, moved)))
    assert bucket.swap("x", b"two", blob_name(b"one"))
    bucket, meddler = open_bucket(first(2, "PUT", lambda: says(409, moved)))
    bucket.put("x", b"three")
    bucket, meddler = open_bucket(first(2, "DELETE", lambda: says(409, moved)))
    bucket.delete(["x"])
    assert bucket.get("x") is None


def test_a_branch_that_moves_all_the_time_is_given_up_after_three_attempts(open_bucket):
    bucket, meddler = open_bucket(always("PUT", lambda: says(409, "is at 1 but expected 2")))
    with pytest.raises(StoreUnavailable, match="could not be written in 3 attempts"):
        bucket.create("x", b"one")
    assert meddler.count("PUT") == 3
    assert bucket.get("x") is None


def test_a_conflict_on_a_name_that_another_client_took_meanwhile_is_theirs(open_bucket):
    other, _ = open_bucket()

    def overtaken(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "PUT":
            return None
        other.create("x", b"theirs")
        return says(409, "is at 1 but expected 2")

    bucket, _ = open_bucket(overtaken)
    assert not bucket.create("x", b"ours")
    assert bucket.get("x").data == b"theirs"


def test_a_removal_of_many_survives_a_branch_that_moves(open_bucket):
    bucket, meddler = open_bucket(first(2, "PATCH", lambda: says(422, "Update is not a fast forward")))
    bucket.mark([f"x/{n}" for n in range(5)])
    bucket.delete([f"x/{n}" for n in range(5)])
    assert bucket.names("x/") == []
    assert meddler.count("PATCH") == 3


@pytest.mark.parametrize("status", [500, 502, 503])
def test_reading_is_tried_again_when_the_server_stumbles(open_bucket, status):
    bucket, _ = open_bucket()
    bucket.create("x", b"one")
    bucket, _ = open_bucket(first(2, "GET", lambda: says(status)))
    assert bucket.get("x").data == b"one"
    bucket, meddler = open_bucket(always("GET", lambda: says(status)))
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        bucket.get("x")
    assert len(meddler.calls) == 3


def test_a_write_of_unknown_fate_is_never_repeated_here(open_bucket):
    def lost(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "PUT":
            return None
        meddler.pass_on(request)
        raise httpx2.ReadTimeout("the reply was lost", request=request)

    bucket, meddler = open_bucket(lost)
    with pytest.raises(StoreUnavailable, match="the reply was lost"):
        bucket.create("x", b"one")
    assert len([one for one in meddler.asked if one.method == "PUT"]) == 1
    assert bucket.get("x").data == b"one"


def test_what_shows_late_is_read_again(open_bucket):
    seen = [0]

    def late(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "GET" or not request.url.path.endswith("/x"):
            return None
        seen[0] += 1
        return says(404, "Not Found") if seen[0] < 3 else None

    bucket, meddler = open_bucket(late)
    assert bucket.create("x", b"one")
    assert meddler.count("PUT") == 1


def test_what_never_shows_is_written_three_times_and_then_not_called_written(open_bucket):
    def hidden(request: httpx2.Request) -> httpx2.Response | None:
        reads = request.method == "GET" and request.url.path.endswith("/x")
        return says(404, "Not Found") if reads else None

    bucket, meddler = open_bucket(hidden)
    with pytest.raises(StoreUnavailable, match="does not show"):
        bucket.create("x", b"one")
    assert meddler.count("PUT") == 3


def test_bytes_that_were_altered_on_the_way_back_are_read_again(open_bucket):
    left = [1]

    def altered(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "GET" or not request.url.path.endswith("/x") or not left[0]:
            return None
        left[0] -= 1
        body = json.loads(meddler.pass_on(request).content)
        return httpx2.Response(200, json=body | {"content": base64.b64encode(b"two").decode()})

    bucket, meddler = open_bucket(altered)
    assert bucket.create("x", b"one")
    assert bucket.get("x").data == b"one"
    left[0] = -1
    with pytest.raises(StoreUnavailable, match="other than it is kept"):
        bucket.get("x")


def test_bytes_that_were_kept_other_than_sent_are_written_again(open_bucket):
    left = [1]

    def garbling(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "PUT" or not left[0]:
            return None
        left[0] -= 1
        body = json.loads(request.content) | {"content": base64.b64encode(b"garbage").decode()}
        headers = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
        answer: httpx2.Response = meddler.pass_on(
            httpx2.Request("PUT", request.url, json=body, headers=headers)
        )
        return answer

    bucket, meddler = open_bucket(garbling)
    assert bucket.create("x", b"one")
    assert bucket.get("x").data == b"one"
    assert meddler.count("PUT") == 2


def test_a_file_above_a_megabyte_is_fetched_as_a_blob(open_bucket):
    data = bytes(i % 253 for i in range(1_200_000))

    def as_github_does(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "GET" or "/contents/" not in request.url.path:
            return None
        answer: httpx2.Response = meddler.pass_on(request)
        body = json.loads(answer.content)
        if answer.status_code != 200 or body["size"] < 1_000_000:
            return answer
        return httpx2.Response(200, json=body | {"content": "", "encoding": "none"})

    bucket, meddler = open_bucket(as_github_does)
    assert bucket.create("x", data)
    assert bucket.get("x") == (data, blob_name(data))
    assert any("/git/blobs/" in path for _, path, _ in meddler.calls)


def test_what_did_not_change_costs_no_quota(open_bucket):
    def tagging(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "GET":
            return None
        answer: httpx2.Response = meddler.pass_on(request)
        tag = f'"{blob_name(answer.content)}"'
        if request.headers.get("if-none-match") == tag:
            return httpx2.Response(304, headers={"etag": tag})
        answer.headers["etag"] = tag
        return answer

    bucket, meddler = open_bucket(tagging)
    bucket.create("a/x", b"one")
    assert (bucket.get("a/x").data, bucket.names("a/")) == (b"one", ["a/x"])
    before = len(meddler.calls)
    assert (bucket.get("a/x").data, bucket.names("a/")) == (b"one", ["a/x"])
    assert [status for _, _, status in meddler.calls[before:]] == [304, 304]
    bucket.put("a/x", b"two")
    bucket.mark(["a/y"])
    assert (bucket.get("a/x").data, bucket.names("a/")) == (b"two", ["a/x", "a/y"])


def test_a_folder_with_more_than_github_lists_is_read_from_its_tree(open_bucket, monkeypatch):
    monkeypatch.setattr(tree, "LISTED", 5)
    names = [f"runs/r/log/{place:010d}" for place in range(12)]

    def cutting(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "GET" or "/contents/" not in request.url.path:
            return None
        answer: httpx2.Response = meddler.pass_on(request)
        body = json.loads(answer.content)
        return answer if not isinstance(body, list) else httpx2.Response(200, json=body[:5])

    bucket, meddler = open_bucket(cutting)
    bucket.mark(names)
    assert bucket.names("runs/r/log/") == names
    assert bucket.names("runs/r/log/", after=names[7]) == names[8:]


def test_a_tree_that_is_cut_off_is_read_folder_by_folder(open_bucket):
    names = sorted(f"runs/{run}/{kind}/{n}" for run in "abc" for kind in ("log", "x") for n in range(3))

    def cutting(request: httpx2.Request) -> httpx2.Response | None:
        if "/git/trees/" not in request.url.path or "recursive" not in request.url.params:
            return None
        body = json.loads(meddler.pass_on(request).content)
        if len(body["tree"]) <= 4:
            return None
        return httpx2.Response(200, json=body | {"tree": body["tree"][:4], "truncated": True})

    bucket, meddler = open_bucket(cutting)
    bucket.mark(names)
    assert bucket.names("") == names
    before = len(meddler.calls)
    assert bucket.names("") == names
    assert len(meddler.calls) == before + 1  # trees that did not change are remembered


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_a_short_list(open_bucket):
    def cutting(request: httpx2.Request) -> httpx2.Response | None:
        if "/git/trees/" not in request.url.path:
            return None
        body = json.loads(meddler.pass_on(request).content)
        return httpx2.Response(200, json=body | {"truncated": True})

    bucket, meddler = open_bucket(cutting)
    bucket.mark(["runs/a/1"])
    with pytest.raises(StoreError, match="more than GitHub lists"):
        bucket.names("")


def test_a_missing_repository_and_a_missing_branch_are_named(github_server, github_url, open_bucket):
    bucket, _ = open_bucket(url=f"github://octocat/nowhere/x?api={github_server}")
    with pytest.raises(StoreError, match="is not there, or the token may not see"):
        bucket.get("x")
    bucket, _ = open_bucket(url=f"{github_url}&branch=nope")
    for _ in range(2):
        with pytest.raises(StoreError, match="has no branch nope"):
            bucket.create("x", b"one")
    bucket, _ = open_bucket(url=f"{github_url}&branch=main")
    assert bucket.create("x", b"one")


def test_who_may_only_read_is_told_when_it_writes(github_url):
    bucket, meddler = pair_at(github_url, GUEST_TOKEN)
    try:
        assert bucket.get("x") is None
        with pytest.raises(StoreError, match="does not allow this"):
            bucket.create("x", b"one")
    finally:
        bucket.close()
        meddler.close()


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("github://owner", "no owner and repository"),
        ("github:///repo", "no owner and repository"),
        ("github://owner/repo?token=secret", "unknown option token"),
        ("github://secret@owner/repo", "holds a login"),
        ("github://owner/repo/../x", "folder"),
        ("github://owner/repo/x+y", "folder"),
        ("github://owner/repo?branch=a..b", "branch"),
        ("github://owner/repo?timeout=never", "timeout must be 0–3600 seconds"),
        ("github://owner/repo?api=ftp://x", "no URL"),
        ("github://owner/repo?api=http://example.com", "unencrypted"),
        ("github://owner/repo?api=https://u:p@example.com", "no URL"),
        ("github://[/repo", "cannot be read"),
    ],
)
def test_a_url_that_is_none_is_refused_without_showing_a_secret(url, match):
    with pytest.raises(BadRequest, match=match) as refused:
        read_address(url, {"GITHUB_TOKEN": "t"})
    assert "secret" not in f"{refused.value!r}"


def test_the_token_comes_from_the_environment_and_is_never_shown():
    address = read_address("github://Owner/repo/a/b?branch=runs", {"GITHUB_TOKEN": "t0ken"})
    assert (address.token, address.path, address.api) == ("t0ken", "a/b", "https://api.github.com")
    both = {"GITHUB_TOKEN": "t0ken", "EVERSTEP_GITHUB_TOKEN": "0ther"}
    assert read_address("github://owner/repo", both).token == "0ther"
    assert "t0ken" not in f"{address} {address!r} {address.shown}"
    assert address.shown == "github://Owner/repo/a/b?branch=runs"
    with pytest.raises(BadRequest, match="no token"):
        read_address("github://owner/repo", {})
    with pytest.raises(BadRequest, match="not one word") as refused:
        read_address("github://owner/repo", {"GITHUB_TOKEN": "two words"})
    assert "two words" not in str(refused.value)
