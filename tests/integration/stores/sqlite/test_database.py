"""The SQLite file: its schema, damage to it, and other processes that use it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from everstep import Durability, Flow, Host, Status, node
from everstep.errors import (
    EverstepError,
    IncompatibleVersion,
    KeyUnavailable,
    LeaseConflict,
    StateCorrupted,
    StoreError,
)
from everstep.graph.compile.plan import hash_of
from everstep.model.enums import Mode
from everstep.model.leases import Process
from everstep.registry import open_store
from everstep.runtime.events import Event
from everstep.stores.sqlite.columns import LARGE_STRUCTURE
from everstep.stores.sqlite.database import APPLICATION_ID, migrate, migrations, open_database, page_size
from everstep.stores.sqlite.store import SqliteStore
from everstep.testing import ManualClock
from everstep.testing.conformance.crash import Interruption, Loss, interrupted
from everstep.testing.conformance.kit import TTL
from tests.servers import warm

ROOT = Path(__file__).resolve().parents[4]


@node(output="a")
def first(seed: int) -> int:
    return seed + 1


@node(output="b")
def second(a: int) -> list[int]:
    return list(range(a))


@node(output="c")
def third(b: list[int], seed: int) -> int:
    return sum(b) + seed


FLOW = Flow("three", [first, second, third], durability="strong")
INPUTS = {"seed": 10}
RESULT = {"a": 11, "b": list(range(11)), "c": 65}


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def sql(path: Path, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """Do something to a database behind everstep's back."""
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(statement, bindings).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def unfinished(path: Path) -> Path:
    interrupt_run(path)
    return path


def interrupt_run(path: Path) -> None:
    """Make a database with a run that was interrupted before its last step, three records long."""
    clock = ManualClock()
    opened = interrupted(open_store(url_of(path), clock), Interruption(4, Loss.BEFORE))
    with Host(opened, clock=clock) as host, pytest.raises(StoreError):
        host.run(FLOW, INPUTS, run_id="run")
    assert sql(path, "SELECT count(*) FROM checkpoints") == [(3,)]


@pytest.fixture
def finished(path: Path) -> Path:
    """A database with a run that completed."""
    with Host(url_of(path)) as host:
        host.run(FLOW, INPUTS, run_id="run")
    return path


def finish(path: Path) -> dict[str, Any]:
    """Continue the run long after its owner died."""
    clock = ManualClock(auto=True)
    clock.advance(TTL * 10)
    with Host(url_of(path), clock=clock) as host:
        result = host.run(FLOW, INPUTS, run_id="run")
        assert result.status is Status.COMPLETED
        return dict(result)


