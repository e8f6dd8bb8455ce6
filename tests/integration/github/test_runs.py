"""Runs on a repository that is out of reach, refuses, or is watched by a doctor."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import httpx2
import pytest

from everstep import Host
from everstep.errors import BadRequest, StoreError
from everstep.model.enums import Status
from everstep.ports.health import Level
from everstep.stores.objects import readable
from everstep.testing import ManualClock
from tests.integration.github.hosting import Repository, chain, hosted
from tests.integration.github.meddling import Rule, pair_at, quota, says


@pytest.fixture
def repository(github_url: str, github_token: str) -> Iterator[Repository]:
    found = Repository(github_url, github_token)
    yield found
    found.close()


def switched(answer: Callable[[httpx2.Request], httpx2.Response]) -> tuple[list[bool], Rule]:
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
        assert [one.checkpoints for one in host.drain()] == [3]
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


def test_nobody_is_accepted_while_the_quota_is_used_up(github_url, github_token, tmp_path):
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
        [drained] = host.drain()
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
        found = host.doctor()
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


def test_the_newest_checkpoint_is_found_without_everstep_in_a_batch_too(github_url, github_token, tmp_path):
    is_out, rule = switched(broken)
    flow = chain(5, {2: lambda: is_out.__setitem__(0, True)})
    with hosted(github_url, github_token, tmp_path, rule) as (host, _):
        host.run(flow, {"v0": 0}, run_id="B")
        is_out[0] = False
        host.drain()
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
