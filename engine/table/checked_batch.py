"""CheckedBatch: a batch checked against a table's schema, row by row where rows may be refused.

An error of the batch as a whole (an unknown column, a type that does not fit, a missing key column) is raised. An error
of single rows (NULL in a NOT NULL column, a value outside the column's type, a cell that is too large, a date out of
range) refuses those rows. A varchar cell that is too long is cut to its length in characters, and counted, unless the
column refuses such rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import ROUND_IT, is_castable
from ...schemas.cells.wrapped import bare_type, unwrapped
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.phrases import perhaps
from ...schemas.rows.batches import in_one
from ...schemas.rows.operation import Operation
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..vectors.arrow_buffers import from_strings, validity_of
from ..vectors.json_text import not_json
from ..vectors.nested import nested_sizes
from .casts import beyond_calendar, bools, cast, cast_to_nested, range_of
from .decoded_size import decoded_bytes, without_views


@dataclass(slots=True, eq=False)
class RowRefusals:
    """Why rows of a batch are refused; a row keeps the first reason found."""

    row_count: int
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """(code, message) of each reason."""
    by_row: np.ndarray | None = None
    """int16 for each row: 1 + the index of its reason, 0 for none."""
    cuts: np.ndarray | None = None
    """int16 for each row: how many of its cells were cut to the length of their column; None if none was."""

    def refuse(self, rows: np.ndarray, code: str, message: str) -> None:
        """Refuse the rows where the bool array ``rows`` is true."""
        if not rows.any():
            return
        if self.by_row is None:
            self.by_row = np.zeros(self.row_count, np.int16)
        self.reasons.append((code, message))
        self.by_row[rows & (self.by_row == 0)] = len(self.reasons)

    def cut(self, rows: np.ndarray) -> None:
        """Count a cut cell of the rows where the bool array ``rows`` is true."""
        cuts = rows.astype(np.int16)
        self.cuts = cuts if self.cuts is None else self.cuts + cuts

    def accepted(self) -> np.ndarray | None:
        """Return the positions of the rows that were not refused; None for all."""
        return None if self.by_row is None else np.flatnonzero(self.by_row == 0)


_CODED = frozenset(
    kind.id
    for kind in (
        pa.dictionary(pa.int8(), pa.int8()),
        pa.run_end_encoded(pa.int16(), pa.int8()),
        pa.uuid(),
        pa.string_view(),
        pa.binary_view(),
    )
)
"""Kinds of arrays whose cells may take more bytes than their buffers; an extension type may have such a storage."""
_kind_number = attrgetter("id")
_WIDER = 64
"""A cell of a nested column is at most so many times as large as in Arrow, which has a bit for a struct of a bool."""


@dataclass(frozen=True, slots=True, eq=False)
class CheckedBatch:
    """The accepted rows of a batch, columns named by id, and what was refused."""

    rows: pa.RecordBatch
    positions: np.ndarray | None
    """The position of each row in the batch as sent; None if all rows are accepted."""
    refusals: RowRefusals

    def without(self, rows: np.ndarray, code: str, message: str) -> CheckedBatch:
        """Return the batch with more rows refused, those where the bool array ``rows`` is true."""
        positions = np.arange(len(rows)) if self.positions is None else self.positions
        refused = np.zeros(self.refusals.row_count, np.bool_)
        refused[positions[rows]] = True
        self.refusals.refuse(refused, code, message)
        return CheckedBatch(self.rows.filter(pa.array(~rows)), positions[~rows], self.refusals)

    def with_column(self, place: int, name: str, cells: pa.Array) -> CheckedBatch:
        """Return the batch with one more column, inserted at ``place``."""
        arrays, names = list(self.rows.columns), list(self.rows.schema.names)
        arrays.insert(place, cells)
        names.insert(place, name)
        return CheckedBatch(pa.RecordBatch.from_arrays(arrays, names=names), self.positions, self.refusals)

    @property
    def cuts(self) -> np.ndarray | None:
        """How many cells of each accepted row were cut; None if none was."""
        cuts = self.refusals.cuts
        return cuts if cuts is None or self.positions is None else cuts[self.positions]

    @property
    def column_ids(self) -> list[int]:
        return [int(name) for name in self.rows.schema.names]


def check_batch(batch: pa.RecordBatch, schema: TableSchema, operation: Operation, limits: Limits) -> CheckedBatch:
    """Check a batch against the schema of its table; return its rows with the columns in the schema's order and types.

    Raises:
        InvalidArgumentError: no row of the batch can be accepted, whatever its cells.
    """
    _validate(batch)
    columns = columns_of(batch.schema.names, schema, operation)
    _check_row_count(batch.num_rows, columns, limits)
    _check_decoded_size(batch, columns, limits)
    refusals = RowRefusals(batch.num_rows)
    arrays = [_checked(batch.column(column.name), column, schema, refusals, limits) for column in columns]
    if operation.base is Operation.DELETE and (order := schema.ordering) in columns and arrays[-1].null_count:
        message = f"a delete needs a value in {order.name!r}, which orders changes: give one, or leave the column out"
        refusals.refuse(bools(arrays[-1].is_null()), "INVALID_ARGUMENT", message)
    rows = pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in columns])
    if rows.nbytes > limits.batch_bytes:
        raise InvalidArgumentError(f"cells of the table's types {over_limit(rows.nbytes, limits)}")
    positions = refusals.accepted()
    if positions is not None:
        rows = rows.take(pa.array(positions))
    return CheckedBatch(rows, positions, refusals)


def _check_row_count(count: int, columns: Sequence[ColumnSchema], limits: Limits) -> None:
    """Reject too many rows before they are decoded: NULLs, runs or dictionary codes take hardly a byte as sent."""
    size = count * row_bytes(columns)
    if size > limits.batch_bytes:
        raise InvalidArgumentError(f"{count:,} rows of the table's types {over_limit(size, limits)}")


def row_bytes(columns: Sequence[ColumnSchema]) -> int:
    """Return the fewest bytes that a row of a table takes, to check the size of a batch."""
    kinds = [column.logical for column in columns]
    return sum(4 if kind.is_variable or kind.is_nested else kind.arrow.bit_width // 8 for kind in kinds)


def spelled_out(batch: pa.RecordBatch, schema: TableSchema, limits: Limits) -> pa.RecordBatch:
    """Return a batch to write with dictionaries, runs and extension types decoded to plain cells.

    Raises:
        InvalidArgumentError: the buffers are malformed, or the cells are too many bytes for a batch.
    """
    if all(bare_type(kind) == kind for kind in batch.schema.types):
        return batch
    _validate(batch)
    columns = [schema.by_name[name] for name in batch.schema.names]
    _check_row_count(batch.num_rows, columns, limits)
    _check_decoded_size(batch, columns, limits)
    arrays = [_spelled_out(batch.column(column.name)) for column in columns]
    rows = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    if rows.nbytes > limits.batch_bytes:
        raise InvalidArgumentError(f"the rows, with dictionaries and views decoded, {over_limit(rows.nbytes, limits)}")
    return rows


def _spelled_out(array: pa.Array) -> pa.Array:
    array = unwrapped(array)
    while isinstance(array, pa.DictionaryArray):
        array = without_views(array)
        array = unwrapped(array.dictionary.take(array.indices))
    return array


def in_one_batch(batches: Iterable[pa.RecordBatch], limits: Limits) -> list[pa.RecordBatch]:
    """Return batches to write combined as one, for one commit; an empty list for no batches.

    Raises:
        InvalidArgumentError: together they are too large.
    """
    staged: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > limits.batch_bytes:
            raise InvalidArgumentError(
                f"the stream is too large for one commit: it has {size:,} bytes, and at most {limits.batch_bytes:,} "
                "are allowed; split it into several"
            )
        staged.append(batch)
    return [in_one(staged)] if staged else []


def _validate(batch: pa.RecordBatch) -> None:
    """Reject malformed buffers: after this check, kernels trust offsets, codes and digits."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"the data is not valid Arrow: {error}") from None