class TestSchema:
    def test_migrations_are_numbered_without_gaps(self) -> None:
        numbers = [number for number, _ in migrations()]
        assert numbers == list(range(1, len(numbers) + 1))

    def test_migrations_one_at_a_time_make_the_same_schema_as_all_at_once(self, tmp_path: Path) -> None:
        one_by_one, at_once = tmp_path / "one.db", tmp_path / "all.db"
        for number, _ in migrations():
            with closing(apsw.Connection(str(one_by_one))) as connection:
                migrate(connection, one_by_one, upto=number)
        open_database(at_once, synchronous="FULL", create=True).close()
        schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
        assert sql(one_by_one, schema) == sql(at_once, schema) != []
        for pragma in ("user_version", "application_id"):
            assert sql(one_by_one, f"PRAGMA {pragma}") == sql(at_once, f"PRAGMA {pragma}")

    def test_runs_of_the_first_schema_can_be_read_and_forked(self, finished: Path, tmp_path: Path) -> None:
        old = tmp_path / "old.db"
        with closing(apsw.Connection(str(old))) as connection:
            migrate(connection, old, upto=1)
            connection.execute("ATTACH ? AS new", (str(finished),))
            for table in ("runs", "checkpoints", "blueprints"):
                found = connection.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()
                names = ", ".join(str(name) for (name,) in found)
                connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM new.{table}")
        assert sql(old, "PRAGMA user_version") == [(1,)]
        with Host(url_of(old)) as host:
            assert host.info("run").forked_at is None
            assert host.state(host.fork("run").run_id)
        assert sql(old, "PRAGMA user_version") == [(len(migrations()),)]

    def test_a_newer_schema_is_refused(self, finished: Path) -> None:
        sql(finished, "PRAGMA user_version = 999")
        with pytest.raises(IncompatibleVersion, match=r"schema 999.* newer everstep") as caught:
            Host(url_of(finished))
        assert caught.value.code == "DAG-CKPT-009"
        assert sql(finished, "SELECT count(*) FROM runs") == [(1,)]

    @pytest.mark.parametrize("marks", [(0, 0), (3, 0), (1, 12345), (0, 12345)])
    def test_a_database_of_another_program_is_left_alone(self, path: Path, marks: tuple[int, int]) -> None:
        sql(path, "CREATE TABLE theirs (x)")
        sql(path, f"PRAGMA user_version = {marks[0]}")
        sql(path, f"PRAGMA application_id = {marks[1]}")
        before = path.read_bytes()
        with pytest.raises(StoreError, match="another program"):
            Host(url_of(path))
        assert path.read_bytes() == before

    def test_a_database_that_is_not_there_is_not_made_unless_asked_for(self, path: Path) -> None:
        with pytest.raises(StoreError, match="no database"):
            Host(url_of(path), create=False)
        assert not path.exists()

    def test_processes_that_make_the_same_database_at_once_all_succeed(self, tmp_path: Path) -> None:
        with child("make_databases") as one, child("make_databases") as other:
            assert (hear(one), hear(other)) == ("ready", "ready")
            answers: Counter[str] = Counter()
            for number in range(20):
                for maker in (one, other):
                    tell(maker, f"{tmp_path}/{number}.db")
                answers.update([hear(one), hear(other)])
        assert answers == {"made": 40}

    def test_a_database_that_another_process_makes_in_between_is_ours(self, path: Path) -> None:
        attempts: list[str] = []

        def make_it_now(cursor: Any, statement: str, bindings: Any) -> bool:
            if "sqlite_schema" in statement and not attempts:
                attempts.append(statement)
                with closing(apsw.Connection(str(path))) as other, suppress(apsw.BusyError):
                    migrate(other, path)
            return True

        def hook(connection: apsw.Connection) -> None:
            connection.exec_trace = make_it_now

        apsw.connection_hooks.append(hook)
        try:
            open_database(path, synchronous="FULL", create=True).close()
        finally:
            apsw.connection_hooks.remove(hook)
        assert len(attempts) == 1
        assert sql(path, "PRAGMA application_id") == [(APPLICATION_ID,)]


