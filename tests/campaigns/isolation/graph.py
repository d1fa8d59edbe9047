"""Graphs of transactions, and their cycles.

An edge says that one transaction comes before another: because the other one wrote the next version (ww), read its
version (wr), or wrote the version after the one that it read (rw); was made later by the same client (process), or
began when it had ended (realtime). A cycle says that there is no order: Adya, Weak Consistency (MIT, 1999).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from tests.campaigns.isolation.history import Key

WW, WR, RW, PROCESS, REALTIME = "ww", "wr", "rw", "process", "realtime"
_STARTS = 16
"""From so many transactions of a component the shortest cycle is looked for."""


@dataclass(frozen=True)
class Edge:
    """One step of a cycle."""

    source: int
    target: int
    kind: str
    key: Key | None


@dataclass
class Graph:
    """Edges by their kind."""

    edges: dict[str, dict[int, dict[int, Key | None]]] = field(
        default_factory=lambda: {kind: {} for kind in (WW, WR, RW, PROCESS, REALTIME)}
    )

    def add(self, kind: str, source: int, target: int, key: Key | None = None) -> None:
        """Add an edge, unless it leads to where it comes from."""
        if source != target:
            self.edges[kind].setdefault(source, {}).setdefault(target, key)

    def cycles(self, kinds: Collection[str], may_repeat: bool) -> Iterator[list[Edge]]:
        """Yield a short cycle of each knot of edges of these kinds. Unless ``may_repeat``, no rw follows another rw.

        A node of the search is a transaction, and whether it was reached by rw.
        """
        nodes = {2 * source for kind in kinds for source in self.edges[kind]}

        def following(node: int) -> Iterable[int]:
            number, after_rw = divmod(node, 2)
            for kind in kinds:
                if kind != RW:
                    yield from (2 * target for target in self.edges[kind].get(number, ()))
                elif may_repeat or not after_rw:
                    yield from (2 * target + 1 for target in self.edges[kind].get(number, ()))

        for component in components(nodes, following):
            yield self._described(_shortest(component, following), kinds)

    def _described(self, cycle: list[int], kinds: Collection[str]) -> list[Edge]:
        steps = []
        for here, there in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            source, target = here // 2, there // 2
            of_rw = [RW] if there % 2 else [kind for kind in (WW, WR, PROCESS, REALTIME) if kind in kinds]
            kind = next(kind for kind in of_rw if target in self.edges[kind].get(source, {}))
            steps.append(Edge(source, target, kind, self.edges[kind][source][target]))
        return steps


def components(nodes: Iterable[int], following: Callable[[int], Iterable[int]]) -> list[list[int]]:
    """Return the strongly connected components of more than one node, as Tarjan finds them (1972)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result: list[list[int]] = []
    for root in nodes:
        if root in number:
            continue
        path: list[tuple[int, Iterator[int]]] = [(root, iter(following(root)))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while path:
            node, rest = path[-1]
            for each in rest:
                if each not in number:
                    number[each] = low[each] = len(number)
                    stack.append(each)
                    on_stack.add(each)
                    path.append((each, iter(following(each))))
                    break
                if each in on_stack:
                    low[node] = min(low[node], number[each])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    component = _popped(stack, node)
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        result.append(component)
    return result


def _popped(stack: list[int], until: int) -> list[int]:
    component = [stack.pop()]
    while component[-1] != until:
        component.append(stack.pop())
    return component


def _shortest(component: list[int], following: Callable[[int], Iterable[int]]) -> list[int]:
    """Return the nodes of a short cycle within a component."""
    inside = set(component)
    step = max(1, len(component) // _STARTS)
    cycles = [_back_to(start, inside, following) for start in component[::step][:_STARTS]]
    return min(cycles, key=len)


def _back_to(start: int, inside: set[int], following: Callable[[int], Iterable[int]]) -> list[int]:
    before: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for each in following(node):
            if each in inside and each not in before:
                before[each] = node
                if each == start:
                    queue.clear()
                    break
                queue.append(each)
    cycle, node = [start], before[start]
    while node != start:
        cycle.append(node)
        node = before[node]
    return cycle[::-1]
