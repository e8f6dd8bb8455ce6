"""The spool in trouble: written to by several, cut off, full, gone, damaged, or of another store."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from everstep import Flow, Host, node, wait
from everstep.client.surroundings import spool_folder
from everstep.errors import SpoolLost, StateCorrupted, StoreError
from everstep.ports.store import Commit
from everstep.runtime.outage.spool import Spool
from tests.integration.runtime.outage.test_store_failures import DOWN, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def commit(sequence: int, run_id: str = "A") -> Commit:
    return Commit(run_id, sequence, f"id-{sequence}", f"id-{sequence - 1}", 1, os.urandom(200))


def left_in(spool: Spool, run_id: str = "A") -> list[int]:
    return [kept.sequence for kept in spool.of(run_id)]


def spooled(place: Place, run_id: str = "A") -> Path:
    """Run a flow whose last two checkpoints come to lie in the spool."""
    failing = Place(place.folder)
    failing.breaks = DOWN
    with failing.host() as host:
        assert host.run(failing.flow(), {"x": 1}, run_id=run_id).spooled == 2
    [file] = (place.folder / "spool").rglob(f"{run_id}.spool")
    return file


# -- the file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 20, 150, 230])
def test_what_was_cut_off_does_not_swallow_what_is_added_later(tmp_path: Path, cut: int) -> None:
    spool = Spool(tmp_path)
    for sequence in (1, 2):
        spool.add(commit(sequence))
    path = spool.path("A")
    path.write_bytes(path.read_bytes()[:-cut])
    for writer in (spool, Spool(tmp_path)):
        writer.add(commit(3))
    assert left_in(spool) == [1, 3, 3]


def test_blocks_that_never_reached_the_disk_are_cut_off_too(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add(commit(1))
    path = spool.path("A")
    path.write_bytes(path.read_bytes() + bytes(4096))
    spool.add(commit(2))
    assert left_in(spool) == [1, 2]


@pytest.mark.parametrize("at", [3, 12, 20, 60])
def test_a_file_that_was_altered_is_not_taken_for_one_that_was_cut_off(tmp_path: Path, at: int) -> None:
    spool = Spool(tmp_path)
    for sequence in (1, 2, 3):
        spool.add(commit(sequence))
    path = spool.path("A")
    whole = bytearray(path.read_bytes())
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(StateCorrupted, match=r"A\.spool"):
        spool.of("A")
    with pytest.raises(StateCorrupted):
        Spool(tmp_path).add(commit(4))


def test_only_what_is_named_is_dropped(tmp_path: Path) -> None:
    one, other = Spool(tmp_path), Spool(tmp_path)
    one.add(commit(1))
    taken = [kept.checkpoint_id for kept in other.of("A")]
    one.add(commit(2))
    other.drop("A", taken)
    assert left_in(one) == [2]
    one.add(commit(3))
    other.add(commit(4))
    assert left_in(one) == left_in(other) == [2, 3, 4]
    one.drop("A", ["id-2", "id-3", "id-4"])
    assert one.runs() == [] and not other.has("A")
    one.drop("A", ["id-2"])


def test_a_file_of_another_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add(commit(1))
    spool.path("A").rename(spool.path("B"))
    with pytest.raises(StateCorrupted, match="'A'"):
        spool.of("B")


def test_a_store_has_one_spool_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    urls = ["sqlite:///runs.db", f"sqlite:///{tmp_path}/runs.db", "sqlite:///./runs.db?synchronous=normal"]
    assert len({spool_folder(url, "spool") for url in urls}) == 1
    assert spool_folder("sqlite:///other.db", "spool") != spool_folder(urls[0], "spool")
    here = spool_folder("sqlite:///runs.db", "/var/spool")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert spool_folder("sqlite:///runs.db", "/var/spool") != here


# -- a run whose spool fails --------------------------------------------------------------------------------


def test_a_run_whose_spool_cannot_be_written_stops_like_any_other(place: Place) -> None:
    (place.folder / "spool").write_text("in the way")
    place.breaks = DOWN
    flow = place.flow()
    with place.host() as host:
        with pytest.raises(StoreError, match="could not be kept in"):
            host.run(flow, {"x": 1}, run_id="A")
        place.store.fails_with = None
        assert host.run(flow, {"x": 1}, run_id="A").status == "completed"
    assert place.ran == ["first", "second", "second", "third"]


def test_a_disk_that_fills_up_leaves_what_was_kept_before(place: Place) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    @node(output="d")
    def fourth(c: str) -> str:
        [file] = (place.folder / "spool").rglob("*.spool")
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 20, hard))
        return c

    @node(output="e")
    def fifth(d: str) -> str:
        return d

    place.breaks = DOWN
    flow = place.flow("best_effort", fourth, fifth)
    with place.host() as host:
        try:
            with pytest.raises(StoreError, match="could not be kept"):
                host.run(flow, {"x": 1}, run_id="A")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        place.store.fails_with = None
        [drained] = host.storage.drain()
        assert (drained.checkpoints, drained.fork) == (2, None)
        assert host.state("A")["c"].endswith("!")


@pytest.mark.parametrize("is_back", [False, True])
def test_a_spool_that_is_taken_away_is_not_taken_for_a_takeover(place: Place, is_back: bool) -> None:
    @node(output="d")
    def fourth(c: str) -> str:
        place.ran.append("fourth")
        for file in (place.folder / "spool").rglob("*.spool"):
            file.unlink()
        place.store.fails_with = None if is_back else place.store.fails_with
        return c

    @node(output="e")
    def fifth(d: str) -> str:
        return d

    place.breaks = DOWN
    flow = place.flow("best_effort", fourth, fifth)
    with place.host() as host:
        with pytest.raises(SpoolLost, match="checkpoints 3 to 4"):
            host.run(flow, {"x": 1}, run_id="A")
        place.store.fails_with = None
        assert host.resume("A", flow).status == "completed"
    assert place.ran == ["first", "second", "third", "fourth", "second", "third", "fourth"]


def test_a_run_goes_on_after_another_process_has_emptied_its_spool(place: Place) -> None:
    other = Place(place.folder)

    @node(output="d")
    def fourth(c: str) -> str:
        with other.host() as host:
            [drained] = host.storage.drain()
            assert (drained.checkpoints, drained.fork) == (2, None)
        return c

    @node(output="e")
    def fifth(d: str) -> str:
        place.store.fails_with = None
        return d

    place.breaks = DOWN
    flow = place.flow("best_effort", fourth, fifth)
    with place.host() as host:
        result = host.run(flow, {"x": 1}, run_id="A")
        assert (result.status, result.spooled) == ("completed", 0)
        assert [c.sequence for c in host.history("A")] == [1, 2, 3, 4, 5, 6]


# -- draining -----------------------------------------------------------------------------------------------


def test_one_spool_that_cannot_be_taken_stops_no_other(place: Place) -> None:
    broken = spooled(place, "A")
    spooled(place, "B")
    whole = bytearray(broken.read_bytes())
    whole[60] ^= 1
    broken.write_bytes(whole)
    with place.host() as host:
        with pytest.raises(StateCorrupted, match=r"A\.spool"):
            host.storage.drain()
        assert host.info("B").status == "completed"
        assert host.info("A").status == "running"
        host.work([place.flow()], until_idle=True)
        assert host.info("A").status == "running", "a caller that repairs the spool has the last word"
        broken.unlink()
        assert host.storage.drain() == []
        place.clock.advance(60)
        assert host.run(place.flow(), {"x": 1}, run_id="A").status == "completed"


def test_a_spool_of_another_store_is_left_alone(place: Place) -> None:
    file = spooled(place)
    for left in place.folder.glob("runs.db*"):
        left.unlink() if left.is_file() else None
    foreign = "does not go on from anything in this store"
    fresh = Place(place.folder)
    with fresh.host() as host:
        with pytest.raises(StoreError, match=foreign):
            host.storage.drain()
        with pytest.raises(StoreError, match=foreign):
            host.run(fresh.flow(), {"x": 1}, run_id="A")
        assert host.runs() == []
    fresh = Place(place.folder)
    with Host(fresh.opened, clock=fresh.clock, spool=fresh.folder / "elsewhere") as host:
        host.run(fresh.flow(), {"x": 1}, run_id="A").raise_for_status()
    with Place(place.folder).host() as host:
        with pytest.raises(StoreError, match=foreign):
            host.storage.drain()
        assert [run.run_id for run in host.runs()] == ["A"]
    assert file.exists()


def test_a_drain_that_died_after_it_made_a_fork_makes_no_other(place: Place) -> None:
    file = spooled(place)
    kept = file.read_bytes()
    other = Place(place.folder)
    other.clock.advance(3600)
    with Host(other.opened, clock=other.clock, spool=other.folder / "elsewhere") as host:
        host.resume("A", other.flow()).raise_for_status()
    with place.host() as host:
        [first] = host.storage.drain()
        file.write_bytes(kept)
        [again] = host.storage.drain()
        assert again.fork == first.fork
        assert len(host.runs()) == 2


def test_a_resume_writes_what_was_left_whatever_its_flow_says_now(place: Place) -> None:
    spooled(place)
    with place.host() as host:
        assert host.resume("A", place.flow("required")).status == "completed"
    assert place.ran == []


def test_a_cancelled_run_that_had_completed_here_is_completed(place: Place) -> None:
    spooled(place)
    with place.host() as host:
        assert host.cancel("A") == "completed"
        assert host.info("A").status == "completed"


def test_a_worker_does_not_claim_what_it_has_yet_to_write(place: Place) -> None:
    """Between two sweeps the lease of a run may run out whose last steps lie here."""
    again = Place(place.folder)
    is_left = False

    @node(output="y")
    def leave(x: int) -> int:
        nonlocal is_left
        if not is_left:
            is_left = True
            spooled(place)
            again.clock.advance(20)  # less than from one sweep to the next
        return x

    with again.host() as host:
        host.start(Flow("other", [leave]), {"x": 1}, run_id="B")
        host.work([Flow("other", [leave]), again.flow()], until_idle=True)
        assert again.ran == []
        host.storage.drain()
        assert host.info("A").status == "completed"


def test_what_a_fork_of_spooled_steps_waits_for_is_asked_again(place: Place) -> None:
    ok = wait.approval("ok", context="a")
    place.breaks = DOWN
    flow = place.flow("best_effort", ok)
    with place.host() as host:
        assert host.run(flow, {"x": 1}, run_id="A").status == "halted"
    place.store.fails_with = None
    other = Place(place.folder)
    other.clock.advance(3600)
    with Host(other.opened, clock=other.clock, spool=other.folder / "elsewhere") as host:
        assert host.resume("A", other.flow("best_effort", ok)).status == "halted"
    with Place(place.folder).host() as host:
        [drained] = host.storage.drain()
        assert drained.fork is not None
        host.work([place.flow("best_effort", ok)], until_idle=True)
        assert {w.run_id for w in host.waits()} == {"A", drained.fork}
        for asked in host.waits():
            host.answer(asked.id, {"approved": True})
        host.work([place.flow("best_effort", ok)], until_idle=True)
        assert {run.status for run in host.runs()} == {"completed"}


# -- waits --------------------------------------------------------------------------------------------------


def test_a_run_that_halts_while_the_store_is_away_says_what_it_waits_for(place: Place) -> None:
    place.breaks = DOWN
    flow = place.flow("best_effort", wait.approval("ok", context="a"))
    with place.host() as host:
        halted = host.run(flow, {"x": 1}, run_id="A")
        assert (halted.status, halted.spooled > 0) == ("halted", True)
        [opened] = halted.waits
        assert opened.token is not None and opened.context == 2
        for listed in (host.waits(), host.waits("A", kind="approval"), [host.wait(opened.id)]):
            assert [w.id for w in listed] == [opened.id]
        assert host.wait(opened.token).id == opened.id
        assert host.waits("B") == host.waits(status="closed") == host.waits(after=opened.id) == []
        with pytest.raises(StoreError):
            host.answer(opened.token, {"approved": True})
        place.store.fails_with = None
        host.answer(opened.token, {"approved": True})
        assert [w.status for w in host.waits("A", status=None)] == ["settled"]
        assert host.resume("A", flow)["ok"].approved


def test_another_process_of_the_machine_answers_what_waits_here_by_bringing_it_first(place: Place) -> None:
    opened_early: list[str] = []

    def cut_after_early(commits: Sequence[Commit]) -> None:
        if opened_early:
            place.store.fails_with = DOWN
        opened_early.extend(w.path for commit in commits for w in commit.waits if w.path == "early")

    place.store.on_put = cut_after_early
    flow = place.flow("best_effort", wait.approval("ok", context="c"), wait.approval("early"))
    with place.host() as host:
        early, opened = host.run(flow, {"x": 1}, run_id="A").waits
        assert (early.node, opened.node) == ("early", "ok")
        host.answer(early.id, {"approved": True})
    with Place(place.folder).host() as other:
        assert [w.id for w in other.waits()] == [opened.id]
        assert other.deliver({"wait_id": opened.id, "answer": {"approved": True}}, [flow]).result is not None
        assert other.info("A").status == "completed"
        assert {w.status for w in other.waits(status=None)} == {"closed"}


def test_a_put_that_opens_waits_is_kept_here_only_if_the_store_cannot_take_it(place: Place) -> None:
    """The store was down for a while, is left alone for that, and is back."""
    place.breaks, place.recovers = DOWN, True
    flow = place.flow("best_effort", wait.approval("ok", context="c"))
    with place.host() as host:
        halted = host.run(flow, {"x": 1}, run_id="A")
        assert (halted.status, halted.spooled, len(halted.waits)) == ("halted", 0, 1)
