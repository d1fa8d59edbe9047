"""Checks of a rowset that another process wrote, or an old one: that its rows are valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import CorruptionError
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..cfile.format import StreamKey
from ..cfile.reader import CFileReader
from ..codecs.codec import CorruptPageError
from ..codecs.row import WantedColumn
from ..codecs.row import check as check_encoded_rows
from ..codecs.row import decode as decode_rows
from ..delta import LIVE
from ..delta.file import ColumnEncoding
from ..partition.router import Router
from ..vectors.arrow import to_arrow
from ..vectors.json_text import not_json
from ..vectors.keys.keys import hash_keys, key_bytes, keys_ascend
from ..vectors.nested import MalformedCellError
from ..vectors.vector import FixedVector, Vector, as_bytes
from .base_file import KEY_INDEX, ROWS
from .diskrowset import DiskRowSet
from .key_filter import KEY_FILTER

_ROWS_AT_ONCE = 1 << 18
_BYTES_AT_ONCE = 16 << 20


def verify_keys(rowset: DiskRowSet) -> None:
    """Check that the rows of a rowset are in strict key order, from the first key to the last, and that the filter
    admits all of them."""
    previous = b""
    for first in range(0, len(rowset), _ROWS_AT_ONCE):
        keys = rowset.keys_in(first, min(first + _ROWS_AT_ONCE, len(rowset)))
        lowest = key_bytes(keys, 0)
        if not keys_ascend(keys) or (first and lowest <= previous):
            raise CorruptionError(rowset.path, 0, f"rows from {first} on are not in the order of their keys")
        if first == 0 and lowest != rowset.min_key:
            raise CorruptionError(rowset.path, 0, "the first key differs from the first key in the footer")
        if rowset.key_filter and not rowset.key_filter.may_hold(hash_keys(keys)).all():
            raise CorruptionError(rowset.path, 0, f"the key filter lacks a key of the rows from {first} on")
        previous = key_bytes(keys, len(keys) - 1)
    if previous != rowset.max_key:
        raise CorruptionError(rowset.path, 0, "the last key differs from the last key in the footer")


def verify_partition(schema: TableSchema, router: Router, number: int, rowset: DiskRowSet) -> None:
    """Check that all rows of a rowset belong to their tablet, by its ``number`` in the table."""
    for first in range(0, len(rowset), _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, len(rowset))
        cells = {column.id: rowset.base(column, first, last) for column in schema.key}
        strays = np.flatnonzero(router.numbers_of_cells(cells, last - first) != number)
        if len(strays):
            raise CorruptionError(rowset.path, 0, f"row {first + int(strays[0])} belongs to another tablet")


def verify_deltas(reader: CFileReader, column_id: int, row_count: int) -> np.ndarray:
    """Check the rows and the order of the deltas of a rowset's column; return their timestamps."""
    stream = reader.stream(StreamKey(column_id, "rowid"))
    timestamps = reader.stream(StreamKey(column_id, "timestamp"))
    rowids, times = stream.read(0, stream.row_count), timestamps.read(0, timestamps.row_count)
    assert isinstance(rowids, FixedVector) and isinstance(times, FixedVector)
    ids, moments = rowids.values, times.values
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= row_count):
        raise CorruptionError(reader.path, 0, f"column {column_id} has deltas of rows outside 0 to {row_count - 1}")
    later_row, same_row, later = ids[1:] > ids[:-1], ids[1:] == ids[:-1], moments[1:] > moments[:-1]
    if column_id == LIVE:  # a row that only leaves its place in the order behind is born and dies in one commit
        later |= moments[1:] == moments[:-1]
    if not np.all(later_row | (same_row & later)):
        raise CorruptionError(reader.path, 0, f"the deltas of column {column_id} are out of order")
    return moments


def verify_streams(
    schema: TableSchema, encodings: Mapping[int, ColumnEncoding], rowset: DiskRowSet, may_have_dead_rows: bool = False
) -> None:
    """Check that a base file has the columns of a table, stored as in ``encodings``, and no others."""
    wanted = {StreamKey(column_id, "base") for column_id in schema.by_id} | {KEY_INDEX, KEY_FILTER}
    others = {ROWS} | ({StreamKey(LIVE, "base")} if may_have_dead_rows else set())
    found = set(rowset.reader.streams()) - others
    if found != wanted:
        strange = ", ".join(str(key) for key in sorted(found ^ wanted, key=str))
        raise CorruptionError(rowset.path, 0, f"it has more or fewer columns than the table: {strange}")
    for column_id, column in schema.by_id.items():
        wanted_type = encodings[column_id].physical
        if rowset.base_stream(column_id).physical is not wanted_type:
            raise CorruptionError(rowset.path, 0, f"column {column.name!r} is not stored as {wanted_type}")


