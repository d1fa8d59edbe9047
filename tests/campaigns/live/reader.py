"""A reader beside a process that changes a store: what each read must show, by what that process has said so far."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import nyala
from nyala.schemas.errors import NotFoundError, SnapshotTooOldError
from tests.campaigns.live.holder_process import ACCOUNTS, BATCH, QUEUED

_HEARD_SECONDS = 5.0


class Violation(AssertionError):
    """A reader saw what it must not see."""


@dataclass
class Told:
    """What the holders have said so far."""

    steps: Counter[str] = field(default_factory=Counter)
    """The last acknowledged step of each kind."""
    there: set[str] = field(default_factory=set)
    """Tables that were created, and that nobody has begun to drop."""
    gone: set[str] = field(default_factory=set)
    altered: set[str] = field(default_factory=set)
    moments: list[tuple[int, int]] = field(default_factory=list)
    """Timestamps with the value of all rows of ``same`` at each."""
    failure: str = ""
    openings: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, line: str) -> None:
        """Take note of a line."""
        kind, *words = line.split()
        with self.lock:
            match kind:
                case "open":
                    self.openings += 1
                case "created":
                    self.there.add(words[0])
                case "dropping":
                    self.there.discard(words[0])
                    self.altered.discard(words[0])
                case "dropped":
                    self.gone.add(words[0])
                case "altered":
                    self.altered.add(words[0])
                case "moment":
                    self.moments.append((int(words[0]), int(words[1])))
                case "failed":
                    self.failure = line
                case _:
                    self.steps[kind] = int(words[0])

    def copy(self) -> Told:
        """Return what is known now."""
        with self.lock:
            return Told(
                Counter(self.steps), {*self.there}, {*self.gone}, {*self.altered}, self.moments[-20:], self.failure
            )


def demand(holds: bool, what: object) -> None:
    if not holds:
        raise Violation(what)


class LiveReader:
    """Reads a store again and again, and checks each answer. For one thread."""

    def __init__(self, database: nyala.Database, told: Told, seed: int) -> None:
        self._database = database
        self._told = told
        self._random = Random(seed)
        self._last: Counter[str] = Counter()
        self._feed: tuple[int, dict[int, int]] | None = None
        self.reads: Counter[str] = Counter()
        """How often each check was done."""

    def check(self) -> None:
        """Do one check, chosen at random."""
        checks = [
            self._check_counter,
            self._check_pairs,
            self._check_same,
            self._check_bank,
            self._check_queue,
            self._check_bulk,
            self._check_tables,
            self._check_moments,
            self._check_feed,
        ]
        chosen = self._random.choice(checks)
        chosen(self._told.copy())
        self.reads[chosen.__name__.removeprefix("_check_")] += 1

    def _reached(self, kind: str, step: int, told: Told) -> None:
        demand(step >= told.steps[kind], f"{kind} {told.steps[kind]} was acknowledged, and the reader sees {step}")
        demand(step >= self._last[kind], f"{kind} went back from {self._last[kind]} to {step}")
        self._last[kind] = step

    def _rows(self, table: str, as_of: int | None = None, where: str | None = None) -> dict[int, dict[str, Any]]:
        rows = self._database.table(table).scan(where=where, as_of=as_of).to_arrow().to_pylist()
        found = {row["id"]: row for row in rows}
        demand(len(found) == len(rows), f"a key of {table} is there twice")
        return found

    def _check_counter(self, told: Told) -> None:
        row = self._database.table("counter").get(0)
        self._reached("counter", row["v"] if row else 0, told)

    def _check_pairs(self, told: Told) -> None:
        if self._random.random() < 0.5:
            now = self._database.now()
            demand(now >= self._last["now"], "the newest snapshot went back")
            self._last["now"] = now
            left, right = self._rows("left", now), self._rows("right", now)
        else:
            both = "SELECT l.id, l.v, r.v AS other FROM left_side l FULL JOIN right_side r ON l.id = r.id"
            text = both.replace("left_side", '"left"').replace("right_side", '"right"')
            rows = self._database.sql(text).to_arrow().to_pylist()
            left = {row["id"]: {"id": row["id"], "v": row["v"]} for row in rows}
            right = {row["id"]: {"id": row["id"], "v": row["other"]} for row in rows}
        demand(left == right, f"half of a transaction: {left} {right}")
        self._reached("left", max((row["v"] for row in left.values()), default=0), told)

    def _check_same(self, told: Told) -> None:
        values = {row["v"] for row in self._rows("same").values()}
        demand(len(values) == 1, f"half of a statement: {values}")
        self._reached("same", values.pop(), told)

    def _check_bank(self, told: Told) -> None:
        found = self._database.table("bank").scan().aggregate({"sum": ("v", "sum"), "n": ("*", "count")}).to_pylist()[0]
        demand(not found["sum"], f"a batch is not whole: {found}")
        demand(found["n"] <= ACCOUNTS, found)

    def _check_queue(self, told: Told) -> None:
        ids = sorted(self._rows("queue"))
        demand(len(ids) == QUEUED and ids[-1] - ids[0] == QUEUED - 1, f"the queue has gaps: {ids}")
        self._reached("queue", ids[-1] if ids[-1] >= QUEUED else 0, told)

    def _check_bulk(self, told: Told) -> None:
        measures = {"n": ("*", "count"), "last": ("batch", "max")}
        found = self._database.table("bulk").scan().aggregate(measures).to_pylist()[0]
        demand(found["n"] % BATCH == 0, f"half of a batch: {found}")
        self._reached("bulk", found["last"] or 0, told)

    def _check_tables(self, told: Told) -> None:
        names = {*self._database.tables()}
        for name in told.there - names:
            demand(self._is_being_dropped(name), f"{name} was created, and the reader does not see it")
        demand(not told.gone & names, f"{told.gone & names} were dropped, and the reader still sees them")
        for name in told.altered:
            try:
                table = self._database.table(name)
                demand("more" in table.schema.names, f"{name} has no new column")
                row = table.get(5)
                demand(row is not None and row["more"] == 7, f"{name} has {row}")
            except NotFoundError:
                demand(self._is_being_dropped(name), f"{name} is gone")

    def _is_being_dropped(self, name: str) -> bool:
        """Whether the holder has begun to drop a table. What it says is heard a little later than the reader sees
        it."""
        late = time.monotonic() + _HEARD_SECONDS
        while name in self._told.copy().there:
            if time.monotonic() > late:
                return False
            time.sleep(0.01)
        return True

    def _check_moments(self, told: Told) -> None:
        for moment, value in told.moments[-3:]:
            try:
                values = {row["v"] for row in self._rows("same", moment).values()}
            except SnapshotTooOldError:  # it keeps two seconds
                self.reads["too old"] += 1
                continue
            demand(values == {value}, f"at {moment} all rows had {value}, and the reader sees {values}")

    def _check_feed(self, told: Told) -> None:
        """Follow the changes of ``left``; what they come to is what it has."""
        table, now = self._database.table("left"), self._database.now()
        if self._feed is None:
            self._feed = now, {key: row["v"] for key, row in self._rows("left", now).items()}
            return
        since, rows = self._feed
        changes = table.changes(since, now).to_arrow().to_pylist()
        for change in sorted(changes, key=lambda each: each["_timestamp"]):
            rows[change["id"]] = change["v"]
        expected = {key: row["v"] for key, row in self._rows("left", now).items()}
        demand(rows == expected, f"changes since {since} until {now} lead to {rows}, not to {expected}")
        self._feed = now, rows
