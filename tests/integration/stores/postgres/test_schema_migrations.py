"""Clients of two versions of the schema work side by side while a fleet is brought up to date."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest

from everstep import Flow, Host, Status, node, wait
from everstep.ports.store import Traits
from everstep.registry import open_store
from everstep.stores.postgres.address import read_address
from everstep.stores.postgres.connections import Connection, connect, rows
from everstep.stores.postgres.schema import finish, migrate, migrations, unfinished
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import TTL, Chain, Client, StoreKit
from tests.servers.postgres import fresh_schema

FROZEN = Path(__file__).with_name("schema_1.sql")
HASH = "0" * 64
RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES",
    "USAGE, SELECT ON ALL SEQUENCES",
    "EXECUTE ON ALL FUNCTIONS",
)
"""What a worker's role is given, as the documentation says."""


class OldClient:
    """The client that knew schema 1 only, as far as a run needs it: its statements, prepared once."""

    def __init__(self, url: str) -> None:
        schema = read_address(url).quoted_schema
        parts = re.split(r"^-- name: (\w+)\n", FROZEN.read_text(), flags=re.MULTILINE)[1:]
        bodies = [re.sub(r"--.*", "", body).strip().rstrip(";") for body in parts[1::2]]
        self.sql = {k: v.replace("{schema}", schema) for k, v in zip(parts[::2], bodies, strict=True)}
        self.db = psycopg.connect(
            read_address(url).url, autocommit=True, cursor_factory=psycopg.RawCursor, prepare_threshold=0
        )

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self.db.execute(self.sql[query], values)
        return done.fetchall() if done.description else []

    def put(self, *said: dict[str, Any]) -> list[str]:
        bodies = b"".join(b"old" for _ in said)
        plain = {"keyframe": False, "ignores": False, "size": 3}
        commits = msgspec.json.encode([plain | commit for commit in said]).decode()
        return list(self.rows("put_group", commits, bodies, None, None)[0][0])

    def admit(self, run_id: str, owner: str | None = "old", **more: Any) -> None:
        admission = {
            "flow_id": "flow",
            "flow_version": "1",
            "flow_hash": HASH,
            "blueprint": "\\x7b7d",
            "created_at": 1,
            "owner": owner,
            "ttl": 30_000_000,
        }
        first = {"run_id": run_id, "sequence": 1, "checkpoint_id": f"{run_id}-1", "epoch": 1 if owner else 0}
        assert self.put(first | {"admission": admission} | more) == ["accepted"]

    def step(self, run_id: str, sequence: int) -> str:
        names = f"{run_id}-{sequence}", f"{run_id}-{sequence - 1}"
        return str(self.rows("put_step", run_id, sequence, *names, 1, False, b"old", False)[0][0])

    def claim_due(self, now: int) -> list[str]:
        flows = ["flow"], [HASH]
        keys = [key for (key,) in self.rows("due", now, *flows, [], 100, 400)]
        found = self.rows("lock_due", now, keys, 100)
        for row in found:
            claim = [[row[0]], [row[9] + 1], ["old"], [now + 30_000_000], [0], None, [row[20]]]
            self.rows("claim_many", *claim)
        return [row[1] for row in found]


def wait_of(run_id: str, due_at: int | None = None) -> dict[str, Any]:
    return {
        "wait_id": f"wait of {run_id}",
        "flow_id": "flow",
        "path": "ask",
        "visit": 1,
        "kind": "approval",
        "opened_at": 1,
        "details": "\\x7b7d",
        "due_at": due_at,
        "scheduler": "",
        "notifies": False,
        "generation": 1,
        "single_use": True,
        "status": "open",
    }


@pytest.fixture
def at_schema_1(new_postgres_url: str) -> str:
    """A schema as the first everstep with PostgreSQL made it."""
    address = read_address(new_postgres_url)
    with connect(address) as db:
        migrate(db, address, migrations()[:1])
    return new_postgres_url


