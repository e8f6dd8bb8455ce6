"""Drills of fleets whose workers are of several versions: of everstep, and of a flow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.drills.kit import Drill, Found, Place, PostgresServer, lines, sql, until, workers_up
from everstep import Host

RUNS = 12
ORDERS = """
from pathlib import Path
import everstep
from everstep import Flow, node

@node(output="receipt", effects="effectful", idempotency_key="auto")
def pay(number: int) -> str:
    with Path("paid").open("a") as file:
        file.write(f"{number}:{everstep.__version__}\\n")
    return f"{number} paid"

@node(output="end")
def close(receipt: str) -> str:
    return receipt

flow = Flow("orders", [pay, close], durability="strong")
"""
GRANTS = (
    "GRANT USAGE ON SCHEMA {schema} TO hand",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO hand",
    "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO hand",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO hand",
)
"""What the documentation says that a worker's role is given, once, when the owner has made the tables."""


def grants_after_upgrade(here: Place) -> Found:
    """Owner and worker are two roles; 0.1.0 made the tables, and the owner upgrades them beside workers."""
    server, old = here.own(PostgresServer), here.old_release()
    (here.folder / "flows.py").write_text(ORDERS)
    admin = f"{server.url}?schema=everstep"
    owner, hand = (admin.replace("postgres@", f"{who}@") for who in ("holder", "hand"))
    sql(
        admin,
        "CREATE ROLE holder LOGIN",
        "CREATE ROLE hand LOGIN",
        "CREATE SCHEMA {schema} AUTHORIZATION holder",
    )
    made = here.call("doctor", owner, source=old)
    assert made.returncode == 0, made.stderr
    sql(admin, *GRANTS)

    def begin(first: int, source: Path | None) -> None:
        for number in range(first, first + RUNS):
            words = ("run", "flows.py", "--start", "-i", f"number={number}", "--run-id", f"r{number}")
            done = here.call(*words, "--store", hand, source=source)
            assert done.returncode == 0, done.stderr

    begin(0, old)
    before = here.start("worker", "flows.py", "--store", hand, source=old)
    until(lambda: len(lines(here.folder / "paid")) >= RUNS)
    upgraded = here.call("migrate-store", "--store", owner)
    assert upgraded.returncode == 0, upgraded.stderr
    begin(RUNS, old)
    done = until(lambda: len(lines(here.folder / "paid")) >= 2 * RUNS, seconds=30)
    before.end()
    with Host(hand) as host:
        until(lambda: not host.runs(status="running"), seconds=10)
        by_old = Counter(run.status.value for run in host.runs())
    begin(2 * RUNS, None)
    now = here.call("worker", "flows.py", "--store", hand, "--once")
    with Host(hand) as host:
        ended = Counter(run.status.value for run in host.runs(limit=1000))
        host.retention.erase("r0")
        removed = here.call("gc", "--keep-for", "0s", "--store", hand)
    said = before.said + now.stderr + removed.stderr
    denied = said.count("permission denied")
    text = (
        f"0.1.0 went on after the upgrade ({by_old['completed']} of {2 * RUNS} runs), "
        f"{ended['completed']} of {3 * RUNS} beside workers of now; {denied} refusals"
    )
    whole = ended["completed"] == 3 * RUNS and now.returncode == removed.returncode == 0
    return Found(text, done < 30 and by_old["completed"] == 2 * RUNS and whole and not denied)


def flow_of(version: str, *, pinned: bool = False, more: bool = False) -> str:
    """Return the text of a version of a flow; each says in a file which one drove it."""
    pin = ", pin_version=True" if pinned else ""
    return f"""
from pathlib import Path
from everstep import Flow, node, wait

@node(output="price")
def ask(item: str) -> int:
    return len(item)

@node(output="letter")
def ship(paid: wait.CallbackOutput, price: int) -> str:
    with Path("shipped").open("a") as file:
        file.write("{version}\\n")
    return "shipped"

{
        '''@node(output="thanks")
def thank(letter: str) -> str:
    return letter'''
        if more
        else ""
    }

nodes = [ask, wait.callback("paid"), ship{", thank" if more else ""}]
flow = Flow("orders", nodes, version="{version}", durability="strong"{pin})
"""


