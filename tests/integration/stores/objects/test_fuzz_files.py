"""Whatever was done to the files of a store, every look at it gives a named error or what was written.

`EVERSTEP_SOAK=1` tries many more, others each time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from everstep import Context, Durability, Flow, Host, KeyRing, node, wait
from everstep.errors import EverstepError, StateCorrupted
from everstep.runtime.drive import chain_writer
from everstep.testing import ManualClock
from tests.unit.codec.fuzzing import IS_SOAK, spoiled

TABLES = ("checkpoints", "checkpoints", "checkpoints", "runs", "waits", "blueprints")
KEYS = KeyRing({"k": b"1" * 32})
TRIES = 1500 if IS_SOAK else 25


@node(output="words")
def split(text: str, ctx: Context) -> list[str]:
    ctx.channel.append("log", "split")
    return text.split()


@node(output="size")
def measure(word: str) -> int:
    return len(word)


@node(output="big")
def enlarge(size: list[int], ctx: Context) -> str:
    ctx.channel.atomic_add("count", 2)
    return "x" * (1000 + sum(size))


@node(output="chunks", replayable=True)
def stream(big: str) -> Iterator[str]:
    yield from ("a", "b", big[:3])


@node(output="done")
def finish(reply: str, chunks: list[str]) -> str:
    if reply == "fail":
        raise ValueError("as asked")
    return reply + chunks[-1]


def flow() -> Flow:
    over = Flow("m", [measure]).as_node().with_inputs(word="words").map_over("word")
    return Flow(
        "f",
        [split, over, enlarge, stream, wait.question("reply", kind="text"), finish],
        durability=Durability("strong", blob_threshold=500),
    )


FLOW = flow()


def host_of(folder: Path, *, is_locked: bool) -> Host:
    keys: Any = KEYS if is_locked else False
    clock = ManualClock()
    return Host(f"sqlite:///{folder}/runs.db", clock=clock, encrypt=keys, compress=is_locked)


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch, host_of(folder, is_locked=request.param != "plain") as host:
        patch.setattr(chain_writer, "KEYFRAME_BYTES", 100)
        for name in ("one", "two", "three"):
            host.run(FLOW, {"text": f"some words for {name}"}, run_id=name)
        for name, answer in (("one", "yes"), ("two", "fail")):
            host.answer(host.waits(name)[0].id, answer)
            host.resume(name, FLOW)
        host.fork("one", at=4, inputs={"text": "other words"}, fork_id="fork")
        host.resume("fork", FLOW)
        assert any(c.keyframe for c in host.checkpoints("one"))
        assert all(one.is_sound and one.artifacts for one in host.storage.verify() if one.run_id != "fork")
    return folder


Truth = dict[str, dict[tuple[str, int], Any]]


@pytest.fixture(scope="module")
def truth(template: Path) -> Truth:
    found: Truth = {}
    with host_of(template, is_locked="encrypted" in template.name) as host:
        for run in ("one", "two", "three", "fork"):
            for at in range(1, host.info(run).checkpoints + 1):
                state = host.state(run, at)
                kept = found.setdefault(run, {})
                kept.update({(name, state.versions[name]): state[name] for name in state})
    return found


def damage(folder: Path, chance: Random) -> str:
    """Do something to the files, and say what."""
    artifacts = [path for path in sorted((folder / "runs.db.artifacts").rglob("*")) if path.is_file()]
    kind = chance.choice(["cell", "cell", "cell", "cell", "swap", "delete", "file", "artifact"])
    if kind == "artifact" and artifacts:
        file = chance.choice(artifacts)
        file.write_bytes(spoiled(chance, file.read_bytes(), tuple(a.read_bytes() for a in artifacts)))
        return f"artifact {file.name}"
    if kind == "file":
        path = folder / "runs.db"
        whole = bytearray(path.read_bytes())
        for _ in range(chance.choice([1, 1, 20])):
            whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(
            bytes(whole) if chance.random() < 0.8 else bytes(whole[: chance.randrange(len(whole))])
        )
        return "file"
    with closing(apsw.Connection(str(folder / "runs.db"))) as db:
        table = chance.choice(TABLES)
        columns = [row[1] for row in db.execute(f"SELECT * FROM pragma_table_info('{table}')")]
        # A table without numbers for its rows has a key to tell them apart.
        key = "flow_hash" if table == "blueprints" else "rowid"
        ids = [row[0] for row in db.execute(f"SELECT {key} FROM {table}")]
        one, other, column = chance.choice(ids), chance.choice(ids), chance.choice(columns)
        if kind == "delete":
            db.execute(f"DELETE FROM {table} WHERE {key} = ?", (one,))
            return f"{table} {one} deleted"
        if table == "checkpoints" and chance.random() < 0.8:
            column = "body"
        [(value,)] = db.execute(f"SELECT {column} FROM {table} WHERE {key} = ?", (one,))
        [(theirs,)] = db.execute(f"SELECT {column} FROM {table} WHERE {key} = ?", (other,))
        new = theirs if kind == "swap" else changed(value, theirs, chance)
        try:
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (new, one))
        except apsw.Error:
            return "nothing"
        return f"{table}.{column} of {one}: {str(value)[:40]} became {str(new)[:40]}"


def changed(value: Any, other: Any, chance: Random) -> Any:
    if isinstance(value, bytes) and value:
        return spoiled(chance, value, (other,) if isinstance(other, bytes) and other else ())
    odd: list[Any] = [None, -1, 0, 1, 2**62, "", "completed", "running", "halted", b"\xff", "\x00", other]
    return chance.choice(odd)


def looks(host: Host, run: str, truth: Truth) -> list[Callable[[], object]]:
    """Return everything that a client may do with a run."""

    def state(at: int | None = None) -> None:
        found = host.state(run, at)
        for name in found:
            try:
                value = found[name]
            except EverstepError:
                continue
            expected = truth[run].get((name, found.versions[name]))
            assert value == expected, f"{run}: {name} is {value!r:.80}, and was {expected!r:.80}"

    def settled() -> None:
        for one in host.waits(run, status=None):
            assert one.answer in (None, "yes", "fail"), one.answer

    return [
        lambda: host.info(run),
        lambda: host.history(run),
        lambda: host.checkpoints(run),
        lambda: host.latest(run),
        state,
        lambda: state(3),
        settled,
        lambda: host.debug.diff(run, start=1),
        lambda: host.explain(run, FLOW),
        lambda: host.versions.compat(run, FLOW),
        lambda: host.storage.verify(run),
        lambda: host.fork(run, at=3),
        lambda: host.retention.clean_up(run, keep=2),
        lambda: host.resume(run, FLOW),
        lambda: host.resume(run, FLOW, fallback=True),
        lambda: host.cancel(run),
        lambda: host.storage.rekey(run) if host.url else None,
    ]


def everything(folder: Path, truth: Truth, chance: Random, *, is_locked: bool) -> Iterator[str]:
    """Do all of it, and yield the names of the errors that came."""
    try:
        with host_of(folder, is_locked=is_locked) as host:
            all_runs: list[Callable[[], object]] = [
                host.runs,
                host.fleet.counts,
                host.waits,
                host.storage.verify,
                lambda: host.work([FLOW], until_idle=True),
            ]
            run = chance.choice(sorted(truth))
            for look in [*looks(host, run, truth), *all_runs]:
                try:
                    look()
                except EverstepError as error:
                    yield error.code
    except EverstepError as error:
        yield error.code


def test_damaged_files_give_named_errors_and_never_another_value(
    template: Path, truth: Truth, tmp_path: Path
) -> None:
    start = int(os.environ.get("EVERSTEP_FUZZ", "0"))
    codes: set[str] = set()
    for seed in range(start, start + TRIES):
        chance = Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(template, folder)
        done = damage(folder, chance)
        try:
            codes.update(everything(folder, truth, chance, is_locked="encrypted" in template.name))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {done}: {error!r}") from error
        shutil.rmtree(folder)
    assert "DAG-CKPT-008" in codes


def test_waits_whose_times_or_texts_were_altered_stop_no_worker(template: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(template, folder)
    with closing(apsw.Connection(str(folder / "runs.db"))) as db:
        db.execute("UPDATE waits SET wake_at = 0 WHERE status <> 'closed'")
        db.execute("UPDATE waits SET details = ? WHERE status = 'closed'", (b'{"prompt": "\xff"}',))
        db.execute("UPDATE runs SET claimed_sequence = 'text' WHERE run_id = 'two'")
    with host_of(folder, is_locked="encrypted" in template.name) as host:
        assert host.work([FLOW], until_idle=True).failed == 0
        assert any("cannot be read" in one.prompt for one in host.waits(status=None))
        with pytest.raises(StateCorrupted, match="the row of run 'two' was altered"):
            host.info("two")
