"""Every statement of the hot path reads by an index, and each of those indexes is needed.

The plans are those of the statements that the store sends, and of those inside the functions that it calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from everstep.model.enums import Status
from everstep.model.records import ArtifactRef
from everstep.model.waits import WaitStatus
from everstep.ports.store import StopRequest, Traits
from everstep.registry import open_store
from everstep.stores.postgres import connections
from everstep.stores.postgres.address import PostgresAddress, read_address
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Chain, Client, StoreKit
from tests.servers.postgres import fresh_schema

RUNS = 4000
FILL = """
insert into {s}.runs (run_id, flow_id, flow_version, flow_hash, parent_run_id, status, created_at, epoch,
                      owner, expires_at, signal, needs_repair, run_group)
select 'run-' || k, 'flow-' || k % 50, '1', repeat('0', 64), case when k % 40 = 0 then 'run-' || k / 2 end,
       case when k % 20 = 1 then 'running' when k % 20 = 2 then 'halted' when k % 97 = 0 then 'failed'
            else 'completed' end,
       k, 1, case when k % 40 = 1 then 'me' end, case when k % 40 = 1 then k end,
       case when k % 2000 = 2 then 'cancel' end, case when k % 1000 = 7 then 'damaged' end, 'g' || k % 5
from generate_series(1, {n}) as k;
insert into {s}.checkpoints (run_key, sequence, keyframe, checkpoint_id, body)
select run_key, s, s % 4 = 1, run_id || '/' || s, 'body' from {s}.runs, generate_series(1, 8) as s;
insert into {s}.waits (wait_id, run_key, flow_id, path, visit, kind, opened_at, details, scheduler, notifies,
                       due_at, token_hash, generation, single_use, status, settled_at, wake_at)
select 'wait-' || run_key || '-' || w, run_key, flow_id, 'ask', 1, 'approval', 1, '', '', run_key % 500 = 2,
       run_key, sha256((run_key || '-' || w)::bytea), 1, true, case when run_key % 20 <> 2 then 'closed'
       when run_key % 200 = 2 then 'settled' else 'open' end, run_key,
       case when run_key % 20 <> 2 then null when run_key % 200 = 2 then 0 else 4000000000000000 + run_key end
