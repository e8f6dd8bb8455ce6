"""A flow as a picture: for Graphviz, for Mermaid, and as SVG, with the durable part in colour."""

from __future__ import annotations

from html import escape
from typing import Final, NamedTuple

from everstep.graph.check.report import DurabilityReport
from everstep.graph.draw.graphviz import Scalar, Sketch, SketchGroup, SketchNode, to_text
from everstep.graph.draw.layers import NodeLayers, layered
from everstep.graph.draw.sketches import edges_of, ids_of, shape_of


class Look(NamedTuple):
    """How a kind of node is drawn."""

    fill: str
    line: str
    said: str


LOOKS = {
    "durable": Look("#d8f3dc", "#2d6a4f", "durable"),
    "halts": Look("#fff3bf", "#b08900", "halts: kept while it waits"),
    "incompatible": Look("#ffe3e3", "#c92a2a", "not checkpointable"),
    "unkept": Look("#f1f3f5", "#868e96", "kept nowhere"),
    "join": Look("#f1f3f5", "#868e96", "where branches meet"),
}
_DASHED: Final = {"style": "dashed"}


def kind_of(report: DurabilityReport, k: int) -> str:
    """Return the look of a leaf."""
    leaf = report.leaves.nodes[k]
    if leaf.is_join:
        return "join"
    if leaf.path in report.reasons:
        return "incompatible"
    if leaf.path not in report.segment_of:
        return "unkept"
    return "halts" if leaf.node.halts else "durable"


def to_dot(report: DurabilityReport) -> str:
    """Return the flow for Graphviz, each segment in a box of its own."""
    ids = ids_of(report.leaves)
    nodes = []
    for k, leaf in enumerate(report.leaves.nodes):
        look = LOOKS[kind_of(report, k)]
        said: dict[str, Scalar] = {"fillcolor": look.fill, "color": look.line}
        if shape_of(leaf) != "box":
            said["shape"] = shape_of(leaf)
        if ids[k] != leaf.path:
            said["label"] = _shown(leaf.path)
        if leaf.path in report.reasons:
            said["tooltip"] = _shown(report.reasons[leaf.path])
        nodes.append(SketchNode(ids[k], said))
    id_of = {leaf.path: ids[k] for k, leaf in enumerate(report.leaves.nodes)}
    groups = tuple(
        SketchGroup(
            f"cluster_{s}", tuple(id_of[name] for name in segment.nodes), {"label": f"segment {s}", **_DASHED}
        )
        for s, segment in enumerate(report.resumable_segments, 1)
    )
    return to_text(
        Sketch(
            report.flow,
            tuple(nodes),
            edges_of(report.leaves, ids),
            groups,
            {"label": _shown(report.headline), "labelloc": "t", "fontname": "sans"},
            {"shape": "box", "style": "rounded,filled", "fontname": "sans"},
        )
    ).rstrip("\n")


def _shown(text: str) -> str:
    """Return the text on one line, without what no XML document may have."""
    return "".join(c if c.isprintable() else " " for c in text)


def _escaped(text: str) -> str:
    return escape(_shown(text))


def to_mermaid(report: DurabilityReport) -> str:
    """Return the flow for Mermaid, each segment in a box of its own."""
    lines = ["flowchart TD"]
    number = {leaf.path: k for k, leaf in enumerate(report.leaves.nodes)}
    boxed: set[int] = set()
    for s, segment in enumerate(report.resumable_segments, 1):
        lines.append(f"  subgraph s{s} [segment {s}]")
        for name in segment.nodes:
            boxed.add(number[name])
            lines.append(f'    n{number[name]}["{_escaped(name)}"]')
        lines.append("  end")
    rest = [k for k in range(len(report.leaves.nodes)) if k not in boxed]
    lines += [f'  n{k}["{_escaped(report.leaves.nodes[k].path)}"]' for k in rest]
    lines += [f"  n{u} --> n{v}" for u, v in report.leaves.edges()]
    kinds: dict[str, list[str]] = {}
    for k in range(len(report.leaves.nodes)):
        kinds.setdefault(kind_of(report, k), []).append(f"n{k}")
    for kind, members in kinds.items():
        lines.append(f"  classDef {kind} fill:{LOOKS[kind].fill},stroke:{LOOKS[kind].line}")
        lines.append(f"  class {','.join(members)} {kind}")
    return "\n".join(lines)