def columns_of(names: Sequence[str], schema: TableSchema, operation: Operation) -> list[ColumnSchema]:
    """Return the columns of a table that a batch to write has under ``names``, those of the key first.

    Raises:
        InvalidArgumentError: there is no such column, it occurs twice, or the operation does not go with these.
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgumentError(f"the data has column {twice!r} twice")
    if unknown := [name for name in names if name not in schema.by_name]:
        meant, known = perhaps(unknown[0], schema.by_name), ", ".join(schema.by_name)
        raise InvalidArgumentError(f"the table has no column {unknown[0]!r}{meant}; its columns are {known}")
    present = set(names)
    key = [column for column in schema.key if not _is_given(column, schema, operation)]
    if (given := schema.auto_incrementing) and given not in key and given.name in present:
        raise InvalidArgumentError(f"the store assigns {given.name!r} to new rows: leave the column out of {operation}")
    if missing := [column.name for column in key if column.name not in present]:
        raise InvalidArgumentError(f"the data has no column {missing[0]!r}, which is part of the primary key")
    values, order = [column for column in schema.values if column.name in present], schema.ordering
    if operation.base is Operation.DELETE:
        if others := [column.name for column in values if column is not order]:
            allowed = "the key columns" if order is None else f"the key columns and {order.name!r}"
            raise InvalidArgumentError(f"delete takes only {allowed}, not {others[0]!r}")
    elif order is not None and order not in values and operation.base is not Operation.UPDATE:
        raise InvalidArgumentError(
            f"the data has no column {order.name!r}, which orders the changes of each row: {operation} needs it"
        )
    if operation.base is Operation.UPDATE and not values:
        raise InvalidArgumentError("update needs at least one column besides the key")
    return [*key, *values]


def _is_given(column: ColumnSchema, schema: TableSchema, operation: Operation) -> bool:
    """Whether the store fills in this key column."""
    return column is schema.auto_incrementing and operation.base is Operation.INSERT


def checked_cells(array: pa.Array, column: ColumnSchema, schema: TableSchema, limits: Limits, what: str) -> pa.Array:
    """Return cells that the store computed for rows of a table, in the column's type; ``what`` computed them.

    Raises:
        InvalidArgumentError: one does not fit. Text that is too long is never cut.
    """
    refusals = RowRefusals(len(array))
    array = _checked(array, column, schema, refusals, limits)
    if refusals.cuts is not None:
        raise InvalidArgumentError(f"{what}: the value has more than {column.logical.length:,} characters")
    if refusals.reasons:
        raise InvalidArgumentError(f"{what}: {refusals.reasons[0][1]}")
    return array


def _checked(
    array: pa.Array, column: ColumnSchema, schema: TableSchema, refusals: RowRefusals, limits: Limits
) -> pa.Array:
    kind = column.logical
    array = _nested(array, column, refusals, limits) if kind.is_nested else _cast(array, column, refusals)
    if array.null_count and not column.nullable:
        message = f"column {column.name!r} is NOT NULL, but the value is NULL"
        refusals.refuse(bools(array.is_null()), "INVALID_ARGUMENT", message)
    size = array.get_total_buffer_size() if kind.is_variable else 0  # no cell is longer
    if kind.name == "varchar" and size > kind.length:
        array = _fitted(array, column, refusals)
    if kind.name == "json" and len(array) and (wrong := not_json(from_strings(array, validity_of(array)))) is not None:
        message = f"column {column.name!r} is json, and the text is not JSON: see RFC 8259"
        refusals.refuse(wrong, "INVALID_ARGUMENT", message)
    if kind.is_variable and size > limits.cell_bytes:
        _refuse_long(array, column, schema, refusals, limits)
    if kind.name == "date" and len(array):
        message = f"column {column.name!r} has a date outside 0001-01-01 to 9999-12-31"
        if (outside := beyond_calendar(array)) is not None:
            refusals.refuse(outside, "INVALID_ARGUMENT", message)
    return array


def _refuse_long(
    array: pa.Array, column: ColumnSchema, schema: TableSchema, refusals: RowRefusals, limits: Limits
) -> None:
    """Refuse the rows whose strings are longer than the table takes; the message has the size of the first."""
    most = schema.cell_bytes(column, limits)
    lengths = pc.binary_length(array)
    too_large = bools(pc.greater(lengths, most))
    if not too_large.any():
        return
    how = "limits.cell_bytes of the store" if column in schema.key else "limits.nested_cell_bytes of the store"
    if column not in schema.key and most < limits.nested_cell_bytes:
        how = f"the table option cell_bytes_max, up to {limits.nested_cell_bytes:,}"
    size = lengths[int(too_large.argmax())].as_py()
    message = f"the cell of column {column.name!r} has more than {most:,} bytes: {size:,}; to allow it, raise {how}"
    refusals.refuse(too_large, "TOO_LARGE", message)


def _nested(array: pa.Array, column: ColumnSchema, refusals: RowRefusals, limits: Limits) -> pa.Array:
    array, misfits = cast_to_nested(array, column)
    if misfits:
        path, target = misfits.path, misfits.target
        where = f"at {path} " if path else ""
        takes = range_of(target.arrow) if not target.is_nested else f"lists of {target.length} items"
        message = f"column {column.name!r} is {column.type}: {where}{misfits.given} does not fit in {target}, {takes}"
        refusals.refuse(misfits.rows, "INVALID_ARGUMENT", message)
    if array.nbytes * _WIDER > min(limits.nested_cell_bytes, limits.batch_bytes):
        sizes = nested_sizes(array)
        if (size := int(sizes.sum())) > limits.batch_bytes:
            raise InvalidArgumentError(f"the cells of column {column.name!r} {over_limit(size, limits)}")
        message = f"the cell of column {column.name!r} has more than {limits.nested_cell_bytes:,} bytes"
        refusals.refuse(sizes > limits.nested_cell_bytes, "TOO_LARGE", message)
    return array


def _cast(array: pa.Array, column: ColumnSchema, refusals: RowRefusals) -> pa.Array:
    array = unwrapped(array)
    given = array.type
    if isinstance(array, pa.DictionaryArray):
        array = without_views(array)
    array, misfits = cast(array, column)
    if misfits is not None:
        message = f"column {column.name!r} is {column.type}, {range_of(column.logical.arrow)}: the {given} does not fit"
        if given == pa.timestamp("ns", getattr(given, "tz", None)) and pa.types.is_timestamp(array.type):
            message += f"; {ROUND_IT}"
        refusals.refuse(misfits, "INVALID_ARGUMENT", message)
    return array


def _check_decoded_size(batch: pa.RecordBatch, columns: Sequence[ColumnSchema], limits: Limits) -> None:
    """Reject a small batch that decodes to a huge one, before decoding it: its columns together."""
    if _CODED.isdisjoint(map(_kind_number, batch.schema.types)):
        return
    size = 0
    for column in columns:
        array = unwrapped(batch.column(column.name))
        if column.logical.is_variable and is_castable(array.type, column.logical.arrow):
            size += decoded_bytes(array)
        if size > limits.batch_bytes:
            raise InvalidArgumentError(
                f"the values of column {column.name!r}, with dictionaries and views decoded, {over_limit(size, limits)}"
            )


def check_size(size: int, rows: int, limits: Limits) -> None:
    """Reject a batch to write that has too many bytes or rows. Raises InvalidArgumentError."""
    for measure, most, unit in ((size, limits.batch_bytes, "bytes"), (rows, limits.batch_rows, "rows")):
        if measure > most:
            raise InvalidArgumentError(
                f"a batch of {measure:,} {unit} is too large: it is one commit, of at most {most:,} {unit}; split it "
                "into several"
            )


def over_limit(size: int, limits: Limits) -> str:
    """Say by how much a batch to write is too large."""
    return f"have {size:,} bytes: a batch is one commit, of at most {limits.batch_bytes:,} bytes; split it into several"


def _fitted(array: pa.Array, column: ColumnSchema, refusals: RowRefusals) -> pa.Array:
    """Return the cells of a varchar; what is too long is cut and counted, or its row refused."""
    length = column.logical.length
    too_long = bools(pc.greater(pc.utf8_length(array), length))
    if not too_long.any():
        return array
    if column.too_long == "error":
        message = f"the cell of column {column.name!r} has more than {length:,} characters"
        refusals.refuse(too_long, "INVALID_ARGUMENT", message)
    else:
        refusals.cut(too_long)
    return pc.utf8_slice_codeunits(array, 0, length)
