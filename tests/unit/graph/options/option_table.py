"""The table of options as the docs show it."""

from __future__ import annotations

from itertools import groupby

from everstep.graph.author.options import TABLE, Of, Option, OptionVerdict, Place

MARKS = {OptionVerdict.WORKS: "✓", OptionVerdict.AT_BUILD: "build", OptionVerdict.AT_CALL: "call"}
HEADINGS = {
    Of.NODE: "`@node`",
    Of.GATE: "`@ifelse`, `@route`",
    Of.FLOW: "`Flow`, of a flow inside another",
    Of.AS_NODE: "`as_node`",
    Of.MAP: "`map_over`",
    Of.GROUP: "`parallel`",
    Of.WAIT: "`wait.timer`, `approval`, `callback`, `question`",
    Of.BREAKER: "`Breaker`, by where what it guards stands",
    Of.CONTEXT: "`Context`, inside a node",
}


def page() -> str:
    """Return the tables of the page, one for each that has options."""
    return "\n".join(_section(of, list(options)) for of, options in groupby(TABLE, lambda option: option.of))


def _section(of: Of, options: list[Option]) -> str:
    places = list(Place)
    lines = [
        f"### {HEADINGS[of]}",
        "",
        f"| option | {' | '.join(places)} | |",
        "|---" * (len(places) + 2) + "|",
    ]
    lines += [_row(option, places) for option in options]
    return "\n".join([*lines, ""])


def _row(option: Option, places: list[Place]) -> str:
    name = f"`{option.name}`" + (f" {option.form}" if option.form else "")
    cells = " | ".join(MARKS[option.at(place)] for place in places)
    return f"| {name} | {cells} | {_why(option)} |"


def _why(option: Option) -> str:
    codes = dict.fromkeys(f"`{refusal.code}`: {refusal.because}" for refusal in option.refused.values())
    return "; ".join([*codes, *([option.note] if option.note else [])])


if __name__ == "__main__":
    print(page())
