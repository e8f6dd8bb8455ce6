"""A store that was itself put back from a backup: links that were used since, owners of that time."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from everstep import AsyncHost, Flow, Host, node, wait
from everstep.cli.commands.store.after_restore import after_restore as command
from everstep.errors import BadRequest, TokenInvalid
from everstep.model.leases import Lease
from everstep.notify import Notice
from everstep.ports.store import Commit, Verdict
from everstep.stores.postgres.address import read_address
from everstep.testing import ManualClock

KEY = "a key of this fleet, long enough"
paid: list[str] = []


@node(output="amount")
def price(order: str) -> int:
    return len(order)


@node(output="receipt", effects="effectful", idempotency_key="auto")
def pay(amount: int, ok: wait.ApprovalOutput) -> str:
    paid.append("yes" if ok.approved else "no")
    return paid[-1]


PLAIN = Flow("plain", [price], durability="strong")
FLOW = Flow("orders", [price, wait.approval("ok", notify=["mail"]), pay], durability="strong")


Backup = Callable[[], Callable[[], None]]
"""Makes a backup and returns what puts it back."""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Backup]:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db", lambda: backup_of_file(tmp_path / "runs.db")
    url = request.getfixturevalue("new_postgres_url")
    return url, lambda: backup_of_schema(url)


def backup_of_file(path: Path) -> Callable[[], None]:
    copy = path.with_name("backup.db")
    subprocess.run(["python3", "-c", BACK_UP, path, copy], check=True)

    def put_back() -> None:
        for name in ("-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        shutil.copy(copy, path)

    return put_back


BACK_UP = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as source, sqlite3.connect(sys.argv[2]) as copy:
    source.backup(copy)
"""


def backup_of_schema(url: str) -> Callable[[], None]:
    """Keep every table of the schema as it is, and put their rows back."""

    def tables(db: psycopg.Connection) -> list[str]:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1"
        return [name for (name,) in db.execute(query, (at.schema,)).fetchall()]

    at = read_address(url)
    with psycopg.connect(at.url) as db:
        db.execute(f"CREATE SCHEMA backup_{at.schema}")
        for name in tables(db):
            db.execute(f"CREATE TABLE backup_{at.schema}.{name} AS TABLE {at.schema}.{name}")

    def put_back() -> None:
        with psycopg.connect(at.url) as db:
            db.execute("SET session_replication_role = replica")  # no triggers
            for name in tables(db):
                kept = f"SELECT * FROM backup_{at.schema}.{name}"
                db.execute(f"DELETE FROM {at.schema}.{name}")
                db.execute(f"INSERT INTO {at.schema}.{name} OVERRIDING SYSTEM VALUE {kept}")

    return put_back


def test_a_link_that_was_used_after_the_backup_takes_no_other_answer(place: tuple[str, Backup]) -> None:
    """Nor does one that was issued after it: with a key, the store would make the same again."""
    url, back_up = place
    told: list[Notice] = []
    paid.clear()

    async def mail(notice: Notice) -> None:
        told.append(notice)

    with Host(url, notifiers={"mail": mail}, key=KEY) as host:
        host.run(FLOW, {"order": "A17"}, run_id="A17")
        put_back = back_up()
        later = host.waiting.reissue(host.waits("A17")[0].id).token
        host.answer(later, {"approved": True})
        host.resume("A17", FLOW)
        assert paid == ["yes"]
    put_back()
    clock = ManualClock(datetime.now(UTC) + timedelta(minutes=2))
    with Host(url, notifiers={"mail": mail}, key=KEY, clock=clock) as host:
        old = told.pop().token
        assert host.find(str(old)).run_id == "A17"  # worth something again, by the restore
        planned = host.storage.after_restore(dry_run=True)
        assert host.find(str(old)).run_id == "A17"
        done = host.storage.after_restore()
        assert (done.tokens, done.told_again, done.fenced, done.halted_count) == (1, 1, 1, 1)
        assert planned == msgspec.structs.replace(done, dry_run=True)
        assert host.storage.after_restore() == done  # as after it was cut off
        for dead in (old, later):
            with pytest.raises(TokenInvalid):
                host.answer(dead, {"approved": False})
        assert host.info("A17").status == "halted"
        assert host.work([FLOW], until_idle=True).claimed == 0
        (notice,) = told
        assert notice.token not in (old, later)
        host.answer(notice.token, {"approved": True})
        assert host.work([FLOW], until_idle=True).completed == 1


