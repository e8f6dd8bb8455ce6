"""Budgets and breakers as people see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

import click

from everstep.cli.view.text import count, moment, one_line
from everstep.client.guards import BreakerInfo, RunGuards
from everstep.model.budgets import plain
from everstep.model.ledger import BreakerAt, BreakerState, Guarded

COLOURS = {BreakerState.OPEN: "red", BreakerState.HALF_OPEN: "yellow", BreakerState.CLOSED: "green"}


def amounts_said(amounts: Mapping[str, Decimal]) -> str:
    """Write amounts: `0.12 usd, 1500 tokens`."""
    return ", ".join(f"{plain(amount)} {name}" for name, amount in amounts.items())


def guarded_said(guarded: Guarded) -> str:
    """Say what a step did to the guards of its run."""
    parts = []
    if guarded.limits:
        parts.append(f"may spend {amounts_said(guarded.limits)}")
    if guarded.raised:
        parts.append(f"may spend {amounts_said(guarded.raised)} more")
    parts += [_changed(name, at) for name, at in guarded.breakers.items()]
    return "; ".join(parts)


def _changed(name: str, at: BreakerAt) -> str:
    if at.state is BreakerState.OPEN:
        return f"breaker {name} opens: {one_line(at.reason)}"
    if at.state is BreakerState.HALF_OPEN:
        return f"breaker {name} is half open"
    return f"breaker {name} is closed" + (f", {count(at.failures, 'failure')}" if at.failures else "")


def guard_lines(guards: RunGuards) -> Iterator[tuple[str, str]]:
    """Write what a run has spent and how its breakers stand, each with what it is."""
    rest = {name: amount for name, amount in guards.spent.items() if name not in guards.budgets}
    for name, budget in guards.budgets.items():
        share = f"{budget.share:.0%}"
        raised = f", {plain(budget.raised)} of it approved later" if budget.raised else ""
        said = f"{plain(budget.spent)} of {plain(budget.limit)} {name} ({share}){raised}"
        yield "budget", click.style(said, fg="red" if not budget.left else None)
    if rest:
        yield "spent", amounts_said(rest)
    for breaker in guards.breakers.values():
        yield "breaker", breaker_said(breaker)


def breaker_said(info: BreakerInfo) -> str:
    """Say how a breaker stands."""
    state = click.style(info.state.value.replace("_", " "), fg=COLOURS[info.state])
    since = f" since {moment(info.since)}" if info.since is not None else ""
    why = f": {one_line(info.reason)}" if info.reason and info.state is not BreakerState.CLOSED else ""
    trips = f", opened {count(info.trips, 'time')}" if info.trips else ""
    return f"{info.name} {state}{since}{why}{trips}"
