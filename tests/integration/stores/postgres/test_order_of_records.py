"""Records come in the order of the chain, whichever way the server joins its tables."""

from __future__ import annotations

import asyncio
from itertools import product
from urllib.parse import quote

import psycopg
import pytest

from everstep.ports.store import StoredRecord
from everstep.registry import open_store
from everstep.stores.postgres.address import read_address
from everstep.testing import ManualClock
from everstep.testing.conformance.kit import Client, StoreKit

BELIEVED = (1, 2, 3, 10, 30, 100, 300)
"""How many rows the server believes a table to have: it joins by that."""
SAYS = "update pg_class set relpages = 1, reltuples = %s where oid = %s::regclass"
GENERIC = "-c plan_cache_mode=force_generic_plan"
"""Plans as they are for a statement that a connection has sent some times."""


@pytest.mark.parametrize("without", ["", "mergejoin", "nestloop", "nestloop mergejoin", "material"])
def test_records_come_in_order_whatever_the_server_believes_of_its_tables(
    postgres_url: str, without: str
) -> None:
    told = " ".join([GENERIC, *(f"-c enable_{it}=off" for it in without.split())])
    url, clock = f"{postgres_url}&options={quote(told)}", ManualClock()
    client = Client(StoreKit(lambda: open_store(url, clock), clock, None))  # type: ignore[arg-type]  # not looked at
    names = [f"run-{number}" for number in range(6)]
    for name in names:
        client.extend(client.admit(name), [b"x" * 900] * 5)
    store = client.store

    async def read() -> list[list[StoredRecord]]:
        return await asyncio.gather(*map(store.tail, names), *(store.get(name, first=2) for name in names))

    wrong = {}
    at = read_address(postgres_url)
    with psycopg.connect(at.url, autocommit=True) as db:
        for runs, checkpoints in product(BELIEVED, BELIEVED):
            db.execute(SAYS, (runs, f"{at.schema}.runs"))
            db.execute(SAYS, (checkpoints, f"{at.schema}.checkpoints"))
            found = [[record.sequence for record in records] for records in client.call(read())]
            if found != [[1, 2, 3, 4, 5, 6]] * 6 + [[2, 3, 4, 5, 6]] * 6:
                wrong[runs, checkpoints] = found
    client.close()
    assert wrong == {}
