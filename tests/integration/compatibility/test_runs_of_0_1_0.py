"""Runs that everstep 0.1.0 wrote, in every store, shape and state, are read as they were and go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from everstep import Host, KeyRing
from everstep.checkpoints import CheckpointManager
from tests.fixtures.v0_1_0 import dumps, flows
from tests.servers.github import fresh_token, new_token
from tests.servers.postgres import PostgresServer

KEPT = Path(__file__).parents[2] / "fixtures" / "v0_1_0"
WHEEL = "ab3aa45863df1447c98db920aa2b38d322f605dca26eb14a6393f0ddea9790ed"
KEYS = KeyRing({"k": b"1" * 32})
STORES = ("file", "postgres", "redis", "s3", "sqlite")
KNOWN: dict[str, dict[str, Any]] = {
    store: json.loads((KEPT / f"{store}.json").read_text()) for store in (*STORES, "github")
}
WAITING = ("halted", "forked", "encrypted")
IS_SOAK = os.environ.get("EVERSTEP_SOAK") == "1"
LEAST = {"chain", "waits"}
"""The shapes that are read and go on by default in a repository."""
FEW = {"chain", "maps", "waits", "effects", "phases"}
"""The shapes that go on by default where every object is a file or a call; all are read."""


@contextmanager
def restored(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the URL of a store that holds what 0.1.0 wrote."""
    archive = KEPT / f"{store}.tar.xz"
    if store in ("sqlite", "file"):
        dumps.unpack(archive, tmp_path)
        yield f"sqlite:///{tmp_path}/runs.db" if store == "sqlite" else f"file://{tmp_path}"
    elif store == "postgres":
        with new_database(request.getfixturevalue("postgres_server")) as url:
            binaries = PostgresServer.find()
            assert binaries is not None
            dumps.restore_postgres(archive, url, binaries)
            yield f"{url}?schema=kept"
    else:
        url = request.getfixturevalue(f"{store}_url")
        {"redis": dumps.restore_redis, "s3": dumps.restore_s3}[store](archive, url)
        yield url


@contextmanager
def new_database(server: str) -> Iterator[str]:
    name = f"kept_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield server.rpartition("/")[0] + f"/{name}"
        connection.execute(f"drop database {name} with (force)")


def shape_of(run_id: str) -> str:
    return run_id.partition("-")[0]


def state_of(run_id: str) -> str:
    return run_id.partition("-")[2]


def is_as_written(host: Host, run_id: str, told: dict[str, Any]) -> None:
    state = host.state(run_id)
    found = {
        "status": host.info(run_id).status.value,
        "checkpoints": [record.digest for record in host.history(run_id)],
        "values": {name: state.digests[name].hex() for name in sorted(state.digests)},
        "waits": sorted(one.node for one in host.waits(run_id)),
    }
    assert found == told, run_id


def go_on(host: Host, run_id: str) -> None:
    """Drive a run to its end, with the answers it asks for."""
    shape = shape_of(run_id)
    result = host.resume(run_id, flows.SHAPES[shape])
    while result.status == "halted":
        for one in host.waits(run_id):
            host.answer(one.id, flows.answer_of(shape, one.node))
        result = host.resume(run_id, flows.SHAPES[shape])
    assert (run_id, result.status) == (run_id, "completed"), result.error
    versions = [record.version for record in host.history(run_id)]
    assert versions == sorted(versions) and {*versions} == {1, 2}, "each goes on in the version of now"


def test_nothing_rewrote_what_0_1_0_wrote() -> None:
    sums = [line.split() for line in (KEPT / "SHA256SUMS").read_text().splitlines()]
    found = {name: hashlib.sha256((KEPT / name).read_bytes()).hexdigest() for _, name in sums}
    assert found == {name: sum_ for sum_, name in sums}
    assert {name for _, name in sums} >= {f"{store}.tar.xz" for store in KNOWN}