_HIGH, _DOWN, _APART, _EDGE = 34, 44, 26, 30
_KEY, _LETTER = 34, 6.2
"""The room that a line of the legend takes before its text, and for each letter of it."""


def to_svg(report: DurabilityReport) -> str:
    """Return the flow as an SVG image, drawn here: layers from the top, loops on the right in dashes."""
    places = layered([list(after) for after in report.leaves.after])
    widths = [max(64, 18 + 7.4 * len(leaf.path)) for leaf in report.leaves.nodes]
    centres = _centres(places, widths)
    top = 74
    row_of = {n: r for r, row in enumerate(places.rows) for n in row}
    right = max((x + (widths[n] if n < places.nodes else 0) / 2 for n, x in centres.items()), default=0)
    legend = _EDGE + sum(_KEY + _LETTER * len(LOOKS[kind].said) for kind in _kinds(report))
    title = 2 * _EDGE + 7.6 * len(report.headline)
    wide = max(right + _EDGE + 22 * min(len(places.back), 6), title, legend, 520)
    high = top + len(places.rows) * (_HIGH + _DOWN) + 30

    def y_of(n: int) -> float:
        return top + row_of[n] * (_HIGH + _DOWN)

    parts = [_head(report, wide, high)]
    for u, v in places.links:
        y1 = y_of(u) + (_HIGH if u < places.nodes else _HIGH / 2)
        y2 = y_of(v) + (0 if v < places.nodes else _HIGH / 2)
        parts.append(_curve(centres[u], y1, centres[v], y2, has_tip=v < places.nodes))
    for k, (u, v) in enumerate(places.back):
        x = right + 16 + 22 * (k % 6)
        parts.append(_way_back(centres[u] + widths[u] / 2, y_of(u), x, centres[v] + widths[v] / 2, y_of(v)))
    for n in range(places.nodes):
        parts.append(_box(report, n, centres[n], y_of(n), widths[n]))
    parts.append(_legend(report, high))
    return "\n".join([*parts, "</svg>"])


def _centres(places: NodeLayers, widths: list[float]) -> dict[int, float]:
    """Return where each node stands across: near its neighbours, beside those of its layer."""
    near: dict[int, list[int]] = {}
    for u, v in places.links:
        near.setdefault(u, []).append(v)
        near.setdefault(v, []).append(u)
    x: dict[int, float] = {}
    # Ways back lead round on the right, so who stands alone stands on the left.
    rows = [sorted(row, key=lambda n: n in near) for row in places.rows]
    for row in rows:
        _pack(row, widths, places.nodes, x, dict.fromkeys(row, 0.0))
    for sweep in range(6):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wish = {n: sum(x[m] for m in near[n]) / len(near[n]) for n in row if n in near}
            _pack(row, widths, places.nodes, x, wish)
    left = min((x[n] - _half(n, widths, places.nodes) for n in x), default=0.0)
    return {n: value - left + _EDGE for n, value in x.items()}


def _half(n: int, widths: list[float], count: int) -> float:
    return widths[n] / 2 if n < count else 3.0


def _pack(
    row: list[int], widths: list[float], count: int, x: dict[int, float], wish: dict[int, float]
) -> None:
    """Place a layer as near to its wishes as its order and the room allow; before it who has none."""
    placed: dict[int, float] = {}
    edge = float("-inf")
    for n in (n for n in row if n in wish):
        half = _half(n, widths, count)
        placed[n] = max(wish[n], edge + half)
        edge = placed[n] + half + _APART
    edge = min((at - _half(n, widths, count) - _APART for n, at in placed.items()), default=0.0)
    for n in (n for n in reversed(row) if n not in wish):
        half = _half(n, widths, count)
        placed[n] = edge - half
        edge -= 2 * half + _APART
    shift = sum(at - placed[n] for n, at in wish.items()) / max(1, len(wish))
    x.update((n, at + shift) for n, at in placed.items())