@pytest.fixture
def old(at_schema_1: str) -> Iterator[OldClient]:
    client = OldClient(at_schema_1)
    yield client
    client.db.close()


@pytest.fixture
def new(at_schema_1: str, old: OldClient) -> Iterator[Client]:
    """The client of today; opening it brings the schema up to date under the old one."""
    clock = ManualClock()
    client = Client(StoreKit(lambda: open_store(at_schema_1, clock), clock, None))  # type: ignore[arg-type]  # not looked at
    yield client
    client.close()


def test_the_statements_of_the_client_before_are_understood_by_the_newest_schema(
    old: OldClient, new: Client
) -> None:
    for number, (name, query) in enumerate(old.sql.items()):
        try:
            old.db.execute(f"prepare old_{number} as {query}")
        except psycopg.Error as error:
            pytest.fail(f"{name}: {error}")


def test_runs_that_were_there_before_the_upgrade_go_on_after_it(at_schema_1: str, old: OldClient) -> None:
    old.admit("running")
    old.admit("accepted", owner=None)
    old.admit("halted", status="halted", waits=[wait_of("halted", due_at=5)])
    assert old.step("running", 2) == "new"
    clock = ManualClock()
    new = Client(StoreKit(lambda: open_store(at_schema_1, clock), clock, None))  # type: ignore[arg-type]  # not looked at
    assert {run_id: new.row(run_id).status for run_id in ("running", "halted")} == {
        "running": Status.RUNNING,
        "halted": Status.HALTED,
    }
    assert sorted(new.due()) == ["accepted", "halted", "running"], "the lease ran out long before 2030"
    assert old.step("running", 3) == "fenced"
    new.close()


def test_a_run_passes_from_an_old_worker_to_a_new_one_and_back(old: OldClient, new: Client) -> None:
    now = 1_893_456_000_000_000  # where the clock of the new one stands
    old.admit("run")
    assert new.row("run").checkpoints == 1
    assert new.due() == ["run"]
    lease = new.row("run").lease
    assert lease is not None
    chain = Chain("run", new.clock, epoch=lease.epoch, owner=lease.owner)
    chain.head = Chain("run", new.clock).admission(sequence=1, checkpoint_id="run-1")
    new.halt(chain, chain.wait("w"))
    assert old.rows("settle", "w", now, "answer", b"yes", None, "x")
    assert old.claim_due(now) == ["run"]
    assert new.put(chain.following()) != []
    assert new.row("run").lease is not None
    assert new.due() == []


def test_what_an_old_client_opens_has_its_turn_with_new_ones(old: OldClient, new: Client) -> None:
    for number in range(300):
        old.admit(f"old-{number}", status="halted", waits=[wait_of(f"old-{number}", due_at=5)])
    other = new.admit("new", traits=Traits(group="g"))
    new.halt(other, other.wait("w", due_at=new.clock.now()))
    assert "new" in new.due(10)
    assert len(new.due(400)) == 291
    assert old.rows("run", "new")[0][1] == "new"


def test_a_new_run_with_a_priority_is_no_riddle_to_an_old_worker(old: OldClient, new: Client) -> None:
    new.admit("run", has_lease=False, traits=Traits(priority=7, group="g"))
    assert old.claim_due(1_893_456_000_000_000) == ["run"]
    assert new.due() == []


def test_clients_that_make_the_schema_at_once_all_find_it(new_postgres_url: str) -> None:
    start, failures = threading.Barrier(6), list[BaseException]()

    def open_one() -> None:
        try:
            start.wait(30)
            Host(new_postgres_url).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_two_schemas_of_one_database_know_nothing_of_each_other(
    postgres_url: str, new_postgres_url: str
) -> None:
    @node(output="b")
    def add(a: int) -> int:
        return a + 1

    flow = Flow("f", [add, wait.approval("ok")], durability="strong")
    with Host(postgres_url) as one, Host(new_postgres_url) as other:
        one.run(flow, {"a": 1}, run_id="r")
        assert other.runs() == [] and other.waits() == []
        other.run(flow, {"a": 5}, run_id="r")
        assert (one.state("r")["b"], other.state("r")["b"]) == (2, 6)


