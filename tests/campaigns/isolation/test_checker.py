"""The checker finds each anomaly in a history of a few transactions that has it, and nothing in histories without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count
from random import Random

import pytest

from tests.campaigns.isolation.checker import (
    FRESH_SERIALIZABLE,
    READ_COMMITTED,
    SERIALIZABLE,
    SNAPSHOT,
    STRICT,
    STRONG_SNAPSHOT,
    Level,
    check,
)
from tests.campaigns.isolation.graph import components
from tests.campaigns.isolation.history import ABORTED, COMMITTED, GONE, UNKNOWN, History, Key, State, Transaction
from tests.campaigns.isolation.versions import Anomaly

X, Y = (0, 0), (0, 1)
Reads = Mapping[Key, State]


def at_once(
    reads: Reads,
    writes: Mapping[Key, tuple[int, ...]],
    process: int = 0,
    outcome: str = COMMITTED,
    what: str = "transaction",
) -> Transaction:
    """A transaction beside all others, of a client of its own."""
    return Transaction(process, 0, 1, reads, writes, outcome, what)


def by_time(*transactions: Transaction) -> History:
    """One after the other, each of another client."""
    for number, each in enumerate(transactions):
        each.process, each.began, each.ended = number, 2 * number, 2 * number + 1
    return History(list(transactions))


def beside(*transactions: Transaction) -> History:
    """All at the same time, each of another client."""
    for number, each in enumerate(transactions):
        each.process = number
    return History(list(transactions))


def written(key: Key, *values: int) -> Transaction:
    return at_once({}, {key: values})


def read(**lists: tuple[int, ...]) -> Transaction:
    return at_once({{"x": X, "y": Y}[name]: state for name, state in lists.items()}, {})


PAIR = {X: (1,), Y: (2,)}
WRONG: dict[str, tuple[str, Level, Level | None, History]] = {
    "dirty write": (
        "G0",
        READ_COMMITTED,
        None,
        beside(at_once({}, PAIR), at_once({}, {X: (3,), Y: (4,)}), read(x=(1, 3)), read(y=(4, 2))),
    ),
    "aborted read": ("G1a", READ_COMMITTED, None, beside(at_once({}, {X: (1,)}, outcome=ABORTED), read(x=(1,)))),
    "intermediate read": ("G1b", READ_COMMITTED, None, beside(written(X, 1, 2), read(x=(1,)), read(x=(1, 2)))),
    "circular information flow": (
        "G1c",
        READ_COMMITTED,
        None,
        beside(at_once({Y: (2,)}, {X: (1,)}), at_once({X: (1,)}, {Y: (2,)})),
    ),
    "lost update": (
        "lost update",
        SNAPSHOT,
        READ_COMMITTED,
        beside(at_once({X: ()}, {X: (1,)}), at_once({X: ()}, {X: (2,)}), read(x=(1, 2))),
    ),
    "lost update, of which one is never seen": (
        "lost update",
        SNAPSHOT,
        READ_COMMITTED,
        beside(at_once({X: ()}, {X: (1,)}), at_once({X: ()}, {X: (2,)}), read(x=(2,))),
    ),
    "fractured read": ("fractured read", SNAPSHOT, READ_COMMITTED, beside(at_once({}, PAIR), read(x=(1,), y=()))),
    "torn batch": (
        "torn batch",
        SNAPSHOT,
        READ_COMMITTED,
        beside(at_once({}, PAIR, what="batch"), read(x=(), y=(2,))),
    ),
    "one rw among several": (
        "G-single",
        SNAPSHOT,
        READ_COMMITTED,
        beside(written(X, 1), at_once({X: (1,)}, {Y: (2,)}), read(x=(), y=(2,))),
    ),
    "long fork": (
        "G-nonadjacent",
        SNAPSHOT,
        READ_COMMITTED,
        beside(written(X, 1), written(Y, 2), read(x=(1,), y=()), read(x=(), y=(2,))),
    ),
    "write skew": (
        "G2-item",
        SERIALIZABLE,
        SNAPSHOT,
        beside(at_once({X: (), Y: ()}, {X: (1,)}), at_once({X: (), Y: ()}, {Y: (2,)}), read(x=(1,), y=(2,))),
    ),
    "stale read": ("stale read", FRESH_SERIALIZABLE, SERIALIZABLE, by_time(written(X, 1), read(x=()))),
    "an acknowledged append that is gone": (
        "G0-realtime",
        STRONG_SNAPSHOT,
        SERIALIZABLE,
        by_time(written(X, 1), written(X, 2), read(x=(2,))),
    ),
    "causal reverse": (
        "G-single-realtime",
        STRICT,
        FRESH_SERIALIZABLE,
        History(
            [
                Transaction(0, 1, 2, {}, {X: (1,)}),
                Transaction(1, 3, 4, {}, {Y: (2,)}),
                Transaction(2, 0, 9, {X: (), Y: (2,)}),
            ]
        ),
    ),
    "a client that does not see its own write": (
        "G-single-process",
        STRONG_SNAPSHOT,
        SERIALIZABLE,
        History([Transaction(0, 0, 2, {}, {X: (1,)}), Transaction(0, 1, 3, {X: ()})]),
    ),
    "a read that goes back": (
        "G-single-realtime",
        STRONG_SNAPSHOT,
        SERIALIZABLE,
        by_time(read(x=(1,)), read(x=())),
    ),
    "reads that contradict each other": (
        "incompatible order",
        READ_COMMITTED,
        None,
        beside(read(x=(1,)), read(x=(2,))),
    ),
    "a retried append": ("duplicate append", READ_COMMITTED, None, beside(written(X, 1), read(x=(1, 1)))),
    "a value of nobody": ("garbage read", READ_COMMITTED, None, beside(written(X, 1), read(x=(1, 7)))),
}
WRONG["a read that goes back"][3].transactions.append(Transaction(9, 0, 9, {}, {X: (1,)}))


def names(anomalies: list[Anomaly]) -> set[str]:
    return {name for each in anomalies for name in (each.name, each.nickname) if name}


@pytest.mark.parametrize("what", WRONG)
def test_an_anomaly_is_found_and_forbidden_by_the_right_levels(what: str) -> None:
    name, forbidden_by, allowed_by, history = WRONG[what]
    anomalies = check(history)
    assert name in names(anomalies), list(map(str, anomalies))
    assert forbidden_by.violations(anomalies)
    assert allowed_by is None or not allowed_by.violations(anomalies), list(map(str, anomalies))


REGISTERS: dict[str, tuple[str, tuple[int, ...], list[Transaction]]] = {
    "lost update": (
        "lost update",
        (1, 2),
        [at_once({X: 0}, {X: (1,)}), at_once({X: 0}, {X: (2,)})],
    ),
    "stale read": ("stale read", (1, 2), by_time(written(X, 1), written(X, 2), at_once({X: 1}, {})).transactions),
    "a deleted row that comes back": (
        "stale read",
        (1, GONE),
        by_time(written(X, 1), written(X, GONE), at_once({X: 1}, {})).transactions,
    ),
    "a write that the feed lacks": ("lost write", (2,), [written(X, 1), written(X, 2)]),
    "two orders": (
        "G1c",
        (2, 1),
        [at_once({}, {X: (1,)}), at_once({X: 1}, {X: (2,)})],
    ),
}


@pytest.mark.parametrize("what", REGISTERS)
def test_an_anomaly_of_registers_is_found(what: str) -> None:
    name, order, transactions = REGISTERS[what]
    assert name in names(check(History(transactions, {X: order})))


RIGHT: dict[str, History] = {
    "nothing": History(),
    "one after the other": by_time(written(X, 1), at_once({X: (1,)}, {X: (2,), Y: (3,)}), read(x=(1, 2), y=(3,))),
    "old and new while it is written": beside(at_once({}, PAIR), read(x=(), y=()), read(x=(1,), y=(2,))),
    "nobody reads": by_time(written(X, 1), written(X, 2), written(Y, 3)),
    "an aborted one that nobody saw": by_time(at_once({X: ()}, {X: (1,)}, outcome=ABORTED), read(x=())),
    "an unknown one that nobody saw": by_time(at_once({}, {X: (1,)}, outcome=UNKNOWN), read(x=())),
    "an unknown one that came late": by_time(at_once({}, {X: (1,)}, outcome=UNKNOWN), read(x=()), read(x=(1,))),
    "two appends of one transaction": by_time(written(X, 1, 2), read(x=(1, 2))),
    "a register": History(
        by_time(written(X, 1), at_once({X: 1}, {X: (2,)}), written(X, GONE), at_once({X: GONE}, {})).transactions,
        {X: (1, 2, GONE)},
    ),
    "a read at an earlier time": History(
        [Transaction(0, 0, 1, {}, {X: (1,)}), Transaction(0, 5, 6, {X: ()}, staleness=math.inf)]
    ),
}


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_history_passes(what: str) -> None:
    assert check(RIGHT[what]) == []


def test_a_read_may_be_as_stale_as_it_says() -> None:
    write = Transaction(0, 0, 1, {}, {X: (1,)})
    for staleness, is_wrong in ((0, True), (3.5, True), (5, False)):
        history = History([write, Transaction(1, 5, 6, {X: ()}, staleness=staleness)])
        assert bool(STRICT.violations(check(history))) == is_wrong, staleness


def test_keys_by_themselves_may_be_right_where_their_transactions_are_not() -> None:
    torn = beside(at_once({}, PAIR), read(x=(1,), y=()))
    assert STRICT.violations(check(torn)) and check(torn.by_key()) == []
    stale = by_time(at_once({}, PAIR), read(x=(1,), y=()))
    assert STRICT.violations(check(stale.by_key()))


def serial(random: Random, count_of: int) -> History:
    """Transactions of four clients that overlap, each of which happens at one moment of its time."""
    lists: dict[Key, tuple[int, ...]] = {(0, each): () for each in range(4)}
    values, transactions, free = count(1), list[Transaction](), [0.0] * 4
    moment = 0.0
    for _ in range(count_of):
        moment += 1
        process = random.choice([each for each in range(4) if free[each] < moment])
        began = max(free[process], moment - random.uniform(0, 3))
        ended = moment + random.uniform(0, 0.9)
        free[process] = ended
        keys = random.sample(sorted(lists), random.randrange(1, 4))
        reads = {key: lists[key] for key in keys if random.random() < 0.7}
        writes = {key: (next(values),) for key in keys if random.random() < 0.5}
        for key, more in writes.items():
            lists[key] += more
        transactions.append(Transaction(process, began, ended, reads, writes))
    return History([*transactions, Transaction(9, moment + 5, moment + 6, lists)])


@pytest.mark.parametrize("seed", range(5))
def test_a_random_history_passes_until_one_read_is_changed(seed: int) -> None:
    random = Random(seed)
    history = serial(random, 300)
    assert check(history) == []
    long = [
        (each, key)
        for each in history.transactions[:-1]
        for key, state in each.reads.items()
        if isinstance(state, tuple) and len(state) > 8
    ]
    each, key = random.choice(long)
    each.reads = {**each.reads, key: ()}
    assert STRICT.violations(check(history))


def test_components_are_those_of_a_slow_way() -> None:
    random = Random(0)
    for _ in range(50):
        edges = {each: {random.randrange(12) for _ in range(random.randrange(3))} - {each} for each in range(12)}

        def reachable(start: int, edges: dict[int, set[int]] = edges) -> set[int]:
            reached, todo = set[int](), [start]
            while todo:
                todo += (more := edges[todo.pop()] - reached)
                reached |= more
            return reached

        every = {each: reachable(each) for each in edges}
        slow = {frozenset(b for b in edges if b in every[a] and a in every[b]) for a in edges if a in every[a]}
        assert {frozenset(each) for each in components(edges, edges.__getitem__)} == slow
