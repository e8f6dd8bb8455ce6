"""What happens to a fleet in operation, beside what happened with 0.1.

    python -m benchmarks.drills [crashing-neighbour full-disk …] [--runs 250000] [--json]

Each drill makes one situation with processes of its own and real servers (PostgreSQL and Valkey, started for
the purpose and ended with it), says in a row what 0.1 did there and what happens now, and whether that is as
it should be. The last line counts them; the exit code is 1 if one did not hold. `--runs` is how many runs the
drills about many runs put into the store. Times are of the wall clock unless they say otherwise: beside other
programs they are upper bounds. `docs/explanation/operating-drills.md` has a table of all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence

from benchmarks.drills import backlog, fleet, outages, restoring, service, trust, upgrades
from benchmarks.drills.kit import Drill, Found, Servers, place

MODULES = (fleet, service, backlog, upgrades, outages, trust, restoring)


def every() -> dict[str, Drill]:
    """Return all drills by name."""
    return {one.name: one for module in MODULES for one in module.DRILLS}


def tried(drill: Drill, servers: Servers) -> Found:
    """Return what a drill found; one that breaks off has not held."""
    with place(servers) as here:
        try:
            return drill.work(here)
        except Exception as error:
            traceback.print_exc()
            return Found(f"broke off: {type(error).__name__}: {str(error).partition(chr(10))[0]}", False)


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    known = every()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.drills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="drills: " + ", ".join(known),
    )
    parser.add_argument(
        "names", nargs="*", metavar="DRILL", help="those to try; all of them if none is named"
    )
    parser.add_argument("--runs", type=int, default=250_000, help="runs in a store of many")
    parser.add_argument("--json", action="store_true", help="an object a line")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no drill {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in given.names or known]
    if not given.json:
        print(f"{row('drill', '0.1', 'now', '')}\n|---|---|---|---|", flush=True)
    held = 0
    with Servers(given.runs) as servers:
        for drill in chosen:
            began = time.monotonic()
            found = tried(drill, servers)
            held += found.holds
            if given.json:
                told = {"drill": drill.name, "before": drill.before, "now": found.now, "holds": found.holds}
                print(json.dumps({**told, "seconds": round(time.monotonic() - began, 1)}), flush=True)
            else:
                print(row(drill.name, drill.before, found.now, "ok" if found.holds else "not"), flush=True)
    print(f"{len(chosen)} drills, {held} held", file=sys.stderr if given.json else sys.stdout, flush=True)
    return 0 if held == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
