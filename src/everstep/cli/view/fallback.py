"""How a damaged run went on, in words and as JSON."""

from __future__ import annotations

import click

from everstep.cli.view.text import one_line
from everstep.results import Fallback

_SHOWN = 20


def say_fallback(fallback: Fallback) -> None:
    """Say on stderr what was damaged, what goes on in its place, and what may be done twice."""
    click.secho(f"run {fallback.run_id} is damaged: {one_line(fallback.reason)}", err=True, fg="yellow")
    said = f"it goes on from checkpoint {fallback.at} as run {fallback.fork}"
    click.secho(said, err=True, fg="yellow")
    for step in fallback.may_repeat[:_SHOWN]:
        key = f", with the key {step.key}" if step.key else ""
        visit = f"@{step.visit}" if step.visit > 1 else ""
        click.echo(f"  {step.path}{visit} ({step.effects.value}) may be done twice{key}", err=True)
    if len(fallback.may_repeat) > _SHOWN:
        click.echo(f"  and {len(fallback.may_repeat) - _SHOWN} more: --json", err=True)
    if fallback.unread:
        numbers = ", ".join(map(str, fallback.unread[:_SHOWN]))
        click.echo(f"  what was done in checkpoint {numbers} cannot be read", err=True)
