"""Point reads: finds the locations of keys, then reads their rows from the rowsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.rows.batches import no_rows
from ...schemas.table.column import ColumnSchema
from ..rowset.location import by_slot, rowids_of
from ..rowset.native.cell_table import Alive, CellTable, TooManyBytesError
from ..rowset.native.row_columns import RowColumns
from ..rowset.read_rows import read_rows, schema_of
from ..rowset.rowset import RowSet
from ..vectors.keys.keys import KeyVector
from .key_lookup import ABSENT, find_in
from .point_batch import HELD_BYTES_MAX, KEYS_MAX, Group, filled, rows_of_keys
from .tablet import Tablet
from .unresolved_keys import UnresolvedKeys

_GENERAL_KEYS_MAX = 1_024
"""The most keys of a bounded answer that are read generally: the bytes of their rows are known late."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Keys to look up in one tablet."""

    tablet: Tablet
    keys: KeyVector
    hashes: np.ndarray
    positions: np.ndarray | None = None
    """The position of each key in the whole request; None: the request is these keys, in order."""


def look_up_in(
    asked: Sequence[Asked], snapshot: int, columns: RowColumns, bytes_max: int | None = None
) -> pa.RecordBatch:
    """Return the rows of keys of several tablets that are alive at ``snapshot``, in the order of the keys.

    Holds a tablet's write lock while it looks up keys in memory, not while it searches files or reads rows.

    Raises:
        TooManyBytesError: the rows have more than ``bytes_max`` bytes; nothing of that size was taken.
    """
    if sum(len(each.keys) for each in asked) <= KEYS_MAX:
        found = look_up_natively(asked, snapshot, columns, bytes_max)
        if found is not None:
            return found
    return look_up_generally(asked, snapshot, columns, bytes_max)


def look_up_natively(
    asked: Sequence[Asked], snapshot: int, columns: RowColumns, bytes_max: int | None = None
) -> pa.RecordBatch | None:
    """Look keys of tablets up as `look_up_in` does, by kernels alone; None if these cannot tell. The key columns lead
    ``columns``."""
    return _look_up_by(rows_of_keys, asked, snapshot, columns, bytes_max)


def _look_up_by(
    read: Callable[..., tuple[CellTable, Alive] | None],
    asked: Sequence[Asked],
    snapshot: int,
    columns: RowColumns,
    bytes_max: int | None,
) -> pa.RecordBatch | None:
    """Return the rows of the keys; ``read`` returns the cells of those of one tablet, as `rows_of_keys` does."""
    held_max = None if bytes_max is None else HELD_BYTES_MAX
    tables: list[tuple[Asked, CellTable, Alive]] = []
    size = 0
    for each in asked:
        if (found := read(each.tablet, each.keys, each.hashes, snapshot, columns, held_max)) is None:
            return None
        table, alive = found
        if len(alive.rows):
            size += alive.nbytes
            tables.append((each, table, alive))
    _check_size(size, bytes_max)
    parts = [table.batch(alive) for _, table, alive in tables]
    places = [alive.rows if each.positions is None else each.positions[alive.rows] for each, _, alive in tables]
    return _in_order(parts, places, columns.columns)


def _check_size(size: int, bytes_max: int | None) -> None:
    if bytes_max is not None and size > bytes_max:
        raise TooManyBytesError(size / bytes_max)


def look_up_generally(
    asked: Sequence[Asked], snapshot: int, columns: RowColumns, bytes_max: int | None = None
) -> pa.RecordBatch:
    """Look keys of tablets up as `look_up_in` does, in the way that is always right."""
    count = sum(len(each.keys) for each in asked)
    if count <= KEYS_MAX and (found := _look_up_by(_rows_of_located, asked, snapshot, columns, bytes_max)) is not None:
        return found
    _check_size(count, None if bytes_max is None else _GENERAL_KEYS_MAX)
    return _gathered(asked, snapshot, columns.columns, bytes_max)


