"""Drills of those who can write to the database, and of runs that come from elsewhere."""

from __future__ import annotations

import base64
import json

from benchmarks.drills.kit import FLOWS, Drill, Found, Place, lines, sql, until, workers_up
from everstep import Host

KEYS = {"EVERSTEP_ENCRYPT_KEYS": f"2026:{base64.b64encode(bytes(range(32))).decode()}"}
FORGED = json.dumps({"approved": True}).encode().hex()
MARK = """
from pathlib import Path
Path("loaded").touch()
from everstep import Flow, node, wait

@node(output="out")
def first(a: int) -> int:
    return a + 1

flow = Flow("carried", [wait.question("sure", kind="yes_no"), first], durability="strong")
"""


def halted(here: Place, url: str, run_id: str) -> None:
    done = here.call(
        "run",
        f"{FLOWS}:asking",
        "-i",
        f"calls={here.folder}/calls",
        "--run-id",
        run_id,
        "--store",
        url,
        **KEYS,
    )
    assert "halted" in done.stdout + done.stderr, done.stderr


def forged(here: Place, *statements: str) -> tuple[str, str, list[str]]:
    """Change rows of an encrypted run without its key; returns its status, a worker's lines, and effects."""
    url = here.postgres()
    halted(here, url, "A1")
    sql(url, *statements)
    worker = here.start("worker", f"{FLOWS}:asking", "--store", url, **KEYS)
    workers_up(url)
    with Host(url) as host:
        until(lambda: host.info("A1").status.value not in ("halted", "running"), seconds=6)
        status = host.info("A1").status.value
    return status, worker.said, lines(here.folder / "calls")


SETTLE = (
    "UPDATE {{schema}}.waits SET status = 'settled', settled_by = '{by}', wake_at = 0, answer = {answer}, "
    "settled_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
)


def plaintext_answer(here: Place) -> Found:
    """An approval in the clear is put into the row of an encrypted wait; workers have the key."""
    answer = f"'\\x{FORGED}'::bytea"
    status, said, effects = forged(here, SETTLE.format(by="answer", answer=answer))
    refused = "in the clear" in said or "StateCorrupted" in said or "encrypted" in said
    now = f"{'refused' if refused else 'not refused'}: the run is {status}, {len(effects)} effects"
    return Found(now, refused and status != "completed" and not effects)


def moved_due_time(here: Place) -> Found:
    """The due time of an encrypted wait is set into the past, once alone and once with the status."""
    past = "UPDATE {schema}.waits SET due_at = 1, wake_at = 1"
    found = [forged(here, past), forged(here, past, SETTLE.format(by="clock", answer="NULL"))]
    outcomes = ", ".join(status for status, _, _ in found)
    effects = sum(len(made) for _, _, made in found)
    now = f"the run does not go on ({outcomes}); {effects} effects"
    return Found(now, all(status in ("halted", "running") for status, _, _ in found) and not effects)


def keys_in_the_environment(here: Place) -> Found:
    """`everstep worker` is told by the environment, or an option, to read nothing in the clear."""
    said = []
    for words, more in (((), {"EVERSTEP_ENCRYPT_REQUIRED": "1"}), (("--encrypt-required",), {})):
        url = here.postgres()
        done = here.call("run", f"{FLOWS}:doubling", "--start", "-i", "a=1", "--run-id", "P1", "--store", url)
        assert done.returncode == 0, done.stderr
        worker = here.call("worker", f"{FLOWS}:doubling", "--once", "--store", url, *words, **KEYS, **more)
        with Host(url) as host:
            said.append((host.info("P1").status.value, worker.returncode))
    refused = sum(status != "completed" for status, _ in said)
    return Found(f"{refused} of 2 ways: a run in the clear is not driven", refused == 2)


def imported_run(here: Place) -> Found:
    """A run is imported whose bundle names a module that lies in the current folder."""
    (here.folder / "maker").mkdir()
    (here.folder / "carried.py").write_text(MARK)
    store = f"sqlite:///{here.folder}/theirs.db"
    done = here.call("run", "carried.py", "-i", "a=1", "--run-id", "C1", "--store", store)
    assert "halted" in done.stdout + done.stderr, done.stderr
    assert here.call("export", "C1", "C1.everstep", "--store", store).returncode == 0
    url = here.postgres()
    (here.folder / "loaded").unlink()
    assert here.call("import", "C1.everstep", "--store", url).returncode == 0
    commands = {
        "explain": ("explain", "C1"),
        "resume": ("resume", "C1"),
        "replay": ("replay", "C1", "sure"),
        "show": ("show", "C1"),
        "migrate": ("migrate", "C1"),
        "compat": ("compat", "C1"),
    }
    loading = []
    for name, words in commands.items():
        here.call(*words, "--store", url)
        if (here.folder / "loaded").exists():
            loading.append(name)
            (here.folder / "loaded").unlink()
    named = here.call("resume", "C1", "carried.py", "--store", url)
    told = (
        f"{', '.join(loading)} load its code" if loading else f"none of {', '.join(commands)} loads its code"
    )
    works = (here.folder / "loaded").exists()
    tail = "resume does where the file is named" if works else f"nor does resume: {named.stderr[:80]}"
    return Found(f"{told}; {tail}", not loading and works)


DRILLS = (
    Drill(
        "plaintext-answer",
        "believed, and the run went on, although the host encrypts",
        plaintext_answer,
    ),
    Drill("moved-due-time", "believed: due times were not authenticated", moved_due_time),
    Drill(
        "keys-in-the-environment",
        "nothing for workers and services to set: only `KeyRing(required=True)` in code",
        keys_in_the_environment,
    ),
    Drill(
        "imported-run",
        "explain, resume and replay loaded the module that the bundle named",
        imported_run,
    ),
)
