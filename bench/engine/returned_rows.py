"""Rows that come back after a delete, in a REDO file: an entry for each column, or one whole row in row encoding.

Both forms are written and read by the code of the store; the file of whole rows is one that the store itself does not
make (docs/adr/0005-returned-rows-stay-columns.md is drawn from the figures). What is read is what a scan needs before
it patches: rows, timestamps, and the cells of all columns or of two.
"""

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

from bench import data
from bench.engine.scratch import Results
from nyala.engine.cfile.cache import PageCache
from nyala.engine.codecs import row
from nyala.engine.delta import LIVE
from nyala.engine.delta.file import ColumnEncoding, DeltaFile, DeltaFileWriter
from nyala.engine.delta.run import DeltaRun
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import PhysicalType, physical_of
from nyala.engine.vectors.vector import FixedVector, Vector, as_bytes
from nyala.schemas.cells.encoding import encodings_for
from nyala.schemas.cells.types import LogicalType

SHARES = (0.01, 0.1)
WIDTHS = (8, 50)
COMPRESSIONS = ("none", "lz4", "zstd")
NARROW = 2
ALL_ROWS = 1 << 31


class RevivedRows:
    """The deltas of one commit that brings ``count`` of ``rows`` rows back, over and over in both forms."""

    def __init__(self, rows: int, count: int, width: int, work: Path) -> None:
        self.fs = LocalFileSystem(work)
        self.rowids = np.sort(np.random.default_rng(1).permutation(rows)[:count]).astype(np.int32)
        self.timestamps = np.full(count, 1 << 50, np.int64)
        kinds: list[LogicalType] = []
        self.types: dict[int, PhysicalType] = {}
        self.columns: dict[int, Vector] = {}
        for seed in range(-(-(width - 1) // 7)):
            for field, array in _values(count, seed)[: width - 1 - 7 * seed]:
                kinds.append(LogicalType.from_arrow(field))
                self.types[len(kinds)] = physical_of(array.type)
                self.columns[len(kinds)] = from_arrow(array, physical_of(array.type))
        self.encodings = {
            number: ColumnEncoding(self.types[number], encodings_for(kind)[0], "none")
            for number, kind in enumerate(kinds, 1)
        }
        self.encodings[LIVE] = ColumnEncoding(PhysicalType.BOOL, "run_length", "none")

    def write_columns(self, path: str) -> int:
        """Write liveness and every column; return the size of the file."""
        alive = FixedVector(np.ones(len(self.rowids), np.uint8))
        runs = {column_id: self._run(cells) for column_id, cells in {**self.columns, LIVE: alive}.items()}
        return self._write(path, runs, self.encodings)

    def write_rows(self, path: str, compression: str) -> int:
        """Write whole rows; return the size of the file."""
        runs = {LIVE: self._run(row.encode(self.columns, len(self.rowids)))}
        encodings = {LIVE: ColumnEncoding(PhysicalType.BYTES, "plain", compression)}
        return self._write(path, runs, encodings)

    def _write(self, path: str, runs: dict[int, DeltaRun], encodings: dict[int, ColumnEncoding]) -> int:
        with DeltaFileWriter(self.fs, path, 1, "redo", 1, encodings) as writer:
            for column_id, run in sorted(runs.items()):
                writer.add(column_id, [run])
            return writer.finish().size_bytes

    def read_columns(self, path: str, count: int) -> None:
        """Read liveness and the first ``count`` columns."""
        file = DeltaFile.open(self.fs, path, 1, "redo", 1, PageCache(0))
        for column_id in range(count + 1):
            file.run(column_id, 0, ALL_ROWS)
        file.close()

    def read_rows(self, path: str, count: int) -> None:
        """Read the same out of whole rows."""
        file = DeltaFile.open(self.fs, path, 1, "redo", 1, PageCache(0))
        run = file.run(LIVE, 0, ALL_ROWS)
        assert run is not None
        rows = as_bytes(run.values)
        row.check(rows)
        row.decode(rows, [row.WantedColumn(column_id, self.types[column_id]) for column_id in range(1, count + 1)])
        file.close()

    def _run(self, cells: Vector) -> DeltaRun:
        return DeltaRun(self.rowids, self.timestamps, cells)


def _values(count: int, seed: int) -> list[tuple[pa.Field, pa.Array]]:
    """Return the seven columns of orders beside the key, which stands in the base."""
    table = data.orders(count, seed).drop_columns(data.KEY).combine_chunks()
    return [(table.schema.field(place), table.column(place).combine_chunks()) for place in range(table.num_columns)]


def run(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Measure both forms in turns; sizes in bytes a row, times in milliseconds."""
    results = Results(console)
    for width in WIDTHS:
        for share in SHARES:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            _case(results, RevivedRows(rows, int(rows * share), width, work), rounds, f"{share:.0%} x {width} columns")
    shutil.rmtree(work, ignore_errors=True)
    return results


def _case(results: Results, returned: RevivedRows, rounds: int, what: str) -> None:
    samples: dict[tuple[str, str, str], list[float]] = {}
    count, width = len(returned.rowids), len(returned.columns)
    for number in range(rounds):
        for form in ("columns", *(f"rows, {word}" for word in COMPRESSIONS)):
            path = f"{number}{form}.redo"
            start = time.perf_counter()
            if form == "columns":
                size = returned.write_columns(path)
            else:
                size = returned.write_rows(path, form.removeprefix("rows, "))
            samples.setdefault(("written in", "ms", form), []).append(1e3 * (time.perf_counter() - start))
            samples.setdefault(("size", "B/row", form), []).append(size / count)
            read = returned.read_columns if form == "columns" else returned.read_rows
            for wanted in (width, NARROW):
                start = time.perf_counter()
                read(path, wanted)
                case = f"{wanted} columns read in"
                samples.setdefault((case, "ms", form), []).append(1e3 * (time.perf_counter() - start))
    for (case, unit, form), each in samples.items():
        results.add(f"{what}, {case}", unit, each, form)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.engine.returned_rows", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    run(given.rows, given.rounds, Path(__file__).parent.parent / "scratch" / "returned", Console())
