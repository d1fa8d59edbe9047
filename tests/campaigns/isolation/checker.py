"""Finds the anomalies of a history by the cycles of its dependencies, as Elle does, and names them.

Sources: A. Adya, Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed Transactions,
MIT 1999 (G0, G1, G-single, G2); K. Kingsbury, P. Alvaro, Elle: Inferring Isolation Anomalies from Experimental
Observations, VLDB 2020 (lists, and the orders of clients and of time); A. Cerone, A. Gotsman, Analysing Snapshot
Isolation, JACM 2018: a history is one of snapshot isolation if and only if each cycle has two rw edges in a row. A
cycle without such a pair but with several rw edges is G-nonadjacent in Elle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tests.campaigns.isolation.graph import PROCESS, REALTIME, RW, WR, WW, Edge, Graph
from tests.campaigns.isolation.history import History, Key, Transaction
from tests.campaigns.isolation.versions import Anomaly, Versions, versions_of

_SEARCHES = (((WW,), False), ((WW, WR), False), ((WW, WR, RW), False), ((WW, WR, RW), True))
_CYCLES = ("G0", "G1c", "G-single", "G-nonadjacent")


@dataclass(frozen=True)
class Level:
    """An isolation level, by what it forbids."""

    name: str
    forbids: frozenset[str]

    def violations(self, anomalies: Iterable[Anomaly]) -> list[Anomaly]:
        """Return the anomalies that the level forbids."""
        return [each for each in anomalies if {each.name, each.nickname} & self.forbids]


def _level(name: str, base: Level | None, *more: str) -> Level:
    return Level(name, (base.forbids if base else frozenset()) | frozenset(more))


def _strong(*names: str) -> list[str]:
    return [f"{name}-{order}" for name in names for order in (PROCESS, REALTIME)]


_ORDERS = ("garbage read", "duplicate append", "incompatible order", "lost write")
READ_COMMITTED = _level("read committed", None, *_ORDERS, "G0", "G1a", "G1b", "G1c")
SNAPSHOT = _level("snapshot isolation", READ_COMMITTED, "G-single", "G-nonadjacent", "lost update")
SERIALIZABLE = _level("serializable", SNAPSHOT, "G2-item")
FRESH_SNAPSHOT = _level("snapshot isolation, no stale read", SNAPSHOT, "stale read")
FRESH_SERIALIZABLE = _level("serializable, no stale read", SERIALIZABLE, "stale read")
STRONG_SNAPSHOT = _level("strong snapshot isolation", SNAPSHOT, *_strong(*_CYCLES))
STRICT = _level("strict serializable", SERIALIZABLE, *_strong(*_CYCLES, "G2-item"))


def check(history: History) -> list[Anomaly]:
    """Return the anomalies of a history: at most one for each knot of transactions and kind of cycle."""
    versions = versions_of(history)
    graph = dependencies(versions)
    anomalies = [*versions.anomalies, *_lost_updates(versions)]
    add_orders(graph, versions.transactions)
    if not any(graph.cycles(tuple(graph.edges), True)):
        return anomalies
    seen: set[tuple[Edge, ...]] = set()
    for orders in ((), (PROCESS,), (PROCESS, REALTIME)):
        for kinds, may_repeat in _SEARCHES:
            for cycle in graph.cycles((*kinds, *orders), may_repeat):
                first = cycle.index(min(cycle, key=lambda edge: edge.source))
                turned = tuple(cycle[first:] + cycle[:first])
                if turned not in seen:
                    seen.add(turned)
                    anomalies.append(_named(cycle, versions.transactions))
    return anomalies


def dependencies(versions: Versions) -> Graph:
    """Return the edges between transactions that come from what they wrote and read."""
    graph = Graph()
    for key, order in versions.orders.items():
        writers = [versions.writers[key, value] for value in order]
        for one, other in pairwise(writers):
            graph.add(WW, one, other, key)
        for later in _unseen(versions, key):
            if writers:
                graph.add(WW, writers[-1], later, key)
    for number, each in enumerate(versions.transactions):
        for key, state in each.reads.items():
            place = versions.place(key, state)
            if place is None:
                continue  # an anomaly that is no cycle
            order = versions.orders.get(key, [])
            if place >= 0:
                graph.add(WR, versions.writers[key, order[place]], number, key)
            if place + 1 < len(order):
                graph.add(RW, number, versions.writers[key, order[place + 1]], key)
            else:
                for later in _unseen(versions, key):
                    graph.add(RW, number, later, key)
    return graph


def _unseen(versions: Versions, key: Key) -> list[int]:
    return [versions.writers[key, value] for value in versions.unseen.get(key, ())]


def add_orders(graph: Graph, transactions: list[Transaction]) -> None:
    """Add the order of each client, and of time: only the edges from which all others follow."""
    last: dict[int, int] = {}
    for number in sorted(range(len(transactions)), key=lambda number: transactions[number].began):
        each = transactions[number]
        if each.staleness == 0 and each.end < float("inf"):
            if each.process in last:
                graph.add(PROCESS, last[each.process], number)
            last[each.process] = number
    events = sorted(
        [(each.start, 0, number) for number, each in enumerate(transactions)]
        + [(each.end, 1, number) for number, each in enumerate(transactions)]
    )
    border: set[int] = set()
    for _, ends, number in events:
        if not ends:
            for each in border:
                graph.add(REALTIME, each, number)
        else:
            start = transactions[number].start
            border = {each for each in border if transactions[each].end >= start} | {number}


def _lost_updates(versions: Versions) -> list[Anomaly]:
    """Two transactions that read the same version of a key, and wrote the key."""
    groups: dict[tuple[Key, int], list[Transaction]] = defaultdict(list)
    for each in versions.transactions:
        for key in each.reads.keys() & each.writes.keys():
            place = versions.place(key, each.reads[key])
            if place is not None:
                groups[key, place].append(each)
    return [
        Anomaly("lost update", f"{key} was read and written by {' and by '.join(map(str, group))}", "lost update")
        for (key, _), group in groups.items()
        if len(group) > 1
    ]


def _named(cycle: list[Edge], transactions: list[Transaction]) -> Anomaly:
    kinds = [edge.kind for edge in cycle]
    rw = kinds.count(RW)
    if rw == 0:
        name = "G1c" if WR in kinds else "G0"
    elif rw == 1:
        name = "G-single"
    else:
        adjacent = any(one == other == RW for one, other in zip(kinds, [*kinds[1:], kinds[0]], strict=True))
        name = "G2-item" if adjacent else "G-nonadjacent"
    if REALTIME in kinds or PROCESS in kinds:
        name += f"-{REALTIME if REALTIME in kinds else PROCESS}"
    steps = [
        f"the {transactions[edge.source]} is before the {transactions[edge.target]} ({edge.kind}"
        f"{f' of {edge.key}' if edge.key else ''})"
        for edge in cycle
    ]
    return Anomaly(name, ", ".join(steps), _nickname(cycle, transactions))


def _nickname(cycle: list[Edge], transactions: list[Transaction]) -> str:
    """Return the common name of a cycle of two transactions."""
    if len(cycle) != 2:
        return ""
    kinds = Counter(edge.kind for edge in cycle)
    if kinds[RW] == 2:
        return "write skew"
    if not kinds[RW]:
        return ""
    other = next(edge for edge in cycle if edge.kind != RW)
    if other.kind == WR:
        return "torn batch" if transactions[other.source].what == "batch" else "fractured read"
    if other.kind == WW:
        same = len({edge.key for edge in cycle}) == 1
        return "lost update" if same else ""
    return "stale read"
