"""Timestamps of 96 bits in Parquet files, as Spark and Impala write them.

They count nanoseconds. Of those, 64 bits hold the years 1678 to 2261, and Arrow drops the bits beyond. So they are read
as microseconds, and once more as nanoseconds, to find the rows of which that has cut something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

UNIT = "us"


def may_be_int96(schema: pa.Schema) -> bool:
    """Whether columns of a Parquet file that Arrow reads with this schema may be timestamps of 96 bits."""
    return "timestamp[ns" in str(schema.types)


def opened_twice(
    plain: pq.ParquetFile, open_again: Callable[[], Any], columns: Collection[str] | None = None
) -> tuple[pq.ParquetFile, list[str]]:
    """Return a Parquet file, read as microseconds where it has timestamps of 96 bits, and those of the ``columns``
    (None: all) that have them; the ``plain`` one if none has."""
    import pyarrow.parquet as pq

    if not may_be_int96(plain.schema_arrow):
        return plain, []
    coarse = pq.ParquetFile(open_again(), metadata=plain.metadata, coerce_int96_timestamp_unit=UNIT)
    names = coarser_names(plain.schema_arrow, coarse.schema_arrow)
    names = [name for name in names if columns is None or name in columns]
    return (coarse, names) if names else (plain, [])


def coarser_names(plain: pa.Schema, coarse: pa.Schema) -> list[str]:
    """Return the columns of a file that are read in another ``UNIT``: those with timestamps of 96 bits."""
    return [field.name for field, other in zip(plain, coarse, strict=True) if field.type != other.type]


def with_cut_rows(
    coarse: Iterable[pa.RecordBatch], plain: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, dict[int, str]]]:
    """Yield batches of microseconds with the rows of which something was cut, by position: the reasons. ``plain`` are
    all columns that may be cut, of the same rows."""
    waiting: list[pa.RecordBatch] = []
    rest = iter(plain)
    for batch in coarse:
        while sum(each.num_rows for each in waiting) < batch.num_rows:
            waiting.append(next(rest))
        if not batch.num_rows:
            yield batch, {}
            continue
        ahead = pa.Table.from_batches(waiting)
        here, waiting = ahead.slice(0, batch.num_rows), ahead.slice(batch.num_rows).to_batches()
        cut: dict[int, str] = {}
        for name in here.schema.names:
            cells = pa.concat_arrays(here.column(name).chunks)
            for row in _cut_rows(batch.column(name), cells, 0):
                cut[row] = f"column {name!r}: a fraction of a microsecond does not fit"
        yield batch, cut


def uncut(coarse: Iterable[pa.RecordBatch], plain: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of microseconds. Raises InvalidArgumentError: something of a row was cut."""
    for batch, cut in with_cut_rows(coarse, plain):
        for why in cut.values():
            raise InvalidArgumentError(f"{why}: round it")
        yield batch


def _cut_rows(coarse: pa.Array, plain: pa.Array, first: int) -> Sequence[int]:
    if not _differ(coarse, plain):
        return []
    if len(coarse) == 1:
        return [first]
    half = len(coarse) // 2
    return [
        *_cut_rows(coarse.slice(0, half), plain.slice(0, half), first),
        *_cut_rows(coarse.slice(half), plain.slice(half), first + half),
    ]


def _differ(coarse: pa.Array, plain: pa.Array) -> bool:
    """Whether cells in microseconds, which may be nested, are others in nanoseconds, modulo 2 ** 64."""
    kind, is_ = coarse.type, pa.types
    if is_.is_timestamp(kind):
        if kind == plain.type:
            return False
        return bool(pc.any(pc.not_equal(pc.multiply(_numbers(coarse), 1_000), _numbers(plain))).as_py())
    if is_.is_struct(kind):
        return any(map(_differ, coarse.flatten(), plain.flatten()))
    if is_.is_map(kind):
        return any(_differ(one, other) for one, other in zip(_pairs(coarse), _pairs(plain), strict=True))
    return is_.is_nested(kind) and _differ(pc.list_flatten(coarse), pc.list_flatten(plain))


def _pairs(maps: pa.Array) -> list[pa.Array]:
    kind = maps.type
    return pc.list_flatten(maps.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))).flatten()


def _numbers(moments: pa.Array) -> pa.Array:
    return pc.fill_null(moments.view(pa.int64()), 0)
