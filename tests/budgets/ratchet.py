"""Budgets: what things may cost, in `budgets.toml`; and what they consist of, in `parts.json`.

A figure above its budget is trouble, and the trouble names what is new. So is one clearly below it: then the
budget is lowered, and what was won is kept. A budget is raised only with a reason, which stays beside it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
BUDGETS, PARTS = HERE / "budgets.toml", HERE / "parts.json"
NOW_AND_THEN = 0.3
"""What happens less often for one unit is not of the unit: room made in a log, a log folded back."""
BY_LUCK = 0.12
"""How much more of what happens now and then may be seen than was known: one time in ten units."""
EXACT = ("statements", "syncs", "round trips")
MOST_NAMED = 12
TOLERANCES = {"calls": "0.5", "allocations": "1 %", "bytes": "1 %"}
"""Of new budgets; others have none."""
HEAD = """\
# What things may cost on this Python; on others it is only reported. No figure depends on the machine's mood.
#
#   python -m tests.budgets                      counts, and says what is above or below its budget
#   python -m tests.budgets --write              lowers budgets to what things cost now
#   python -m tests.budgets --write --why TEXT   raises them too, and writes down why
"""

Parts = dict[str, float]
Costs = dict[str, dict[str, Parts]]
"""What each work costs, by its name and the kind of cost, and what that consists of."""


class Budget(NamedTuple):
    """How much of one kind of cost a work may have."""

    figure: float
    unit: str
    tolerance: str
    """A number, or a share of the figure such as `1 %`."""
    why: str = ""
    """Why it was raised the last time."""

    @property
    def slack(self) -> float:
        number, _, percent = self.tolerance.partition(" ")
        return float(number) * (self.figure / 100 if percent else 1)

    def line(self) -> str:
        told = [f"figure = {self.figure:g}", f"unit = {json.dumps(self.unit)}"]
        told.append(f"tolerance = {json.dumps(self.tolerance)}")
        told += [f"why = {json.dumps(self.why, ensure_ascii=False)}"] if self.why else []
        return "{ " + ", ".join(told) + " }"


class Budgets(NamedTuple):
    """All budgets, by the work and the kind of cost, and the Python they are for."""

    python: str
    of: dict[str, dict[str, Budget]]

    @classmethod
    def read(cls, file: Path = BUDGETS) -> Budgets:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        python = told.pop("python")
        return cls(python, {name: {k: Budget(**b) for k, b in kinds.items()} for name, kinds in told.items()})

    def write(self, file: Path = BUDGETS) -> None:
        lines = [HEAD, f"python = {json.dumps(self.python)}"]
        for name, kinds in self.of.items():
            lines += ["", f"[{json.dumps(name)}]"]
            lines += [f"{json.dumps(kind)} = {budget.line()}" for kind, budget in kinds.items()]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


class Trouble(NamedTuple):
    """A figure that is not what its budget says."""

    name: str
    kind: str
    figure: float
    budget: Budget
    added: list[str]
    """What is new in it, most first; empty if the figure fell."""

    @property
    def is_above(self) -> bool:
        return self.figure > self.budget.figure

    def __str__(self) -> str:
        known = f"{self.budget.figure:g} is its budget, with a tolerance of {self.budget.tolerance}"
        head = f"{self.name}: {self.figure:g} {self.kind} a {self.budget.unit}; {known}."
        if not self.is_above:
            return f"{head}\n  Lower it to {self.figure:g}: python -m tests.budgets --write"
        raised = 'Do without it, or say what it buys: python -m tests.budgets --write --why "..."'
        return "\n".join([head, *(f"  {line}" for line in self.added), f"  {raised}"])


def figure_of(kind: str, parts: Parts) -> float:
    """Return what the parts come to; of what goes to the store, only what each unit does."""
    if kind in EXACT:
        return round(sum(_settled(part) for part in parts.values()), 2)
    return round(sum(parts.values()), 2)


def _settled(part: float) -> float:
    whole = round(part)
    return whole if abs(part - whole) < NOW_AND_THEN else part


def check(costs: Costs, budgets: Budgets, known: Costs) -> list[Trouble]:
    """Return what is above its budget, or clearly below it."""
    found = []
    for name, kinds in costs.items():
        for kind, parts in kinds.items():
            budget = budgets.of.get(name, {}).get(kind)
            if budget is None:
                continue
            figure = figure_of(kind, parts)
            more = sum(parts.values()) - sum(known[name][kind].values())
            # Where calls are not counted, threads take turns, and how many connections they open is luck too.
            if kind in EXACT and more > BY_LUCK and "calls" in kinds:
                figure = max(figure, round(budget.figure + more, 2))
            if figure > budget.figure + budget.slack:
                found.append(Trouble(name, kind, figure, budget, added(parts, known[name][kind])))
            elif figure < budget.figure - 2 * budget.slack:
                found.append(Trouble(name, kind, figure, budget, []))
    return found


def added(parts: Parts, known: Parts) -> list[str]:
    """Name what has come on top of what was known, most first."""
    more = {what: cost - known.get(what, 0) for what, cost in parts.items()}
    grown = sorted(((cost, what) for what, cost in more.items() if cost > 0.01), reverse=True)
    lines = [f"+{cost:g} {what}" for cost, what in grown[:MOST_NAMED]]
    return lines + ([f"and {len(grown) - MOST_NAMED} more"] if len(grown) > MOST_NAMED else [])


def read_parts(file: Path = PARTS) -> Costs:
    found: Costs = json.loads(file.read_text(encoding="utf-8"))
    return found


def write_parts(costs: Mapping[str, Any], file: Path = PARTS) -> None:
    file.write_text(json.dumps(costs, indent=0, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def moved(costs: Costs, budgets: Budgets, units: Mapping[str, str], why: str) -> tuple[Budgets, set[str]]:
    """Return budgets as things are now, and the names of works in which some figure rose without a reason."""
    of, refused = {name: dict(kinds) for name, kinds in budgets.of.items()}, set()
    for name, kinds in costs.items():
        for kind, parts in kinds.items():
            figure, old = figure_of(kind, parts), of.setdefault(name, {}).get(kind)
            if old is None:
                of[name][kind] = Budget(figure, units[name], TOLERANCES.get(kind, "0"))
            elif figure > old.figure + old.slack:
                if why:
                    of[name][kind] = old._replace(figure=figure, why=why)
                else:
                    refused.add(name)
            elif figure < old.figure:
                of[name][kind] = old._replace(figure=figure)
    return Budgets(budgets.python, of), refused


def shown(costs: Costs, budgets: Budgets) -> Iterable[str]:
    """Tell every figure beside its budget."""
    for name, kinds in costs.items():
        for kind, parts in kinds.items():
            budget = budgets.of.get(name, {}).get(kind)
            figure = figure_of(kind, parts)
            known = "no budget yet" if budget is None else f"of {budget.figure:g}"
            yield f"{name:28} {kind:12} {figure:10,.2f} {known}"
