"""Runs: rows in key order with their keys, which ordered scans read, cut and merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ....schemas.table.column import ColumnSchema
from ...vectors.arrow import from_arrow, to_arrow
from ...vectors.gather_many import take_from
from ...vectors.keys.keys import (
    KeyEncoder,
    KeyVector,
    argsort_keys,
    concat_keys,
    equal_at,
    key_bytes,
    lower_bound,
    merge_places,
    slice_keys,
    take_keys,
)
from ...vectors.physical import physical_of
from ...vectors.places import Places
from ...vectors.vector import Vector, concat
from .chunk import Chunk, ScanRequest
from .read_chunk import read_chunk
from .selection import ChunkCells, wanted_rows

_SAMPLES = 8
"""Keys per batch that are sampled to cut a round into batches."""


class Column:
    """The cells of one column of a run of a scan, decoded at first use: a merge by columns copies them while they are
    still in the cache."""

    def __init__(self, read: Callable[[], Vector]) -> None:
        self._read = read
        self._cells: Vector | None = None

    def cells(self) -> Vector:
        """Return all cells. Two concurrent callers may both decode them."""
        cells = self._cells
        if cells is None:
            cells = self._cells = self._read()
        return cells


@dataclass(frozen=True, slots=True, eq=False)
class KeyRun:
    """Rows of an ordered scan in key order; ``columns`` are those of the scan's schema."""

    keys: KeyVector
    columns: list[Column]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Rows [first, last) of a run of an ordered scan, at least one."""

    run: KeyRun
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def keys(self) -> KeyVector:
        """The keys of its rows."""
        return slice_keys(self.run.keys, self.first, self.last)

    def cells(self, number: int) -> Vector:
        """Return the cells of its rows in one column."""
        return self.run.columns[number].cells().slice(self.first, self.last)

    @property
    def last_key(self) -> bytes:
        """The key of its last row."""
        return key_bytes(self.run.keys, self.last - 1)

    def divided(self, bounds: Sequence[bytes]) -> list[Span | None]:
        """Cut it above each of the ascending ``bounds``: one part more than bounds, None for an empty part."""
        keys = self.keys
        cuts = [0, *(lower_bound(keys, bound + b"\0") for bound in bounds), len(keys)]
        return [
            Span(self.run, self.first + first, self.first + last) if first < last else None
            for first, last in pairwise(cuts)
        ]


class Head:
    """The rows of one stream of an ordered scan that are in memory."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.chunk_rows = 0
        """Rows of the largest run so far."""

    def __len__(self) -> int:
        return sum(map(len, self._spans))

    @property
    def is_low(self) -> bool:
        """Whether at most half of a chunk is left."""
        return 2 * len(self) <= self.chunk_rows

    @property
    def last_key(self) -> bytes:
        """The last key in memory."""
        return self._spans[-1].last_key

    def append(self, run: KeyRun) -> None:
        """Add rows with keys above all others."""
        self._spans.append(Span(run, 0, len(run)))
        self.chunk_rows = max(self.chunk_rows, len(run))

    def take_until(self, bound: bytes) -> list[Span]:
        """Remove and return the rows with keys up to ``bound``."""
        divided = [span.divided([bound]) for span in self._spans]
        self._spans = [rest for _, rest in divided if rest]
        return [taken for taken, _ in divided if taken]


