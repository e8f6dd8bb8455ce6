"""`host.storage.doctor()` and `everstep doctor` say how a store is, and what it can lose."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import redis

from everstep import Host
from everstep.cli.main import main
from everstep.registry import Opened
from everstep.results import Level
from everstep.runtime.system import SystemClock
from everstep.stores.memory import MemoryStore
from everstep.testing import ManualClock
from tests.servers.running import private
from tests.servers.valkey import ValkeyServer


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with private(ValkeyServer) as running:
        assert isinstance(running, ValkeyServer)
        yield running


@pytest.fixture
def admin(server: ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client
        client.replicaof("NO", "ONE")
        for name, value in {"appendonly": "yes", "maxmemory": "0", "maxmemory-policy": "noeviction"}.items():
            client.config_set(name, value)


def worst(url: str) -> tuple[Level, str]:
    """Return the gravest finding on a store."""
    with Host(url) as host:
        found = host.storage.doctor()
    order = [Level.PROBLEM, Level.WARNING, Level.FINE]
    gravest = min(found.findings, key=lambda finding: order.index(finding.level))
    assert found.is_well is (gravest.level is not Level.PROBLEM)
    return gravest.level, gravest.text


@pytest.mark.parametrize(
    ("settings", "level", "says"),
    [
        ({"appendonly": "yes", "appendfsync": "always"}, Level.FINE, "no crash loses a recorded step"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, Level.WARNING, "last one or two seconds"),
        ({"appendonly": "yes", "appendfsync": "no"}, Level.WARNING, "up to half a minute"),
        ({"appendonly": "no", "save": ""}, Level.PROBLEM, "a restart loses every run"),
        ({"appendonly": "no", "save": "3600 1 300 100"}, Level.PROBLEM, "after 300 s with 100 changes"),
        ({"maxmemory-policy": "allkeys-lru"}, Level.WARNING, "deletes keys"),
        ({"maxmemory-policy": "allkeys-lru", "maxmemory": "500mb"}, Level.PROBLEM, "deletes keys"),
        ({"maxmemory-policy": "volatile-lru", "maxmemory": "500mb"}, Level.FINE, ""),
    ],
)
def test_what_a_redis_can_lose_follows_from_its_settings(
    server: ValkeyServer, admin: redis.Redis, settings: dict[str, str], level: Level, says: str
) -> None:
    for name, value in ({"appendfsync": "always"} | settings).items():
        admin.config_set(name, value)
    found = worst(server.url)
    assert found[0] is level
    assert says in found[1]


def test_a_redis_is_measured_and_left_as_it_was(server: ValkeyServer, admin: redis.Redis) -> None:
    with Host(server.url) as host:
        before = sorted(admin.keys())
        found = host.storage.doctor()
    assert sorted(admin.keys()) == before
    assert found.server.startswith(("Valkey ", "Redis "))
    assert (found.durable, found.single_writer, found.can_write) == (True, True, True)
    assert found.write_ms is not None and 0 < found.write_ms <= (found.slowest_ms or 0)
    assert found.skew_seconds is not None and abs(found.skew_seconds) < 10


def test_a_clock_that_goes_wrong_is_told(server: ValkeyServer) -> None:
    class Slow(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(minutes=5)

    with Host(server.url, clock=Slow()) as host:
        found = host.storage.doctor()
    assert found.skew_seconds is not None and 290 < found.skew_seconds < 310
    assert any("s ahead of this machine's" in finding.text for finding in found.findings)


def test_a_replica_and_full_memory_are_problems(server: ValkeyServer, admin: redis.Redis) -> None:
    with Host(server.url) as host:
        admin.replicaof("127.0.0.1", "1")
        admin.config_set("replica-serve-stale-data", "yes")
        found = host.storage.doctor()
        assert not found.can_write and not found.is_well
        assert any("read-only replica" in finding.text for finding in found.findings)
        admin.replicaof("NO", "ONE")
        admin.config_set("maxmemory", "1mb")
        found = host.storage.doctor()
    assert not found.can_write
    assert any("maxmemory" in finding.text for finding in found.findings)


@pytest.mark.parametrize(
    ("synchronous", "level"),
    [("full", Level.FINE), ("extra", Level.FINE), ("normal", Level.WARNING), ("off", Level.PROBLEM)],
)
def test_what_a_file_can_lose_follows_from_how_it_is_synced(
    tmp_path: Path, synchronous: str, level: Level
) -> None:
    assert worst(f"sqlite:///{tmp_path}/runs.db?synchronous={synchronous}")[0] is level


def test_memory_says_that_it_forgets_and_a_store_that_cannot_tell_says_so() -> None:
    assert worst("memory:") == (
        Level.WARNING,
        "it keeps everything in this process: when that ends, every run is lost.",
    )

    class Mute(MemoryStore):
        health = None  # type: ignore[assignment]

    clock = ManualClock()
    with Host(Opened(Mute(clock), None, "mute:"), clock=clock) as host:
        found = host.storage.doctor()
    assert found.is_well and not found.can_write
    assert "cannot say how it is" in found.findings[0].text


def everstep(*words: str) -> int:
    """Run a command in this process and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def test_the_command_says_the_same_as_text_and_as_json(
    server: ValkeyServer, admin: redis.Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.config_set("appendfsync", "always")
    assert everstep("doctor", server.url) == 0
    text = capsys.readouterr().out
    assert "many workers may share it" in text and "no crash loses" in text
    admin.config_set("appendonly", "no")
    admin.config_set("save", "")
    assert everstep("doctor", "--store", server.url, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["can_write"], found["is_well"]) == (True, False)
    assert found["findings"][0]["level"] == "problem" and found["findings"][0]["fix"]
    assert everstep("doctor", str(tmp_path / "missing.db")) != 0
    assert not (tmp_path / "missing.db").exists()


def test_a_folder_that_is_given_as_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["doctor", str(tmp_path)])
    assert f"write file:{tmp_path}" in capsys.readouterr().err


def test_a_place_that_may_not_be_looked_at_is_no_bug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    for url in (f"file:{tmp_path}/runs", f"sqlite:///{tmp_path}/runs.db"):
        with pytest.raises(SystemExit, match="1"):
            main(["doctor", url])
        said = capsys.readouterr().err
        assert "store.failed" in said and "Permission denied" in said


def test_a_folder_says_what_it_is_on_and_is_not_made_by_looking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path}/runs"
    with pytest.raises(SystemExit, match="1"):
        main(["doctor", url])
    assert "there is no folder at" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    Host(url).close()
    with pytest.raises(SystemExit, match="0"):
        main(["doctor", url, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["url"] == url and found["server"].startswith("files on ")
    assert found["durable"] and found["single_writer"] and found["can_write"] and found["write_ms"] > 0
    assert any("GiB left for you" in finding["text"] for finding in found["findings"])
    kept = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert [path for path in kept if ".everstep" not in path.parts] == []
