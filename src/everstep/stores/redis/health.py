"""What a Redis keeps, and what it can lose, as it is set up now. Apart, as only `doctor` asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from everstep.errors import StoreError
from everstep.ports.health import Finding, Health, Level
from everstep.stores.redis.link import Links

Facts = Mapping[str, str]
_ASKED = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy")
_NEARLY_FULL = 0.8


def look_at(links: Links) -> Health:
    """Ask the server what it is and how it is set up."""
    facts = _read_info(links.command("INFO", "everything")) | _settings(links)
    seconds, micros = links.command("TIME")
    return Health(
        server=_product(facts),
        now=datetime.fromtimestamp(int(seconds), UTC) + timedelta(microseconds=int(micros)),
        findings=tuple(_findings(facts)),
    )


def _read_info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def _settings(links: Links) -> dict[str, str]:
    """Return settings of the server, as far as it tells them; hosted ones often do not."""
    try:
        flat: list[Any] = links.command("CONFIG", "GET", *_ASKED)
    except StoreError:
        return {}
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def _product(facts: Facts) -> str:
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts.get('redis_version', '?')}"


def _findings(facts: Facts) -> Iterator[Finding]:
    if facts.get("role", "master") != "master":
        yield Finding(Level.PROBLEM, "it is a read-only replica.", "Give the URL of the primary.")
    yield _about_disk(facts)
    if facts.get("aof_last_write_status", "ok") != "ok" or facts.get("rdb_last_bgsave_status", "ok") != "ok":
        text = "its last write to disk failed."
        yield Finding(Level.PROBLEM, text, "See the server's log; most often the disk is full.")
    yield from _about_memory(facts)
    if int(facts.get("connected_slaves", 0)) > 0:
        text = (
            f"it has {facts['connected_slaves']} replicas, which follow a moment later: a failover can lose "
            "the steps that had not reached the new primary, and those run again."
        )
        yield Finding(Level.WARNING, text, "Set min-replicas-to-write to lose less.")
    if facts.get("cluster_enabled") == "1":
        text = "it is part of a cluster; all keys of one prefix lie on the node that holds their slot."
        yield Finding(Level.WARNING, text, "Connect to that node, or use one server.")


def _about_disk(facts: Facts) -> Finding:
    has_log = facts.get("aof_enabled", "0") == "1"
    syncs, saves = facts.get("appendfsync"), facts.get("save")
    fix = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in its configuration file."
    if has_log and syncs == "always":
        return Finding(
            Level.FINE,
            "every write is on its disk before everstep hears of it: no crash loses a recorded step.",
        )
    if has_log and syncs == "everysec":
        text = (
            "it writes to disk once a second: when the server's machine dies, the last one or two seconds of "
            "recorded steps are lost, and those steps run again. A crash of the server alone loses nothing."
        )
        return Finding(Level.WARNING, text, "CONFIG SET appendfsync always keeps every step.")
    if has_log and syncs == "no":
        text = (
            "the system decides when its log goes to disk: when the machine dies, up to half a minute of "
            "recorded steps is lost, and those steps run again."
        )
        return Finding(Level.WARNING, text, "CONFIG SET appendfsync always keeps every step.")
    if has_log:
        text = "it keeps a log on disk, and does not say how often that is synced."
        return Finding(Level.WARNING, text, "Ask its operator for appendfsync always.")
    if saves is None:
        text = "it keeps no log (appendonly no), and does not say how often it takes snapshots."
        return Finding(Level.PROBLEM, text, "Ask its operator for appendonly yes, appendfsync always.")
    if saves == "":
        text = "it keeps nothing on disk (appendonly no, no save points): a restart loses every run."
        return Finding(Level.PROBLEM, text, fix)
    text = (
        f"it keeps no log (appendonly no), only snapshots ({_save_points(saves)}): when it stops, "
        "everything since the last one is lost, whole runs too."
    )
    return Finding(Level.PROBLEM, text, fix)


def _save_points(saves: str) -> str:
    words = saves.split()
    points = zip(words[::2], words[1::2], strict=False)
    return ", ".join(f"after {seconds} s with {changes} changes" for seconds, changes in points)


def _about_memory(facts: Facts) -> Iterator[Finding]:
    most, policy = (
        int(facts.get("maxmemory", 0)),
        facts.get("maxmemory-policy") or facts.get("maxmemory_policy"),
    )
    if policy is not None and policy.startswith("allkeys-"):
        text = f"when its memory is full it deletes keys (maxmemory-policy {policy}): runs may vanish."
        level = Level.PROBLEM if most else Level.WARNING
        yield Finding(level, text, "CONFIG SET maxmemory-policy noeviction.")
    used = int(facts.get("used_memory", 0))
    if most and used > most * _NEARLY_FULL:
        text = f"it uses {used / most:.0%} of the memory it may; at 100 % it takes no more steps."
        yield Finding(Level.WARNING, text, "Raise maxmemory, or remove old runs.")