from {s}.runs, generate_series(1, 2) as w;
insert into {s}.artifacts select 'digest-' || k, 'x' from generate_series(1, {n}) as k;
analyze {s}.runs; analyze {s}.checkpoints; analyze {s}.waits; analyze {s}.artifacts;
"""


class Workbench:
    """A store with many runs, whose connections tell how their statements were planned."""

    def __init__(self, url: str, patch: pytest.MonkeyPatch, runs: int = RUNS) -> None:
        self.plans: list[str] = []
        self.schema = read_address(url).schema
        really_connect = connections.connect

        def connect(at: PostgresAddress) -> connections.Connection:
            connection = really_connect(at)
            connection.execute("load 'auto_explain'")
            for name, value in {
                "log_min_duration": "0",
                "log_analyze": "on",
                "log_nested_statements": "on",
                "log_level": "notice",
            }.items():
                connection.execute(f"set auto_explain.{name} = {value}")
            connection.add_notice_handler(lambda said: self.plans.append(str(said.message_primary)))
            return connection

        patch.setattr(connections, "connect", connect)
        clock = ManualClock()
        self.client = Client(StoreKit(lambda: open_store(url, clock), clock, None))  # type: ignore[arg-type]  # not looked at
        self.db = psycopg.connect(read_address(url).url, autocommit=True)
        self.db.execute(FILL.format(s=self.schema, n=runs))
        self.number = 0

    def chain(self, run_id: str = "run-3001") -> Chain:
        self.number += 1
        chain = Chain(run_id, self.client.clock, owner="me")
        chain.head = chain.admission(sequence=8, checkpoint_id=f"{run_id}/8")
        return chain

    def fresh(self) -> Chain:
        self.number += 1
        return self.client.admit(f"fresh-{self.number}", flow_id=f"fresh-{self.number}")

    def plans_of(self, work: Callable[[], object]) -> str:
        self.plans.clear()
        work()
        return "\n".join(self.plans)


@pytest.fixture(scope="module")
def bench(postgres_server: str) -> Iterator[Workbench]:
    with pytest.MonkeyPatch.context() as patch, fresh_schema(postgres_server) as url:
        bench = Workbench(url, patch)
        yield bench
        bench.client.close()
        bench.db.close()


def hot(bench: Workbench) -> dict[str, tuple[Callable[[], object], set[str]]]:
    """Return what is done often, and the indexes that it must use."""
    client, store = bench.client, bench.client.store
    names = [f"flow-{number}" for number in range(50)]
    blobs: Any = client.opened.blobs
    run, base = "runs_run_id_key", "checkpoints_pkey"
    digest = ArtifactRef("postgres", "digest-7", 1, "x", "digest-7")

    def step() -> None:
        chain = bench.fresh()
        client.extend(chain, [b"x"])

    def end() -> None:
        chain = bench.fresh()
        client.accept(chain, chain.final())

    return {
        "put": (step, {run, base}),
        "put of an end": (end, {run, base, "waits_unclosed_by_run"}),
        "get": (lambda: client.get("run-7", first=3, last=5), {run, base}),
        "tail": (lambda: client.tail("run-7"), {run, base, "checkpoints_keyframes"}),
        "run": (lambda: client.row("run-7"), {run, base}),
        "lease": (lambda: client.claim("run-81"), {run}),
        "renew": (lambda: client.renew(bench.chain().lease()), {run}),
        "release": (lambda: client.release(bench.chain().lease()), {run}),
        "signal": (lambda: client.call(store.request_stop("run-4", StopRequest.CANCEL)), {run}),
        "leased": (lambda: client.leased(), {"runs_by_lease"}),
        "claim": (
            lambda: client.due(1, names=names),
            {"waits_ready", "runs_by_lease", "runs_ready", "runs_by_signal", "runs_pkey"},
        ),
        "claim in a crowd": (
            lambda: client.due(1, names=["crowd"]),
            {"runs_waiting", "waits_by_lane"},
        ),
        "next due": (lambda: client.next_due(), {"waits_by_wake"}),
        "settle": (lambda: client.settle("wait-42-1"), {"waits_wait_id_key", "runs_pkey"}),
        "fire": (lambda: client.fire("run-42"), {run, "waits_unclosed_by_run"}),
        "wait of a token": (
            lambda: client.call(store.wait_of_token(b"unknown")),
            {"waits_by_token"},
        ),
        "waits of a run": (lambda: client.waits(run_id="run-42"), {run, "waits_by_run"}),
        "open waits": (lambda: client.waits(status=WaitStatus.SETTLED, limit=5), {"waits_unclosed"}),
        "untold waits": (lambda: client.waits(is_untold=True), {"waits_untold"}),
        "newest runs": (lambda: client.listing(limit=50), {"runs_pkey"}),
        "runs of a flow": (lambda: client.listing(flow_id="flow-7", limit=5), {"runs_by_flow"}),
        "runs of a status": (lambda: client.listing(status=Status.FAILED, limit=5), {"runs_by_status"}),
        "forks": (lambda: client.listing(parent_run_id="run-20"), {"runs_by_parent"}),
        "damaged runs": (lambda: client.listing(needs_repair=True), {"runs_damaged"}),
        "artifact": (lambda: blobs.get_checkpoint_blob(digest), {"artifacts_pkey"}),
    }


NAMES = [
    *("put", "put of an end", "get", "tail", "run", "lease", "renew", "release", "signal", "leased", "claim"),
    *("claim in a crowd", "next due", "settle", "fire", "wait of a token", "waits of a run", "open waits"),
    *(
        "untold waits",
        "newest runs",
        "runs of a flow",
        "runs of a status",
        "forks",
        "damaged runs",
        "artifact",
    ),
]


def faults(plans: str, wanted: set[str]) -> list[str]:
    """Return the tables that were read whole, and the indexes that were not used."""
    read_whole = re.findall(r"Seq Scan on (runs|checkpoints|waits|artifacts)\b", plans)
    unused = [name for name in sorted(wanted) if not re.search(rf"\b{name}\b", plans)]
    return [f"reads all {table}" for table in read_whole] + [f"does not use {name}" for name in unused]


@pytest.fixture(scope="module")
def crowded(bench: Workbench) -> Workbench:
    """So many runs of one flow are due that a claim goes from lane to lane."""
    now = bench.client.clock.now()
    commits = []
    for number in range(400):
        waiting = Chain(
            f"waiting-{number}",
            bench.client.clock,
            flow_id="crowd",
            has_lease=False,
            traits=Traits(group="w"),
        )
        commits.append(waiting.admission())
        halted = Chain(f"halting-{number}", bench.client.clock, flow_id="crowd", traits=Traits(group="h"))
        opened = halted.wait(f"wait of {number}", due_at=now - timedelta(days=1))
        commits.append(halted.admission(status=Status.HALTED, waits=(opened,)))
    bench.client.put(*commits)
    bench.db.execute(f"analyze {bench.schema}.runs; analyze {bench.schema}.waits")
    return bench


def test_the_list_of_what_is_hot_is_whole(bench: Workbench) -> None:
    assert sorted(hot(bench)) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_done_often_reads_by_an_index(crowded: Workbench, name: str) -> None:
    work, wanted = hot(crowded)[name]
    plans = crowded.plans_of(work)
    assert faults(plans, wanted) == [], plans


@pytest.mark.parametrize(
    "index", ["runs_by_lease", "waits_ready", "waits_by_wake", "checkpoints_keyframes", "runs_by_flow"]
)
def test_an_index_that_is_dropped_is_missed(crowded: Workbench, index: str) -> None:
    query = "select indexdef from pg_indexes where schemaname = %s and indexname = %s"
    found = crowded.db.execute(query, (crowded.schema, index)).fetchone()
    assert found is not None
    needing = [(work, wanted) for work, wanted in hot(crowded).values() if index in wanted]
    crowded.db.execute(f"drop index {crowded.schema}.{index}")
    try:
        for work, wanted in needing:
            assert faults(crowded.plans_of(work), wanted) != []
    finally:
        crowded.db.execute(found[0])


def test_a_group_reads_no_table_from_end_to_end_though_its_plans_were_made_while_all_was_empty(
    postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_schema(postgres_server) as url:
        bench = Workbench(url, monkeypatch, runs=0)
        chains = [Chain(f"run-{number}", bench.client.clock) for number in range(3)]
        commits = [
            chain.admission(status=Status.HALTED, waits=(chain.wait(f"of {chain.run_id}"),))
            for chain in chains
        ]
        plans = bench.plans_of(lambda: bench.client.put(*commits))
        bench.client.close()
        bench.db.close()
    assert "Index" in plans
    assert re.findall(r"Seq Scan on \w+", plans) == []


@pytest.mark.parametrize("is_analysed", [False, True])
def test_what_is_planned_while_tables_are_small_reads_no_more_when_they_are_large(
    postgres_server: str, monkeypatch: pytest.MonkeyPatch, is_analysed: bool
) -> None:
    """On one page of rows every index costs the same, and the plan that is made there is kept."""
    with fresh_schema(postgres_server) as url:
        bench = Workbench(url, monkeypatch, runs=0)
        client = bench.client
        for number in range(4):
            client.admit(f"waiting-{number}", has_lease=False)
            client.halted(f"halted-{number}", f"wait-{number}", due_in=-1)
        if is_analysed:
            bench.db.execute(f"analyze {bench.schema}.runs; analyze {bench.schema}.waits")
        found: list[str] = []
        claimed = bench.plans_of(lambda: found.extend(client.due(6)))
        admitted = bench.plans_of(lambda: client.admit("another"))
        client.close()
        bench.db.close()
    assert len(found) == 6
    given = [plan for plan in claimed.split("Query Text: ") if re.match("SELECT array_agg|UPDATE", plan)]
    assert len(given) == 4
    whole = [line for plan in given for line in whole_scans(plan)]
    assert whole == [], "\n".join(given)
    taken = [plan for plan in admitted.split("Query Text: ") if "new.run_id" in plan]
    assert len(taken) == 2
    assert [line for plan in taken for line in whole_scans(plan)] == [], "\n".join(taken)


def whole_scans(plan: str) -> list[str]:
    """Return the scans of a plan that go by no key: all that is there is read, and most of it passed over."""
    lines = plan.split("\n")
    scans = [
        number for number, line in enumerate(lines) if re.search(r"(Seq|Tid|Index|Index Only) Scan", line)
    ]
    return [lines[number] for number in scans if "Cond:" not in lines[number + 1]]


def test_a_claim_meets_none_of_the_runs_that_wait_wake_or_expire_in_other_flows(crowded: Workbench) -> None:
    chain = crowded.fresh()
    crowded.client.release(chain.lease())
    found: list[str] = []
    plans = crowded.plans_of(lambda: found.extend(crowded.client.due(1, names=[chain.run_id])))
    assert found == [chain.run_id]
    # 400 runs of one flow wait here, 400 wake, and 200 of fifty others wait or have lost their owner.
    assert [int(many) for many in re.findall(r"Rows Removed by Filter: (\d+)", plans) if int(many) > 1] == []
    assert max(int(float(many)) for many in re.findall(r"actual [^)]*rows=([\d.]+)", plans)) < 10


def test_what_metrics_show_is_counted_without_reading_runs_or_waits(crowded: Workbench) -> None:
    store = crowded.client.store
    plans = crowded.plans_of(lambda: crowded.client.call(store.counts()))
    assert "tallies" in plans
    assert re.findall(r"\bon (runs|waits)\b", plans) == []


def test_tallies_are_what_a_count_would_say_also_once_they_are_folded(crowded: Workbench) -> None:
    client, schema = crowded.client, crowded.schema
    chains = [crowded.fresh() for _ in range(4)]
    for chain, status in zip(chains, (Status.COMPLETED, Status.FAILED, Status.HALTED), strict=False):
        waits = (chain.wait(f"wait of {chain.run_id}"),) if status is Status.HALTED else ()
        client.accept(chain, chain.following(status=status, waits=waits))
    client.settle(f"wait of {chains[2].run_id}")

    def rows_of(query: str) -> dict[str, int]:
        return dict(crowded.db.execute(query.format(s=schema)).fetchall())

    for _ in range(3):
        counts = client.call(client.store.counts())
        assert counts.runs == rows_of("select status, count(*) from {s}.runs group by status")
        assert counts.waits == rows_of(
            "select kind, count(*) from {s}.waits where status = 'open' group by kind"
        )
        crowded.db.execute(f"select {schema}.fold_tallies_7()")
    left = crowded.db.execute(f"select count(*) from {schema}.tallies").fetchone()
    assert left is not None
    assert left[0] <= 10
