"""A small disk that is filled and freed over and over, under a server that goes on.

    unshare -rm sh -c 'mount -t tmpfs -o size=64m tmpfs /mnt &&
        exec python tests/campaigns/crash/full_disk.py --data /mnt/store'

A cycle writes rows through the server until it answers STORAGE_FULL, with the disk at its low-water mark. In every
second cycle a foreign file then takes the rest, to the last byte: writes of every kind are refused with STORAGE_FULL
and leave nothing behind, and health says why. All rows that were acknowledged are read while the disk is full. In every
tenth cycle the server is killed then, and started again. Then room is made, by deleting the foreign file and dropping
the table that filled the disk, and the next write must be acknowledged without a restart. At the end the store is
verified byte by byte.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.errors import StorageFullError, StoreError, UnavailableError
from tests.campaigns import options as drawn

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])
MIB = 1 << 20
BATCH_ROWS, CELL_BYTES = 100, 4_000
BACK_SECONDS = 60.0
"""The longest that a write may take to succeed after room was made."""
TAKEN_MAX = 20
STEADY = 10
"""Refusals in a row, a tenth of a second apart, after which the disk is taken to stay full."""
FEATURES = drawn.Features(drawn.LOADS, without={*drawn.OF_MAINTENANCE, "wal_segment_bytes", "flush_bytes"})
OPTIONS = {"disk_low_bytes": 8 * MIB, "wal_segment_bytes": MIB, "flush_bytes": 4 * MIB, "memory_bytes": 24 * MIB}


class Subject(Protocol):
    """A store on a small disk."""

    database: Database

    def take_rest(self) -> None:
        """Fill the disk by a file that is not the store's."""
        ...

    def give_rest(self) -> None:
        """Delete that file."""
        ...

    def kill(self) -> None:
        """Kill the store and start it again."""
        ...


@dataclass
class Figures:
    """What was seen."""

    cycles: int = 0
    kills: int = 0
    written_rows: int = 0
    """Acknowledged."""
    refused_writes: int = 0
    lost_rows: int = 0
    wrong_rows: int = 0
    """Rows of writes that were refused."""
    slowest_return_seconds: float = 0.0
    """From the room made to the first acknowledged write."""
    sizes_mb: list[int] = field(default_factory=list)
    """What filled the disk in each cycle; a leak of space would make it less and less."""