def verify_rows(rowset: DiskRowSet) -> None:
    """Check that the whole rows of a base file, if it has them, have the cells of its columns."""
    reader = rowset.reader
    if ROWS not in reader:
        return
    whole, keys = reader.stream(ROWS), [key for key in reader.streams() if key.role == "base" and key.column_id != LIVE]
    streams = [reader.stream(key) for key in keys]
    columns = [WantedColumn(stream.key.column_id, stream.physical) for stream in streams]
    step = max(min(_BYTES_AT_ONCE * whole.row_count // max(whole.raw_bytes, 1), _ROWS_AT_ONCE), 1)
    for first in range(0, whole.row_count, step):
        last = min(first + step, whole.row_count)
        rows = as_bytes(whole.read(first, last))
        present = None if rows.lengths.all() else np.flatnonzero(rows.lengths)  # without long rows
        rows = rows if present is None else rows.take(present)
        try:
            check_encoded_rows(rows)
            parts = decode_rows(rows, columns)
        except CorruptPageError as error:
            raise CorruptionError(rowset.path, 0, f"the copies of whole rows, from row {first} on: {error}") from error
        for stream, cells in zip(streams, parts, strict=True):
            expected = stream.read(first, last)
            if not _are_same(cells, expected if present is None else expected.take(present)):
                where = f"the copies of whole rows, from row {first} on,"
                raise CorruptionError(rowset.path, 0, f"{where} differ from the cells of column {stream.key.column_id}")


def _are_same(one: Vector, other: Vector) -> bool:
    valid, valid_other = (np.ones(len(each), np.bool_) if each.valid is None else each.valid for each in (one, other))
    if not np.array_equal(valid, valid_other):
        return False
    if isinstance(one, FixedVector) and isinstance(other, FixedVector):
        return one.values[valid].tobytes() == other.values[valid].tobytes()
    rows = np.flatnonzero(valid)
    strings, others = as_bytes(one).take(rows), as_bytes(other).take(rows)
    return np.array_equal(strings.lengths, others.lengths) and strings.data.tobytes() == others.data.tobytes()


def verify_nulls(schema: TableSchema, reader: CFileReader) -> None:
    """Check by a rowset's zone maps, which must be right, that NOT NULL columns have no NULLs."""
    for key in reader.streams():
        column = schema.by_id.get(key.column_id)
        if key.role != "base" or column is None or column.nullable:
            continue
        if any(zone.null_count for zone in reader.stream(key).zone_maps):
            raise CorruptionError(reader.path, 0, f"column {column.name!r} is NOT NULL, but has a NULL")


def verify_cells(schema: TableSchema, reader: CFileReader, most: Callable[[ColumnSchema], int] | None = None) -> None:
    """Check that the text of a rowset is UTF-8, no longer than its type allows, that nested cells are such, and that
    no cell of a column has more bytes than ``most`` says.

    Raises:
        CorruptionError: with the first wrong column and row.
    """
    for key in reader.streams():
        column = schema.by_id.get(key.column_id)
        if key.role not in ("base", "value") or column is None:
            continue
        if not column.logical.is_variable and not column.logical.is_nested:
            continue
        stream, bytes_max = reader.stream(key), most and most(column)
        step = max(min(_BYTES_AT_ONCE * stream.row_count // max(stream.raw_bytes, 1), _ROWS_AT_ONCE), 1)
        for first in range(0, stream.row_count, step):
            if why := _why_unsound(stream.read(first, min(first + step, stream.row_count)), column, bytes_max):
                raise CorruptionError(reader.path, 0, f"column {column.name!r}, in the rows from {first} on: {why}")


def _why_unsound(vector: Vector, column: ColumnSchema, bytes_max: int | None) -> str | None:
    try:
        cells = to_arrow(vector, column.logical.arrow)
    except MalformedCellError as error:
        return str(error)
    if column.logical.is_text or column.logical.is_nested:
        try:
            cells.validate(full=True)
        except pa.ArrowInvalid:
            return "a cell is not valid UTF-8"
        if column.logical.name == "varchar" and (pc.max(pc.utf8_length(cells)).as_py() or 0) > column.logical.length:
            return f"a cell has more than {column.logical.length} characters"
        if column.logical.name == "json" and not_json(as_bytes(vector)) is not None:
            return "a cell is not JSON"
    longest = int(as_bytes(vector).lengths.max(initial=0))
    if bytes_max is not None and longest > bytes_max:
        return f"a cell has {longest:,} bytes, more than {bytes_max:,}"
    return None