class TestDamage:
    @pytest.mark.parametrize("garbage", [b"not a database, " * 1000, b"\0" * 8192, bytes(range(100))])
    def test_a_file_of_garbage_is_refused_in_plain_words(self, path: Path, garbage: bytes) -> None:
        path.write_bytes(garbage)
        with pytest.raises((StateCorrupted, StoreError), match=r"runs\.db (is damaged|is a database of)"):
            Host(url_of(path))

    def test_a_truncated_file_is_never_read_wrong(self, finished: Path) -> None:
        whole = finished.read_bytes()
        refused = 0
        for length in range(700, len(whole), 3001):
            for file in finished.parent.glob("runs.db*"):
                file.unlink()
            finished.write_bytes(whole[:length])
            try:
                assert finish(finished) == RESULT
            except (StateCorrupted, StoreError) as error:
                assert re.search(r"runs\.db|run 'run'|flow 'three'", error.message)
                refused += 1
        assert refused > len(whole) / 3001 * 0.8

    def test_no_flipped_byte_in_a_record_gives_a_wrong_result(self, unfinished: Path) -> None:
        [(body,)] = sql(unfinished, "SELECT body FROM checkpoints ORDER BY position LIMIT 1 OFFSET 1")
        codes: Counter[str] = Counter()
        with Host(url_of(unfinished), clock=ManualClock()) as host:
            for spot in range(len(body)):
                flipped = body[:spot] + bytes([body[spot] ^ 0x41]) + body[spot + 1 :]
                sql(unfinished, "UPDATE checkpoints SET body = ? WHERE position % 4294967296 = 2", flipped)
                try:
                    assert dict(host.state("run")) == {**INPUTS, "a": 11, "b": RESULT["b"]}, f"byte {spot}"
                except (StateCorrupted, IncompatibleVersion, KeyUnavailable) as error:
                    codes[error.code] += 1
        # The name of a key, or of a format, is the only thing that a flipped byte makes another of.
        assert codes["DAG-CKPT-008"] > len(body) * 0.9

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE checkpoints SET body = CAST(body || x'00' AS BLOB) WHERE position % 4294967296 = 2",
            "UPDATE checkpoints SET body = x'' WHERE position % 4294967296 = 2",
            "UPDATE checkpoints SET body = CAST(replace(body, x'66697273', x'66697274') AS BLOB)",
            "DELETE FROM checkpoints WHERE position % 4294967296 = 1",
            "DELETE FROM checkpoints WHERE position % 4294967296 = 2",
            "DELETE FROM checkpoints",
            "UPDATE checkpoints SET keyframe = 1 WHERE position % 4294967296 = 3",
            "UPDATE checkpoints SET body = (SELECT body FROM checkpoints c WHERE c.position % 4294967296 = 1)"
            " WHERE position % 4294967296 = 2",
            "UPDATE checkpoints SET body = (SELECT body FROM checkpoints c WHERE c.position ="
            " checkpoints.position / 4294967296 * 4294967296 + 5 - checkpoints.position % 4294967296)"
            " WHERE position % 4294967296 IN (2, 3)",
        ],
        ids=[
            "appended",
            "emptied",
            "edited",
            "first deleted",
            "middle deleted",
            "all deleted",
            "called a keyframe",
            "replaced",
            "swapped",
        ],
    )
    def test_altered_records_are_found_out(self, unfinished: Path, damage: str) -> None:
        sql(unfinished, damage)
        with Host(url_of(unfinished), clock=ManualClock()) as host, pytest.raises(StateCorrupted) as caught:
            host.state("run")
        assert caught.value.code == "DAG-CKPT-008"
        with pytest.raises(StateCorrupted):
            finish(unfinished)

    def test_a_finished_run_whose_last_record_is_gone_is_found_out(self, finished: Path) -> None:
        sql(finished, "DELETE FROM checkpoints WHERE position = (SELECT max(position) FROM checkpoints)")
        with pytest.raises(StateCorrupted):
            finish(finished)

    def test_a_first_record_of_another_run_is_found_out(self, path: Path) -> None:
        clock = ManualClock()
        for run_id, seed in (("run", 10), ("other", 99)):
            opened = interrupted(open_store(url_of(path), clock), Interruption(2, Loss.BEFORE))
            with Host(opened, clock=clock) as host, pytest.raises(StoreError):
                host.run(FLOW, {"seed": seed}, run_id=run_id)
        sql(path, "UPDATE checkpoints SET body = (SELECT body FROM checkpoints ORDER BY position DESC)")
        clock.advance(TTL * 2)
        with Host(url_of(path), clock=clock) as host, pytest.raises(StateCorrupted):
            host.resume("run", FLOW)


class TestArtifacts:
    @node(output="large")
    @staticmethod
    def widen(seed: int) -> bytes:
        return b"x" * 100_000 * seed

    @node(output="size")
    @staticmethod
    def measure(large: bytes) -> int:
        return len(large)

    flow = Flow("wide", [widen, measure], durability=Durability(Mode.STRONG, blob_threshold=1000))

    @pytest.fixture
    def artifact(self, path: Path) -> Path:
        """The artifact of a run that was interrupted right after it was written and recorded."""
        clock = ManualClock()
        opened = interrupted(open_store(url_of(path), clock), Interruption(4, Loss.BEFORE))
        with Host(opened, clock=clock) as host, pytest.raises(StoreError):
            host.run(self.flow, {"seed": 2}, run_id="run")
        [file] = [f for f in path.with_name("runs.db.artifacts").rglob("*") if f.is_file()]
        return file

    def finish(self, path: Path) -> Any:
        clock = ManualClock()
        clock.advance(TTL * 10)
        with Host(url_of(path), clock=clock) as host:
            result = host.run(self.flow, {"seed": 2}, run_id="run")
            return result.error.code if result.error is not None else result["size"]

    def test_an_untouched_artifact_is_read_back(self, path: Path, artifact: Path) -> None:
        assert self.finish(path) == 200_000

    @pytest.mark.parametrize(
        "damage",
        [
            lambda file: file.unlink(),
            lambda file: file.write_bytes(b""),
            lambda file: file.write_bytes(file.read_bytes()[:-1]),
            lambda file: file.write_bytes(file.read_bytes()[:-1] + b"y"),
        ],
        ids=["missing", "empty", "cut", "edited"],
    )
    def test_a_damaged_artifact_is_found_out(
        self, path: Path, artifact: Path, damage: Callable[[Path], Any]
    ) -> None:
        damage(artifact)
        with Host(url_of(path), clock=ManualClock()) as host, pytest.raises(StateCorrupted) as caught:
            dict(host.state("run"))
        assert caught.value.code == "DAG-CKPT-008"
        with pytest.raises(StateCorrupted):
            assert self.finish(path) == "DAG-CKPT-008"


