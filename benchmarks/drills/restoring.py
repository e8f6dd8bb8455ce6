"""The guide on backup and restore, command by command, on each store that it has commands for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import redis

from benchmarks.drills.kit import FLOWS, ROOT, Drill, Found, Place, PostgresServer, ValkeyServer, lines, until
from everstep import Host
from everstep.errors import EverstepError

GUIDE = ROOT / "docs" / "how-to" / "back-up-and-restore.md"
KEY = "a key of this fleet, long enough"


def shell(here: Place, command: str, path: Path | None = None) -> str:
    """Type a command, and return what it says."""
    before = f'export PATH="{path}:$PATH"; ' if path is not None else ""
    done = subprocess.run(
        ["sh", "-c", before + command], cwd=here.folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout + done.stderr


def begin(here: Place, url: str) -> str:
    """Ask for an approval, and return the token of its link."""
    calls = here.folder / "calls"
    done = here.call(
        *("run", f"{FLOWS}:asking", "-i", f"calls={calls}", "--run-id", "A1", "--store", url),
        EVERSTEP_KEY=KEY,
    )
    assert "halted" in done.stdout + done.stderr, done.stderr
    with Host(url, key=KEY) as host:
        return str(host.waits(run_id="A1")[0].token)


def answer(here: Place, url: str, token: str, *, approved: bool) -> bool:
    """Use a link; true if the answer was taken."""
    with Host(url, key=KEY) as host:
        try:
            host.answer(token, {"approved": approved})
        except EverstepError:
            return False
    done = here.call("worker", f"{FLOWS}:asking", "--once", "--store", url, EVERSTEP_KEY=KEY)
    assert done.returncode == 0, done.stderr
    return True


def after(here: Place, url: str, old: str) -> tuple[bool, bool, list[str]]:
    """Follow the guide behind a restore: is the old link dead, does a new one work, what was done in all."""
    plan = here.call("after-restore", "--store", url)
    done = here.call("after-restore", "--yes", "--store", url)
    assert plan.returncode == done.returncode == 0, plan.stderr + done.stderr
    assert "nothing was written" in plan.stdout
    sound = here.call("verify", "--store", url)
    assert sound.returncode == 0, sound.stdout
    is_dead = not answer(here, url, old, approved=False)
    with Host(url, key=KEY) as host:
        new = str(host.waiting.reissue(host.waits(run_id="A1")[0].id).token)
    works = answer(here, url, new, approved=True)
    return is_dead, works, lines(here.folder / "calls")


def told(kind: str, is_dead: bool, works: bool, calls: list[str]) -> tuple[str, bool]:
    now = (
        f"{kind}: the old link is {'refused' if is_dead else 'taken'}, a new one "
        f"{'works' if works else 'does not work'}, {calls.count('rejected')} opposite answers took effect"
    )
    return now, is_dead and works and calls == ["approved", "approved"]


def commands() -> dict[str, str]:
    """Return the command of the guide for each store that has one."""
    rows = re.findall(r"^\| (\w+).*? \| `([^`]+)`", GUIDE.read_text(), flags=re.MULTILINE)
    return dict(rows)


def on_sqlite(here: Place) -> tuple[str, bool]:
    (here.folder / "calls").unlink(missing_ok=True)
    url, file = here.sqlite(), here.folder / "runs.db"
    token = begin(here, url)
    shell(here, commands()["SQLite"])
    assert answer(here, url, token, approved=True)
    shutil.copy(here.folder / "copy.db", file)
    for name in ("runs.db-wal", "runs.db-shm"):
        (here.folder / name).unlink(missing_ok=True)
    return told("SQLite", *after(here, url, token))


def on_postgres(here: Place) -> tuple[str, bool]:
    (here.folder / "calls").unlink(missing_ok=True)
    server = here.own(PostgresServer)
    binaries = PostgresServer.find()
    url, at = f"{server.url}?schema=everstep", server.url
    token = begin(here, url)
    shell(here, f"{commands()['PostgreSQL']} {at} > backup.sql", binaries)
    assert answer(here, url, token, approved=True)
    shell(here, f"psql -q {at} -c 'DROP SCHEMA everstep CASCADE'", binaries)
    shell(here, f"psql -q -v ON_ERROR_STOP=1 {at} -f backup.sql", binaries)
    return told("PostgreSQL", *after(here, url, token))


def on_valkey(here: Place) -> tuple[str, bool]:
    """With an append-only file, so that its data folder is the backup."""
    (here.folder / "calls").unlink(missing_ok=True)
    server = here.own(ValkeyServer)
    url, data, copy = server.url, server.folder / "data", here.folder / "copy-of-data"
    token = begin(here, url)
    with redis.Redis(port=server.port) as admin:
        admin.bgsave()
        assert until(lambda: admin.info("persistence")["rdb_bgsave_in_progress"] == 0) < 60
    shutil.copytree(data, copy)
    assert answer(here, url, token, approved=True)
    server.stop()
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    server.start()
    return told("Valkey", *after(here, url, token))


def in_a_folder(here: Place) -> tuple[str, bool]:
    """A copy of the folder while nothing uses it."""
    (here.folder / "calls").unlink(missing_ok=True)
    folder, copy = here.folder / "kept", here.folder / "copy-of-kept"
    url = f"file:{folder}"
    token = begin(here, url)
    shutil.copytree(folder, copy)
    assert answer(here, url, token, approved=True)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return told("a folder", *after(here, url, token))


def restore_from_backup(here: Place) -> Found:
    """A store is put back from a backup that is older than an answer."""
    found = [on_sqlite(here), on_postgres(here), on_valkey(here), in_a_folder(here)]
    return Found("; ".join(now for now, _ in found), all(holds for _, holds in found))


DRILLS = (
    Drill(
        "restore-from-backup",
        "the wait was open again, and its old link took the opposite answer; no guide",
        restore_from_backup,
    ),
)
