"""A folder in a repository as a place for named bytes, on a real HTTP server."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from everstep.errors import StateCorrupted
from everstep.runtime.system import SystemClock
from everstep.stores.objects.github import parts
from everstep.stores.objects.github.bucket import blob_name
from tests.servers.github import new_repository


def raw(url: str, token: str) -> httpx2.Client:
    """Return a client for the repository of a URL, as anybody may use."""
    parts = urlsplit(url)
    api = parse_qs(parts.query)["api"][0]
    repo = parts.path.strip("/").split("/")[0]
    return httpx2.Client(
        base_url=f"{api}/repos/{parts.netloc}/{repo}/", headers={"Authorization": f"Bearer {token}"}
    )


def test_what_is_written_comes_back_and_lies_in_the_repository(open_bucket, github_url, github_token):
    bucket, _ = open_bucket()
    data = bytes(range(256))
    assert bucket.create("runs/a/log/0000000001", data)
    found = bucket.get("runs/a/log/0000000001")
    assert found is not None
    assert (found.data, found.tag) == (data, blob_name(data))
    with raw(github_url, github_token) as client:
        file = client.get("contents/kept/runs/a/log/0000000001").json()
        assert base64.b64decode(file["content"]) == data
        message = client.get("commits").json()[0]["commit"]["message"]
    assert message == "Keep runs/a/log/0000000001\n\nkept/runs/a/log/0000000001"


def test_a_name_is_created_once(open_bucket):
    bucket, _ = open_bucket()
    assert bucket.create("a/b", b"one")
    assert not bucket.create("a/b", b"two")
    assert not bucket.create("a/b", b"one")  # the caller reads it, and sees whose it is
    assert bucket.get("a/b") == (b"one", blob_name(b"one"))


def test_of_many_who_create_one_name_at_once_one_does(open_bucket):
    buckets = [open_bucket()[0] for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for place in range(5):
            done = list(
                pool.map(lambda i: buckets[i].create(f"log/{place}", b"%d" % i), range(6))  # noqa: B023
            )
            assert sum(done) == 1
            assert buckets[0].get(f"log/{place}").data == b"%d" % done.index(True)


def test_a_swap_needs_the_tag_of_what_is_there(open_bucket):
    bucket, _ = open_bucket()
    assert not bucket.swap("x", b"new", blob_name(b"old"))
    bucket.create("x", b"old")
    assert bucket.swap("x", b"new", blob_name(b"old"))
    assert not bucket.swap("x", b"newer", blob_name(b"old"))
    assert bucket.get("x").data == b"new"
    bucket.delete(["x"])
    assert not bucket.swap("x", b"newer", blob_name(b"new"))
    assert bucket.get("x") is None


def test_a_put_does_not_ask_what_was_there(open_bucket):
    bucket, meddler = open_bucket()
    bucket.put("x", b"one")
    bucket.put("x", b"two")
    writes = meddler.count("PUT")
    bucket.put("x", b"two")
    assert bucket.get("x").data == b"two"
    assert meddler.count("PUT") == writes


def test_marks_are_names_without_bytes_and_cost_one_call_each(open_bucket):
    bucket, meddler = open_bucket()
    bucket.create("begin", b"")
    before = len(meddler.calls)
    bucket.mark(["index/a", "index/b"])
    assert len(meddler.calls) == before + 2
    bucket.mark(["index/a"])
    assert bucket.names("index/") == ["index/a", "index/b"]
    assert bucket.get("index/a").data == b""


def test_names_are_sorted_by_their_bytes_and_found_by_prefix(open_bucket):
    bucket, _ = open_bucket()
    names = ["a/b/1", "a/b/10", "a/b/2", "a/b.c", "a/b-c/1", "a/b~/1", "a/bb/1", "ab/1", "b/1"]
    bucket.mark(names)
    assert bucket.names("") == sorted(names)
    assert bucket.names("a/b/") == ["a/b/1", "a/b/10", "a/b/2"]
    assert bucket.names("a/b") == sorted(name for name in names if name.startswith("a/b"))
    assert bucket.names("a/b", after="a/b/10", limit=2) == ["a/b/2", "a/bb/1"]
    assert bucket.names("a/", after="a/b/1", limit=1) == ["a/b/10"]
    assert bucket.names("nowhere/") == []
    assert bucket.names("a/", limit=0) == []


def test_few_are_removed_one_by_one_and_many_in_one_commit(open_bucket, github_url, github_token):
    bucket, meddler = open_bucket()
    names = [f"runs/{run}/log/{place}" for run in "ab" for place in range(6)]
    bucket.mark([*names, "runs/a/kept"])
    bucket.delete(["runs/a/log/0", "runs/a/log/not-there"])
    assert meddler.count("DELETE") == 1
    with raw(github_url, github_token) as client:
        before = len(client.get("commits", params={"per_page": 100}).json())
        bucket.delete([*names, "runs/c/log/1"])
        assert len(client.get("commits", params={"per_page": 100}).json()) == before + 1
    assert bucket.names("") == ["runs/a/kept"]
    bucket.delete([*names, *names])


def test_times_and_sizes_are_those_of_the_last_commit(open_bucket, github_url, github_token):
    began = datetime.now(UTC).replace(microsecond=0)
    bucket, meddler = open_bucket()
    for number in range(5):
        bucket.create(f"blobs/{number}", b"x" * number)
    with raw(github_url, github_token) as client:
        body = {"message": "by hand", "content": base64.b64encode(b"yy").decode()}
        client.put("contents/kept/blobs/hand", json=body).raise_for_status()
    before = len(meddler.calls)
    listed = {one.name: one for one in bucket.listed("blobs/")}
    assert {name: one.size for name, one in listed.items()} == {
        **{f"blobs/{number}": number for number in range(5)},
        "blobs/hand": 2,
    }
    assert all(began <= one.modified_at <= began + timedelta(minutes=1) for one in listed.values())
    assert len(meddler.calls) - before <= 3  # the folder, a page of commits, the one that was written by hand


def test_the_time_is_that_of_the_server(open_bucket):
    bucket, _ = open_bucket(clock=SystemClock())
    before = datetime.now(UTC)
    assert abs((bucket.now() - before).total_seconds()) < 2


def test_what_is_too_large_for_a_file_is_split_and_comes_back_whole(
    open_bucket, monkeypatch, caplog, github_url, github_token
):
    monkeypatch.setattr(parts, "LARGEST", 1000)
    monkeypatch.setattr("everstep.stores.objects.github.bucket.LARGEST", 1000)
    bucket, _ = open_bucket()
    data = bytes(i % 251 for i in range(3500))
    assert bucket.create("runs/a/log/1", data)
    assert "is kept in 4 files" in caplog.text
    assert bucket.get("runs/a/log/1").data == data
    assert bucket.names("") == bucket.names("runs/") == ["runs/a/log/1"]
    assert [one.name for one in bucket.listed("runs/")] == ["runs/a/log/1"]
    with raw(github_url, github_token) as client:
        folder = client.get("contents/kept/runs/a/log/1%2B").json()
        files = client.get(f"contents/{folder[0]['path'].replace('+', '%2B')}").json()
        assert [file["size"] for file in files] == [1000, 1000, 1000, 500]
    tag = bucket.get("runs/a/log/1").tag
    assert bucket.swap("runs/a/log/1", b"small", tag)
    assert bucket.get("runs/a/log/1").data == b"small"


def test_parts_go_with_the_name_they_belong_to(open_bucket, monkeypatch, github_url, github_token):
    monkeypatch.setattr(parts, "LARGEST", 1000)
    bucket, _ = open_bucket()
    for name in ("a/1", "a/2", "b/1", "b/2", "b/3", "b/4"):
        bucket.create(name, name.encode() * 1000)
    bucket.delete(["a/1"])
    bucket.delete(["b/1", "b/2", "b/3", "b/4"])
    with raw(github_url, github_token) as client:
        tree = client.get("git/trees/main", params={"recursive": "1"}).json()["tree"]
    kept = {entry["path"].partition("+")[0] for entry in tree if entry["type"] == "blob"}
    assert {path for path in kept if path.startswith("kept/")} == {"kept/a/2"}
    assert bucket.get("a/2").data == b"a/2" * 1000


def test_a_missing_or_altered_part_is_found_out(open_bucket, monkeypatch, github_url, github_token):
    monkeypatch.setattr(parts, "LARGEST", 1000)
    bucket, _ = open_bucket()
    bucket.create("x", b"a" * 1500)
    bucket.create("y", b"b" * 1500)
    with raw(github_url, github_token) as client:
        tree = client.get("git/trees/main", params={"recursive": "1"}).json()["tree"]
        first, second = (e for e in tree if e["path"].endswith("0001"))
        url = "contents/" + first["path"].replace("+", "%2B")
        client.request("DELETE", url, json={"message": "m", "sha": first["sha"]}).raise_for_status()
        url = "contents/" + second["path"].replace("+", "%2B")
        body = {"message": "m", "sha": second["sha"], "content": base64.b64encode(b"c" * 1000).decode()}
        client.put(url, json=body).raise_for_status()
    with pytest.raises(StateCorrupted, match="is missing"):
        bucket.get("x")
    with pytest.raises(StateCorrupted, match="not what was written"):
        bucket.get("y")


def test_bytes_that_look_like_a_list_of_parts_come_back_as_they_are(open_bucket):
    bucket, _ = open_bucket()
    data = parts.pack("x", b"z" * (parts.LARGEST + 1)).content
    assert parts.parts_of("x", data) is not None
    bucket.create("x", data)
    assert bucket.get("x").data == data


def test_an_empty_repository_gets_its_first_commit(open_bucket, github_server):
    bucket, _ = open_bucket(url=new_repository(github_server, is_empty=True))
    assert bucket.names("") == []
    assert bucket.get("x") is None
    assert bucket.create("x", b"one")
    assert bucket.names("") == ["x"]


def test_a_lease_that_is_prolonged_costs_one_call(open_bucket):
    bucket, meddler = open_bucket()
    bucket.put("beats/r/1", b"until one")
    before = len(meddler.calls)
    bucket.put("beats/r/1", b"until two")
    assert len(meddler.calls) == before + 1
    other, _ = open_bucket()
    other.put("beats/r/1", b"until three")
    bucket.put("beats/r/1", b"until four")
    assert other.get("beats/r/1").data == b"until four"
    bucket.delete(["beats/r/1"])
    bucket.put("beats/r/1", b"until five")
    assert other.get("beats/r/1").data == b"until five"


def test_what_was_written_here_is_removed_in_one_call_unless_it_was_replaced(open_bucket):
    bucket, meddler = open_bucket()
    other, _ = open_bucket()
    bucket.create("a", b"one")
    bucket.create("b", b"one")
    other.put("b", b"two")
    before = len(meddler.calls)
    bucket.delete(["a"])
    assert len(meddler.calls) == before + 1
    bucket.delete(["b"])
    assert other.names("") == []
