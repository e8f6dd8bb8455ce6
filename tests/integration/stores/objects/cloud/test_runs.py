"""Runs in a bucket: what they cost, and what goes wrong with one; each a clear error, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep import Durability, Flow, Host, Status, node, wait
from everstep.errors import (
    EverstepError,
    StateCorrupted,
    StoreError,
    StoreUnavailable,
    WaitSettled,
)
from everstep.registry import open_store
from everstep.runtime.system import SystemClock
from everstep.stores.objects.cloud.address import read_address
from everstep.stores.objects.cloud.bucket import Cloud
from everstep.stores.objects.store import ObjectStore
from tests.architecture.sources import ROOT
from tests.servers.lying_bucket import lying
from tests.servers.proxy import Nth, Proxy, proxy_before
from tests.servers.running import private
from tests.servers.seaweed import (
    BUCKET,
    KEY,
    OWNER,
    READER,
    SECRET,
    STRANGER,
    SeaweedServer,
    key_in_the_environment,
)

REQUEST = b" HTTP/1.1\r\n"
LOG = b"/log/"


@pytest.fixture
def proxied(s3_url: str) -> Iterator[tuple[Proxy, str]]:
    """A wire to the server that can be cut, and the URL of a prefix that leads through it."""
    endpoint = read_address(s3_url).endpoint or ""
    with proxy_before(endpoint) as (proxy, through):
        yield proxy, s3_url.replace(endpoint, through)


@pytest.fixture
def server() -> Iterator[SeaweedServer]:
    with private(SeaweedServer) as running, key_in_the_environment():
        assert isinstance(running, SeaweedServer)
        yield running


class Work:
    """Steps that are counted, one of them an effect."""

    def __init__(self, steps: int = 3) -> None:
        self.calls: Counter[int] = Counter()
        self.steps = steps

        def step(k: int) -> Any:
            @node(output="after", effects="effectful" if k == 1 else "pure", idempotency_key="auto")
            def one(before: int) -> int:
                self.calls[k] += 1
                return before + 1

            return one.with_name(f"s{k}").with_inputs(before=f"v{k}").with_outputs(f"v{k + 1}")

        self.flow = Flow("work", [step(k) for k in range(steps)], durability=Durability("strong"))

    def run(self, host: Host, run_id: str) -> Any:
        return host.run(self.flow, {"v0": 0}, run_id=run_id)

    def is_done(self) -> bool:
        return self.calls == dict.fromkeys(range(self.steps), 1)


def refusal(url: str, **options: Any) -> EverstepError:
    """Return the error of a host on this URL; no word of it tells a secret."""
    with pytest.raises(EverstepError) as caught:
        Host(url, **options)
    assert SECRET not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    assert caught.value.fix
    return caught.value


def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "everstep", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


# What it costs


def test_a_flush_is_one_request(proxied: tuple[Proxy, str]) -> None:
    proxy, url = proxied
    costs = {}
    with Host(url) as host:
        Work().run(host, "first")
        for steps in (5, 25):
            counted, writes = Nth(REQUEST, 0), Nth(LOG, 0)
            proxy.cuts_request = lambda data, a=counted, b=writes: a(data) or b(data)  # type: ignore[misc]
            Work(steps).run(host, f"of-{steps}")
            costs[steps] = counted.seen
            assert len(host.history(f"of-{steps}")) == steps + 1
    assert costs[25] - costs[5] == 20
    # A look whether the run is there, the structure of the flow, two marks, the admission; a mark is removed.
    assert costs[5] == 5 + 6


def test_a_resume_reads_a_run_with_few_requests(s3_url: str) -> None:
    flow = Flow("asks", [*Work(20).flow.nodes, wait.question("ok")], durability="strong")
    with Host(s3_url) as host:
        assert host.run(flow, {"v0": 0}, run_id="A").status is Status.HALTED
        host.answer(host.waits("A")[0].id, True)
    opened = open_store(s3_url, SystemClock())
    assert isinstance(opened.store, ObjectStore) and isinstance(opened.store.bucket, Cloud)
    with Host(opened) as host:
        before = opened.store.bucket.requests
        assert host.resume("A", flow).status is Status.COMPLETED
        # One for each record, and what finding, claiming and ending a run take.
        assert opened.store.bucket.requests - before < 20 + 25


# Cut off, killed, raced


@pytest.mark.parametrize("cut", ["reply", "request"])
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_a_put_whose_connection_is_cut_is_there_once(
    proxied: tuple[Proxy, str], cut: str, place: int
) -> None:
    proxy, url = proxied
    work, chosen = Work(), Nth(b"/log/%010d" % place, 1)
    with Host(url) as host:
        if cut == "reply":
            proxy.cuts_reply = chosen
        else:
            proxy.cuts_request = chosen
        result = work.run(host, "A")
        assert proxy.cut == 1
        assert (result.status, result["v3"]) == (Status.COMPLETED, 3)
        assert [record.sequence for record in host.history("A")] == [1, 2, 3, 4]
    assert work.is_done()


def refusing(status: str, code: str, picks: Callable[[bytes], bool]) -> Callable[[bytes], bytes | None]:
    """Return what answers some requests as a server would that refuses them."""
    body = f"<Error><Code>{code}</Code></Error>".encode()
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return lambda request: head + body if picks(request) else None


def test_a_run_goes_on_through_a_server_that_asks_for_fewer_requests(proxied: tuple[Proxy, str]) -> None:
    proxy, url = proxied
    work = Work()
    asked: Counter[bytes] = Counter()

    def is_first_try(request: bytes) -> bool:
        target = request.partition(b" HTTP/1.1")[0]
        asked[target] += LOG in target and target.startswith(b"PUT")
        return asked[target] == 1

    with Host(url) as host:
        proxy.answers = refusing("503 Slow Down", "SlowDown", is_first_try)
        assert work.run(host, "A")["v3"] == 3
        assert [record.sequence for record in host.history("A")] == [1, 2, 3, 4]
    assert sorted(asked.elements()) == sorted([*+asked, *+asked])
    assert work.is_done()


def test_a_key_that_loses_its_right_midway_stops_the_run_which_goes_on_when_it_has_it_again(
    proxied: tuple[Proxy, str],
) -> None:
    proxy, url = proxied
    work = Work()
    with Host(url) as host:
        third = b"/log/%010d" % 3
        proxy.answers = refusing("403 Forbidden", "AccessDenied", lambda request: third in request)
        with pytest.raises(StoreError, match="this key may not do that") as caught:
            work.run(host, "A")
        assert not isinstance(caught.value, StoreUnavailable)
        assert work.calls == {0: 1, 1: 1}
        proxy.answers = lambda request: None
        assert len(host.history("A")) == 2
        assert host.resume("A", work.flow)["v3"] == 3
    assert work.calls == {0: 1, 1: 2, 2: 1}


def test_an_answer_whose_reply_is_lost_is_given_once(proxied: tuple[Proxy, str]) -> None:
    proxy, url = proxied
    flow = Flow("asks", [wait.question("ask", prompt="?", output="said")], durability="strong")
    with Host(url) as host:
        first = host.run(flow, run_id="A").waits[0]
        proxy.cuts_reply = Nth(b"PUT", 1)
        assert host.answer(first.id, True).status == "settled"
        assert proxy.cut == 1
        with pytest.raises(WaitSettled):
            host.answer(first.id, True)
        assert host.resume("A", flow)["said"] is True


def test_a_server_that_is_killed_and_returns_loses_nothing_and_repeats_nothing(server: SeaweedServer) -> None:
    calls: Counter[str] = Counter()

    @node(output="a")
    def first(start: int) -> int:
        calls["first"] += 1
        return start + 1

    @node(output="b")
    def second(a: int) -> int:
        calls["second"] += 1
        server.kill()
        threading.Timer(0.1, server.start).start()
        return a + 1

    @node(output="c")
    def third(b: int) -> int:
        calls["third"] += 1
        return b + 1

    flow = Flow("restarted", [first, second, third], durability="strong")
    with Host(server.url) as host:
        result = host.run(flow, {"start": 1}, run_id="A")
        assert (result.status, result["c"]) == (Status.COMPLETED, 4)
        assert [s.path for r in host.history("A") for s in r.steps] == ["@inputs", "first", "second", "third"]
    assert calls == {"first": 1, "second": 1, "third": 1}


def test_a_server_that_stays_away_stops_the_run_which_is_resumed_when_it_is_back(
    server: SeaweedServer,
) -> None:
    work = Work()
    with Host(server.url) as host:
        host.start(work.flow, {"v0": 0}, run_id="A")
        server.kill()
        with pytest.raises(StoreUnavailable, match="out of reach"):
            host.resume("A", work.flow)
        told = shell("show", "A", "--store", server.url, "--json")
        assert told.returncode == 1
        assert json.loads(told.stdout)["error"]["code"] == "store.unavailable"
        server.start()
        assert host.resume("A", work.flow)["v3"] == 3
    assert work.is_done()


RACER = """
import sys
from everstep import Flow, Host, node
from everstep.errors import LeaseConflict