class RunReader:
    """Reads the chunks of an ordered scan as runs: the columns of the scan, and the keys."""

    def __init__(self, request: ScanRequest, key: tuple[ColumnSchema, ...], encoder: KeyEncoder) -> None:
        self.request = request
        """The scan."""
        ids = [column.id for column in request.columns]
        added = tuple(column for column in key if column.id not in ids)
        self._wider = replace(request, columns=(*request.columns, *added))
        self._only_for_keys = [column.id for column in added]
        self._key = key
        self._encoder = encoder

    def in_order(self, wanted: Sequence[Chunk]) -> KeyRun | None:
        """Read a chunk whose rows are in key order; None if no row of it is selected."""
        (chunk,) = wanted
        if self.request.changes:
            batch = read_chunk(chunk, self._wider)
            return None if batch is None else self._run_of_batch(batch)
        cells = ChunkCells(chunk, self._wider)
        rows = wanted_rows(chunk, self._wider, cells)
        if rows is not None and not len(rows):
            return None
        is_done = chunk.rowset.base_is_own and len(self._only_for_keys) == len(self._key)
        keys = self._encoder.encode([cells.at(column.id, rows) for column in self._key], overwrite=is_done)
        cells.forget(self._only_for_keys)
        return KeyRun(keys, [Column(partial(cells.at, column.id, rows)) for column in self.request.columns])

    def sorted_whole(self, wanted: Sequence[Chunk]) -> KeyRun | None:
        """Read chunks whose rows are in any order as one run; None if no row of them is selected."""
        runs = [run for chunk in wanted if (run := self.in_order([chunk])) is not None]
        if not runs:
            return None
        keys = concat_keys([run.keys for run in runs])
        order = argsort_keys(keys)
        if self.request.changes:
            order = _stable(keys, order)
        columns = [partial(_taken, column, order) for column in zip(*(run.columns for run in runs), strict=True)]
        return KeyRun(take_keys(keys, order), [Column(read) for read in columns])

    def _run_of_batch(self, batch: pa.RecordBatch) -> KeyRun:
        def cells(name: str) -> Vector:
            return from_arrow(batch.column(name), physical_of(batch.schema.field(name).type))

        keys = self._encoder.encode([cells(column.name) for column in self._key])
        return KeyRun(keys, [Column(partial(cells, name)) for name in self.request.schema.names])


def _stable(keys: KeyVector, order: np.ndarray) -> np.ndarray:
    """Restore the original order of rows with equal keys, which are adjacent in ``order``."""
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = ~equal_at(keys, order[1:], keys, order[:-1])
    return order[np.lexsort((order, np.cumsum(is_new)))]


def spans_by_batch(spans: Sequence[Span], batch_rows: int) -> Iterator[list[Span]]:
    """Cut spans of an ordered scan at keys that divide the rows evenly; yield the spans of each part, together about
    ``batch_rows`` rows."""
    bounds = _dividing_keys(spans, batch_rows)
    for parts in zip(*(span.divided(bounds) for span in spans), strict=True):
        yield [part for part in parts if part]


def _dividing_keys(spans: Sequence[Span], batch_rows: int) -> list[bytes]:
    """Return distinct keys, none of them the last, about ``batch_rows`` rows apart."""
    rows = sum(map(len, spans))
    count = round(rows / batch_rows)
    if count < 2:
        return []
    step = max(rows // (count * _SAMPLES), 1)
    sample = sorted(_every(spans, step))
    chosen = {sample[len(sample) * number // count] for number in range(1, count)}
    return sorted(chosen - {max(span.last_key for span in spans)})


def _every(spans: Sequence[Span], step: int) -> Iterator[bytes]:
    """Yield every ``step``-th key, counted through all spans: single spans may be shorter than a step."""
    place = step // 2
    for span in spans:
        places = range(place, len(span), step)
        yield from (key_bytes(span.run.keys, span.first + at) for at in places)
        place += len(places) * step - len(span)


def merged_places(spans: Sequence[Span]) -> Places:
    """Return the merged order of the rows of an ordered scan's spans, which have no common keys."""
    return merge_places([span.keys for span in spans])


def merged_column(spans: Sequence[Span], number: int, places: Places, arrow_type: pa.DataType) -> pa.Array:
    """Return column ``number`` of an ordered scan's rows at ``places``, which come from `merged_places`."""
    return to_arrow(take_from([span.cells(number) for span in spans], places), arrow_type)


def batch_of(span: Span, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of one span of an ordered scan."""
    arrays = [to_arrow(span.cells(number), kind) for number, kind in enumerate(schema.types)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _taken(columns: Sequence[Column], order: np.ndarray) -> Vector:
    return concat([column.cells() for column in columns]).take(order)