class Campaign:
    """Cycles over one store."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self._subject = subject
        self._random = Random(seed)
        self.figures = Figures()
        self._kept: set[int] = set()
        """The keys of the table ``kept``, which stays."""
        self._create("kept")

    def cycle(self) -> None:
        """Fill the disk, look, and make room."""
        figures, number = self.figures, self.figures.cycles
        self._create("filler")
        filled = self._fill()
        figures.sizes_mb.append(filled * CELL_BYTES // MIB)
        if number % 2:
            filled = self._to_the_last_byte(filled)
        if number % 10 == 9:
            self._subject.kill()
            figures.kills += 1
            filled = self._to_the_last_byte(filled)  # a start removes what was half written
        if number % 2:
            self._be_refused()
        self._read(filled)
        self._subject.give_rest()
        began = time.monotonic()
        self._patiently(lambda: self._subject.database.drop_table("filler"), StorageFullError)
        key = self._next_key()
        self._patiently(lambda: self._table("kept").upsert(self._rows([key], 10)), StorageFullError)
        self._kept.add(key)
        figures.slowest_return_seconds = max(figures.slowest_return_seconds, round(time.monotonic() - began, 2))
        figures.written_rows += 1
        figures.cycles += 1

    def _table(self, name: str) -> Table:
        return self._subject.database.table(name)

    def _create(self, name: str) -> None:
        self._patiently(
            lambda: self._subject.database.create_table(
                name, SCHEMA, ["k"], (), drawn.columns(SCHEMA), if_not_exists=True, **drawn.table()
            )
        )

    def _next_key(self) -> int:
        return max(self._kept, default=0) + 1

    def _rows(self, keys: list[int], size: int) -> pa.Table:
        return pa.table([keys, [self._random.randbytes(size) for _ in keys]], schema=SCHEMA)

    def _fill(self) -> int:
        """Write until the disk is full; return the number of rows in ``filler``."""
        filled = 0
        while True:
            keys = list(range(filled, filled + BATCH_ROWS))
            try:
                self._patiently(lambda: self._table("filler").insert(self._rows(keys, CELL_BYTES)))  # noqa: B023
            except StorageFullError:
                self.figures.refused_writes += 1
                return filled
            filled += BATCH_ROWS
            self.figures.written_rows += BATCH_ROWS

    def _to_the_last_byte(self, filled: int) -> int:
        """Take the rest of the disk, until nothing that the store frees makes room for a write; return the rows in
        ``filler``."""
        refused = 0
        while refused < STEADY:
            self._subject.take_rest()
            try:
                self._patiently(lambda: self._table("filler").insert(self._rows([filled], CELL_BYTES)))  # noqa: B023
                filled, refused = filled + 1, 0
                self.figures.written_rows += 1
            except StorageFullError:
                self.figures.refused_writes += 1
                refused += 1
                time.sleep(0.1)
        return filled

    def _be_refused(self) -> None:
        """Try every kind of write until it is refused: the store may free some room meanwhile."""
        first, kept = self._next_key(), self._table("kept")
        several = list(range(first + 1, first + 51))
        oldest = sorted(self._kept)[:1]
        tries: list[tuple[Callable[[], object], Callable[[], object]]] = [
            (lambda: kept.upsert(self._rows([first], 10).to_pylist()), lambda: self._kept.add(first)),
            (lambda: kept.upsert(self._rows(several, 10)), lambda: self._kept.update(several)),
            (lambda: kept.update_where({"v": "'none'"}, "k >= 0"), lambda: None),
            (
                lambda: kept.delete_ignore([{"k": key} for key in oldest or [0]]),
                lambda: self._kept.difference_update(oldest),
            ),
        ]
        for write, done in tries:
            for _ in range(TAKEN_MAX):
                try:
                    write()
                except StorageFullError:
                    self.figures.refused_writes += 1
                    break
                done()
                self._subject.take_rest()
            else:
                raise AssertionError("writes are taken while the disk is full")
        health = self._subject.database.health()
        assert "disk_low_bytes" in health.reason or not health.takes_writes, health

    def _read(self, filled: int) -> None:
        """Compare what there is with what was acknowledged."""
        kept = self._table("kept")
        found = set(kept.scan(columns=["k"]).to_arrow()["k"].to_pylist())
        self.figures.lost_rows += len(self._kept - found)
        self.figures.wrong_rows += len(found - self._kept)
        there = self._table("filler").count()
        self.figures.lost_rows += max(filled - there, 0)
        self.figures.wrong_rows += max(there - filled, 0)

    def _patiently(self, work: Callable[[], object], *more: type[StoreError]) -> None:
        """Do something that a store may put off while flushes run, or for ``more`` reasons, but not for ever."""
        deadline = time.monotonic() + BACK_SECONDS
        while True:
            try:
                work()
                return
            except (UnavailableError, *more):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class ServerSubject:
    """A server process on a directory of a small disk."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._ballast = data.parent / "ballast"
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(self._data), "--json"]
        self._process = subprocess.Popen(
            [*command, "--listen", "grpc://127.0.0.1:0", *drawn.flags(**OPTIONS)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self.database = nyala.connect(json.loads(self._process.stdout.readline())["location"])

    def take_rest(self) -> None:
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while file.write(bytes(64 << 10)):
                pass

    def give_rest(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
        self._start()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server by a signal."""
        self.database.close()
        self._process.send_signal(number)
        self._process.wait(60)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    asked = parser.parse_args()
    state = os.statvfs(asked.data.parent)
    if state.f_blocks * state.f_frsize > 1 << 30:
        sys.exit(f"{asked.data.parent} is no small disk: mount one, as this file says")
    with drawn.swarm_of(FEATURES, asked).round(0):
        _run(asked.data, asked.cycles, asked.seed)


def _run(data: Path, cycles: int, seed: int) -> None:
    subject = ServerSubject(data)
    campaign = Campaign(subject, seed)
    try:
        for _ in range(cycles):
            campaign.cycle()
            if campaign.figures.cycles % 10 == 0:
                print(json.dumps(asdict(campaign.figures)), flush=True)
    finally:
        print(json.dumps(asdict(campaign.figures)), flush=True)
        with suppress(StoreError):
            subject.stop()
    checked = subprocess.run([sys.executable, "-m", "nyala", "verify", str(data), *drawn.key_words()], check=False)
    if checked.returncode or campaign.figures.lost_rows or campaign.figures.wrong_rows:
        sys.exit(1)


if __name__ == "__main__":
    main()