calls = []

def step(k):
    @node(output="after")
    def one(before):
        calls.append(k)
        return before + 1
    return one.with_name(f"s{k}").with_inputs(before=f"v{k}").with_outputs(f"v{k + 1}")

flow = Flow("raced", [step(k) for k in range(8)], durability="strong")
with Host(sys.argv[1]) as host:
    for number in range(int(sys.argv[2])):
        print("ready", flush=True)
        sys.stdin.readline()
        calls.clear()
        try:
            host.run(flow, {"v0": 0}, run_id=f"run-{number}")
        except LeaseConflict:
            pass
        print(*calls, flush=True)
"""


def test_of_processes_that_run_the_same_run_at_once_one_does(s3_url: str) -> None:
    rounds = 6
    command = [sys.executable, "-c", RACER, s3_url, str(rounds)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(command, **pipes) for _ in range(3)]
    try:
        for number in range(rounds):
            for racer in racers:
                assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write("go\n")
                racer.stdin.flush()
            calls = [k for racer in racers if racer.stdout for k in racer.stdout.readline().split()]
            assert sorted(calls) == [str(k) for k in range(8)], number
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    with Host(s3_url) as host:
        for number in range(rounds):
            run_id = f"run-{number}"
            assert host.info(run_id).status is Status.COMPLETED
            assert len(host.history(run_id)) == 9
            assert host.storage.verify(run_id)


# What a key may, and where it leads


@pytest.mark.parametrize(
    ("key", "secret", "says"),
    [
        (STRANGER, SECRET, "this key may not do that"),
        (READER, SECRET, "this key may not do that"),
        (KEY, "wr0ng", "the secret does not belong to this key"),
        ("unknown", SECRET, "does not know this key"),
    ],
)
@pytest.mark.usefixtures("s3_keys")
def test_a_key_that_may_not_write_is_refused_by_host_and_shell(
    s3_url: str, key: str, secret: str, says: str
) -> None:
    with key_in_the_environment(key, secret):
        error = refusal(s3_url)
        assert type(error) is StoreError and says in error.message
        told = shell("doctor", s3_url)
        assert told.returncode == 1
        assert says in told.stderr and secret not in told.stderr + told.stdout


@pytest.mark.usefixtures("s3_keys")
def test_a_key_that_may_only_read_shows_runs_and_drives_none(s3_url: str) -> None:
    work = Work()
    with Host(s3_url) as host:
        host.start(work.flow, {"v0": 0}, run_id="A")
    with key_in_the_environment(READER):
        told = shell("show", "A", "--store", s3_url, "--json")
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["status"] == "running"
        assert "A" in shell("runs", "--store", s3_url).stdout
        refused = shell("cancel", "A", "--store", s3_url)
        assert refused.returncode == 1
        assert "this key may not do that" in refused.stderr and "s3:PutObject" in refused.stderr
        with Host(s3_url, create=False) as host, pytest.raises(StoreError, match="may not do that"):
            host.resume("A", work.flow)
    assert work.calls == {}
    with Host(s3_url) as host:
        assert host.resume("A", work.flow)["v3"] == 3


@pytest.mark.usefixtures("s3_keys")
def test_a_bucket_that_is_not_there_is_named_by_host_and_shell(s3_server: str) -> None:
    nowhere = s3_server.replace(f"s3://{BUCKET}", "s3://not-there")
    with key_in_the_environment(OWNER):
        with Host(nowhere, create=False) as host, pytest.raises(StoreError, match="no bucket 'not-there'"):
            host.runs()
        told = shell("runs", "--store", nowhere)
        assert told.returncode == 1
        assert "there is no bucket 'not-there'" in told.stderr


def test_a_server_that_ignores_conditions_is_refused_by_host_and_shell() -> None:
    with lying(("If-None-Match",)) as (url, server):
        error = refusal(url)
        assert "ignores conditions" in error.message and "If-None-Match" in error.fix
        told = shell("doctor", url)
        assert told.returncode == 1 and "ignores conditions" in told.stderr
        assert server.kept == {}


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("everstep.stores.objects.cloud")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    for scheme in ("s3", "gs", "az"):
        assert "everstep[s3]" in refusal(f"{scheme}://bucket/prefix").fix


# Artifacts, health


def test_artifacts_are_kept_in_a_bucket_beside_records_in_a_file(tmp_path: Path, s3_url: str) -> None:
    wide = "wide " * 1000

    @node(output="wide")
    def widen(x: int) -> str:
        return wide

    flow = Flow("wide", [widen, wait.question("ok")], durability=Durability("strong", blob_threshold=1024))
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url, blobs=s3_url) as host:
        assert host.run(flow, {"x": 1}, run_id="A").status is Status.HALTED
    bucket = Cloud(read_address(s3_url), SystemClock(), create=False)
    largest = max(bucket.listed(""), key=lambda item: item.size)
    assert all(name.startswith("blobs/") for name in bucket.names(""))
    with Host(url, blobs=s3_url) as host:
        host.answer(host.waits("A")[0].id, True)
        assert host.resume("A", flow)["wide"] == wide
    told = shell("state", "A", "--store", url, "--json", EVERSTEP_BLOBS=s3_url)
    assert wide in told.stdout, told.stderr
    bucket.delete([largest.name])
    with Host(url, blobs=s3_url) as host, pytest.raises(StateCorrupted, match="missing"):
        _ = host.state("A")["wide"]


def test_doctor_says_how_a_bucket_is_and_leaves_nothing_behind(s3_url: str) -> None:
    told = shell("doctor", s3_url, "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["is_well"] and found["can_write"] and found["single_writer"] and found["durable"]
    assert 0 < found["write_ms"] <= found["slowest_ms"]
    assert abs(found["skew_seconds"]) < 2
    assert "honours conditions" in found["findings"][0]["text"]
    assert found["url"] == s3_url
    assert "S3" in found["server"]
    assert Cloud(read_address(s3_url), SystemClock()).names("") == []


def test_the_url_that_a_host_shows_leads_to_the_same_runs(s3_url: str) -> None:
    with Host(s3_url) as host:
        Work().run(host, "A")
        shown = host.url
    assert SECRET not in shown
    with Host(shown) as host:
        assert host.info("A").status is Status.COMPLETED
    assert open_store(shown, SystemClock()).url == shown
