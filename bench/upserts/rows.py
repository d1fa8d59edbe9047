"""The rows: orders to begin with, one large upsert, and many small ones; and what a store must hold after each.

Half the rows of every upsert have keys that exist, in random order over the whole table, with new prices and readings.
The other half are new; their keys lie between the others, so that no range of keys tells a store that they are new.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from bench import data

CALL_ROWS = 10
SHARED_ROWS = 1
"""Rows of a small call that all processes write, with the same values: feeds that deliver an event more than once."""
BASE, CHANGES, EXPECTED, ANSWERS = "rows.arrow", "changes.arrow", "expected.npz", "answers.json"


@dataclass(frozen=True)
class Sizes:
    """How much is written: rows to begin with, rows of the large upsert, small calls, processes that make them."""

    rows: int
    changes: int
    small: int
    processes: int

    @property
    def calls(self) -> int:
        """Small calls of one process."""
        return self.small // self.processes


def make(folder: Path, sizes: Sizes) -> None:
    """Write all rows to files of Arrow, and the keys with hashes of the rows after load and large upsert."""
    table = data.orders(sizes.rows)
    write(folder / BASE, table)
    random = np.random.default_rng(1)
    own = CALL_ROWS - SHARED_ROWS
    calls = sizes.calls * sizes.processes
    counts = {
        CHANGES: (sizes.changes // 2, sizes.changes - sizes.changes // 2),
        "own": (calls * (CALL_ROWS // 2), calls * (own - CALL_ROWS // 2)),
        "shared": (0, sizes.calls * SHARED_ROWS),
    }
    places = iter(np.split(random.permutation(sizes.rows), np.cumsum([sum(pair) for pair in counts.values()])))
    sets = {name: _upserted(table, next(places), *pair, random) for name, pair in counts.items()}
    write(folder / CHANGES, sets[CHANGES])
    for process in range(sizes.processes):
        mine = sets["own"].slice(process * sizes.calls * own, sizes.calls * own)
        batches = [
            pa.concat_tables([mine.slice(call * own, own), sets["shared"].slice(call * SHARED_ROWS, SHARED_ROWS)])
            for call in range(sizes.calls)
        ]
        write(folder / small_file(process), pa.concat_tables(batches), CALL_ROWS)
    np.savez(folder / EXPECTED, *overlaid(fingerprints(table), fingerprints(sets[CHANGES])))


def small_file(process: int) -> str:
    """The file with the small upserts of a process, a batch for each call."""
    return f"small-{process}.arrow"


def write(file: Path, table: pa.Table, batch_rows: int | None = None) -> None:
    """Write rows as a stream of Arrow."""
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks() if batch_rows else table, batch_rows)


def read(file: Path) -> pa.Table:
    """Read rows into memory of this process, not as a map of the file."""
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as stream:
        return stream.read_all()


def _upserted(table: pa.Table, places: np.ndarray, old: int, new: int, random: Any) -> pa.Table:
    """Return rows of ``old`` keys that exist and of ``new`` ones beside such keys, in random order."""
    assert len(places) == old + new, "too few rows for so many upserts"
    picked = table.take(pa.array(places))
    keys = picked[data.KEY].to_numpy().copy()
    beside = keys[old:]
    beside[:] = beside // data.KEY_GAP * data.KEY_GAP + (beside + data.KEY_GAP // 2) % data.KEY_GAP
    values = {
        data.KEY: keys,
        "price": np.round(random.gamma(2, 50, old + new), 2),
        "reading": random.normal(size=old + new),
    }
    for name, column in values.items():
        place = data.SCHEMA.get_field_index(name)
        picked = picked.set_column(place, data.SCHEMA.field(place), pa.array(column))
    return picked.take(pa.array(random.permutation(old + new))).combine_chunks()


Prints = tuple[np.ndarray, np.ndarray]
"""Keys in order, and a hash of the whole row for each."""


def fingerprints(rows: pa.Table) -> Prints:
    """Return the keys of rows in order, each with a hash of all its values."""
    given = duckdb.from_arrow(rows.select(data.SCHEMA.names).cast(data.SCHEMA))
    columns = given.project(f"key, hash({', '.join(data.SCHEMA.names)}) AS print").fetchnumpy()
    order = np.argsort(columns["key"], kind="stable")
    return np.asarray(columns["key"])[order], np.asarray(columns["print"])[order]


def overlaid(below: Prints, above: Prints) -> Prints:
    """Return the fingerprints after an upsert of rows with different keys over others."""
    stays = ~np.isin(below[0], above[0])
    keys = np.concatenate([below[0][stays], above[0]])
    order = np.argsort(keys, kind="stable")
    return keys[order], np.concatenate([below[1][stays], above[1]])[order]


@dataclass(frozen=True)
class Comparison:
    """How a store's rows differ from those that it must hold."""

    lost: int
    """Rows that are missing, or have other values than the last ones that were acknowledged."""
    doubled: int
    """Rows beyond the first of a key."""


def compared(rows: pa.Table, expected: Prints, open_keys: np.ndarray) -> Comparison:
    """Compare all rows of a store; ``open_keys`` are those of calls that never returned, which may hold or not."""
    keys, prints = fingerprints(rows)
    place = np.minimum(np.searchsorted(expected[0], keys), len(expected[0]) - 1)
    belongs = expected[0][place] == keys
    foreign = keys[~belongs & ~np.isin(keys, open_keys)]
    if len(foreign):
        raise ValueError(f"{len(foreign):,} rows that no call wrote, the first with the key {foreign[0]}")
    holds = np.isin(expected[0], open_keys)
    holds[place[belongs & (expected[1][place] == prints)]] = True
    return Comparison(lost=int((~holds).sum()), doubled=len(keys) - len(np.unique(keys)))


def note_answers(folder: Path, has_large: bool, small: list[int] | None) -> None:
    """Keep which calls a store acknowledged: the large one, and how many small ones of each process, if any began."""
    (folder / ANSWERS).write_text(json.dumps({"has_large": has_large, "small": small}))


def checked(stored: pa.Table, folder: Path) -> Comparison:
    """Compare all rows of a store with what it must hold after the calls that it acknowledged.

    A call that got no answer may have been applied or not: its rows are not judged.
    """
    answers = json.loads((folder / ANSWERS).read_text())
    with np.load(folder / EXPECTED) as arrays:
        expected: Prints = arrays["arr_0"], arrays["arr_1"]
    silent = [] if answers["has_large"] else [read(folder / CHANGES)[data.KEY].to_numpy()]
    answered = []
    for process, calls in enumerate(answers["small"] or []):
        table = read(folder / small_file(process))
        answered.append(table.slice(0, calls * CALL_ROWS))
        silent.append(table.slice(calls * CALL_ROWS)[data.KEY].to_numpy())
    open_keys = np.concatenate(silent) if silent else np.empty(0, np.int64)
    if answered:
        keys, prints = fingerprints(pa.concat_tables(answered))
        keys, first = np.unique(keys, return_index=True)
        expected, open_keys = overlaid(expected, (keys, prints[first])), np.setdiff1d(open_keys, keys)
    return compared(stored, expected, open_keys)
