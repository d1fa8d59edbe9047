"""What it costs to find keys: with the key index and without, over 1, 16 and 64 rowsets whose keys interleave."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

from bench.measure import take_turns
from bench.report import Result, Suite
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.tablet.tablet import Tablet
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.keys.keys import KeyVector, hash_keys
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition

INDEX, SEARCH = "key index", "Bloom filters and search"
KEY_INDEX_BYTES = {INDEX: 1 << 34, SEARCH: 0}
ROWSETS = (1, 16, 64)
KEYS_A_BATCH = 10_000
POINT_READS = 200
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure tables of ``rows`` rows; the even numbers below twice that are keys, the odd ones are not."""
    results: list[Result] = []
    for rowsets in ROWSETS:
        shutil.rmtree(work, ignore_errors=True)
        try:
            _load(work, rows, rowsets)
            found = _lookups(work, rows, rowsets, rounds) + _openings(work, rowsets, rounds)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        for result in found:
            console.print(f"  {result.case}, {result.subject}: {result.median:,.4g} {result.unit}")
        results += found
    return Suite("lookups", {"rows": rows, "rounds": rounds, "keys a batch": KEYS_A_BATCH}, results)


def _load(work: Path, rows: int, rowsets: int) -> None:
    keys = np.random.default_rng(1).permutation(rows) * 2
    with _opened(work, INDEX) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
        for part in np.array_split(keys, rowsets):
            for piece in np.array_split(part, -(-len(part) // 1_000_000)):
                store.write(WriteCommand(table="t", op=Operation.INSERT), _batch(piece))
            store.maintain("t", "flush")


def _lookups(work: Path, rows: int, rowsets: int, rounds: int) -> list[Result]:
    """Batches of present and of absent keys, and reads of one row."""
    results: list[Result] = []
    random = np.random.default_rng(2)
    present = [random.integers(0, rows, KEYS_A_BATCH) * 2 for _ in range(rounds)]
    samples: dict[str, dict[str, list[float]]] = {}
    for name in KEY_INDEX_BYTES:
        with _opened(work, name) as store:
            (tablet,) = store._catalog.table("t").tablets
            _find(tablet, present[0])
            timed = take_turns(
                {
                    "present": lambda number, tablet=tablet: _find(tablet, present[number]),
                    "absent": lambda number, tablet=tablet: _find(tablet, present[number] + 1),
                    "read": lambda number, store=store: _read(store, present[number][:POINT_READS]),
                },
                rounds,
            )
            samples[name] = timed
    for name, timed in samples.items():
        for what in ("present", "absent"):
            rates = [KEYS_A_BATCH / each for each in timed[what]]
            results.append(Result(f"look up {what} keys, rowsets: {rowsets}", name, "keys/s", rates))
        times = [each / POINT_READS for each in timed["read"]]
        results.append(Result(f"read one row, rowsets: {rowsets}", name, "s", times))
    return results


def _openings(work: Path, rowsets: int, rounds: int) -> list[Result]:
    """From the opening to the first row read: with the index built before it, and without one."""
    case = f"open and read one row, rowsets: {rowsets}"
    first = np.zeros(1, np.int64)

    def opening(name: str) -> None:
        with _opened(work, name) as store:
            _read(store, first)

    timed = take_turns({name: lambda _, name=name: opening(name) for name in KEY_INDEX_BYTES}, rounds)
    return [Result(case, name, "s", times) for name, times in timed.items()]


def _find(tablet: Tablet, keys: np.ndarray) -> None:
    encoded: KeyVector = tablet.encoder.encode([from_arrow(pa.array(keys), PhysicalType.INT64)])
    with tablet.write_lock:
        tablet.key_lookup.find(tablet.version, encoded, hash_keys(encoded))


def _read(store: Store, keys: np.ndarray) -> None:
    for key in keys.tolist():
        assert store.get("t", pa.record_batch({"k": pa.array([key], pa.int64())})).num_rows == 1


def _batch(keys: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys), pa.array(keys // 2)], schema=SCHEMA)


def _options(name: str) -> StoreOptions:
    return StoreOptions(maintenance="off", key_index_bytes=KEY_INDEX_BYTES[name])


@contextmanager
def _opened(work: Path, name: str) -> Iterator[Store]:
    with Store.open(work, _options(name)) as store:
        yield store
