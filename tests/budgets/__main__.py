"""Count what things cost, and hold it against their budgets, or write those.

    .venv/bin/python -m tests.budgets [--write [--why TEXT]] [--parts] [NAME...]

A NAME is a store (sqlite, file, postgres, redis, s3), a work such as `w1 on sqlite`, or `modules`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.budgets import counting, ratchet
from tests.budgets.loads import PROGRAMS
from tests.servers import postgres, seaweed, valkey
from tests.servers.running import shared


def main() -> int:
    told = _arguments()
    budgets, known = ratchet.Budgets.read(), ratchet.read_parts()
    with ExitStack() as open_servers, tempfile.TemporaryDirectory() as folder:
        costs: ratchet.Costs = {}
        for found in _counted(told.names, Path(folder), open_servers):
            costs |= found
    for line in ratchet.shown(costs, budgets):
        print(line)
    if told.parts:
        _print_parts(costs, known)
    if told.write:
        return _write(costs, budgets, known, told.why)
    troubles = ratchet.check(costs, budgets, known)
    for said in ratchet.told(troubles):
        print(f"\n{said}")
    return 1 if any(trouble.is_above for trouble in troubles) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(ratchet.COMMAND, description="What things cost.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="sqlite, 'w1 on postgres', modules, ...")
    parser.add_argument("--parts", action="store_true", help="tell what each figure consists of")
    parser.add_argument("--write", action="store_true", help="lower budgets to what things cost now")
    parser.add_argument("--why", default="", help="with --write: raise them too, for this reason")
    told = parser.parse_args()
    if told.why and not told.write:
        parser.error("--why goes with --write.")
    return told


def _counted(names: list[str], folder: Path, servers: ExitStack) -> Iterator[ratchet.Costs]:
    for store in counting.ON:
        works = [name.rpartition(" on ")[0] for name in names if name.endswith(f" on {store}")]
        if names and store not in names and not works:
            continue
        print(f"counting on {store} ...", file=sys.stderr)
        url = _url(store, folder, servers)
        yield counting.costs_on(store, url, works)
    for program in PROGRAMS:
        if not names or program in names or "modules" in names:
            yield counting.loads_of(program, folder)


def _url(store: str, folder: Path, servers: ExitStack) -> str:
    """Return the URL of a store, and start its server until all is counted."""
    use = servers.enter_context
    if store == "postgres":
        return use(postgres.fresh_schema(use(shared(postgres.PostgresServer, folder))))
    if store == "redis":
        return use(use(valkey.prefixes(use(shared(valkey.ValkeyServer, folder))))())
    if store == "s3":
        url = use(shared(seaweed.SeaweedServer, folder))
        use(seaweed.key_in_the_environment())
        return use(seaweed.fresh_prefix(url))
    return f"{store}:"


def _print_parts(costs: ratchet.Costs, known: ratchet.Costs) -> None:
    for name, kinds in costs.items():
        for kind, parts in kinds.items():
            print(f"\n{name}: {kind}")
            for what, cost in sorted(parts.items(), key=lambda part: -part[1]):
                before = known.get(name, {}).get(kind, {}).get(what, 0)
                print(f"{cost:9.2f} {what}" + (f"  (was {before:g})" if before != cost else ""))


def _write(costs: ratchet.Costs, budgets: ratchet.Budgets, known: ratchet.Costs, why: str) -> int:
    units = {name: counting.unit_of(name) for name in costs}
    new, risen = ratchet.moved(costs, budgets, known, units, why)
    refused = set() if why else {trouble.name for trouble in risen}
    new.write()
    ratchet.write_parts(known | {name: kinds for name, kinds in costs.items() if name not in refused})
    for said in () if why else ratchet.told(risen):
        print(f"\nNot raised, for want of a reason.\n{said}", file=sys.stderr)
    uncounted = [name for name in budgets.of if name not in costs]
    if why and risen and uncounted:
        print(f"\nNot counted, so not raised if they grew too: {', '.join(uncounted)}.")
        print(f'Without a NAME all are counted: {ratchet.COMMAND} --write --why "..."')
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
