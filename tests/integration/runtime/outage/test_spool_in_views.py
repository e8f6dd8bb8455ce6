"""Checkpoints that wait on this machine are seen by a caller that looks from here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from everstep import Flow, Host, migrate, node, wait
from everstep.cli.main import cli
from everstep.client.surroundings import spool_folder
from everstep.errors import EverstepError
from tests.integration.runtime.outage.test_store_failures import DOWN, Place

FLOW = """
from everstep import Durability, Flow, Host, node
from everstep.errors import StoreUnavailable
from everstep.stores.sqlite.store import SqliteStore

@node(output="a")
def first(x: int) -> int:
    def fail(self, commits):
        raise StoreUnavailable("the line is cut.")
    SqliteStore.put = SqliteStore.put_blocking = fail
    return x

@node(output="b")
def second(a: int) -> int:
    return a + 1

flow = Flow("field", [first, second], durability=Durability("strong", on_store_failure="best_effort"))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("EVERSTEP_SPOOL", str(tmp_path / "spool"))
    return Place(tmp_path)


def spooled(place: Place, *more: Any, run_id: str = "A") -> Path:
    failing = Place(place.folder)
    failing.breaks = DOWN
    with failing.host() as host:
        assert host.run(failing.flow("best_effort", *more), {"x": 1}, run_id=run_id).spooled >= 2
    [file] = (place.folder / "spool").rglob(f"{run_id}.spool")
    return file


