"""Sorts the rows of a scan by any columns, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from . import compute as pc
from .errors import InvalidArgumentError
from .order import OrderTerm
from .scan import ScanSpec
from .service import ScanStream

SORT_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes of the rows to sort, or with a limit of the rows within it: they are held in memory."""
_ROWS_AT_ONCE = 65_536
_WAITING_BYTES = 32 * 1024 * 1024


def unsorted(spec: ScanSpec, key: Sequence[str]) -> ScanSpec:
    """Return the scan of the rows to sort: with the columns of the order and the key, and without a limit.

    If the order is that of the primary key, return a scan in that order, which needs no sorting.
    """
    if spec.order_by is None:
        return spec
    bare = {"order_by": None, "limit": None, "offset": 0}
    if is_key_order(spec, key):
        return spec.model_copy(update={"order_by": None, "ordered": True})
    return spec.model_copy(update={**bare, "columns": _columns(spec, key)})


def is_key_order(spec: ScanSpec, key: Sequence[str]) -> bool:
    """Return whether the requested order is that of the primary key."""
    terms = spec.order_by or []
    return [term.column for term in terms] == list(key[: len(terms)]) and not any(term.descending for term in terms)


def _columns(spec: ScanSpec, key: Sequence[str]) -> list[str] | None:
    if spec.columns is None:
        return None
    wanted = [*spec.columns, *(term.column for term in spec.order_by or ()), *key]
    return list(dict.fromkeys(wanted))


def sorted_stream(spec: ScanSpec, key: Sequence[str], scan: Callable[[ScanSpec], ScanStream]) -> ScanStream:
    """Return the rows of ``scan`` in the order, and within the limits, of a scan with ``order_by``.

    Rows with equal values come in the order of the primary key ``key``. With a limit, only the rows within it are held
    in memory, else all rows.

    Raises:
        InvalidArgumentError: raised by the stream, if the rows to hold are too many bytes.
    """
    found = scan(unsorted(spec, key))
    if is_key_order(spec, key):
        return found
    names = found.schema.names if spec.columns is None else spec.columns
    schema = pa.schema([found.schema.field(name) for name in names])
    rows = _sorted(found.batches, spec, key, found.schema)
    ordered = (batch.select(names) for batch in rows)
    return ScanStream(schema, found.snapshot, ordered, counts=found.counts, source=found.source)


def _sorted(
    batches: Iterable[pa.RecordBatch], spec: ScanSpec, key: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    terms = [*(spec.order_by or ()), *(OrderTerm(column=name) for name in key)]
    first = spec.offset
    last = None if spec.limit is None else first + spec.limit
    kept = schema.empty_table()
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = waiting_rows = 0
    for batch in batches:
        waiting.append(batch)
        waiting_bytes, waiting_rows = waiting_bytes + batch.nbytes, waiting_rows + batch.num_rows
        if last is not None and waiting_bytes > max(_WAITING_BYTES, kept.nbytes):
            kept = _in_order(pa.concat_tables([kept, pa.Table.from_batches(waiting)]), terms).slice(0, last)
            kept, waiting, waiting_bytes = kept.combine_chunks(), [], 0
        if kept.nbytes > SORT_BYTES_MAX or (last is None and waiting_bytes > SORT_BYTES_MAX):
            raise InvalidArgumentError(
                f"the rows to sort have more than {SORT_BYTES_MAX:,} bytes: give a limit, fewer columns or a "
                "where; ordered=True gives primary-key order for any number of rows"
            )
    whole = _in_order(pa.concat_tables([kept, pa.Table.from_batches(waiting, schema)]), terms)
    whole = whole.slice(first) if last is None else whole.slice(first, max(last - first, 0))
    yield from whole.to_batches(max_chunksize=_ROWS_AT_ONCE)


def _in_order(rows: pa.Table, terms: Sequence[OrderTerm]) -> pa.Table:
    """Sort rows. NaN is next to the NULLs; Arrow puts both last in either direction."""
    columns: list[tuple[str, pa.ChunkedArray, str]] = []
    for number, term in enumerate(terms):
        cells = rows[term.column]
        if term.nulls == "first" and cells.null_count:
            columns.append((f"{number} known", pc.is_valid(cells), "ascending"))
        if term.nulls == "first" and pa.types.is_floating(cells.type):
            columns.append((f"{number} number", pc.invert(pc.is_nan(cells)), "ascending"))
        columns.append((str(number), cells, "descending" if term.descending else "ascending"))
    keys = pa.table({name: cells for name, cells, _ in columns})
    order = pc.sort_indices(keys, sort_keys=[(name, way) for name, _, way in columns])
    return rows.take(order)


def skipped(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the first ``count``."""
    left = count
    for batch in batches:
        if left < batch.num_rows:
            yield batch.slice(left)
        left = max(left - batch.num_rows, 0)