def _head(report: DurabilityReport, wide: float, high: float) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" '
            f'viewBox="0 0 {wide:.0f} {high:.0f}" font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{_escaped(report.headline)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="#868e96"/></marker></defs>',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="{_EDGE}" y="32" font-size="16" font-weight="600" fill="#212529">'
            f"{_escaped(report.headline)}</text>",
            f'<rect x="{_EDGE}" y="44" width="200" height="6" rx="3" fill="{LOOKS["incompatible"].fill}"/>',
            f'<rect x="{_EDGE}" y="44" width="{200 * report.coverage:.0f}" height="6" rx="3" '
            f'fill="{LOOKS["durable"].line}"/>',
        ]
    )


def _curve(x1: float, y1: float, x2: float, y2: float, *, has_tip: bool) -> str:
    middle = (y1 + y2) / 2
    tip = ' marker-end="url(#tip)"' if has_tip else ""
    return (
        f'<path d="M{x1:.1f} {y1:.1f}C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}" '
        f'fill="none" stroke="#868e96"{tip}/>'
    )


def _way_back(x1: float, y1: float, x: float, x2: float, y2: float) -> str:
    a, b = y1 + _HIGH / 2, y2 + _HIGH / 2
    return (
        f'<path d="M{x1:.1f} {a:.1f}C{x:.1f} {a:.1f} {x:.1f} {b:.1f} {x2:.1f} {b:.1f}" fill="none" '
        'stroke="#868e96" stroke-dasharray="4 3" marker-end="url(#tip)"/>'
    )


def _box(report: DurabilityReport, k: int, x: float, y: float, wide: float) -> str:
    leaf = report.leaves.nodes[k]
    look = LOOKS[kind_of(report, k)]
    reason = report.reasons.get(leaf.path, look.said)
    segment = report.segment_of.get(leaf.path)
    mark = ""
    if segment is not None:
        is_point = leaf.path in report.points
        mark = (
            f'<circle cx="{x + wide / 2 - 2:.1f}" cy="{y + 2:.1f}" r="8" stroke="{look.line}" '
            f'fill="{look.line if is_point else "#ffffff"}"/>'
            f'<text x="{x + wide / 2 - 2:.1f}" y="{y + 6:.1f}" font-size="10" text-anchor="middle" '
            f'fill="{"#ffffff" if is_point else look.line}">{segment}</text>'
        )
    return (
        f"<g><title>{_escaped(f'{leaf.path}: {reason}')}</title>"
        f'<rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_HIGH}" rx="7" '
        f'fill="{look.fill}" stroke="{look.line}"/>'
        f'<text x="{x:.1f}" y="{y + _HIGH / 2 + 4.5:.1f}" text-anchor="middle" fill="#212529">'
        f"{_escaped(leaf.path)}</text>{mark}</g>"
    )


def _kinds(report: DurabilityReport) -> dict[str, None]:
    return dict.fromkeys(kind_of(report, k) for k in range(len(report.leaves.nodes)))


def _legend(report: DurabilityReport, high: float) -> str:
    parts, x = [], float(_EDGE)
    for kind in _kinds(report):
        look = LOOKS[kind]
        parts.append(
            f'<rect x="{x:.0f}" y="{high - 44:.0f}" width="12" height="12" rx="3" fill="{look.fill}" '
            f'stroke="{look.line}"/><text x="{x + 18:.0f}" y="{high - 34:.0f}" font-size="11" '
            f'fill="#495057">{look.said}</text>'
        )
        x += _KEY + _LETTER * len(look.said)
    if report.resumable_segments:
        said = "A number is a segment; where it is filled, a checkpoint is certainly written."
        parts.append(f'<text x="{_EDGE}" y="{high - 14:.0f}" font-size="11" fill="#495057">{said}</text>')
    return "\n".join(parts)
