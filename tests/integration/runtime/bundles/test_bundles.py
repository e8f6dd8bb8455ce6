"""Runs that are carried elsewhere in one file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from everstep import Flow, Host, Status, node
from everstep.errors import (
    BadRequest,
    EverstepError,
    RunTaken,
    StateCorrupted,
)
from everstep.results import Progress
from everstep.types import LeaveOut
from tests.integration.runtime.bundles.carried import (
    ASK,
    CRAWL,
    GIVEN,
    LONG,
    login,
    measure,
    parts_of,
    same,
)


class TestCarrying:
    def test_a_run_is_there_as_it_was_here(self, here: Host, host: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        done = here.transfer.export("A17", file)
        assert (done.checkpoints, done.artifacts, done.left_out) == (4, 1, ())
        brought = host.transfer.import_(file)
        assert (brought.run_id, brought.restored, brought.artifacts) == ("A17", ("A17",), 1)
        assert same(here, host, "A17")
        assert host.storage.verify("A17")[0].is_sound
        assert dict(host.state("A17")) == dict(here.state("A17"))
        assert host.info("A17").status is Status.COMPLETED
        assert host.run(CRAWL, GIVEN, run_id="A17")["size"] == 12_002

    def test_a_failed_run_is_resumed_there(self, here: Host, host: Host, file: Path) -> None:
        broken = True

        @node(output="page")
        def fetch(word: dict[str, str]) -> str:
            if broken:
                raise ConnectionError("no route")
            return "page"

        flow = Flow("crawl", [login, fetch, measure], durability="strong")
        assert here.run(flow, GIVEN, run_id="A17").status is Status.FAILED
        here.transfer.export("A17", file)
        host.transfer.import_(file)
        broken = False
        assert host.resume("A17", flow)["size"] == 6
        assert host.storage.verify("A17")[0].is_sound

    def test_a_fork_brings_along_what_it_was_forked_from(self, here: Host, host: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.fork("A17", at=2, fork_id="B")
        here.resume("B", CRAWL)
        here.fork("B", at=3, fork_id="C", inputs={"user": "bob"})
        here.resume("C", CRAWL)
        done = here.transfer.export("C", file)
        assert [(run.run_id, run.is_wanted) for run in done.runs] == [
            ("A17", False),
            ("B", False),
            ("C", True),
        ]
        assert host.transfer.import_(file).restored == ("A17", "B", "C")
        for run_id in ("A17", "B", "C"):
            assert same(here, host, run_id) and host.storage.verify(run_id)[0].is_sound
        assert host.state("C")["word"] == {"user": "bob", "session": "s" * 10}

    def test_what_was_cleaned_up_stays_so(self, here: Host, there: Host, file: Path) -> None:
        here.run(LONG, {"text": "", "round": 0}, run_id="A17")
        assert here.retention.clean_up("A17", keep=2) > 0
        here.transfer.export("A17", file)
        there.transfer.import_(file)
        found = there.storage.verify("A17")[0]
        assert found.is_sound and found.removed == here.storage.verify("A17")[0].removed > 0
        assert there.state("A17")["round"] == 12

    def test_a_halted_run_waits_there_and_goes_on_when_it_is_named(
        self, here: Host, host: Host, file: Path
    ) -> None:
        assert here.run(ASK, GIVEN, run_id="A17").status is Status.HALTED
        here.transfer.export("A17", file)
        brought = host.transfer.import_(file)
        assert brought.set_aside == ("A17",) and [one.what for one in brought.missing] == ["token"]
        [asked] = host.waits("A17")
        host.answer(asked.id, {"approved": True})
        assert host.work([ASK], until_idle=True).completed == 0
        assert host.resume("A17", ASK)["agreed"].approved
        assert here.info("A17").status is Status.HALTED

    def test_with_live_workers_go_on_with_it(self, here: Host, there: Host, file: Path) -> None:
        here.start(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        assert there.transfer.import_(file, live=True).set_aside == ()
        assert there.work([CRAWL], until_idle=True).completed == 1

    def test_tokens_are_carried_only_if_asked(self, tmp_path: Path, file: Path) -> None:
        with Host(f"sqlite:///{tmp_path}/a.db", key="k" * 32) as here:
            token = here.run(ASK, GIVEN, run_id="A17").waits[0].token
            here.transfer.export("A17", file)
            here.transfer.export("A17", tmp_path / "with", leave_out=LeaveOut(tokens=False))
        with Host(f"sqlite:///{tmp_path}/b.db", key="k" * 32) as there:
            there.transfer.import_(file)
            with pytest.raises(EverstepError):
                there.answer(token, {"approved": True})
        with Host(f"sqlite:///{tmp_path}/c.db", key="k" * 32) as there:
            there.transfer.import_(tmp_path / "with")
            assert there.answer(token, {"approved": True}).run_id == "A17"

    def test_the_same_bundle_again_changes_nothing(self, here: Host, there: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        there.transfer.import_(file)
        before = (there.history("A17"), there.info("A17").status)
        assert there.transfer.import_(file).restored == ()
        assert (there.history("A17"), there.info("A17").status) == before
        assert here.transfer.import_(file).restored == ()

    def test_exporting_twice_gives_the_same_bytes(self, here: Host, file: Path, tmp_path: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        here.transfer.export("A17", tmp_path / "again")
        assert file.read_bytes() == (tmp_path / "again").read_bytes()

    def test_another_run_of_its_id_is_left_alone(self, here: Host, there: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        there.run(CRAWL, {**GIVEN, "user": "bob"}, run_id="A17")
        here.transfer.export("A17", file)
        before = there.history("A17")
        with pytest.raises(RunTaken, match="another run is called 'A17'"):
            there.transfer.import_(file)
        assert there.history("A17") == before

    def test_an_older_state_that_was_not_touched_is_replaced(
        self, here: Host, there: Host, file: Path
    ) -> None:
        here.run(ASK, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        there.transfer.import_(file)
        here.answer(here.waits("A17")[0].id, {"approved": True})
        here.resume("A17", ASK)
        here.transfer.export("A17", file, force=True)
        assert there.transfer.import_(file).restored == ("A17",)
        assert same(here, there, "A17") and there.info("A17").status is Status.COMPLETED

    def test_an_older_state_that_is_driven_there_is_left_alone(
        self, here: Host, there: Host, file: Path
    ) -> None:
        here.run(ASK, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        there.transfer.import_(file, live=True)
        here.answer(here.waits("A17")[0].id, {"approved": True})
        here.resume("A17", ASK)
        here.transfer.export("A17", file, force=True)
        with pytest.raises(RunTaken, match="older state"):
            there.transfer.import_(file)
        assert there.info("A17").status is Status.HALTED and there.waits("A17")

    def test_a_dry_run_writes_nothing(self, here: Host, there: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        assert there.transfer.import_(file, dry_run=True).restored == ("A17",)
        assert there.runs() == []

    def test_how_far_it_has_come_is_told(self, here: Host, there: Host, file: Path) -> None:
        told: list[Progress] = []
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file, on_progress=told.append)
        assert (told[-1].checkpoints, told[-1].artifacts) == (4, 1) and told[-1].size > 12_000
        told.clear()
        there.transfer.import_(file, on_progress=told.append)
        assert told[-1].artifacts == 1

    def test_the_flow_comes_along_if_it_is_given(self, here: Host, there: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file, flow=CRAWL)
        [ir] = [data for name, data in parts_of(file).items() if name.endswith(".ir.json")]
        assert msgspec.json.decode(ir)["name"] == "crawl"
        assert there.transfer.import_(file).restored == ("A17",)


class TestTheFile:
    def test_a_file_that_is_there_is_replaced_only_by_force(self, here: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        file.write_text("mine")
        with pytest.raises(BadRequest, match="is there already"):
            here.transfer.export("A17", file)
        assert file.read_text() == "mine"
        here.transfer.export("A17", file, force=True)
        assert file.read_bytes()[:2] == b"PK"

    def test_what_fails_leaves_nothing_behind(self, here: Host, tmp_path: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        out = tmp_path / "out"
        out.mkdir()

        def fail(progress: Progress) -> None:
            raise RuntimeError("the power is gone")

        with pytest.raises(RuntimeError):
            here.transfer.export("A17", out / "run.everstep", on_progress=fail)
        assert list(out.iterdir()) == []
        with pytest.raises(EverstepError, match="cannot write"):
            here.transfer.export("A17", tmp_path / "nowhere" / "run.everstep")

    def test_only_its_owner_may_read_it(self, here: Host, file: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        here.transfer.export("A17", file)
        assert file.stat().st_mode & 0o077 == 0

    def test_a_damaged_run_is_not_exported(self, here: Host, file: Path, tmp_path: Path) -> None:
        here.run(CRAWL, GIVEN, run_id="A17")
        [blob] = [p for p in (tmp_path / "here.db.artifacts").rglob("*") if p.is_file() and len(p.name) == 64]
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
        with pytest.raises(StateCorrupted):
            here.transfer.export("A17", file)
        assert not file.exists()

    def test_many_artifacts_need_no_more_memory_than_one(
        self, here: Host, there: Host, file: Path, tmp_path: Path
    ) -> None:
        @node(output="part")
        def make(number: int) -> bytes:
            return bytes([number]) * 2_000_000

        here.run(Flow("parts", [make.map_over("number")]), {"number": list(range(24))}, run_id="A17")
        tracemalloc.start()
        here.transfer.export("A17", file)
        there.transfer.import_(file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert file.stat().st_size > 48_000_000 and peak < 24_000_000