def drain(work: Any) -> Any:
    """Finish a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


@contextmanager
def closing_store(store: SqliteStore) -> Iterator[SqliteStore]:
    try:
        yield store
    finally:
        drain(store.close())


class TestProcesses:
    def test_a_run_that_another_process_drives_is_refused_at_once(self, path: Path) -> None:
        events: list[Event] = []
        with child("hold_lease", path) as owner, Host(url_of(path), on_event=events.append) as host:
            assert hear(owner) == "holding"
            with pytest.raises(LeaseConflict, match=f"process {owner.pid}") as caught:
                host.run(HELD, {"seed": 1}, run_id="run")
            assert caught.value.code == "DAG-CKPT-007"
            assert [event.kind for event in events] == []
            tell(owner, "go on")
            assert hear(owner) == "2"
            assert host.run(HELD, {"seed": 1}, run_id="run")["held"] == 2

    def test_the_run_of_a_killed_process_is_taken_over_at_once(self, path: Path) -> None:
        with child("hold_lease", path) as owner:
            assert hear(owner) == "holding"
            owner.kill()
            owner.wait(10)
        events: list[Event] = []
        with Host(url_of(path), on_event=events.append) as host:
            assert host.run(HELD, {"seed": 1}, run_id="run")["held"] == 2
        kinds = [event.kind for event in events]
        assert kinds[0] == "run_resumed"
        assert "lease_wait" not in kinds

    def test_the_lease_of_another_machine_is_waited_out_visibly(self, unfinished: Path) -> None:
        clock = ManualClock(auto=True)
        clock.advance(TTL)
        elsewhere = Process("another boot", "pid:[1]", 1, 1)
        with closing_store(SqliteStore(unfinished, clock)) as store:
            drain(store.lease("run", owner="elsewhere", ttl=TTL, process=elsewhere))
        claimed_at = clock.now()
        events: list[Event] = []
        with Host(url_of(unfinished), clock=clock, on_event=events.append) as host:
            assert dict(host.run(FLOW, INPUTS, run_id="run")) == RESULT
        assert [event.kind for event in events][:2] == ["lease_wait", "run_resumed"]
        assert events[0].data["until"] == (claimed_at + TTL).isoformat()
        assert events[1].at > claimed_at + TTL

    def test_a_client_reads_whole_states_while_another_writes(self, path: Path) -> None:
        steps = 200

        @node(output="pair")
        def count(pair: list[int]) -> list[int]:
            return [pair[0] + 1, pair[1] - 1]

        flow = Flow(
            "count",
            [
                count.with_name(f"count{k}").with_inputs(pair=f"pair{k}").with_outputs(f"pair{k + 1}")
                for k in range(steps)
            ],
            durability="strong",
        )
        failures: list[BaseException] = []

        def write() -> None:
            try:
                with Host(url_of(path)) as host:
                    host.run(flow, {"pair0": [0, 0]}, run_id="run")
            except BaseException as error:
                failures.append(error)

        open_database(path, synchronous="FULL", create=True).close()
        writer = threading.Thread(target=write)
        writer.start()
        seen: set[int] = set()
        with Host(url_of(path)) as host:
            while not failures:
                try:
                    state = host.state("run")
                except EverstepError as error:
                    assert error.code == "DAG-CKPT-006"
                    continue
                newest = max(int(name.removeprefix("pair")) for name in state)
                assert state[f"pair{newest}"] == [newest, -newest]
                assert not seen or newest >= max(seen)
                seen.add(newest)
                if state.status is Status.COMPLETED:
                    break
        writer.join()
        assert failures == []
        assert max(seen) == steps
        assert len(seen) > 3


@node(output="held")
def hold(seed: int) -> int:
    if "hold_lease" in sys.argv:
        print("holding", flush=True)
        sys.stdin.readline()
    return seed + 1


HELD = Flow("held", [hold], durability="strong")


def hold_lease(path: str) -> None:
    """Drive a run, and wait in the middle of it to be told to go on."""
    with Host(url_of(Path(path))) as host:
        print(host.run(HELD, {"seed": 1}, run_id="run")["held"], flush=True)


def make_databases() -> None:
    """Make each database that is named on stdin."""
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            Host(url_of(Path(line.strip()))).close()
            print("made", flush=True)
        except EverstepError as error:
            print(f"{error.code}: {error}", flush=True)


@contextmanager
def child(job: str, *args: Path) -> Iterator[warm.Process]:
    """Do a job of this module in another process, and end it when we are done."""
    module = "tests.integration.stores.sqlite.test_database"
    process = warm.Process(
        [
            sys.executable,
            "-c",
            f"import sys; from {module} import *; {job}(*sys.argv[2:])",
            job,
            *map(str, args),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def tell(child: warm.Process, line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def hear(child: warm.Process) -> str:
    assert child.stdout is not None
    return str(child.stdout.readline()).strip()


def test_new_files_have_small_pages_and_others_keep_theirs(tmp_path: Path) -> None:
    def pages(name: str) -> int:
        with closing(open_database(tmp_path / name, synchronous="FULL", create=True)) as connection:
            return page_size(connection)

    with closing(apsw.Connection(str(tmp_path / "old.db"))) as old:
        old.execute("PRAGMA page_size = 8192")
        migrate(old, tmp_path / "old.db")
    assert (pages("new.db"), pages("old.db")) == (4096, 8192)


def test_the_structure_of_a_large_flow_is_kept_compressed_and_read_as_it_was(tmp_path: Path) -> None:
    @node(output="b")
    def go(a: int) -> int:
        return a

    def chain(count: int) -> Flow:
        return Flow(
            "chain",
            [go.with_name(f"n{k}").with_inputs(a=f"v{k}").with_outputs(f"v{k + 1}") for k in range(count)],
        )

    file = tmp_path / "runs.db"
    small, large = chain(3), chain(LARGE_STRUCTURE // 70 + 10)
    with Host(f"sqlite:///{file}") as host:
        for name, flow in (("small", small), ("large", large)):
            host.start(flow, {"v0": 1}, run_id=name)
    with closing(apsw.Connection(str(file))) as connection:
        kept = {
            run_id: bytes(structure)
            for run_id, structure in connection.execute(
                "SELECT run_id, structure FROM runs JOIN blueprints USING (flow_hash)"
            )
        }
        assert kept["small"] == small.plan.blueprint
        assert len(kept["large"]) < len(large.plan.blueprint) / 4
        with Host(f"sqlite:///{file}") as host:  # without the code
            assert len(host.state("large").plan.nodes) == len(large.plan.nodes)
        connection.execute(
            "UPDATE blueprints SET structure = ? WHERE length(structure) > 1000", (b"\x78oops",)
        )
    with Host(f"sqlite:///{file}") as host:
        assert host.state("small")["v0"] == 1
        with pytest.raises(StateCorrupted, match="structure of flow 'chain' was altered"):
            host.state("large")
    with closing(apsw.Connection(str(file))) as connection:  # as 0.1 kept it
        connection.execute(
            "UPDATE blueprints SET structure = ? WHERE flow_hash = ?",
            (large.plan.blueprint, hash_of(large.plan.blueprint)),
        )
    with Host(f"sqlite:///{file}") as host:
        assert host.state("large")["v0"] == 1
