"""A worker tells its metrics over HTTP, also while a node keeps its loop from doing anything else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from everstep import Host
from tests.architecture.sources import ROOT

FLOW = """
import time
from everstep import Flow, node

@node(output="n")
async def block() -> int:
    open("begun", "w").close()
    time.sleep(60)  # on the loop itself
    return 1

flow = Flow("blocking", [block])
"""
TOKEN = "a-token-for-those-who-scrape"


def asked(url: str, token: str = TOKEN) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as response:
        text: str = response.read().decode()
    return text


@pytest.mark.slow
def test_a_worker_is_scraped_while_a_node_blocks_it(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOW)
    scope: dict[str, object] = {}
    exec(FLOW, scope)
    url = f"sqlite:///{tmp_path}/runs.db"
    with Host(url) as host:
        host.start(scope["flow"], run_id="B1")  # type: ignore[arg-type]
    told = [sys.executable, "-m", "everstep", "worker", "flows.py", "--store", url, "--metrics", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "EVERSTEP_HTTP_TOKEN": TOKEN}
    worker = subprocess.Popen(
        told, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert worker.stdout is not None
        where = next(line.split()[-1] for line in worker.stdout if line.startswith("metrics at "))
        until = time.monotonic() + 30
        while not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.02)
        text = asked(where)
        assert 'everstep_steps_started_total{flow="blocking",node="block"} 1' in text
        assert "everstep_slots_used 1" in text and "everstep_store_up 1" in text
        assert "ok" in asked(where.replace("/metrics", "/healthz"))
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            asked(where, "another-token-of-this-length")
        refused.value.close()
    finally:
        worker.kill()
        worker.communicate()
