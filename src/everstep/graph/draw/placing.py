"""Where the boxes of a graph stand, and how lines between them run. Apart from `picture`: it knows no flows.

Layers from the top down, as Sugiyama has it: what leads to a box stands above it, lines bend where they pass
a layer, and what closes a loop runs at the right of it. The same graph is placed alike each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

Point = tuple[float, float]

APART, ASIDE, BELOW = 24.0, 14.0, 38.0
"""How far boxes of a layer are apart, how far lines are from them and from each other, and layers."""
LEAST_WIDTH: Final = 720.0
"""How wide a layer may be before it is cut in two; more in a large graph."""
MOST_DRIFT: Final = 1.8
"""How many times as wide as the widest layer a picture may get so that lines are straight."""
MOST_BENDS: Final = 6_000
"""With more of them the longest lines go straight, below what they pass."""
SWEEPS, MOST_COUNTED = 8, 1_500
"""How often layers are put in order, and up to how many lines the order with fewest crossings is kept."""


class Line(NamedTuple):
    """What leads from one box to another."""

    source: int
    target: int
    leads_back: bool = False
    """True if it closes a loop."""
    is_apart: bool = False
    """True if it shares no stretch with other lines of the same box."""


class Placed(NamedTuple):
    """Boxes and lines with their places, the left top at 0, 0."""

    width: float
    height: float
    corners: list[Point]
    """The left top of each box."""
    lines: list[list[Point]]
    """The points of each line, from the border of one box to that of the other."""


def place(sizes: Sequence[Point], lines: Sequence[Line]) -> Placed:
    """Place boxes of these widths and heights."""
    return _Placing(sizes, lines).placed() if sizes else Placed(0.0, 0.0, [], [])


class _Trunk(NamedTuple):
    """Bends in layers that follow one another, along which one line goes, or several for a stretch."""

    top: int
    """The layer of the first."""
    bends: list[int]


class _Stretch(NamedTuple):
    """A part of a trunk that is straight."""

    top: int
    bottom: int
    x: float


class _Placing:
    def __init__(self, sizes: Sequence[Point], lines: Sequence[Line]) -> None:
        self.sizes = sizes
        self.lines = lines
        self.count = len(sizes)
        """Numbers from here on are bends."""
        self.row, self.back = _layers(sizes, lines)
        self.rows: list[list[int]] = [[] for _ in range(max(self.row, default=-1) + 1)]
        for n, r in enumerate(self.row):
            self.rows[r].append(n)
        self.along: dict[int, _Trunk] = {}
        """By line, the trunk that it goes along."""

    def placed(self) -> Placed:
        """Go through the steps: layers, bends, order, loops, places across, places down."""
        self._bend()
        links = self._links()
        _untangle(self.rows, links, len(self.row))
        self._lead_back()
        for k in sorted(self.back):
            links += pairwise(self.along[k].bends)
        x = self._across([*links, *self._columns()])
        return self._drawn(x, links)

    def _across(self, links: Sequence[tuple[int, int]]) -> list[float]:
        half = [size[0] / 2 for size in self.sizes] + [0.0] * (len(self.row) - self.count)
        return _across(self.rows, half, links, self.count)

    def _columns(self) -> Iterator[tuple[int, int]]:
        """Yield what is to stand in a column: boxes of a layer that was cut, alike in their lines."""
        near: list[list[int]] = [[] for _ in range(self.count)]
        for k, (u, v, _, _) in enumerate(self.lines):
            if k not in self.back:
                near[u].append(v)
                near[v].append(~u)
        alike = [tuple(sorted(others)) for others in near]
        above: dict[tuple[int, ...], list[int]] = {}
        for row in self.rows:
            here: dict[tuple[int, ...], list[int]] = {}
            for n in row:
                if n < self.count and alike[n]:
                    here.setdefault(alike[n], []).append(n)
            for key, members in here.items():
                yield from zip(above.get(key, ()), members, strict=False)
            above = here

    def _bend(self) -> None:
        """Let lines that pass layers bend there; those of one box share a trunk as far as they can."""
        row = self.row
        long = [k for k in range(len(self.lines)) if k not in self.back and self._span(k) > 1]
        out, into = [0] * self.count, [0] * self.count
        for k in long:
            if not self.lines[k].is_apart:
                out[self.lines[k].source] += 1
                into[self.lines[k].target] += 1
        shared: dict[tuple[int, int], list[int]] = {}
        """By kind and box the lines that share a trunk."""
        for k in long:
            u, v, _, is_apart = self.lines[k]
            shared.setdefault((-1, k) if is_apart else (0, u) if out[u] >= into[v] else (1, v), []).append(k)
        spans = {key: max(map(self._span, lines)) - 1 for key, lines in shared.items()}
        room = MOST_BENDS
        for key in sorted(shared, key=spans.__getitem__):
            room -= spans[key]
            if room < 0:
                break
            lines = shared[key]
            top = min(row[self.lines[k].source] for k in lines) + 1
            trunk = _Trunk(top, [self._new_bend(r) for r in range(top, top + spans[key])])
            self.along.update(dict.fromkeys(lines, trunk))

    def _new_bend(self, row: int) -> int:
        self.row.append(row)
        self.rows[row].append(len(self.row) - 1)
        return len(self.row) - 1

    def _span(self, k: int) -> int:
        return self.row[self.lines[k].target] - self.row[self.lines[k].source]

    def _links(self) -> list[tuple[int, int]]:
        """Return what is between neighbouring layers, each once."""
        links: dict[tuple[int, int], None] = {}
        for k, (u, v, _, _) in enumerate(self.lines):
            if k in self.back:
                continue
            trunk = self.along.get(k)
            if trunk is None:
                if self._span(k) == 1:
                    links[u, v] = None
                continue
            first, last = self.row[u] + 1 - trunk.top, self.row[v] - 1 - trunk.top
            links[u, trunk.bends[first]] = links[trunk.bends[last], v] = None
        for trunk in {id(trunk): trunk for trunk in self.along.values()}.values():
            links |= dict.fromkeys(pairwise(trunk.bends))
        return list(links)

    def _lead_back(self) -> None:
        """Give what closes a loop its bends: beside both boxes, and between them right of the loop."""
        part = _circles(self.count, self.lines)
        loop_of: dict[int, int] = {}
        """By bend, the loop that it is at the side of."""
        for k in sorted(self.back, key=lambda k: (abs(self._span(k)), k)):
            ends = self.lines[k].source, self.lines[k].target
            v, u = sorted(ends, key=self.row.__getitem__)
            loop = part[ends[0]]
            bends = []
            for r in range(self.row[v], self.row[u] + 1):
                at = self._right_of(
                    v if r == self.row[v] else u if r == self.row[u] else None, r, part, loop, loop_of
                )
                bends.append(len(self.row))
                self.row.append(r)
                self.rows[r].insert(at, bends[-1])
                loop_of[bends[-1]] = loop
            self.along[k] = _Trunk(self.row[v], bends)

    def _right_of(
        self, box: int | None, row: int, part: Sequence[int], loop: int, loop_of: dict[int, int]
    ) -> int:
        """Return where a bend goes: right of a box, or of all that is in the loop."""
        members = self.rows[row]
        if box is not None:
            at = members.index(box) + 1
            while at < len(members) and loop_of.get(members[at]) == loop:
                at += 1
            return at
        for at in range(len(members), 0, -1):
            n = members[at - 1]
            if (part[n] if n < self.count else loop_of.get(n)) == loop:
                return at
        return len(members)

    def _drawn(self, x: list[float], links: Iterable[tuple[int, int]]) -> Placed:
        count, sizes = self.count, self.sizes
        tall = [max((sizes[n][1] for n in row if n < count), default=0.0) for row in self.rows]
        steep = [0.0] * len(self.rows)
        for a, b in links:
            upper = min(self.row[a], self.row[b])
            steep[upper] = max(steep[upper], abs(x[a] - x[b]))
        self.tops, y = [], 0.0
        for height, wide in zip(tall, steep, strict=True):
            self.tops.append(y)
            y += height + max(BELOW, min(30 + wide * 0.05, 3 * BELOW))
        self.ends = [top + height for top, height in zip(self.tops, tall, strict=True)]
        middles = [(top + end) / 2 for top, end in zip(self.tops, self.ends, strict=True)]
        self.x = x
        self.corners = [
            (x[n] - sizes[n][0] / 2, middles[self.row[n]] - sizes[n][1] / 2) for n in range(count)
        ]
        trunks = {id(trunk): trunk for trunk in self.along.values()}
        straight = {key: _straight(trunk, x) for key, trunk in trunks.items()}
        lines = []
        for k in range(len(self.lines)):
            trunk = self.along.get(k)
            stretches = [] if trunk is None else straight[id(trunk)]
            lines.append((self._way_back if k in self.back else self._way_on)(k, stretches))
        left = min(
            [corner[0] for corner in self.corners] + [x for line in lines for x, _ in line], default=0.0
        )
        edges = [corner[0] + size[0] for corner, size in zip(self.corners, sizes, strict=True)]
        right = max(edges + [x for line in lines for x, _ in line], default=0.0)
        return Placed(
            right - left,
            self.ends[-1] if self.ends else 0.0,
            [(x - left, y) for x, y in self.corners],
            [_straightened([(x - left, y) for x, y in line]) for line in lines],
        )

    def _way_on(self, k: int, stretches: Iterable[_Stretch]) -> list[Point]:
        u, v = self.lines[k].source, self.lines[k].target
        first, last = self.row[u] + 1, self.row[v] - 1
        points = [(self.x[u], self.corners[u][1] + self.sizes[u][1]), (self.x[u], self.ends[self.row[u]])]
        for top, bottom, x in stretches:
            if top <= last and bottom >= first:
                points += [(x, self.tops[max(top, first)]), (x, self.ends[min(bottom, last)])]
        return [*points, (self.x[v], self.tops[self.row[v]]), (self.x[v], self.corners[v][1])]

    def _way_back(self, k: int, stretches: Sequence[_Stretch]) -> list[Point]:
        u, v = self.lines[k].source, self.lines[k].target
        leaves = self.corners[u][1] + 0.7 * self.sizes[u][1]
        enters = self.corners[v][1] + 0.3 * self.sizes[v][1]
        goes_up = self.row[v] <= self.row[u]
        points = [(x, at) for top, bottom, x in stretches for at in (self.tops[top], self.ends[bottom])]
        # It turns aside at the height of its boxes, not at the ends of their layers.
        points[0] = (points[0][0], enters if goes_up else leaves)
        points[-1] = (points[-1][0], leaves if goes_up else enters)
        points = points[::-1] if goes_up else points
        return [(self._right(u), leaves), *points, (self._right(v), enters)]

    def _right(self, n: int) -> float:
        return self.corners[n][0] + self.sizes[n][0]


def _straight(trunk: _Trunk, x: Sequence[float]) -> list[_Stretch]:
    """Cut a trunk into what is straight."""
    found: list[_Stretch] = []
    for r, bend in enumerate(trunk.bends, trunk.top):
        if found and found[-1].x == x[bend]:
            found[-1] = found[-1]._replace(bottom=r)
        else:
            found.append(_Stretch(r, r, x[bend]))
    return found


def _straightened(points: list[Point]) -> list[Point]:
    """Leave out points that lie on the way anyway."""
    kept: list[Point] = []
    for point in points:
        if kept and kept[-1] == point:
            continue
        if len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2:]
            if (ax == bx == point[0]) or (ay == by == point[1]):
                kept.pop()
        kept.append(point)
    return kept


def _layers(sizes: Sequence[Point], lines: Sequence[Line]) -> tuple[list[int], set[int]]:
    """Return the layer of each box, below all that lead to it, and the lines that close a loop.

    A layer that is too wide is cut into several.
    """
    back = {k for k, line in enumerate(lines) if line.leads_back or line.source == line.target}
    while True:
        order, depth = _depths(len(sizes), lines, back)
        row = _narrowed(sizes, lines, order, depth, back)
        drops = {k: row[lines[k].target] - row[lines[k].source] for k in back}
        # What is said to lead back and does not lead up closes no loop here.
        onward = {k for k, drop in drops.items() if drop > 0}
        level = {k for k, drop in drops.items() if not drop and lines[k].source != lines[k].target}
        onward |= {k for k in level if lines[k].source < lines[k].target} or level
        if not onward:
            return row, back
        back -= onward


def _depths(count: int, lines: Sequence[Line], back: set[int]) -> tuple[list[int], list[int]]:
    """Return the boxes upstream first, and how many are above each; a circle that is left is cut."""
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for k, line in enumerate(lines):
        if k not in back:
            after[line.source].append(k)
            before[line.target].append(k)
            waiting[line.target] += 1
    depth = [0] * count
    order: list[int] = []
    placed = [False] * count
    free = [n for n in range(count) if not waiting[n]]
    lowest = 0
    while len(order) < count:
        while not free and placed[lowest]:
            lowest += 1
        if not free:
            back |= {k for k in before[lowest] if not placed[lines[k].source]}
            free = [lowest]
        following: list[int] = []
        for n in free:
            placed[n] = True
            order.append(n)
            for k in after[n]:
                v = lines[k].target
                if k in back:
                    continue
                depth[v] = max(depth[v], depth[n] + 1)
                waiting[v] -= 1
                if not waiting[v]:
                    following.append(v)
        free = following
    return order, depth


def _narrowed(
    sizes: Sequence[Point], lines: Sequence[Line], order: Sequence[int], depth: list[int], back: set[int]
) -> list[int]:
    area = sum((w + APART) * (h + BELOW) for w, h in sizes)
    most = max(LEAST_WIDTH, 1.1 * area**0.5)
    wide = [0.0] * (max(depth, default=-1) + 1)
    held = [0] * len(wide)
    for n, d in enumerate(depth):
        wide[d] += sizes[n][0] + APART
        held[d] += 1
    if all(w <= most + APART for w in wide):
        return depth
    limit = [w / -(-w // most) + (w / max(1, number)) / 2 for w, number in zip(wide, held, strict=True)]
    before: list[list[int]] = [[] for _ in sizes]
    for k, line in enumerate(lines):
        if k not in back:
            before[line.target].append(line.source)
    row = [0] * len(sizes)
    used: list[float] = []
    begins: dict[int, int] = {}
    """By depth the first layer that has room, as far as that is known."""
    for n in sorted(order, key=lambda n: depth[n]):
        at = max((row[u] + 1 for u in before[n]), default=0)
        at = max(at, begins.get(depth[n], 0)) if depth[n] in begins and not before[n] else at
        width = sizes[n][0] + APART
        while at < len(used) and used[at] and used[at] + width > limit[depth[n]]:
            at += 1
        used += [0.0] * (at + 1 - len(used))
        used[at] += width
        row[n] = at
    return row


def _circles(count: int, lines: Sequence[Line]) -> list[int]:
    """Return for each box the number of the circle of lines that it is in; its own if it is in none."""
    after: list[list[int]] = [[] for _ in range(count)]
    for line in lines:
        after[line.source].append(line.target)
    number, low, part = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    seen = 0
    for root in range(count):
        if number[root] >= 0:
            continue
        work = [(root, iter(after[root]))]
        number[root] = low[root] = seen
        seen += 1
        stack.append(root)
        while work:
            here, targets = work[-1]
            for v in targets:
                if number[v] < 0:
                    number[v] = low[v] = seen
                    seen += 1
                    stack.append(v)
                    work.append((v, iter(after[v])))
                    break
                if part[v] < 0:
                    low[here] = min(low[here], number[v])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[here])
                if low[here] == number[here]:
                    while part[here] < 0:
                        part[stack.pop()] = here
    return part


def _untangle(rows: list[list[int]], links: Sequence[tuple[int, int]], count: int) -> None:
    """Order each layer by where its neighbours stand, down and up a few times; the best order is kept."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for u, v in links:
        above[v].append(u)
        below[u].append(v)
    place = [0.0] * count
    _note_places(rows, place)
    counts = len(links) <= MOST_COUNTED
    best, least = [list(row) for row in rows], _crossings(rows, below, place) if counts else 0
    for sweep in range(SWEEPS if counts else SWEEPS // 2):
        if counts and not least:
            break
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            means = {n: sum(map(place.__getitem__, near[n])) / len(near[n]) for n in row if near[n]}
            row.sort(key=lambda n: means.get(n, place[n]))
            for k, n in enumerate(row):
                place[n] = k
        if counts and (crossings := _crossings(rows, below, place)) < least:
            best, least = [list(row) for row in rows], crossings
    if counts:
        rows[:] = best


def _note_places(rows: list[list[int]], place: list[float]) -> None:
    for row in rows:
        for k, n in enumerate(row):
            place[n] = k


def _crossings(rows: list[list[int]], below: list[list[int]], place: list[float]) -> int:
    """Count how often lines between neighbouring layers cross: inversions, by a tree of counts."""
    found = 0
    for row, lower in pairwise(rows):
        width = len(lower)
        tree = [0] * (width + 1)
        total = 0
        for n in row:
            ends = sorted(int(place[v]) for v in below[n])
            for end in ends:
                k, before = end + 1, 0
                while k:
                    before += tree[k]
                    k &= k - 1
                found += total - before
            for end in ends:
                total += 1
                k = end + 1
                while k <= width:
                    tree[k] += 1
                    k += k & -k
    return found


def _across(
    rows: list[list[int]], half: list[float], links: Sequence[tuple[int, int]], boxes: int
) -> list[float]:
    """Return where each box and bend stands across."""
    count = len(half)
    place, row_of = [0] * count, [0] * count
    for r, row in enumerate(rows):
        for k, n in enumerate(row):
            place[n], row_of[n] = k, r
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for a, b in links:
        upper, lower = (b, a) if row_of[a] > row_of[b] else (a, b)
        above[lower].append(upper)
        below[upper].append(lower)
    for n in range(count):
        above[n].sort(key=place.__getitem__)
        below[n].sort(key=place.__getitem__)
    gaps = [
        [half[a] + half[b] + (APART if a < boxes and b < boxes else ASIDE) for a, b in pairwise(row)]
        for row in rows
    ]
    widest = max(map(sum, gaps), default=0.0)
    found = _straightest(rows, gaps, above, below, place, boxes, MOST_DRIFT * widest)
    return found or _settled(rows, gaps, above, below, boxes)


def _straightest(
    rows: list[list[int]],
    gaps: list[list[float]],
    above: list[list[int]],
    below: list[list[int]],
    place: list[int],
    boxes: int,
    most: float,
) -> list[float]:
    """Keep lines straight where they can be, as Brandes and Köpf; nothing if that gets too wide."""
    crossed = _crossed(rows, above, place, boxes)
    heirs = [
        [next((m for m in near[n] if m >= boxes), -1) if n >= boxes else -1 for n in range(len(place))]
        for near in (below, above)
    ]
    found: list[list[float]] = []
    for leftward in (False, True):
        turned = [row[::-1] for row in rows] if leftward else rows
        apart = [gap[::-1] for gap in gaps] if leftward else gaps
        at = list(place)
        for row in turned if leftward else ():
            for k, n in enumerate(row):
                at[n] = k
        for upward in (False, True):
            near = below if upward else above
            root = _aligned(turned[::-1] if upward else turned, near, at, crossed, heirs[upward])
            x = _compacted(turned, apart, root)
            found.append([-value for value in x] if leftward else x)
        if all(max(x) - min(x) > 2 * most for x in found):
            return []
    x = _balanced(found)
    return x if max(x) - min(x) <= most else []


def _settled(
    rows: list[list[int]], gaps: list[list[float]], above: list[list[int]], below: list[list[int]], boxes: int
) -> list[float]:
    """Place each layer as near to its neighbours as its order lets it, down and up a few times.

    The middle of the picture counts as one more neighbour of each box, lest layers drift aside.
    """
    x = [0.0] * len(above)
    for row, gap in zip(rows, gaps, strict=True):
        at = -sum(gap) / 2
        for n, further in zip(row, [*gap, 0.0], strict=True):
            x[n], at = at, at + further
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        order = range(len(rows)) if sweep % 2 == 0 else range(len(rows) - 1, -1, -1)
        for r in order:
            wishes = []
            for n in rows[r]:
                ends = near[n] or (n,)
                inward = 1 if n < boxes else 0
                wishes.append(sum(map(x.__getitem__, ends)) / (len(ends) + inward))
            for n, at in zip(rows[r], _kept_apart(wishes, gaps[r]), strict=True):
                x[n] = at
    return x


def _kept_apart(wishes: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Return the places in this order, so far apart, that are nearest to what is wished: least squares."""
    pools: list[tuple[float, int]] = []
    """The sum of the wishes and the count of what stands as near to each other as it may."""
    offset = 0.0
    for wish, gap in zip(wishes, [*gaps, 0.0], strict=True):
        total, many = wish - offset, 1
        while pools and pools[-1][0] * many > total * pools[-1][1]:
            before = pools.pop()
            total, many = total + before[0], many + before[1]
        pools.append((total, many))
        offset += gap
    found: list[float] = []
    offset = 0.0
    steps = iter([*gaps, 0.0])
    for total, many in pools:
        for _ in range(many):
            found.append(total / many + offset)
            offset += next(steps)
    return found


def _crossed(
    rows: list[list[int]], above: list[list[int]], place: list[int], boxes: int
) -> set[tuple[int, int]]:
    """Return the links that cross one between two bends, which is to be straight."""
    found: set[tuple[int, int]] = set()
    for upper, lower in pairwise(rows):
        left, begin = 0, 0
        for k, n in enumerate(lower):
            inner = next((u for u in above[n] if u >= boxes), None) if n >= boxes else None
            if inner is None and k != len(lower) - 1:
                continue
            right = place[inner] if inner is not None else len(upper)
            for m in lower[begin : k + 1]:
                for u in above[m]:
                    if not left <= place[u] <= right and not (u >= boxes and m >= boxes):
                        found.add((u, m))
            begin, left = k + 1, right
    return found


def _aligned(
    rows: list[list[int]],
    near: list[list[int]],
    at: list[int],
    crossed: set[tuple[int, int]],
    heirs: list[int],
) -> list[int]:
    """Return for each box and bend the first of those that stand straight above each other with it.

    A bend stands with its heir, the bend that follows it, rather than with a box.
    """
    root = list(range(len(near)))
    for row in rows:
        last = -1
        for n in row:
            ends = near[n]
            if not ends:
                continue
            if len(ends) > 1 and at[ends[0]] > at[ends[-1]]:
                ends = ends[::-1]
            for m in ends[(len(ends) - 1) // 2 : len(ends) // 2 + 1]:
                if root[n] != n or last >= at[m] or heirs[m] not in (-1, n):
                    continue
                if (m, n) not in crossed and (n, m) not in crossed:
                    root[n] = root[m]
                    last = at[m]
    return root


def _compacted(rows: list[list[int]], gaps: list[list[float]], root: list[int]) -> list[float]:
    """Place what is aligned as far left as its neighbours let it, then as near to those at its right."""
    count = len(root)
    after: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    waiting = [0] * count
    for row, apart in zip(rows, gaps, strict=True):
        for (a, b), gap in zip(pairwise(row), apart, strict=True):
            after[root[a]].append((root[b], gap))
            waiting[root[b]] += 1
    x = [0.0] * count
    todo = [n for n in range(count) if root[n] == n and not waiting[n]]
    order: list[int] = []
    while todo:
        n = todo.pop()
        order.append(n)
        for b, gap in after[n]:
            x[b] = max(x[b], x[n] + gap)
            waiting[b] -= 1
            if not waiting[b]:
                todo.append(b)
    for n in reversed(order):
        if after[n]:
            x[n] = max(x[n], min(x[b] - gap for b, gap in after[n]))
    return [x[root[n]] for n in range(count)]


def _balanced(found: list[list[float]]) -> list[float]:
    """Return the middle of several placements, laid over the narrowest of them."""
    if not found[0]:
        return []
    edges = [(min(x), max(x)) for x in found]
    left, right = min(edges, key=lambda edge: edge[1] - edge[0])
    for k, (least, most) in enumerate(edges):
        shift = left - least if k < len(found) // 2 else right - most
        found[k] = [value + shift for value in found[k]]
    return [(ordered[1] + ordered[2]) / 2 for ordered in map(sorted, zip(*found, strict=True))]
