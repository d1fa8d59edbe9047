"""Which versions each key had, in their order, and whose they are; and reads that no order explains.

Elle's insight (Kingsbury and Alvaro, VLDB 2020): the longest list that anybody read shows the order of all appends
before. For registers the order comes from the change feed of the store.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.campaigns.isolation.history import ABORTED, COMMITTED, INITIAL, UNKNOWN, History, Key, State, Transaction


@dataclass(frozen=True)
class Anomaly:
    """Something that an isolation level forbids."""

    name: str
    """As Adya and Elle call it; with ``-process`` or ``-realtime`` if the cycle needs the order of a client or of time.
    """
    text: str
    nickname: str = ""
    """The common name of a small cycle."""

    def __str__(self) -> str:
        return f"{self.name}{f' ({self.nickname})' if self.nickname else ''}: {self.text}"


@dataclass
class Versions:
    """The versions of all keys, and what is wrong with some of them."""

    transactions: list[Transaction]
    """Those that took effect."""
    orders: dict[Key, list[int]] = field(default_factory=dict)
    """What each key showed after one transaction and before the next."""
    unseen: dict[Key, list[int]] = field(default_factory=dict)
    """Committed values of a list that are in no read: they come after all others."""
    writers: dict[tuple[Key, int], int] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)

    def place(self, key: Key, state: State) -> int | None:
        """Return which version a read saw: 0 is the first one, -1 that before all writes. None if it was no version."""
        last = last_of(state)
        if last == INITIAL:
            return -1
        return self.places[key].get(last)

    def __post_init__(self) -> None:
        self.places: dict[Key, dict[int, int]] = defaultdict(dict)


def last_of(state: State) -> int:
    """Return the value that was written last when a key had this state."""
    if isinstance(state, tuple):
        return state[-1] if state else INITIAL
    return state


def versions_of(history: History) -> Versions:
    """Return the versions of a history, with all anomalies that are not cycles."""
    every: dict[tuple[Key, int], Transaction] = {
        (key, value): each for each in history.transactions for key, values in each.writes.items() for value in values
    }
    orders, anomalies = _orders(history)
    seen = {(key, value) for key, order in orders.items() for value in order}
    shown = {id(every[each]) for each in seen if each in every}
    happened = [
        each
        for each in history.transactions
        if each.outcome == COMMITTED or (each.outcome == UNKNOWN and id(each) in shown)
    ]
    versions = Versions(happened, anomalies=anomalies)
    for number, each in enumerate(happened):
        for key, values in each.writes.items():
            versions.writers[key, values[-1]] = number
    for key in {key for key, _ in every} | set(orders):
        order = [value for value in orders.get(key, ()) if (key, value) in versions.writers]
        versions.orders[key], versions.places[key] = order, {value: place for place, value in enumerate(order)}
    for key, value in versions.writers:
        if value not in versions.places[key]:
            versions.unseen.setdefault(key, []).append(value)
    if history.orders is not None:
        lost = [(key, value) for key, values in versions.unseen.items() for value in values]
        anomalies += [Anomaly("lost write", f"{value} of {key} is not among {orders.get(key)}") for key, value in lost]
        versions.unseen = {}
    for each in happened:
        for key, state in each.reads.items():
            anomalies += _wrong_read(each, key, state, every)
    return versions


def _orders(history: History) -> tuple[dict[Key, tuple[int, ...]], list[Anomaly]]:
    """Return all values of each key in order, and reads that contradict each other."""
    if history.orders is not None:
        return dict(history.orders), []
    longest: dict[Key, tuple[int, ...]] = {}
    reads = [
        (key, state)
        for each in history.transactions
        if each.outcome == COMMITTED
        for key, state in each.reads.items()
        if isinstance(state, tuple)
    ]
    for key, state in reads:
        if len(state) > len(longest.get(key, ())):
            longest[key] = state
    anomalies = [
        Anomaly("incompatible order", f"{key} was {state} and {longest[key]}")
        for key, state in reads
        if state != longest.get(key, ())[: len(state)]
    ]
    for key, state in longest.items():
        twice = [value for value, count in Counter(state).items() if count > 1]
        if twice:
            anomalies.append(Anomaly("duplicate append", f"{key} has {twice} twice: {state}"))
    return longest, anomalies


def _wrong_read(
    reader: Transaction, key: Key, state: State, every: dict[tuple[Key, int], Transaction]
) -> list[Anomaly]:
    wrong: list[Anomaly] = []
    for value in state if isinstance(state, tuple) else (state,):
        writer = every.get((key, value))
        if writer is None and value != INITIAL:
            wrong.append(Anomaly("garbage read", f"nobody wrote {value}, which is in the {reader}"))
        elif writer is not None and writer.outcome == ABORTED:
            wrong.append(Anomaly("G1a", f"the {reader} saw {value} of the aborted {writer}", "aborted read"))
    last = every.get((key, last_of(state)))
    if last is not None and last is not reader and last.writes[key][-1] != last_of(state):
        wrong.append(Anomaly("G1b", f"the {reader} saw {last_of(state)} of the {last}", "intermediate read"))
    return wrong
