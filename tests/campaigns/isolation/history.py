"""What clients did and saw: transactions with their reads and writes, and when each began and ended.

A key holds a list that only grows, or a register. No two transactions write the same value to a key: so a read says
whose write it saw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Key = tuple[int, int]
State = tuple[int, ...] | int
"""All elements of a list, or the value of a register."""
INITIAL, GONE = 0, -1
"""The value of a register before all writes, and of one whose row was deleted. A key is deleted once at most."""
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


@dataclass
class Transaction:
    """What one client did at once: reads, which are not of its own writes, and then writes."""

    process: int
    began: float
    ended: float
    reads: Mapping[Key, State] = field(default_factory=dict)
    writes: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)
    """The values that it wrote to a key, in order. The last is what others may see."""
    outcome: str = COMMITTED
    what: str = "transaction"
    """The way in which it was made: ``batch``, if its writes were one batch or statement."""
    staleness: float = 0
    """For how many seconds what it read may have been the past when it began. Infinite for reads at an earlier time."""

    @property
    def start(self) -> float:
        """The moment whose acknowledged writes it must see."""
        return self.began - self.staleness

    @property
    def end(self) -> float:
        """The moment after which all of it has happened."""
        return math.inf if self.outcome == UNKNOWN else self.ended

    def __str__(self) -> str:
        reads = [f"{key} is {state}" for key, state in self.reads.items()]
        writes = [f"{key} gets {values}" for key, values in self.writes.items()]
        return f"{self.what} of client {self.process} ({'; '.join(reads + writes)})"


@dataclass
class History:
    """All transactions on some keys."""

    transactions: list[Transaction] = field(default_factory=list)
    orders: Mapping[Key, tuple[int, ...]] | None = None
    """Of registers: the values that each key had, in order. None for lists, whose reads show the order."""

    def by_key(self) -> History:
        """Return the history in which each key of a transaction is a transaction of its own, and of its own client."""
        pairs = [(each, key) for each in self.transactions for key in {**each.reads, **each.writes}]
        parts = [
            Transaction(
                number,
                each.began,
                each.ended,
                {key: each.reads[key]} if key in each.reads else {},
                {key: each.writes[key]} if key in each.writes else {},
                each.outcome,
                each.what,
                each.staleness,
            )
            for number, (each, key) in enumerate(pairs)
        ]
        return History(parts, self.orders)
