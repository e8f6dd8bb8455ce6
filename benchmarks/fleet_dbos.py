"""The work of `fleet_limit.py` through the queue of DBOS, by the Python that has it.

Set up as its documentation says for many short workflows: async workflows and steps, a limit of concurrency
a worker, a short interval of polling (0.02 s here, the quickest of those tried; 1 s by default), a larger
pool for the system database, no admin server. It counts from the first workflow on, so that its launch does
not.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSClient  # type: ignore[import-not-found]  # in another environment

QUEUE = "fleet"
began: list[float] = []
"""When the first workflow of this process began, and the processor it had used by then."""


def note_begin() -> None:
    if not began:
        began.extend((time.time(), time.process_time()))


@DBOS.step()  # type: ignore[untyped-decorator]  # in another environment
async def step(i: int) -> int:
    return 1


@DBOS.workflow()  # type: ignore[untyped-decorator]  # in another environment
async def zero() -> int:
    note_begin()
    return 1


@DBOS.workflow()  # type: ignore[untyped-decorator]  # in another environment
async def five() -> int:
    note_begin()
    for i in range(5):
        await step(i)
    return 1


def admit(url: str, runs: int, steps: int) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS dbos CASCADE")
    launch(url, "admitting", listens=False)
    DBOS.destroy()
    client = DBOSClient(system_database_url=url)
    name = "five" if steps else "zero"
    started, processor = time.time(), time.process_time()

    async def all_of_them() -> None:
        room = asyncio.Semaphore(32)

        async def one() -> None:
            async with room:
                await client.enqueue_async({"queue_name": QUEUE, "workflow_name": name, "app_version": "1"})

        await asyncio.gather(*(one() for _ in range(runs)))

    asyncio.run(all_of_them())
    print(json.dumps({"took": time.time() - started, "cpu": time.process_time() - processor}), flush=True)
    client.destroy()


def launch(url: str, executor: str, *, listens: bool = True, concurrency: int = 32) -> None:
    DBOS(
        config={
            "name": "fleet",
            "system_database_url": url,
            "log_level": "ERROR",
            "run_admin_server": False,
            "application_version": "1",
            "executor_id": executor,
            "sys_db_pool_size": 20,
        }
    )
    if not listens:
        DBOS.listen_queues([])
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=concurrency, polling_interval_sec=0.02)


def work(url: str, steps: int, concurrency: int, sign: str) -> None:
    import psycopg

    db: Any = psycopg.connect(url, autocommit=True)
    query = "SELECT count(*) FROM dbos.workflow_status WHERE status NOT IN ('SUCCESS', 'ERROR')"
    print("ready", flush=True)
    while not Path(sign).exists():
        time.sleep(0.005)
    launch(url, str(os.getpid()), concurrency=concurrency)
    while db.execute(query).fetchone()[0]:
        time.sleep(0.05)
    note_begin()  # of a process that got none
    ended, cpu = time.time(), time.process_time() - began[1]
    done = db.execute("SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'").fetchone()[0]
    print(json.dumps({"began": began[0], "ended": ended, "cpu": cpu, "done": done}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "admit":
        admit(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        work(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