def test_the_wheel_that_runs_beside_this_version_is_the_one_that_was_released() -> None:
    wheel = KEPT.parent / "releases" / "everstep-0.1.0-py3-none-any.whl"
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == WHEEL


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_runs_of_0_1_0_are_read_as_they_were_and_go_on(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restored(store, tmp_path, request) as url, Host(url, encrypt=KEYS, compress=True) as host:
        assert {run.run_id for run in host.runs(limit=1000)} == set(KNOWN[store])
        for run_id, told in KNOWN[store].items():
            is_as_written(host, run_id, told)
        assert [one.run_id for one in host.storage.verify() if not one.is_sound] == []
        monkeypatch.setattr(flows, "IS_MENDED", True)
        for run_id in KNOWN[store]:
            if is_asked(run_id) and (IS_SOAK or store in ("sqlite", "redis") or shape_of(run_id) in FEW):
                go_on(host, run_id)
        fork = host.fork("chain-completed", at=2)
        assert [record.version for record in host.history(fork.run_id)] == [1, 1, 2]
        assert [one.run_id for one in host.storage.verify() if not one.is_sound] == []


def is_asked(run_id: str) -> bool:
    """True for a run that goes on once what broke it is fixed."""
    return state_of(run_id) in (*WAITING, "failed", "killed") and shape_of(run_id) != "broken"


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [shape if shape in LEAST else pytest.param(shape, marks=pytest.mark.soak) for shape in flows.SHAPES],
)
def test_runs_of_0_1_0_in_a_repository_are_read_as_they_were_and_go_on(
    shape: str, github_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps.restore_github(KEPT / "github.tar.xz", github_url, new_token(), shape)
    known = {run_id: told for run_id, told in KNOWN["github"].items() if shape_of(run_id) == shape}
    with fresh_token(), Host(github_url, encrypt=KEYS, compress=True) as host:
        assert {run.run_id for run in host.runs(limit=1000)} == set(known)
        for run_id, told in known.items():
            is_as_written(host, run_id, told)
        assert [one.run_id for one in host.storage.verify() if not one.is_sound] == []
    monkeypatch.setattr(flows, "IS_MENDED", True)
    with fresh_token(), Host(github_url, encrypt=KEYS, compress=True) as host:
        for run_id in filter(is_asked, known):
            go_on(host, run_id)
        assert [one.run_id for one in host.storage.verify() if not one.is_sound] == []


def test_bundles_of_0_1_0_are_imported_and_go_on(tmp_path: Path) -> None:
    dumps.unpack(KEPT / "bundles.tar.xz", tmp_path)
    with Host("memory:", encrypt=KEYS) as host:
        for file in sorted(tmp_path.glob("*.everstep")):
            host.transfer.import_(file)
        for run_id, told in KNOWN["sqlite"].items():
            if state_of(run_id) != "killed":
                is_as_written(host, run_id, told)
        for shape in flows.SHAPES:
            if f"{shape}-halted" in KNOWN["sqlite"]:
                go_on(host, f"{shape}-halted")
        assert [one.run_id for one in host.storage.verify() if not one.is_sound] == []


def test_a_chain_of_both_versions_is_exported_imported_and_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps.unpack(KEPT / "sqlite.tar.xz", tmp_path)
    monkeypatch.setattr(flows, "IS_MENDED", True)
    with Host(f"sqlite:///{tmp_path}/runs.db", encrypt=KEYS) as host:
        go_on(host, "chain-failed")
        host.fork("chain-failed", at=2, fork_id="chain-again")
        digests = [record.digest for record in host.history("chain-again")]
        host.transfer.export("chain-again", tmp_path / "both.everstep")
    with Host("memory:", encrypt=KEYS) as host:
        host.transfer.import_(tmp_path / "both.everstep")
        assert [record.digest for record in host.history("chain-again")] == digests
        go_on(host, "chain-again")
        host.storage.rekey()
        assert [one.run_id for one in host.storage.verify() if not one.is_sound] == []


def test_three_file_sets_of_0_1_0_are_resumed(tmp_path: Path) -> None:
    dumps.unpack(KEPT / "sets.tar.xz", tmp_path)
    with Host("memory:") as host:
        manager = CheckpointManager(host, tmp_path)
        found = {one.session_id for one in manager.list_checkpoints()}
        assert found == {run_id for run_id in KNOWN["sqlite"] if state_of(run_id) == "halted"}
        for run_id in sorted(found):
            manager.resume_from_checkpoint(tmp_path / run_id)
            go_on(host, run_id)


RENAMED = {"review": {"checkpoints/011_meet.json": "checkpoints/011_sign.json"}}
"""By shape. 0.1.0 named the checkpoint of an answer after the stage before the one that had asked."""


@pytest.mark.parametrize("shape", sorted(set(flows.SHAPES) - {"broken"}))
def test_a_run_folder_of_0_1_0_has_the_files_that_are_written_now(shape: str, tmp_path: Path) -> None:
    """Files may be added, and fields to them; none that people or programs read may go."""
    dumps.unpack(KEPT / "folders.tar.xz", tmp_path / "old")
    dumps.unpack(KEPT / "sqlite.tar.xz", tmp_path / "store")
    run_id = f"{shape}-completed"
    with Host(f"sqlite:///{tmp_path}/store/runs.db") as host:
        host.transfer.write_run_folder(run_id, tmp_path / "new" / run_id)
    old, new = files_in(tmp_path / "old" / run_id), files_in(tmp_path / "new" / run_id)
    for before, now in RENAMED.get(shape, {}).items():
        (gone,) = (file for file in old if file.endswith(before))
        old = old - {gone} | {gone.removesuffix(before) + now}
    assert old - new == set()


def files_in(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*")}
