"""Workers of 0.1.0 beside those of now, on one store: every run ends, and no effect is made twice."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

import everstep
from everstep import Host
from tests.architecture.sources import ROOT

WHEEL = ROOT / "tests" / "fixtures" / "releases" / "everstep-0.1.0-py3-none-any.whl"
RUNS = 12
FLOWS = """
from pathlib import Path
import everstep
from everstep import Context, Flow, node, wait

@node(output="item")
def take(number: int) -> str:
    return f"item {number}"

@node(output="receipt", effects="effectful", idempotency_key="auto")
def pay(item: str, ctx: Context) -> str:
    with Path("paid").open("a") as file:
        file.write(f"{item}:{everstep.__version__}\\n")
    return f"{item} paid"

@node(output="end")
def close(receipt: str, nap: object) -> str:
    return receipt

nap = wait.timer("nap", until="2020-01-01T00:00:00Z")
flow = Flow("orders", [take, pay, nap, close], durability="strong")
"""


def work(url: str, folder: Path, source: Path | None = None) -> subprocess.Popen[str]:
    """Start a worker that ends when nothing is due: of this version, or of the one whose files are given."""
    environment = {**os.environ, "PYTHONPATH": str(source or ROOT / "src")}
    told = [sys.executable, "-m", "everstep", "worker", "flows.py", "--store", url, "--once"]
    return subprocess.Popen(told, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_workers_of_0_1_0_and_of_now_share_a_store(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    names = {"postgres": "new_postgres_url", "redis": "redis_url"}
    url = request.getfixturevalue(names[store]) if store in names else f"sqlite:///{tmp_path}/runs.db"
    (tmp_path / "flows.py").write_text(FLOWS)
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path / "old")
    scope: dict[str, object] = {}
    exec(FLOWS, scope)
    with Host(url) as host:
        for number in range(RUNS):
            host.start(scope["flow"], {"number": number}, run_id=f"run-{number}")  # type: ignore[arg-type]
        workers = [work(url, tmp_path, tmp_path / "old"), work(url, tmp_path)]
        for worker in workers:
            _, said = worker.communicate(timeout=120)
            assert worker.returncode == 0, said
        for _ in range(20):  # what the older one held for a moment was not due for the other
            if not host.runs(status="running"):
                break
            _, said = work(url, tmp_path).communicate(timeout=120)
        ended = {run.run_id: run.status.value for run in host.runs()}
        assert Counter(ended.values()) == {"completed": RUNS}
        assert [one.run_id for one in host.storage.verify() if not one.is_sound] == []
    lines = (tmp_path / "paid").read_text().split("\n")[:-1]
    assert Counter(line.partition(":")[0] for line in lines) == {f"item {n}": 1 for n in range(RUNS)}


def test_a_worker_of_0_1_0_leaves_records_of_version_2_alone_and_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    (tmp_path / "flows.py").write_text(FLOWS)
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path / "old")
    scope: dict[str, object] = {}
    exec(FLOWS, scope)
    with Host(url) as host:
        host.start(scope["flow"], {"number": 1}, run_id="r")  # type: ignore[arg-type]
        before = [record.digest for record in host.history("r")]
        for _ in range(3):  # as often as it looks
            _, said = work(url, tmp_path, tmp_path / "old").communicate(timeout=120)
            assert "schema version 2; this everstep knows up to 1" in said, said
        assert [record.digest for record in host.history("r")] == before
        assert host.info("r").status == "running" and host.runs(needs_repair=True) == []
        assert not (tmp_path / "paid").exists()
        _, said = work(url, tmp_path).communicate(timeout=120)
        assert host.info("r").status == "completed", said
    assert (tmp_path / "paid").read_text() == f"item 1:{everstep.__version__}\n"


def test_what_0_1_0_began_a_worker_of_now_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    (tmp_path / "flows.py").write_text(FLOWS)
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path / "old")
    begun = [
        sys.executable,
        "-m",
        "everstep",
        "run",
        "flows.py",
        "-i",
        "number=1",
        "--start",
        "--run-id",
        "r",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "old")}
    started = subprocess.run(
        [*begun, "--store", url], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert started.returncode == 0, started.stderr
    worker = work(url, tmp_path)
    _, said = worker.communicate(timeout=120)
    assert worker.returncode == 0, said
    assert (tmp_path / "paid").read_text() == f"item 1:{everstep.__version__}\n"
    with Host(url) as host:
        versions = [record.version for record in host.history("r")]
        assert versions[0] == 1 and set(versions[1:]) == {2}
        assert host.storage.verify("r")[0].is_sound
