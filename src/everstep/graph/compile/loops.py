"""Who must finish before whom, in a graph that may have loops.

A node waits for every active node that can still change its inputs. Outside loops that is every ancestor.
Inside a loop everything is everybody's ancestor, so the loop is cut where it begins (its heads), and the
rule applies to what is left; a loop inside the loop is cut in its turn. A node behind a loop therefore
waits for the whole loop, and the nodes of one iteration keep their order.

Choosing a head begins a new round. It starts once the round before it has come to rest: whether a node of
that round is quick or slow must not decide which value the head reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

Graph = dict[int, set[int]]
"""Successors by node."""


class UncutLoop(Exception):
    """A cycle that no gate can leave; carries its members."""

    def __init__(self, members: list[int]) -> None:
        super().__init__(members)
        self.members = members


def components(graph: Graph) -> list[list[int]]:
    """Return the strongly connected components, successors first (Tarjan, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in graph:
        if root in order:
            continue
        work = [(root, iter(sorted(graph[root])))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            here, successors = work[-1]
            for nxt in successors:
                if nxt not in order:
                    order[nxt] = low[nxt] = len(order)
                    stack.append(nxt)
                    on_stack.add(nxt)
                    work.append((nxt, iter(sorted(graph[nxt]))))
                    break
                if nxt in on_stack:
                    low[here] = min(low[here], order[nxt])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[here])
                if low[here] == order[here]:
                    found.append(_pop_component(stack, on_stack, here))
    return found


def _pop_component(stack: list[int], on_stack: set[int], root: int) -> list[int]:
    members = []
    while True:
        top = stack.pop()
        on_stack.discard(top)
        members.append(top)
        if top == root:
            return sorted(members)


class Order:
    """Who waits for whom."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.blockers: dict[int, int] = dict.fromkeys(nodes, 0)
        """Per node, the bit mask of the nodes it waits for while they are active."""
        self.loops: dict[int, int] = {}
        """Per head of a loop, the bit mask of the loop's other members."""
        self.looping: set[int] = set()


def order(graph: Graph, choose_heads: Callable[[Sequence[int]], Sequence[int]]) -> Order:
    """Work out the order of a graph.

    `choose_heads` picks where a loop begins, given its members; an empty answer raises `UncutLoop`.
    """
    found = Order(graph)
    todo = [graph]
    while todo:
        todo.extend(_order(todo.pop(), choose_heads, found))
    return found


def _order(
    graph: Graph, choose_heads: Callable[[Sequence[int]], Sequence[int]], found: Order
) -> Iterator[Graph]:
    """Note the order of a graph's loops and of what lies between them; yield the inside of each loop."""
    above: dict[int, int] = dict.fromkeys(graph, 0)
    for members in reversed(components(graph)):
        inherited = 0
        for m in members:
            inherited |= above.pop(m)
        own = mask_of(members)
        passed = inherited | own
        for m in members:
            found.blockers[m] |= inherited
            for nxt in graph[m]:
                if nxt in above:
                    above[nxt] |= passed
        if len(members) > 1 or members[0] in graph[members[0]]:
            found.looping.update(members)
            heads = set(choose_heads(members))
            if not heads:
                raise UncutLoop(members)
            for head in heads:
                found.loops[head] = found.loops.get(head, 0) | own & ~(1 << head)
            yield _cut(graph, members, heads)


def _cut(graph: Graph, members: Sequence[int], heads: set[int]) -> Graph:
    """Return a loop's inside without the edges that close it.

    Two loops may begin at the same head. The smaller one then counts as inside the larger and is left whole
    for the next cut, so that the rest of the larger loop waits for it as for any loop. Not so if it holds
    another head, which is where the next round would begin.
    """
    everyone = set(members)
    inside = {m: graph[m] & everyone for m in members}
    bodies = {(u, h): body for h in heads for u, body in _bodies(inside, h).items()}
    largest = max(body.bit_count() for body in bodies.values())
    begins = mask_of(heads)
    for (u, h), body in bodies.items():
        if body.bit_count() == largest or body & begins & ~(1 << h):
            inside[u] = inside[u] - {h}
    return inside


def _bodies(inside: Graph, head: int) -> dict[int, int]:
    """Return the loop that each edge to the head closes, as a mask, by where the edge begins."""
    without = {m: successors - {head} for m, successors in inside.items() if m != head}
    before: dict[int, int] = dict.fromkeys(without, 0)
    bodies = {head: 1 << head} if head in inside[head] else {}
    for members in reversed(components(without)):
        body = mask_of(members)
        for m in members:
            body |= before[m]
        for m in members:
            for nxt in without[m]:
                before[nxt] |= body
            if head in inside[m]:
                bodies[m] = body | 1 << head
    return bodies


def mask_of(nodes: Iterable[int]) -> int:
    """Return the bit mask of these nodes."""
    mask = 0
    for n in nodes:
        mask |= 1 << n
    return mask


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def reachable(graph: Graph, start: int) -> set[int]:
    """Return every node that can be reached from `start`, itself included."""
    seen = {start}
    todo = [start]
    while todo:
        for nxt in graph[todo.pop()]:
            if nxt not in seen:
                seen.add(nxt)
                todo.append(nxt)
    return seen
