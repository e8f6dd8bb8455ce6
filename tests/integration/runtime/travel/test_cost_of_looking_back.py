"""What it costs to look back."""

from __future__ import annotations

from pathlib import Path

from everstep import END, Durability, Flow, Host, ifelse, node
from everstep.ports.store import StoredRecord
from everstep.registry import Opened
from everstep.runtime.drive.chain_writer import KEYFRAME_BYTES
from everstep.runtime.system import SystemClock
from everstep.stores.artifacts import ArtifactFolder
from everstep.stores.sqlite.store import SqliteStore


class CountingStore(SqliteStore):
    """Counts the bytes of the records that are read."""

    read = 0

    async def tail(self, run_id: str, *, at: int | None = None) -> list[StoredRecord]:
        found = await super().tail(run_id, at=at)
        self.read += sum(len(record.body) for record in found)
        return found

    async def get(self, run_id: str, *, first: int = 1, last: int | None = None) -> list[StoredRecord]:
        found = await super().get(run_id, first=first, last=last)
        self.read += sum(len(record.body) for record in found)
        return found


@node(output=("i", "note"))
def count(i: int) -> tuple[int, str]:
    return i + 1, f"{i:0100}"


@ifelse(when_true="count", when_false=END, effects="pure")
def more(i: int, n: int) -> bool:
    return i < n


FLOW = Flow(
    "long",
    [count, more],
    entry="count",
    durability=Durability("strong", flush="before_effects"),
    max_steps=20_000,
)


def test_a_look_back_anywhere_reads_no_more_than_a_resume_there(tmp_path: Path) -> None:
    clock = SystemClock()
    store = CountingStore(tmp_path / "runs.db", clock, synchronous="OFF")
    with Host(Opened(store, ArtifactFolder(tmp_path / "blobs", clock), "sqlite:")) as host:
        host.run(FLOW, {"i": 0, "n": 3_000}, run_id="long").raise_for_status()
        newest = host.info("long").checkpoints
        for at in range(2, newest, newest // 12):
            store.read = 0
            seen = host.state("long", at)["i"]
            look = store.read
            fork = host.fork("long", at=at, state={"n": 0})
            store.read = 0
            assert host.resume(fork.run_id, FLOW)["i"] >= seen
            assert look <= store.read
            assert look <= 2 * KEYFRAME_BYTES
