"""A disk that decays under a running store: bits flip in its files while they are scanned, compacted and backed up.

    python tests/campaigns/corruption/decay.py --flips 300 --seed 0

The store is warm: its pages have been read before. A writer updates rows, a compactor runs every kind of maintenance,
two scanners read all rows, one of them single rows and moments of the past too, and a backup is taken again and again
and read back. Meanwhile one bit of one file is wrong at a time. Every row says by itself whether it is right: its cells
follow from its key and its version, and the versions that a scan may see are known. So each read is right, or it
raises CORRUPTION; and when all bits are as they were again, all rows are right, and `verify` finds nothing: nothing
wrong was written meanwhile. The seed draws the bits; the order of the threads is chance.

A violation ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import pyarrow as pa

import nyala
from nyala.engine.fs import LocalFileSystem
from nyala.engine.kernels.compile.warmup import warm_up
from nyala.engine.recovery.verify import verify_store
from nyala.jobs import backup, restore
from nyala.schemas.errors import CorruptionError, StoreError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns import options as drawn

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability"}, without={*drawn.OF_MAINTENANCE, "page_cache_bytes"})
ROWS = 12_000
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("version", pa.int32()),
        pa.field("price", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("code", pa.string()),
    ]
)
COLUMNS = {
    "price": nyala.ColumnOptions(encoding="plain", compression="none"),
    "text": nyala.ColumnOptions(encoding="plain", compression="none"),
    "code": nyala.ColumnOptions(compression="zstd"),
}
HELD_SECONDS = 0.03
"""How long a bit is wrong, on the average."""
HELD_SECONDS_LONG = 0.3
_JOIN_SECONDS = 120


def rows_of(keys: np.ndarray, version: int) -> pa.RecordBatch:
    """Return the rows of keys as they are in a version."""
    text = [f"{key} in version {version}, as it was written" for key in keys.tolist()]
    cells = [keys, np.full(len(keys), version, np.int32), keys * 0.5 + version, text, [each[-9:] for each in text]]
    arrays = [pa.array(each, type=field.type) for each, field in zip(cells, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def fault_of(found: pa.Table, least: np.ndarray, most: np.ndarray) -> str | None:
    """Return what is wrong with rows, whose versions are known to lie from ``least`` to ``most``, by key; or None."""
    keys, versions = found["k"].to_numpy(), found["version"].to_numpy()
    if len(keys) != len(np.unique(keys)) or (len(keys) and not 0 <= keys.min() <= keys.max() < ROWS):
        return "keys that are there twice, or never were"
    if ((versions < least[keys]) | (versions > most[keys])).any():
        return "a version that was not there at that time"
    for version in np.unique(versions).tolist():
        mask = pa.array(versions == version)
        if not found.filter(mask).equals(pa.Table.from_batches([rows_of(keys[versions == version], version)])):
            return "cells that were never written"
    return None


@dataclass
class Decay:
    """One store, and the threads on it."""

    directory: Path
    seed: int
    rows_checked: int = 0
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.applied = np.zeros(ROWS, np.int32)
        """By key: the newest version that was acknowledged."""
        self.asked = np.zeros(ROWS, np.int32)
        """The newest that may have been applied."""
        self.version = 0
        self.database: Any = None

    @property
    def met(self) -> int:
        """How often a flip was met."""
        return sum(count for what, count in self.counts.items() if "CORRUPTION" in what)

    def run(self, flips: int, met_min: int = 0) -> None:
        """Flip so many bits, one after the other, and further ones until ``met_min`` were met; then look at all that is
        left."""
        self._open()
        self.table = self.database.create_table("t", SCHEMA, ["k"], (), drawn.columns(SCHEMA, COLUMNS), **drawn.table())
        self._fill()
        threads = [threading.Thread(target=self._loop, args=(work,)) for work in self._work()]
        for thread in threads:
            thread.start()
        try:
            for number in range(20 * flips):
                if self.wrong or (number >= flips and self.met >= met_min):
                    break
                self._flip(number)
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(_JOIN_SECONDS)
        self._check_whole("after the last flip")
        self.database.close()
        report = verify_store(drawn.unlocked(LocalFileSystem(self.directory)))
        self.wrong += [f"verify: {problem}" for problem in report.problems]
        self._open()
        self.table = self.database.table("t")
        self._check_whole("after a restart")
        self.database.close()

    def _open(self) -> None:
        # Hardly a page is kept: what is read comes from the disk, every time.
        self.database = drawn.database_at(
            self.directory,
            maintenance="off",
            page_cache_bytes=1 << 12,
            direct_load_bytes=1 << 10,
            scan_batch_bytes=1 << 16,
            key_index_bytes=self.random.choice([0, 1 << 20]),
        )

    def _fill(self) -> None:
        for part in np.array_split(np.random.default_rng(self.seed).permutation(ROWS), 3):
            self.table.upsert(rows_of(np.sort(part), 0))
            self.table.maintain("flush")
        for _ in range(3):
            self._write()
            self.table.maintain("flush_deltas")
        self._check_whole("before the first flip")

    def _work(self) -> list[Callable[[Random], None]]:
        return [self._scan, self._scan_in_other_ways, self._write_and_rest, self._maintain, self._back_up]

    def _loop(self, work: Callable[[Random], None]) -> None:
        random = Random(f"{self.seed} {work.__name__}")
        while not self.stop.is_set() and not self.wrong:
            try:
                work(random)
                self.counts[work.__name__.strip("_")] += 1
            except CorruptionError:
                self.counts[f"{work.__name__.strip('_')}: CORRUPTION"] += 1
            except StoreError as error:
                self.counts[f"{work.__name__.strip('_')}: {error.code}: {error.message[:90]}"] += 1
                time.sleep(0.02)
            except BaseException as error:
                self.wrong.append(f"{work.__name__}: {error!r}")
                raise

    def _check(self, what: str, read: Callable[[], pa.Table], count: int | None = ROWS) -> None:
        least = self.applied.copy()
        found = read()
        fault = fault_of(found, least, self.asked.copy())
        if fault is None and count is not None and len(found) != count:
            fault = f"{len(found)} rows, not {count}"
        self.rows_checked += len(found)
        if fault:
            self.wrong.append(f"{what}: {fault}")

    def _check_whole(self, when: str) -> None:
        self._check(when, lambda: self.table.scan().to_arrow())

    def _scan(self, random: Random) -> None:
        ordered = random.random() < 0.3
        self._check("a scan", lambda: self.table.scan(ordered=ordered).to_arrow())

    def _scan_in_other_ways(self, random: Random) -> None:
        first = random.randrange(ROWS)
        way = random.randrange(3)
        if way == 0:
            self._check("a look-up", lambda: pa.Table.from_pylist([self.table.get((first,))], SCHEMA), 1)
        elif way == 1:
            last = min(first + 500, ROWS)
            where = f"k >= {first} AND k < {last}"
            self._check("a filter", lambda: self.table.scan(where=where).to_arrow(), last - first)
        else:
            moment = self.database.now()
            before = self.asked.copy()
            time.sleep(0.05)
            found = self.table.scan(as_of=moment).to_arrow()
            fault = fault_of(found, np.zeros(ROWS, np.int32), np.maximum(before, self.asked))
            if fault or len(found) != ROWS:
                self.wrong.append(f"a moment of the past: {fault or len(found)}")

    def _write(self) -> None:
        keys = np.sort(np.random.default_rng(self.version).choice(ROWS, 200, replace=False))
        self.version += 1
        self.asked[keys] = self.version
        self.table.upsert(rows_of(keys, self.version))
        self.applied[keys] = self.version

    def _write_and_rest(self, random: Random) -> None:
        self._write()
        time.sleep(random.random() * 0.05)

    def _maintain(self, random: Random) -> None:
        kind = random.choice(list(MaintenanceKind))
        self.table.maintain(kind)
        self.counts[str(kind)] += 1

    def _back_up(self, random: Random) -> None:
        with tempfile.TemporaryDirectory() as folder:
            least = self.applied.copy()
            backup(self.database, "t", f"{folder}/backup")
            most = self.asked.copy()
            with drawn.database_at(f"{folder}/store", maintenance="off") as other:
                restore(other, f"{folder}/backup", "t")
                fault = fault_of(other.table("t").scan().to_arrow().select(SCHEMA.names), least, most)
        if fault:
            self.wrong.append(f"a backup: {fault}")

    def _flip(self, number: int) -> None:
        """Turn one bit of one file round, for a while."""
        files = [path for path in self.directory.glob("tablets/*/*") if path.suffix in (".base", ".undo", ".redo")]
        try:
            path = self.random.choice(sorted(files))
            size = path.stat().st_size
            if not size:  # it is just being made
                return
            with path.open("r+b") as file:
                place, bit = self.random.randrange(size), 1 << self.random.randrange(8)
                old = _turn(file, place, bit)
                time.sleep(self.random.expovariate(1 / (HELD_SECONDS_LONG if number % 8 == 0 else HELD_SECONDS)))
                assert _turn(file, place, bit) == old ^ bit, "nobody writes to a file that is there"
            self.counts[f"flips of {path.suffix}"] += 1
        except FileNotFoundError:
            self.counts["files that were gone"] += 1


def _turn(file: Any, place: int, bit: int) -> int:
    file.seek(place)
    old = file.read(1)[0]
    file.seek(place)
    file.write(bytes([old ^ bit]))
    file.flush()
    return old


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warm_up()
    with drawn.swarm_of(FEATURES, options).round(0):
        with tempfile.TemporaryDirectory() as directory:
            decay = Decay(Path(directory), options.seed)
            decay.run(options.flips)
        print(f"seed {options.seed}: {decay.rows_checked:,} rows read; {dict(sorted(decay.counts.items()))}")
        for fault in decay.wrong:
            print(f"WRONG: {fault}")
        sys.exit(bool(decay.wrong))


if __name__ == "__main__":
    main()
