"""What readers may see: registers whose value only grows, and snapshots that never change. Thread safe.

Each register is written by one client, one value after the other. A read of "now" that began after a value was
acknowledged, or seen by another read that had ended, shows that value or a later one; and none that was not sent.
All clients are threads of one process, so that "before" is what their locks make it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

_KEPT = 200

Life = tuple[int, int]
"""A process: the number of its server, and how many that had before."""
Rows = tuple[tuple[int, int], ...]
"""Registers with their values."""


class Registers:
    """``count`` registers, 0 at first."""

    def __init__(self, count: int) -> None:
        self._known = [0] * count
        self._sent = [0] * count
        self._moments: list[list[int]] = [[] for _ in range(count)]
        """When each value of a register was written; the first is 1."""
        self._mutex = threading.Lock()
        self.checked = 0

    def __len__(self) -> int:
        return len(self._known)

    def send(self, register: int) -> int:
        """Return the next value of a register, which is written now."""
        with self._mutex:
            self._sent[register] += 1
            return self._sent[register]

    def acknowledge(self, register: int, value: int, timestamp: int) -> None:
        """Take note that a write was acknowledged."""
        with self._mutex:
            moments = self._moments[register]
            assert value == len(moments) + 1, f"register {register}: value {value} after {len(moments)}"
            assert not moments or timestamp > moments[-1], f"register {register}: {timestamp} after {moments[-1]}"
            moments.append(timestamp)
            self._known[register] = max(self._known[register], value)

    def drawn(self, random: Random, since: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield registers, moments from ``since`` on, and the value that each had then. No moment lies behind the last
        acknowledged write: another may have followed that nobody acknowledged."""
        written = [register for register, moments in enumerate(self._moments) if moments and moments[-1] >= since]
        for _ in range(count if written else 0):
            register = random.choice(written)
            moments = self._moments[register]
            near = random.choice(moments) - random.randrange(2)
            moment = max(since, near if random.random() < 0.5 else random.randint(since, moments[-1]))
            yield register, moment, bisect_right(moments, moment)

    def before(self) -> list[int]:
        """Return what a read that begins now must show at least."""
        with self._mutex:
            return list(self._known)

    def check(self, before: Sequence[int], found: Mapping[int, int], who: Life, is_now: bool = True) -> None:
        """Check a read that ended now, of some registers, by what was there when it began."""
        with self._mutex:
            for register, value in found.items():
                least = before[register]
                assert value >= least, f"stale: server {who} shows {value} in register {register}, not {least}"
                sent = self._sent[register]
                assert value <= sent, f"server {who} shows {value} in register {register}; only {sent} were sent"
                self._known[register] = max(self._known[register], value if is_now else 0)
            self.checked += 1


class Acknowledged:
    """When each numbered write was applied: whoever answers, and however late, must say the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[int, Life]] = {}
        self._mutex = threading.Lock()

    def check(self, writer: str, seq: int, timestamp: int, who: Life) -> None:
        """Take note of an acknowledgement, also of one that nobody waits for any more."""
        with self._mutex:
            first = self._known.setdefault((writer, seq), (timestamp, who))
        what = f"write {seq} of {writer}: acknowledged at {timestamp} by server {who}"
        assert first[0] == timestamp, f"{what}, at {first[0]} by {first[1]}"


@dataclass
class Snapshot:
    """What a process showed at a timestamp that it handed out."""

    timestamp: int
    rows: Rows
    others: tuple[int, int]
    """The number of rows in the large table, and a sum over them."""
    by: Life


@dataclass
class Snapshots:
    """Some of those that were handed out, old and new."""

    random: Random
    kept: list[Snapshot] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def add(self, snapshot: Snapshot) -> None:
        with self.mutex:
            if len(self.kept) < _KEPT:
                self.kept.append(snapshot)
            else:
                self.kept[self.random.randrange(_KEPT)] = snapshot

    def any(self) -> Snapshot | None:
        """Return one of them, if there is any."""
        with self.mutex:
            return self.random.choice(self.kept) if self.kept else None

    def check(self, known: Snapshot, rows: Rows, others: tuple[int, int], by: Life) -> None:
        """Compare what a process shows now at that timestamp."""
        what = _change(known, by)
        assert rows == known.rows, f"{what}: {sorted(set(rows) ^ set(known.rows))[:4]}"
        assert others == known.others, f"{what}: rows and sum {others}, not {known.others}"
        with self.mutex:
            self.counts["elsewhere" if by != known.by else "there"] += 1

    def check_points(self, known: Snapshot, asked: Rows, found: Rows, by: Life) -> None:
        """Compare registers of it that a process read now, each by itself, with those that were ``asked`` for."""
        assert found == asked, f"{_change(known, by)}: {sorted(set(found) ^ set(asked))[:4]}"
        with self.mutex:
            self.counts["points"] += len(found)


def _change(known: Snapshot, by: Life) -> str:
    return f"the snapshot {known.timestamp} of server {known.by} has changed at server {by}"
