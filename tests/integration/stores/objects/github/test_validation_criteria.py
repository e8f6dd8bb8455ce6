"""The six checks that a specification of checkpoints in a repository names, against a real HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from everstep import Host, Retention
from everstep.errors import LeaseConflict
from everstep.model.enums import Status
from everstep.stores.objects.github.api import ATTEMPTS
from everstep.stores.objects.github.bucket import blob_name
from tests.integration.stores.objects.github.hosting import Repository, chain, hosted, low
from tests.integration.stores.objects.github.meddling import Meddler, pair_at, quota, says
from tests.servers.github import new_token


@pytest.fixture
def repository(github_url: str, github_token: str) -> Iterator[Repository]:
    found = Repository(github_url, github_token)
    yield found
    found.close()


def is_whole(host: Host, run_id: str) -> bool:
    [found] = host.storage.verify(run_id)
    return not found.flaws and not found.spool_problem


def test_write_a_checkpoint_and_it_appears_in_the_repository(github_url, github_token, tmp_path, repository):
    with hosted(github_url, github_token, tmp_path) as (host, _):
        result = host.run(chain(3), {"v0": 1}, run_id="W")
        assert result["v3"] == 4
        ids = [record.checkpoint_id for record in host.history("W")]
    assert [record.checkpoint_id for entry in repository.entries("W") for record in entry.records] == ids
    said = repository.messages()
    assert all(any(message.startswith(f"Checkpoint {one}\n") for message in said) for one in ids)
    files = repository.paths("checkpoints/W/")
    assert files[-2:] == ["checkpoints/W/index.json", "checkpoints/W/latest.json"]
    assert len(files) == len(ids) + 2
    latest, index = (repository.json(f"checkpoints/W/{name}.json") for name in ("latest", "index"))
    assert (latest["checkpoint_id"], latest["status"]) == (ids[-1], "completed")
    assert [row["checkpoint_id"] for row in index["checkpoints"]] == ids
    assert all(
        repository.json(row["file_path"])["checkpoint_id"] == row["checkpoint_id"]
        for row in index["checkpoints"]
    )


def test_verify_a_checkpoint_is_read_back_and_compared_before_it_counts(
    github_url, github_token, tmp_path, repository
):
    garbled: list[str] = []
    holder: list[Meddler] = []

    def garbling(request: httpx2.Request) -> httpx2.Response | None:
        """Lose half of one record on its way into the repository, and say nothing of it."""
        if request.method != "PUT" or not request.url.path.endswith("/log/0000000002") or garbled:
            return None
        garbled.append(request.url.path)
        body = json.loads(request.content)
        body["content"] = body["content"][: len(body["content"]) // 8 * 4]
        headers = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
        return holder[0].pass_on(httpx2.Request("PUT", request.url, json=body, headers=headers))

    with hosted(github_url, github_token, tmp_path, garbling) as (host, meddler):
        holder.append(meddler)
        assert host.run(chain(2), {"v0": 1}, run_id="V")["v2"] == 3
        assert is_whole(host, "V")
    assert garbled
    places = [path for method, path, status in meddler.calls if method == "PUT" and "/log/" in path]
    for path in set(places):
        at = max(k for k, call in enumerate(meddler.calls) if call[:2] == ("PUT", path))
        assert meddler.calls[at + 1] == ("GET", path, 200)
    assert places.count(garbled[0]) == 2
    assert len(repository.entries("V")) == 3  # each decodes, and its sum is right


def test_rate_limit_low_and_checkpoints_share_files(github_url, github_token, tmp_path, repository, caplog):
    left = [5000]
    holder: list[Meddler] = []
    rule = low(lambda: holder[0], lambda: left[0])
    flow = chain(25, {3: lambda: left.__setitem__(0, 60)})
    with hosted(github_url, github_token, tmp_path, rule) as (host, meddler):
        holder.append(meddler)
        result = host.run(flow, {"v0": 0}, run_id="L")
        assert (result["v25"], result.spooled) == (25, 0)
        sequences = [record.sequence for record in host.history("L")]
    sizes = [len(entry.records) for entry in repository.entries("L")]
    assert sum(sizes) == len(sequences) == sequences[-1]
    assert max(sizes) == 10
    assert len(sizes) < 10
    assert "60 calls left" in caplog.text
    batches = repository.paths("checkpoints/L/batch_")
    assert batches
    told = repository.json(batches[0])
    about = told["batch_metadata"]
    assert (
        about["checkpoint_count"]
        == len(told["checkpoints"])
        == about["last_sequence"] - about["first_sequence"] + 1
    )
    assert batches[0].endswith(f"batch_{about['first_sequence']:03d}_{about['last_sequence']:03d}.json")
    index = repository.json("checkpoints/L/index.json")
    assert [row["sequence"] for row in index["checkpoints"]] == sequences


def test_rate_limit_used_up_and_the_run_goes_on_and_is_written_later(
    github_url, github_token, tmp_path, repository
):
    is_closed = [False]

    def closed(request: httpx2.Request) -> httpx2.Response | None:
        return says(403, "API rate limit exceeded for user.", quota(0, 2400)) if is_closed[0] else None

    flow = chain(6, {2: lambda: is_closed.__setitem__(0, True)})
    with hosted(github_url, github_token, tmp_path, closed) as (host, meddler):
        result = host.run(flow, {"v0": 0}, run_id="X")
        assert (result.status, result["v6"]) == (Status.COMPLETED, 6)
        assert result.spooled > 0
        refused = sum(1 for *_, status in meddler.calls if status == 403)
        assert refused <= ATTEMPTS  # it was not asked again and again
        assert len(repository.entries("X")) == 3
    is_closed[0] = False
    with hosted(github_url, github_token, tmp_path) as (host, _):
        [drained] = host.storage.drain()
        assert (drained.run_id, drained.checkpoints, drained.fork) == ("X", result.spooled, None)
        assert host.run(flow, {"v0": 0}, run_id="X")["v6"] == 6
        assert is_whole(host, "X")
    assert len(repository.entries("X")[-1].records) == result.spooled  # in one file


def test_resume_after_a_failure_goes_on_from_the_last_checkpoint(
    github_url, github_token, tmp_path, repository
):
    calls: list[int] = []
    fails = [True]

    def once() -> None:
        calls.append(1)
        if fails[0]:
            raise RuntimeError("the machine broke")

    first: list[int] = []
    flow = chain(4, {0: lambda: first.append(1), 2: once})
    with hosted(github_url, github_token, tmp_path / "here") as (host, _):
        assert host.run(flow, {"v0": 1}, run_id="R").status is Status.FAILED
    fails[0] = False
    with hosted(github_url, github_token, tmp_path / "elsewhere") as (host, _):
        assert host.resume("R", flow)["v4"] == 5
    assert (len(first), len(calls)) == (1, 2)
    assert repository.json("checkpoints/R/latest.json")["status"] == "completed"


def test_conflict_of_concurrent_writes_has_one_winner_and_loses_nothing(
    github_url, github_token, tmp_path, repository
):
    flow, everybody = chain(3), threading.Barrier(3)

    def drive(k: int) -> str:
        with hosted(github_url, github_token, tmp_path / str(k)) as (host, _):
            everybody.wait()
            try:
                return str(host.run(flow, {"v0": 1}, run_id="C").status.value)
            except LeaseConflict:
                return "conflict"

    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(drive, range(3)))
    assert "completed" in ended
    assert set(ended) <= {"completed", "conflict"}
    sequences = [record.sequence for entry in repository.entries("C") for record in entry.records]
    assert sequences == [1, 2, 3, 4]
    with hosted(github_url, github_token, tmp_path) as (host, _):
        assert is_whole(host, "C")


def test_conflict_on_a_branch_that_others_commit_to_is_tried_again(
    github_url, github_token, tmp_path, repository
):
    """Another client commits between any two of our writes, as GitHub answers it: 409."""
    seen: set[str] = set()

    def overtaken(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "PUT" or request.url.path in seen:
            return None
        seen.add(request.url.path)
        return says(409, "main is at 1234567 but expected 7654321")

    with hosted(github_url, github_token, tmp_path, overtaken) as (host, _):
        assert host.run(chain(2), {"v0": 1}, run_id="B")["v2"] == 3
        assert is_whole(host, "B")
    assert len(seen) >= 4


def test_conflict_on_derived_files_is_merged(github_url, github_token, tmp_path, repository):
    """Two runs tell of themselves in one commit each; neither loses the files of the other."""
    flow, both = chain(2), threading.Barrier(2)

    def drive(k: int) -> None:
        with hosted(github_url, github_token, tmp_path / str(k)) as (host, _):
            both.wait()
            host.run(flow, {"v0": 1}, run_id=f"D{k}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(drive, range(2)))
    for k in range(2):
        assert repository.json(f"checkpoints/D{k}/index.json")["checkpoint_count"] == 3


def test_a_swap_never_puts_old_bytes_over_new_ones(github_url, github_token):
    one, first = pair_at(github_url, github_token)
    other, second = pair_at(github_url, github_token)
    one.put("x", b"0")
    tag = blob_name(b"0")
    assert other.swap("x", b"theirs", tag)
    assert not one.swap("x", b"ours", tag)
    assert one.get("x") == (b"theirs", blob_name(b"theirs"))
    for bucket in (one, other):
        bucket.close()
    first.close()
    second.close()


def test_retention_keeps_some_runs_whole_of_others_the_last_checkpoint_and_of_older_a_summary(
    github_url, github_token, tmp_path, repository
):
    check_tiers(github_url, github_token, tmp_path, repository, runs=6, whole=2, last=4)


@pytest.mark.soak
def test_retention_of_sixty_runs_keeps_ten_whole_forty_last_checkpoints_and_ten_summaries(
    github_url, github_token, tmp_path, repository
):
    check_tiers(github_url, github_token, tmp_path, repository, runs=60, whole=10, last=50)


def check_tiers(
    url: str, token: str, spool: Path, repository: Repository, *, runs: int, whole: int, last: int
) -> None:
    """Make runs, one of which is pinned, apply the tiers, and look at what is left."""
    flow, ids = chain(1), [f"run-{number:02}" for number in range(runs)]
    oldest, middle, newest = ids[: runs - last], ids[runs - last : runs - whole], ids[runs - whole :]
    with hosted(url, new_token(), spool) as (host, _):
        for number, run_id in enumerate(ids):
            host.run(flow, {"v0": number}, run_id=run_id)
        host.retention.pin(oldest[0], "it failed in an interesting way")
    with hosted(url, token, spool) as (host, _):
        assert not host.retention.gc(retention=Retention.tiers(whole, last)).problems
        assert {info.run_id for info in host.runs(limit=100)} == {oldest[0], *middle, *newest}
        gone = {removed.run_id: removed.summary for removed in host.retention.removed()}
        assert host.run(flow, run_id=middle[0])["v1"] == runs - last + 1
        assert is_whole(host, middle[0])
    assert set(gone) == set(oldest[1:])
    assert all(told is not None and told.final_status == "completed" for told in gone.values())
    files = {run_id: names_in(repository.paths(f"checkpoints/{run_id}/")) for run_id in ids}
    assert all(files[run_id] == [] for run_id in gone)
    all_of_it = ["cp_001_admission.json", "cp_002_completed.json", "index.json", "latest.json"]
    assert all(files[run_id] == all_of_it for run_id in (*newest, oldest[0]))
    for run_id in middle:
        assert "latest.json" in files[run_id]
        assert not {"cp_001_admission.json", "cp_002_completed.json"} & set(files[run_id])


def names_in(paths: list[str]) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in paths)