USES: dict[str, Callable[[Host], object]] = {
    "a worker tells its token": lambda host: host.work([FLOW], until_idle=True),
    "a person makes a link": lambda host: host.waiting.reissue(host.waits("A17")[0].id),
    "a run begins": lambda host: host.start(PLAIN, {"order": "A18"}),
    "a run ends": lambda host: host.cancel("A17"),
}


@pytest.mark.parametrize("use", USES)
def test_once_the_store_was_used_again_it_is_not_done_again_unasked(
    place: tuple[str, Backup], use: str
) -> None:
    url, clock = place[0], ManualClock(datetime.now(UTC))
    with Host(url, notifiers={"mail": lambda notice: None}, key=KEY, clock=clock) as host:
        host.run(FLOW, {"order": "A17"}, run_id="A17")
        clock.advance("1h")
        for _ in range(2):
            assert host.storage.after_restore().done_at is None  # nothing has gone on
            clock.advance("1h")
        row = host.fleet.audit(act="after_restore")[-1]
        assert (row.by, row.how, row.run_id) == ("(program)", "unnamed", None)
        USES[use](host)
        waits = [(wait.id, wait.notified_at) for wait in host.waits()]
        for _ in range(2):
            with pytest.raises(BadRequest, match="was used since") as refused:
                host.storage.after_restore()
            assert "--again" in refused.value.fix
        assert [(wait.id, wait.notified_at) for wait in host.waits()] == waits
        planned = host.storage.after_restore(dry_run=True)
        assert planned.done_at == row.at
        clock.advance("1h")
        assert host.storage.after_restore(again=True).done_at == row.at
        assert host.storage.after_restore().done_at is None
    cli = CliRunner()
    with Host(url, notifiers={"mail": lambda notice: None}, key=KEY, clock=clock) as host:
        clock.advance("1h")
        host.start(PLAIN, {"order": "A19"})
    assert "tokens that were told since would die" in cli.invoke(command, ["--store", url]).output
    assert cli.invoke(command, ["--store", url, "--yes"]).exit_code != 0
    assert cli.invoke(command, ["--store", url, "--yes", "--again"]).exit_code == 0


def test_an_owner_from_before_the_restore_cannot_write(place: tuple[str, Backup]) -> None:
    """Though the run has an owner of the same number since, as the store counts from the backup on."""
    url, back_up = place

    async def claim(host: AsyncHost, owner: str) -> Lease:
        how: dict[str, Any] = {"ttl": timedelta(seconds=0), "process": None}
        return await host._services.store.lease("A17", owner=owner, **how)

    async def put(host: AsyncHost, lease: Lease) -> Verdict:
        (newest,) = await host._services.store.get("A17")
        about: dict[str, Any] = {"base": newest.checkpoint_id, "epoch": lease.epoch, "body": b"x"}
        commit = Commit(run_id="A17", sequence=2, checkpoint_id="c", **about)
        return (await host._services.store.put([commit]))[0]

    async def play() -> tuple[Verdict, Verdict]:
        async with AsyncHost(url) as host:
            await host.start(PLAIN, {"order": "A17"}, run_id="A17")
            put_back = back_up()
            old = await claim(host, "before")
        verdicts: list[Verdict] = []
        for _ in range(2):
            put_back()
            async with AsyncHost(url) as host:
                if verdicts:
                    told = await host.storage.after_restore()
                    assert told.running == ("A17",)
                new = await claim(host, "after")
                verdicts.append(await put(host, old))
                assert (new.epoch == old.epoch) is (len(verdicts) == 1)
        return verdicts[0], verdicts[1]

    assert asyncio.run(play()) == (Verdict.ACCEPTED, Verdict.FENCED)


def test_the_command_says_what_it_would_do_and_does_it_when_told_to(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.start(PLAIN, {"order": "A17"}, run_id="A17")
    cli = CliRunner()
    said = cli.invoke(command, ["--store", url])
    assert "1 run would be fenced" in said.output and "everstep explain A17" in said.output
    assert "nothing was written" in said.output
    told = json.loads(cli.invoke(command, ["--store", url, "--yes", "--json"]).output)
    assert (told["fenced"], told["running"], told["dry_run"]) == (1, ["A17"], False)
