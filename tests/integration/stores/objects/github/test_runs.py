"""Runs on a repository that is out of reach, refuses, or is watched by a doctor."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import httpx2
import pytest

from everstep import Flow, Host, Retention, node
from everstep.errors import BadRequest, StoreError
from everstep.model.enums import Status
from everstep.ports.health import Level
from everstep.stores.objects import readable
from everstep.stores.objects.github.scribe import GithubScribe
from everstep.testing import ManualClock
from tests.integration.stores.objects.github.hosting import Repository, chain, hosted
from tests.integration.stores.objects.github.meddling import Rule, pair_at, quota, says
from tests.servers.github import new_token


@pytest.fixture
def repository(github_url: str, github_token: str) -> Iterator[Repository]:
    found = Repository(github_url, github_token)
    yield found
    found.close()


def switched(answer: Callable[[httpx2.Request], httpx2.Response | None]) -> tuple[list[bool], Rule]:
    """Return a switch, and a rule that answers while it is on."""
    is_on = [False]
    return is_on, lambda request: answer(request) if is_on[0] else None


def broken(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("no route to host", request=request)


@pytest.mark.parametrize(
    "answer",
    [broken, lambda _: says(422, "Could not create file: repository is over quota")],
    ids=["out of reach", "full"],
)
def test_a_run_outlasts_an_outage_and_is_written_later(
    github_url, github_token, tmp_path, repository, answer
):
    is_out, rule = switched(answer)
    flow = chain(5, {2: lambda: is_out.__setitem__(0, True)})
    with hosted(github_url, github_token, tmp_path, rule) as (host, _):
        result = host.run(flow, {"v0": 0}, run_id="O")
        assert (result.status, result["v5"]) == (Status.COMPLETED, 5)
        assert result.spooled == 3
        assert len(repository.entries("O")) == 3
        is_out[0] = False
        assert [one.checkpoints for one in host.storage.drain()] == [3]
        assert host.history("O")[-1].status is Status.COMPLETED
    assert [len(entry.records) for entry in repository.entries("O")] == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("status", "said", "match"),
    [
        (403, "Resource not accessible by personal access token", "does not allow this"),
        (401, "Bad credentials", "does not take the token"),
    ],
)
def test_a_refusal_that_is_not_about_calls_stops_the_run_and_loses_nothing(
    github_url, github_token, tmp_path, caplog, status, said, match
):
    caplog.set_level(logging.DEBUG)
    clock = ManualClock(auto=True)
    refuses, rule = switched(lambda _: says(status, said))
    flow = chain(5, {2: lambda: refuses.__setitem__(0, True)})
    with hosted(github_url, github_token, tmp_path, rule, clock=clock) as (host, _):
        with pytest.raises(StoreError, match=match) as refused:
            host.run(flow, {"v0": 0}, run_id="F")
        refuses[0] = False
    clock.advance(60)  # its lease could not be given back
    with hosted(github_url, github_token, tmp_path, clock=clock) as (host, _):
        assert host.resume("F", chain(5))["v5"] == 5
    assert github_token not in f"{refused.value!r}{refused.value.to_wire()}{caplog.text}"


def test_who_lost_the_right_to_write_is_told_so_each_time_and_goes_on_once_it_is_back(
    github_url, github_token, tmp_path
):
    refuses, rule = switched(lambda request: None if request.method == "GET" else says(403, "No, sorry"))
    flow = chain(3, {1: lambda: refuses.__setitem__(0, True)})
    with hosted(github_url, github_token, tmp_path, rule, clock=ManualClock()) as (host, _):
        for _ in range(3):
            with pytest.raises(StoreError, match="does not allow this"):
                host.run(flow, {"v0": 0}, run_id="F")
        with pytest.raises(StoreError, match="does not allow this"):
            host.resume("F", flow)
        refuses[0] = False
        assert host.resume("F", chain(3))["v3"] == 3


def test_no_run_is_accepted_while_the_quota_is_used_up(github_url, github_token, tmp_path):
    clock = ManualClock()
    rule: Rule = lambda _: says(403, "API rate limit exceeded", quota(0, 2400))  # noqa: E731
    with hosted(github_url, github_token, tmp_path, rule, clock=clock) as (host, _):
        clock.auto = True
        with pytest.raises(StoreError, match="takes no more calls"):
            host.run(chain(1), {"v0": 0}, run_id="N")


def test_a_taken_over_run_leaves_what_waited_here_as_a_fork(github_url, github_token, tmp_path):
    clock = ManualClock(auto=True)
    is_out, rule = switched(broken)
    flow = chain(4, {2: lambda: is_out.__setitem__(0, True)})
    with hosted(github_url, github_token, tmp_path / "here", rule, clock=clock) as (host, _):
        assert host.run(flow, {"v0": 0}, run_id="T").spooled > 0
        clock.advance(60)
        with hosted(github_url, github_token, tmp_path / "there", clock=clock) as (other, _):
            assert other.resume("T", chain(4))["v4"] == 4
        is_out[0] = False
        [drained] = host.storage.drain()
        assert drained.fork is not None
        assert host.info(drained.fork).parent_run_id == "T"


def test_the_doctor_tells_of_rights_branch_quota_and_readers(github_url, github_token, tmp_path):
    def telling(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "GET" or request.url.path.count("/") != 3:
            return None
        body = httpx2.get(request.url, headers={"Authorization": request.headers["authorization"]}).json()
        headers = {"x-oauth-scopes": "repo, admin:org", "date": says(200).headers["date"]} | quota(42, 600)
        return httpx2.Response(200, json=body, headers=headers)

    with hosted(github_url, github_token, tmp_path, telling) as (host, _):
        found = host.storage.doctor()
    assert (found.server, found.can_write, found.single_writer, found.durable) == ("GitHub", True, True, True)
    assert found.skew_seconds is not None
    said = {finding.text: finding.level for finding in found.findings}
    for words, level in {
        "the repository is public": Level.WARNING,
        "scopes repo, admin:org": Level.WARNING,
        "committed to main, the default branch": Level.FINE,
        "calls are left until": Level.FINE,
        "stays in the history": Level.WARNING,
    }.items():
        assert [found for text, found in said.items() if words in text] == [level], words
    assert github_token not in json.dumps([finding.text for finding in found.findings])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"archived": True}, "read-only"),
        ({"permissions": {"push": False}}, "not write to it"),
        ({"default_branch": "other"}, "the repository is empty"),
    ],
)
def test_the_doctor_finds_what_stands_in_the_way(github_url, github_token, change, words):
    def altered(request: httpx2.Request) -> httpx2.Response | None:
        if request.url.path.count("/") != 3:
            return None
        body = httpx2.get(request.url, headers={"Authorization": request.headers["authorization"]}).json()
        return httpx2.Response(200, json=body | change)

    bucket, meddler = pair_at(github_url, github_token, altered)
    assert any(words in finding.text for finding in bucket.health().findings)
    bucket.close()
    meddler.close()


def test_files_for_people_cost_few_calls_and_come_when_a_run_ends(
    github_url, github_token, tmp_path, repository
):
    with hosted(github_url, github_token, tmp_path) as (host, meddler):
        host.run(chain(10), {"v0": 0}, run_id="P")
        runs = len(meddler.calls)
    assert len(meddler.calls) - runs <= 7
    assert len(repository.paths("checkpoints/P/cp_")) == 11
    assert sum(message.startswith("Tell of P") for message in repository.messages()) == 1


def test_clean_up_costs_calls_by_what_it_removes_and_not_by_what_is_kept(github_url, tmp_path):
    flow, costs = chain(1), []
    for number in range(8):
        tiers = Retention.tiers(whole=3, last_checkpoint=6) if number else None
        with hosted(github_url, new_token(), tmp_path, retention=tiers) as (host, meddler):
            host.run(flow, {"v0": number}, run_id=f"run-{number}")
        costs.append(len(meddler.calls))
    alone = costs[0]
    assert max(costs[1:3]) <= alone + 10, "nothing is removed yet"
    assert max(costs[3:6]) <= alone + 40, "one run becomes its last checkpoint"
    assert max(costs[6:]) <= alone + 65, "and another one goes"


def test_a_file_for_people_is_no_larger_than_the_repository_takes(
    github_url, github_token, tmp_path, repository, monkeypatch
):
    monkeypatch.setattr(GithubScribe, "largest", 4000)

    @node(output="page", persist="inline")
    def fetch(v0: int) -> str:
        return "a long page " * 1000

    @node(output="title")
    def name(page: str) -> str:
        return page[:11]

    with hosted(github_url, github_token, tmp_path) as (host, _):
        host.run(Flow("pages", [fetch, name], durability="strong"), {"v0": 1}, run_id="L")
    files = {path: repository.data(path) for path in repository.paths("checkpoints/L/")}
    assert len(files) == 5 and max(map(len, files.values())) <= 4000
    [second] = [path for path in files if "/cp_002_" in path]
    written = repository.json(second)["steps"][0]["writes"]
    assert [(one["value"]["$type"], one["value"]["size"]) for one in written] == [("left_out", 12_003)]
    assert "everstep state L@2" in written[0]["value"]["text"]
    assert repository.json("checkpoints/L/latest.json")["steps"][0]["writes"][0]["value"] == "a long page"


def test_a_checkpoint_with_more_steps_than_fit_into_a_file_says_how_many(
    github_url, github_token, tmp_path, repository, monkeypatch
):
    monkeypatch.setattr(GithubScribe, "largest", 1500)
    flow = Flow("many", [*chain(20).nodes], durability="partial")
    with hosted(github_url, github_token, tmp_path) as (host, _):
        host.run(flow, {"v0": 1}, run_id="M")
    latest = repository.json("checkpoints/M/latest.json")
    assert (latest["steps"], latest["steps_left_out"]) == ([], 20)


def test_files_that_a_killed_process_did_not_write_are_written_by_clean_up(
    github_url, github_token, tmp_path, repository, monkeypatch
):
    with monkeypatch.context() as dying:
        dying.setattr(GithubScribe, "note", lambda scribe, name, data: None)
        with hosted(github_url, github_token, tmp_path) as (host, _):
            host.run(chain(2), {"v0": 0}, run_id="K")
            host.start(chain(2), {"v0": 0}, run_id="S")
    assert repository.paths("checkpoints/") == []
    with hosted(github_url, new_token(), tmp_path) as (host, _):
        assert host.retention.gc(dry_run=True).leftovers == 0
        assert host.retention.gc().leftovers == 2
    assert len(repository.paths("checkpoints/K/cp_")) == 3
    assert len(repository.paths("checkpoints/S/cp_")) == 1
    with hosted(github_url, new_token(), tmp_path) as (host, _):
        assert host.retention.gc().leftovers == 0


def test_the_newest_checkpoint_is_found_without_everstep_in_a_batch_too(github_url, github_token, tmp_path):
    is_out, rule = switched(broken)
    flow = chain(5, {2: lambda: is_out.__setitem__(0, True)})
    with hosted(github_url, github_token, tmp_path, rule) as (host, _):
        host.run(flow, {"v0": 0}, run_id="B")
        is_out[0] = False
        host.storage.drain()
    bucket, meddler = pair_at(github_url, github_token)
    told = readable.newest(bucket, "B")
    assert (told["status"], told["sequence_number"]) == ("completed", 6)
    for lost in ("latest", "index"):
        bucket.delete([f"checkpoints/B/{lost}.json"])
        assert readable.newest(bucket, "B") == told
    bucket.close()
    meddler.close()


def test_a_host_without_a_token_says_what_to_set(monkeypatch):
    for name in ("EVERSTEP_GITHUB_TOKEN", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadRequest, match="EVERSTEP_GITHUB_TOKEN"):
        Host("github://acme/flows")
