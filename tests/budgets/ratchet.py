"""Budgets: what things may cost, in `budgets.toml`; and what they consist of, in `parts.json`.

A figure above its budget is trouble, and the trouble names what is new. So is one clearly below it: then the
budget is lowered, and what was won is kept. A budget is raised only with a reason, which stays beside it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
COMMAND = ".venv/bin/python -m tests.budgets"
HEAD = f"""\
# What things may cost on this Python; on others it is only reported. No figure depends on the machine's mood.
#
#   {COMMAND}                      counts, and says what is above or below its budget
#   {COMMAND} --write              lowers budgets to what things cost now
#   {COMMAND} --write --why TEXT   raises them too, and writes down why
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
    """Why it was raised, the last time first."""

    @property
    def slack(self) -> float:
        number, _, percent = self.tolerance.partition(" ")
        return float(number) * (self.figure / 100 if percent else 1)

    def raised(self, figure: float, why: str) -> Budget:
        """Return it with another figure, and the reason before the older ones."""
        if why in self.why:
            return self._replace(figure=figure)
        return self._replace(figure=figure, why=f"{why} Before: {self.why}" if self.why else why)

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
    added: Parts
    """By how much each part of it has grown, most first; empty if the figure fell."""

    @property
    def is_above(self) -> bool:
        return self.figure > self.budget.figure

    def __str__(self) -> str:
        known = f"{self.budget.figure:g} is its budget, with a tolerance of {self.budget.tolerance}"
        return f"{self.name}: {self.figure:g} {self.kind} per {self.budget.unit}; {known}."


def told(troubles: Iterable[Trouble]) -> Iterator[str]:
    """Tell troubles, those together in which the same has grown."""
    alike: dict[tuple[str, bool, frozenset[str]], list[Trouble]] = {}
    for trouble in troubles:
        alike.setdefault((trouble.kind, trouble.is_above, frozenset(trouble.added)), []).append(trouble)
    for (_, is_above, _), group in alike.items():
        lines = [*map(str, group), *(f"  {line}" for line in _grown(group))]
        if is_above:
            lines.append(f'  Do without it, or say what it buys: {COMMAND} --write --why "..."')
        else:
            lines.append(f"  Lower what is allowed to what it costs: {COMMAND} --write")
        yield "\n".join(lines)


def _grown(group: Sequence[Trouble]) -> Iterator[str]:
    """Name what has come on top in each of these works, and the least and the most of it."""
    for what in tuple(group[0].added)[:MOST_NAMED]:
        costs = [trouble.added[what] for trouble in group]
        least, most = f"+{min(costs):g}", f"+{max(costs):g}"
        yield f"{least} {what}" if least == most else f"{least} to {most} {what}"
    if len(group[0].added) > MOST_NAMED:
        yield f"and {len(group[0].added) - MOST_NAMED} more"


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
                found.append(Trouble(name, kind, figure, budget, {}))
    return found


def added(parts: Parts, known: Parts) -> Parts:
    """Return by how much parts have grown, most first."""
    more = {what: round(cost - known.get(what, 0), 4) for what, cost in parts.items()}
    return dict(sorted(((what, m) for what, m in more.items() if m > 0.01), key=lambda part: -part[1]))


def read_parts(file: Path = PARTS) -> Costs:
    found: Costs = json.loads(file.read_text(encoding="utf-8"))
    return found


def write_parts(costs: Mapping[str, Any], file: Path = PARTS) -> None:
    file.write_text(json.dumps(costs, indent=0, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def moved(
    costs: Costs, budgets: Budgets, known: Costs, units: Mapping[str, str], why: str
) -> tuple[Budgets, list[Trouble]]:
    """Return budgets as things are now, and what rose: without a reason the budgets of that stay."""
    risen = [trouble for trouble in check(costs, budgets, known) if trouble.is_above]
    above = {(trouble.name, trouble.kind) for trouble in risen}
    of = {name: dict(kinds) for name, kinds in budgets.of.items()}
    for name, kinds in costs.items():
        for kind, parts in kinds.items():
            figure, old = figure_of(kind, parts), of.setdefault(name, {}).get(kind)
            if old is None:
                of[name][kind] = Budget(figure, units[name], TOLERANCES.get(kind, "0"))
            elif (name, kind) in above:
                of[name][kind] = old.raised(figure, why) if why else old
            elif figure < old.figure:
                of[name][kind] = old._replace(figure=figure)
    return Budgets(budgets.python, of), risen


def shown(costs: Costs, budgets: Budgets) -> Iterable[str]:
    """Tell every figure beside its budget."""
    for name, kinds in costs.items():
        for kind, parts in kinds.items():
            budget = budgets.of.get(name, {}).get(kind)
            figure = figure_of(kind, parts)
            known = "no budget yet" if budget is None else f"of {budget.figure:g}"
            yield f"{name:28} {kind:12} {figure:10,.2f} {known}"