def _gathered(
    asked: Sequence[Asked], snapshot: int, columns: tuple[ColumnSchema, ...], bytes_max: int | None
) -> pa.RecordBatch:
    """Do the same with whole columns of the rowsets' rows, each row once: for many keys, and damaged pages."""
    parts, places = [], []
    size = 0
    for each in asked:
        for rowset, rowids, found in _located(each):
            rows, taken, hits = _fetch(rowset, rowids, snapshot, columns)
            size += _bytes_of(rows, taken)
            _check_size(size, bytes_max)
            parts.append(rows.take(pa.array(taken)))
            places.append(found[hits] if each.positions is None else each.positions[found[hits]])
    return _in_order(parts, places, columns)


def _bytes_of(rows: pa.RecordBatch, taken: np.ndarray) -> int:
    """Return about how many bytes some rows have, each as often as it is taken."""
    size = len(taken) * rows.num_columns
    for column in rows.columns:
        if pa.types.is_nested(column.type):
            size += column.nbytes * len(taken) // max(len(column), 1)
        elif not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            size += len(taken) * (column.type.bit_width // 8)
        else:
            lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
            size += int(lengths[taken].sum(dtype=np.int64))
    return size


def _in_order(
    parts: list[pa.RecordBatch], places: list[np.ndarray], columns: tuple[ColumnSchema, ...]
) -> pa.RecordBatch:
    """Return the rows of all parts in the order of their places in the request."""
    if not parts:
        return no_rows(schema_of(columns))
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_batches(parts).take(pa.array(order))


def _rows_of_located(
    tablet: Tablet, keys: KeyVector, hashes: np.ndarray, snapshot: int, columns: RowColumns, held_max: int | None
) -> tuple[CellTable, Alive] | None:
    """Do as `rows_of_keys`, with the locations that searches find."""
    locations = np.full(len(hashes), ABSENT, np.int64)
    groups: list[Group] = []
    for rowset, rowids, positions in _located(Asked(tablet, keys, hashes)):
        order = np.argsort(rowids, kind="stable")
        groups.append((rowset, rowids[order], positions[order]))
        locations[positions] = 0  # which one is not asked any more
    table = filled(groups, locations, snapshot, columns, held_max)
    return None if table is None else (table, table.alive())


def _located(asked: Asked) -> list[Group]:
    tablet = asked.tablet
    with tablet.write_lock:
        tablet.rows_read += len(asked.hashes)
        missing = tablet.key_lookup.find_in_memory(tablet.version, asked.keys, asked.hashes)
        searched = tablet.key_lookup.searched(tablet.version)
        found = np.flatnonzero(missing.locations >= 0)
        groups: list[Group] = [
            (tablet.rowset(slot), rowids_of(missing.locations[found[group]]), found[group])
            for slot, group in by_slot(missing.locations[found])
        ]
    # The keys of a rowset on disk never change: whatever moves meanwhile, they are found where they were.
    for rowset in searched:
        groups += _search(rowset, missing)
    return groups


def _search(rowset: RowSet, missing: UnresolvedKeys) -> list[Group]:
    """Look for missing keys in a rowset that is not indexed."""
    asked = missing.ask(find_in(rowset))
    return [(rowset, rowids_of(missing.locations[asked]), asked)] if len(asked) else []


def _fetch(
    rowset: RowSet, rowids: np.ndarray, snapshot: int, columns: tuple[ColumnSchema, ...]
) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    """Return the live ones of ``rowids`` (any order, repeats allowed), each once; which of these to take for those
    that live, in their order; and their positions."""
    rows, position = np.unique(rowids, return_inverse=True)
    alive = rowset.live_at(rows, snapshot)
    batch = read_rows(rowset, rows[np.flatnonzero(alive)], columns, snapshot)
    hits = np.flatnonzero(alive[position])
    place = np.cumsum(alive) - 1
    return batch, place[position[hits]], hits