def shell(place: Place, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--store", str(place.folder / "runs.db")], standalone_mode=False)


def test_explain_counts_in_what_a_resume_writes_first(place: Place) -> None:
    @node(output="d")
    def fourth(c: str, ready: bool = False) -> str:
        raise KeyboardInterrupt

    failing = Place(place.folder)
    failing.breaks = DOWN
    flow = failing.flow("best_effort", fourth)
    with failing.host() as host, pytest.raises(KeyboardInterrupt):
        host.run(flow, {"x": 1}, run_id="A")
    with place.host() as host:
        told = host.explain("A", place.flow("best_effort", fourth))
        assert (told.spooled, told.becomes_fork) == (2, False)
        assert [step.path for step in told.recorded] == ["first", "second", "third"]
        assert [step.path for step in told.starts] == ["fourth"]
        place.clock.advance(60)
        with pytest.raises(KeyboardInterrupt):
            host.resume("A", place.flow("best_effort", fourth))
        assert host.explain("A", flow).spooled == 0
    assert place.ran == []


def test_explain_of_a_run_that_ended_or_waits_here(place: Place) -> None:
    spooled(place)
    spooled(place, wait.approval("ok", context="c"), run_id="B")
    with place.host() as host:
        assert host.info("A").status == "running"
        told = host.explain("A", place.flow())
        assert (told.status, told.starts, told.spooled) == ("completed", (), 2)
        told = host.explain("B", place.flow("best_effort", wait.approval("ok", context="c")))
        assert told.status == "halted"
        assert [(w.path, w.status) for w in told.waits] == [("ok", "open")]


def test_explain_says_if_they_would_become_a_fork(place: Place) -> None:
    spooled(place)
    other = Place(place.folder)
    other.clock.advance(3600)
    with Host(other.opened, clock=other.clock, spool=other.folder / "elsewhere") as host:
        host.resume("A", other.flow()).raise_for_status()
    with place.host() as host:
        told = host.explain("A", place.flow())
        assert (told.spooled, told.becomes_fork, told.status) == (2, True, "completed")


def test_compat_and_a_dry_run_judge_what_was_done_here_too(place: Place) -> None:
    @node(output="e")
    def later(c: str) -> str:
        raise KeyboardInterrupt

    failing = Place(place.folder)
    failing.breaks = DOWN
    with failing.host() as host, pytest.raises(KeyboardInterrupt):
        host.run(failing.flow("best_effort", later), {"x": 1}, run_id="A")
    changed = [n for n in place.flow("best_effort", later).nodes if n.name != "third"]

    @node(output="c")
    def other(b: str) -> str:
        return b

    with place.host() as host:
        flow = Flow("f", [*changed, other], durability="strong")
        told = host.versions.compat("A", flow)
        assert (told.verdict, told.nodes) == ("needs_migration", ("third",))
        renamed = Flow(
            "f", [*changed, other], durability="strong", migrations=[migrate.rename_node("third", "other")]
        )
        assert host.versions.migrate("A", renamed, dry_run=True).verdict == "continues"
        assert host.storage.spooled("A") != []
        place.clock.advance(60)
        assert host.versions.migrate("A", renamed).verdict == "continues"
        assert host.storage.spooled("A") == []
        assert [s.path for s in host.explain("A", renamed).starts] == ["later"]


def test_log_shows_them_apart(place: Place) -> None:
    spooled(place)
    said = shell(place, "log", "A")
    assert said.exit_code == 0, said.output
    assert said.output.count("on this machine only") == 2
    assert "third" in said.output and "everstep drain" in said.output
    told = json.loads(shell(place, "log", "A", "--json").output)
    assert [c["sequence"] for c in told["checkpoints"]] == [1, 2]
    assert [(c["sequence"], c["steps"][0]["node"]) for c in told["spooled"]] == [(3, "second"), (4, "third")]
    shell(place, "drain")
    told = json.loads(shell(place, "log", "A", "--json").output)
    assert (len(told["checkpoints"]), told["spooled"]) == (4, [])


def test_a_run_at_the_shell_says_that_some_still_wait(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.stores.sqlite.store import SqliteStore

    monkeypatch.setattr(SqliteStore, "put", SqliteStore.put)
    monkeypatch.setattr(SqliteStore, "put_blocking", SqliteStore.put_blocking)
    (place.folder / "field.py").write_text(FLOW)
    words = ["run", str(place.folder / "field.py"), "--input", "x=1", "--run-id"]
    said = CliRunner().invoke(
        cli, [*words, "A", "--store", str(place.folder / "runs.db")], standalone_mode=False
    )
    assert "2 checkpoints on this machine, not yet in the store" in said.output, said.output
    assert "everstep drain --store" in said.output


def test_verify_checks_them_and_the_chain(place: Place) -> None:
    file = spooled(place)
    said = shell(place, "verify")
    assert said.return_value == 0
    assert "run A: 2 checkpoints on this machine" in said.output and "sound" in said.output
    told = json.loads(shell(place, "verify", "A", "--json").output)
    [one] = told["runs"]
    assert told["is_sound"] and (one["checkpoints"], one["newest_valid"], one["spooled"]) == (2, 2, 2)
    whole = bytearray(file.read_bytes())
    whole[60] ^= 1
    file.write_bytes(whole)
    said = shell(place, "verify", "A")
    assert said.return_value == 1
    assert "what waits on this machine is damaged" in said.output
    file.rename(file.with_name("Z.spool"))
    said = shell(place, "verify")
    assert said.return_value == 1
    assert "run Z" in said.output and "does not go on from anything in this store" in said.output
    assert isinstance(shell(place, "verify", "Z").exception, EverstepError)


@pytest.mark.parametrize("change", ["altered", "missing", "cut off"])
def test_verify_names_the_newest_checkpoint_that_is_valid(place: Place, change: str) -> None:
    with place.host() as host:
        host.run(place.flow(), {"x": 1}, run_id="A")
        host.run(place.flow(), {"x": 2}, run_id="B")
        assert [one.is_sound for one in host.storage.verify()] == [True, True]
    db = apsw.Connection(str(place.folder / "runs.db"))
    rows = list(db.execute("SELECT position, body FROM checkpoints ORDER BY position"))
    position, body = rows[2]
    if change == "altered":
        changed = body[:40] + bytes([body[40] ^ 1]) + body[41:]
        db.execute("UPDATE checkpoints SET body = ? WHERE position = ?", (changed, position))
    elif change == "cut off":
        position = rows[3][0]
        db.execute("DELETE FROM checkpoints WHERE position = ?", (position,))
    else:
        db.execute("DELETE FROM checkpoints WHERE position = ?", (position,))
    db.close()
    said = shell(place, "verify")
    newest = 3 if change == "cut off" else 2
    assert said.return_value == 1
    assert "run A is damaged" in said.output and "run B" not in said.output
    assert f"checkpoint {newest} is valid" in said.output and "everstep resume A --fallback" in said.output
    assert ": 1 damaged" in said.output
    [one] = json.loads(shell(place, "verify", "A", "--json").output)["runs"]
    assert (one["is_sound"], one["newest_valid"]) == (False, newest)


def test_verify_takes_stubs_and_shared_checkpoints_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everstep.runtime.drive.chain_writer.KEYFRAME_BYTES", 1)
    monkeypatch.setattr("everstep.runtime.drive.chain_writer._NODE_COST", 0)
    monkeypatch.setattr("everstep.runtime.integrity.verify._PAGE", 2)
    with place.host() as host:
        host.run(place.flow(), {"x": 1}, run_id="A")
        host.fork("A", at=3, fork_id="B")
        host.resume("B", place.flow())
        host.run(place.flow(), {"x": 1}, run_id="C")
        removed = host.retention.clean_up("C", keep=1)
        assert removed
        found = {one.run_id: one for one in host.storage.verify()}
        assert all(one.is_sound for one in found.values())
        assert found["B"].checkpoints == host.info("B").checkpoints
        assert found["C"].removed == removed


def test_a_caller_that_works_elsewhere_with_the_same_store_finds_what_waits(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVERSTEP_SPOOL")
    here, elsewhere = place.folder / "here", place.folder / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    place.breaks = DOWN
    with Host(place.opened, clock=place.clock) as host:
        assert host.run(place.flow(), {"x": 1}, run_id="A").spooled == 2
    monkeypatch.chdir(elsewhere)
    assert json.loads(shell(place, "log", "A", "--json").output)["spooled"]
    assert json.loads(shell(place, "verify", "--json").output)["runs"][0]["spooled"] == 2
    drained = json.loads(shell(place, "drain", "--json").output)
    assert [one["checkpoints"] for one in drained["runs"]] == [2]
    assert drained["spool"] == str(place.folder / "runs.db.spool")
    assert drained["spool"] in shell(place, "drain").output
    assert not list(here.iterdir()) and not list(elsewhere.iterdir())


def test_the_spool_of_a_server_is_in_the_users_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVERSTEP_SPOOL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = spool_folder("postgresql://db/runs", None)
    monkeypatch.chdir(tmp_path)
    assert found == spool_folder("postgresql://db/runs", None) != spool_folder("postgresql://db/other", None)
    assert found.parent == tmp_path / "everstep" / "spool"


def test_show_and_state_say_what_waits_and_log_what_becomes_of_it(place: Place) -> None:
    spooled(place)
    for command in ("show", "state"):
        said = shell(place, command, "A").stderr
        assert "2 checkpoints on this machine" in said
        assert "there the run is completed" in said
    assert json.loads(shell(place, "show", "A", "--json").output)["spooled"] == 2
    assert "fork" not in shell(place, "log", "A").output
    other = Place(place.folder)
    other.clock.advance(3600)
    with Host(other.opened, clock=other.clock, spool=other.folder / "elsewhere") as host:
        host.resume("A", other.flow()).raise_for_status()
    assert "on this machine only, becomes a fork" in shell(place, "log", "A").stdout