def roll_back(here: Place) -> Found:
    """A run of a newer version of its flow is due, and after a roll-back all workers have the older one."""
    url = here.postgres()
    (here.folder / "old.py").write_text(flow_of("1"))
    (here.folder / "new.py").write_text(flow_of("2", more=True))
    for run_id, file in (("O1", "old.py"), ("N1", "new.py")):
        begun = here.call("run", file, "--start", "-i", "item=chair", "--run-id", run_id, "--store", url)
        assert begun.returncode == 0, begun.stderr
    worker = here.start("worker", "old.py", "--store", url)
    service = here.serve(url, "--no-work", "--quiet", flows=here.folder / "old.py")
    workers_up(url)
    until(lambda: "O1" in worker.said)
    listed = {one["run_id"]: one["untaken"] for one in here.told("runs", "--store", url)["runs"]}
    untaken = listed["N1"] or {}
    explained = here.call("explain", "N1", "new.py", "--store", url).stdout
    metrics = service.ask("GET", "/metrics")[1]
    counted = [line for line in metrics.splitlines() if line.startswith("everstep_untaken_runs{")]
    is_counted = any(line.endswith(" 1") for line in counted)
    is_explained = "started at once" not in explained and "version" in explained
    now = (
        f"`runs` names it (no live worker takes it: {untaken.get('why', 'nothing')}); "
        f"`explain` {'says why' if is_explained else 'does not'}; "
        f"a metric {'counts it' if is_counted else 'does not'}"
    )
    return Found(now, untaken.get("why") == "version" and not listed["O1"] and is_explained and is_counted)


def pinned_versions(here: Place) -> Found:
    """Workers of two versions of a flow side by side, and runs that both have begun."""
    url = here.postgres()
    found = {}
    for name, pinned in (("plain", False), ("pinned", True)):
        for version in ("1", "2"):
            text = flow_of(version, pinned=pinned, more=version == "2").replace('"orders"', f'"{name}"')
            (here.folder / f"{name}{version}.py").write_text(text)
            words = ("run", f"{name}{version}.py", "-i", "item=chair", "--run-id", f"{name}{version}")
            done = here.call(*words, "--store", url)
            assert done.returncode in (0, 3, 75) or "halted" in done.stdout, (done.returncode, done.stderr)
        here.start("worker", f"{name}2.py", "--store", url)
        with Host(url) as host:
            until(lambda h=host, n=name: any(n in w.flows for w in h.fleet.workers()))
            host.answer(host.waits(run_id=f"{name}1")[0].id, {"receipt": 7})
            until(lambda h=host, n=name: h.info(f"{n}1").status == "completed", seconds=4)
            early = host.info(f"{name}1").status.value
            here.start("worker", f"{name}1.py", "--store", url)
            until(lambda h=host, n=name: h.info(f"{n}1").status == "completed", seconds=20)
        by = lines(here.folder / "shipped")
        found[name] = (early, by[-1] if by else "none")
    plain, pinned_ = found["plain"], found["pinned"]
    now = (
        f"with `pin_version` it waited ({pinned_[0]}) for a worker of its version, which drove it "
        f"(version {pinned_[1]}); without, the newer took it over (version {plain[1]})"
    )
    return Found(now, pinned_ == ("halted", "1") and plain == ("completed", "2"))


DRILLS = (
    Drill(
        "grants-after-upgrade",
        "old workers stopped: permission denied for the new table",
        grants_after_upgrade,
    ),
    Drill(
        "roll-back",
        "running, nothing logged, `explain` said that it starts at once",
        roll_back,
    ),
    Drill(
        "pinned-versions", "the newer took old runs and migrated them; no way to keep them", pinned_versions
    ),
)