def test_migrations_are_numbered_without_gaps_and_only_add() -> None:
    steps = migrations()
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    for step in steps:
        script = re.sub(r"--.*", "", step.script)
        assert "CONCURRENTLY" not in script, f"{step.number}: this belongs to what comes later"
        found = re.findall(r"\b(DROP (?!INDEX)\w+|ALTER COLUMN \w+ (?:TYPE|SET NOT NULL)|RENAME)\b", script)
        assert found == [] or step.clients_from, (
            f"{step.number}: {found} would break clients that are at work"
        )


def indexes(db: Connection, schema: str) -> dict[str, bool]:
    query = (
        "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE relnamespace = to_regnamespace($1)"
    )
    return dict(rows(db, query, (schema,)))


@pytest.fixture
def large(at_schema_1: str, old: OldClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A schema of the first release with as many runs as make it a large one here."""
    monkeypatch.setattr("everstep.stores.postgres.schema.SMALL", 2)
    for number in range(3):
        old.admit(f"run-{number}")
    yield at_schema_1


def test_an_upgrade_of_a_large_store_leaves_indexes_for_later(large: str) -> None:
    address = read_address(large)
    Host(large).close()
    with connect(address) as db:
        assert unfinished(db, address) == [step.number for step in migrations() if step.post] != []
        before = indexes(db, address.quoted_schema)
        with Host(large) as host:
            said = [finding.text for finding in host.storage.doctor().findings]
        assert any("the upgrade of its schema is not finished: indexes of step 6, 9" in text for text in said)
        assert "waits_by_topic" not in before and "runs_ready" not in before and "runs_ownerless" in before
        finish(db, address, migrations())
        assert unfinished(db, address) == []
        after = indexes(db, address.quoted_schema)
        assert after["waits_by_topic"] and after["runs_ready"] and "runs_ownerless" not in after
        finish(db, address, migrations())
        assert indexes(db, address.quoted_schema) == after


def test_a_new_store_is_like_one_that_was_upgraded_in_parts(large: str, postgres_server: str) -> None:
    found = []
    with fresh_schema(postgres_server) as fresh:
        for url in (large, fresh):
            address = read_address(url)
            Host(url).close()
            with connect(address) as db:
                finish(db, address, migrations())
                found.append(indexes(db, address.quoted_schema))
    assert found[0] == found[1]


def test_an_index_that_was_cut_off_is_built_again(large: str) -> None:
    address = read_address(large)
    Host(large).close()
    with connect(address) as db, connect(address) as other:
        with other.transaction():
            other.execute(f"UPDATE {address.quoted_schema}.runs SET owner = owner")
            db.execute("SET statement_timeout = '300ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                finish(db, address, migrations())
        db.execute("SET statement_timeout = 0")
        assert False in indexes(db, address.quoted_schema).values()
        finish(db, address, migrations())
        assert False not in indexes(db, address.quoted_schema).values()
        assert unfinished(db, address) == []


def test_clients_at_work_do_not_wait_for_an_upgrade_that_waits_for_a_table(
    large: str, old: OldClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is idle in a transaction holds the upgrade up; others come past it every now and then."""
    monkeypatch.setattr("everstep.stores.postgres.schema._LOCK_TIMEOUT", "50ms")
    address = read_address(large)
    with connect(address) as idle:
        with idle.transaction():
            idle.execute(f"SELECT FROM {address.quoted_schema}.runs")
            upgrade = threading.Thread(target=lambda: Host(large).close())
            upgrade.start()
            old.db.execute("SET statement_timeout = '5s'")
            for sequence in range(2, 22):
                assert old.step("run-0", sequence) == "new"
            assert upgrade.is_alive()
        upgrade.join(60)
    with connect(address) as db:
        assert rows(db, f"SELECT max(number) FROM {address.quoted_schema}.everstep_schema") == [
            (migrations()[-1].number,)
        ]


@pytest.mark.slow
def test_no_part_of_an_upgrade_keeps_an_old_client_waiting_for_a_second(large: str, old: OldClient) -> None:
    """With 100,000 runs; `benchmarks/upgrades.py` measures a million."""
    address = read_address(large)
    schema = address.quoted_schema
    with connect(address) as db:
        db.execute(
            f"INSERT INTO {schema}.runs "
            "(run_id, flow_id, flow_version, flow_hash, status, created_at, epoch) "
            "SELECT 'many-' || n, 'flow', '1', '0', 'completed', 1, 1 FROM generate_series(1, 100000) AS n"
        )
        ended = threading.Event()
        took = []

        def work() -> None:
            sequence = 2
            while not ended.is_set():
                began = monotonic()
                assert old.step("run-0", sequence) == "new"
                took.append(monotonic() - began)
                sequence += 1

        thread = threading.Thread(target=work)
        thread.start()
        migrate(db, address, migrations())
        finish(db, address, migrations())
        ended.set()
        thread.join()
    assert len(took) > 10 and max(took) < 1


def test_a_lease_outlives_the_upgrade(at_schema_1: str, old: OldClient) -> None:
    old.admit("run")
    with Host(at_schema_1):
        assert old.step("run", 2) == "new"
        assert old.rows("renew", "run", 1, "old", int(TTL.total_seconds() * 1e6), None)


@pytest.mark.parametrize("is_strict", [False, True], ids=["", "strict"])
@pytest.mark.parametrize("known", range(1, len(migrations())))
def test_a_worker_of_its_own_role_goes_on_after_the_owner_has_upgraded(
    postgres_server: str, new_postgres_url: str, known: int, is_strict: bool
) -> None:
    """The owner makes and upgrades the tables, the worker has rights on those that were there.

    Where things are strict, only a role that was named may call functions.
    """
    address = read_address(new_postgres_url)
    schema = address.quoted_schema
    role = '"Hand of ' + schema.strip('"') + '"'
    as_worker = new_postgres_url.replace("postgres@", f"{quote(role.strip(chr(34)), safe='')}@")
    defaults = "ALTER DEFAULT PRIVILEGES {} EXECUTE ON FUNCTIONS {} PUBLIC"
    with psycopg.connect(postgres_server, autocommit=True) as admin:

        def say(*statements: str) -> None:
            for statement in statements:
                admin.execute(statement.encode())

        say(f"CREATE ROLE {role} LOGIN", defaults.format("REVOKE", "FROM") if is_strict else "")
        try:
            with connect(address) as db:
                migrate(db, address, migrations()[:known])
            say(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
            for what in RIGHTS:
                say(f"GRANT {what} IN SCHEMA {schema} TO {role}")
            old = OldClient(as_worker)
            old.admit("before")
            Host(new_postgres_url).close()
            assert old.step("before", 2) == "new"
            old.admit("after", owner=None)
            assert old.claim_due(1_893_456_000_000_000) == ["after", "before"]
            old.db.close()
            with Host(as_worker) as host:
                host.start(flow, {"a": 1}, run_id="A1")
                assert host.work([flow], until_idle=True).completed == 1
                assert host.fleet.counts().runs == {"running": 2, "completed": 1}
                host.retention.pin("A1", "kept")
                host.retention.unpin("A1")
                host.retention.erase("A1")
                assert [gone.run_id for gone in host.retention.removed()] == ["A1"]
        finally:
            say(defaults.format("GRANT", "TO"), f"DROP OWNED BY {role}; DROP ROLE {role}")


@node(output="b")
def double(a: int) -> int:
    return 2 * a


flow = Flow("doubled", [double], durability="strong")
