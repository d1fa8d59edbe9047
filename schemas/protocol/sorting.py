"""Sorts the rows of a scan by any columns, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from .. import compute as pc
from ..cells.casts import comparable_type
from ..errors import InvalidArgumentError
from ..limits.budget import Budget, BudgetShare
from ..rows.order import OrderTerm
from ..rows.scan import ScanSpec
from .request import owner
from .service import ScanStream

SORT_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes of the rows to sort, or with a limit of the rows within it: they are held in memory."""
_ROWS_AT_ONCE = 65_536
_WAITING_BYTES = 32 * 1024 * 1024
BUDGET_WAIT_SECONDS = 2.0
"""How long a scan waits for memory that others have."""


def unsorted(spec: ScanSpec, key: Sequence[str]) -> ScanSpec:
    """Return the scan whose answer is to be sorted: with the columns of the order and the key, and without a limit.

    If the order is that of the primary key, return a scan in that order, which needs no sorting.
    """
    if spec.order_by is None:
        return spec
    bare = {"order_by": None, "limit": None, "offset": 0}
    if is_key_order(spec, key):
        return spec.model_copy(update={"order_by": None, "ordered": True})
    return spec.model_copy(update={**bare, "columns": _columns(spec, key)})


def is_key_order(spec: ScanSpec, key: Sequence[str]) -> bool:
    """Return whether the order that a scan requests is that of the primary key."""
    terms = spec.order_by or []
    return [term.column for term in terms] == list(key[: len(terms)]) and not any(term.descending for term in terms)


def _columns(spec: ScanSpec, key: Sequence[str]) -> list[str] | None:
    if spec.columns is None:
        return None
    wanted = [*spec.columns, *(term.column for term in spec.order_by or ()), *key]
    return list(dict.fromkeys(wanted))


def sorted_stream(
    spec: ScanSpec, key: Sequence[str], scan: Callable[[ScanSpec], ScanStream], memory: Budget
) -> ScanStream:
    """Sort the answer to a scan with ``order_by``: return the rows of ``scan`` in its order and within its limits.

    Rows with equal values come in the order of the primary key ``key``. With a limit, only the rows within it are held
    in memory, else all rows, until the stream ends or is closed. What that takes comes out of ``memory``.

    Raises:
        InvalidArgumentError: raised by the stream, if the rows to hold are too many bytes.
        UnavailableError: raised by the stream, if others hold too much.
    """
    found = scan(unsorted(spec, key))
    if is_key_order(spec, key):
        return found
    names = found.schema.names if spec.columns is None else spec.columns
    schema = pa.schema([found.schema.field(name) for name in names])
    rows = _sorted(found.batches, spec, key, found.schema, BudgetShare(memory, BUDGET_WAIT_SECONDS, owner().user))
    ordered = (batch.select(names) for batch in rows)
    return ScanStream(schema, found.snapshot, ordered, counts=found.counts, source=found.source)


def _sorted(
    batches: Iterable[pa.RecordBatch], spec: ScanSpec, key: Sequence[str], schema: pa.Schema, held: BudgetShare
) -> Iterator[pa.RecordBatch]:
    terms = [*(spec.order_by or ()), *(OrderTerm(column=name) for name in key)]
    last = None if spec.limit is None else spec.offset + spec.limit
    parts: list[pa.RecordBatch] = []
    kept_bytes = new_bytes = 0
    with held:
        for batch in batches:
            _take(held, batch.nbytes)
            parts.append(batch)
            new_bytes += batch.nbytes
            if last is not None and new_bytes > max(min(_WAITING_BYTES, held.most // 8), kept_bytes):
                _take(held, new_bytes)
                columns = _in_one(parts, schema)
                parts = [_taken(columns, _order(columns, terms).slice(0, last), schema)]
                del columns
                kept_bytes, new_bytes = parts[0].nbytes, 0
                held.keep(kept_bytes)
            if kept_bytes > SORT_BYTES_MAX or (last is None and new_bytes > SORT_BYTES_MAX):
                raise _too_much(SORT_BYTES_MAX)
        _take(held, kept_bytes + new_bytes)  # while they are put in one piece and in order
        columns = _in_one(parts, schema)
        order = _order(columns, terms)
        held.keep(sum(column.nbytes for column in columns.values()) + order.nbytes)
        order = order.slice(spec.offset) if last is None else order.slice(spec.offset, max(last - spec.offset, 0))
        for first in range(0, len(order), _ROWS_AT_ONCE):
            yield _taken(columns, order.slice(first, _ROWS_AT_ONCE), schema)


def _take(held: BudgetShare, size: int) -> None:
    """Take memory. Raises InvalidArgumentError: so much is never there; UnavailableError: others have it."""
    if held.taken and not held.fits(size):
        raise _too_much(held.most)
    held.take(size)


def _too_much(most: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the rows to sort take more than {most:,} bytes: give a limit, fewer columns or a where; or use "
        "ordered=True, which sorts any number of rows by the primary key"
    )


def _in_one(parts: list[pa.RecordBatch], schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the columns of all parts, each in one piece, and forget the parts. At no time is more than one column
    there twice."""
    whole = pa.Table.from_batches(parts, schema)
    parts.clear()
    columns: dict[str, pa.Array] = {}
    for name in schema.names:
        columns[name] = whole[name].combine_chunks()
        whole = whole.drop_columns([name])
    return columns


def _order(columns: Mapping[str, pa.Array], terms: Sequence[OrderTerm]) -> pa.Array:
    """Return the places of the rows in their order. NaN is next to the NULLs; Arrow puts both last in either
    direction."""
    keys: list[tuple[str, pa.Array, str]] = []
    for number, term in enumerate(terms):
        cells = columns[term.column]
        cells = cells.cast(comparable_type(cells.type))
        if term.nulls == "first" and cells.null_count:
            keys.append((f"{number} known", pc.is_valid(cells), "ascending"))
        if term.nulls == "first" and pa.types.is_floating(cells.type):
            keys.append((f"{number} number", pc.invert(pc.is_nan(cells)), "ascending"))
        keys.append((str(number), cells, "descending" if term.descending else "ascending"))
    table = pa.table({name: cells for name, cells, _ in keys})
    return pc.sort_indices(table, sort_keys=[(name, way) for name, _, way in keys])


def _taken(columns: Mapping[str, pa.Array], places: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[name].take(places) for name in schema.names], schema=schema)


def skipped(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a sorted answer after the first ``count``."""
    left = count
    for batch in batches:
        if left < batch.num_rows:
            yield batch.slice(left)
        left = max(left - batch.num_rows, 0)
