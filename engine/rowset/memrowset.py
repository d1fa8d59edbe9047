"""MemRowSet: the rows of a tablet that are not in files yet.

Columns grow in the order of arrival, and timestamps ascend, so the rows that a snapshot sees are a prefix. An ordered
scan or a flush computes the key order on demand, and it is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...schemas.table.column import ColumnSchema
from ..cfile.zone_map import ZoneMap
from ..delta.run import DeltaRun
from ..delta.tracker import DeltaTracker
from ..vectors.growable import GrowableColumn
from ..vectors.keys.key_bounds import KeyBounds
from ..vectors.keys.keys import (
    BytesKeys,
    KeyEncoder,
    KeyVector,
    U64Keys,
    argsort_keys,
    equal_at,
    hash_keys,
    key_bytes,
    outermost_keys,
    slice_keys,
    take_keys,
)
from ..vectors.keys.placed_key import PlacedKey
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.raw_cell import RawCell
from ..vectors.vector import BytesVector, FixedVector, Vector, conformed, zeros
from .key_index import KeyIndex
from .liveness import LiveRows
from .location import ROWS_MAX
from .native.absent import absent_cells
from .native.cell_table import CellTable
from .native.places import KEPT, TRUE, is_widened, place_of
from .native.row_columns import RowColumns
from .row_run import KeyRuns, RowRun, place_of_key
from .rowset import RowSet

FULL_ROWS = ROWS_MAX // 2
"""With so many rows another MemRowSet takes those of the next commit."""
NEW_ROWS_MAX = ROWS_MAX - FULL_ROWS
"""The most new rows that a commit brings to a tablet: their numbers remain, in each MemRowSet that is not full."""


class MemRowSet(RowSet):
    """The rows of a tablet that are not in files yet. Appended under the tablet's write lock, read without a lock."""

    base_is_own = False

    def __init__(self, slot: int, columns: Sequence[ColumnSchema], encoder: KeyEncoder) -> None:
        self.slot = slot
        self.deltas = DeltaTracker(base_timestamp=0)
        self.live = LiveRows(0)
        self.first_lsn: int | None = None
        self.complete_at_lsn = 0
        """Once set aside: all its rows were inserted up to this log position."""
        self._schema = tuple(columns)
        self._physicals = {column.id: physical_of(column.logical.arrow) for column in columns}
        self._columns = {column_id: GrowableColumn(physical) for column_id, physical in self._physicals.items()}
        self._key_width = encoder.width
        self._keys = GrowableColumn(PhysicalType.INT64 if encoder.is_u64 else PhysicalType.BYTES)
        self._timestamps = GrowableColumn(PhysicalType.INT64)
        self._index = KeyIndex()
        self._row_count = 0
        self._measured = -1, 0
        """A number of rows, and the bytes reserved for as many."""
        self._runs = KeyRuns()

    def __len__(self) -> int:
        return self._row_count

    def fits(self, columns: Sequence[ColumnSchema]) -> bool:
        """Whether it has exactly these columns, with their present widths."""
        return self._physicals == {column.id: physical_of(column.logical.arrow) for column in columns}

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows, their index and deltas."""
        count = self._row_count  # what an insert under way adds is measured once it has ended
        measured, nbytes = self._measured
        if measured != count:
            columns = [*self._columns.values(), self._keys, self._timestamps]
            nbytes = sum(column.nbytes for column in columns) + self._index.nbytes
            self._measured = count, nbytes
        return nbytes + self.deltas.memory_bytes

    def insert(self, cells: Mapping[int, Vector], keys: KeyVector, timestamp: int | np.ndarray, lsn: int) -> np.ndarray:
        """Append rows, inserted at one timestamp or each at its own, ascending; return their numbers (int64).

        ``cells`` may have an older schema: columns added since show their read default, others are ignored.
        """
        count = len(keys)
        for column in self._schema:
            given = cells.get(column.id)
            grown = self._columns[column.id]
            grown.append(absent_cells(column, count) if given is None else conformed(given, grown.physical))
        self._keys.append(_key_cells(keys))
        self._timestamps.append(FixedVector(np.full(count, timestamp, np.int64)))
        self.live.grow(count)
        if self.first_lsn is None:
            self.first_lsn = lsn
        first = self._row_count
        rows = np.arange(first, first + count, dtype=np.int64)
        self._index.insert(hash_keys(keys), rows)
        self._row_count += count
        return rows

    def insert_row(self, cells: Sequence[RawCell], key: PlacedKey, timestamp: int, lsn: int) -> None:
        """Append one row, like ``insert``; ``cells`` has the raw cell of each of the MemRowSet's own columns."""
        GrowableColumn.append_cells(self._columns.values(), cells)
        self._keys.append_cell(key.cell)
        self._timestamps.append_cell(timestamp)
        self.live.grow(1)
        if self.first_lsn is None:
            self.first_lsn = lsn
        self._index.add(key.address, key.length, self._row_count)
        self._row_count += 1

    @property
    def physicals(self) -> dict[int, PhysicalType]:
        """The types of its columns, by id."""
        return self._physicals

    def has_key(self, row: int, key: PlacedKey) -> bool:
        """Whether a row has a key."""
        return self._keys.cell(row) == key.cell

    def find(self, keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
        stored = self.keys(self._row_count)
        return self._index.find(hashes, lambda positions, rows: equal_at(keys, positions, stored, rows))

    def locate(self, key: int, length: int) -> int:
        """Return the row of a key, -1 if it is absent; see ``KeyIndex.locate``. Under the tablet's write lock."""
        return self._index.locate(key, length)

    @property
    def index_table(self) -> tuple[int, int]:
        """See ``KeyIndex.table``."""
        return self._index.table

    def raw_cells(self, row: int, snapshot: int, columns: RowColumns) -> list[RawCell] | None:
        if self._timestamps.cell(row) > snapshot:
            return None
        stored = [self._columns.get(column_id) for column_id in columns.ids]
        cells = [absent if one is None else one.cell(row) for one, absent in zip(stored, columns.absent, strict=True)]
        return [*cells, True]

    def read_base(self, table: CellTable, rows: np.ndarray, positions: np.ndarray, snapshot: int) -> set[int]:
        columns = table.columns
        count, left = self._row_count, set[int]()
        places = [TRUE] * table.width
        for i, (column_id, physical) in enumerate(zip(columns.ids, columns.physicals, strict=True)):
            stored = self._columns.get(column_id)
            if stored is None or is_widened(stored.physical, physical):
                places[i] = KEPT
                left.add(i)
            else:
                places[i] = place_of(stored.view(count), table.held)
        table.read_places(places, rows, positions)
        if self.row_count(snapshot) <= rows[-1]:
            left.add(len(columns.ids))
        return left

    def row_count(self, snapshot: int) -> int:
        timestamps = self._timestamps.view(self._row_count)
        assert isinstance(timestamps, FixedVector)
        return int(np.searchsorted(timestamps.values, snapshot, "right"))

    def key_bounds(self, snapshot: int) -> KeyBounds | None:
        count = self.row_count(snapshot)
        return outermost_keys(self.keys(count)) if count else None

    def base(self, column: ColumnSchema, first: int, last: int) -> Vector:
        stored = self._columns.get(column.id)
        if stored is None:
            return absent_cells(column, last - first)
        return conformed(stored.view(last).slice(first, last), physical_of(column.logical.arrow))

    def base_at(self, column: ColumnSchema, rows: np.ndarray) -> Vector:
        stored = self._columns.get(column.id)
        if stored is None:
            return absent_cells(column, len(rows))
        return conformed(stored.view(self._row_count).take(rows), physical_of(column.logical.arrow))

    def base_live(self, first: int, last: int) -> np.ndarray | None:
        return None

    def base_live_at(self, rows: np.ndarray) -> np.ndarray | None:
        return None

    def inserted_at(self, count: int) -> np.ndarray:
        """Return the commit timestamps (int64) of the first ``count`` rows."""
        timestamps = self._timestamps.view(count)
        assert isinstance(timestamps, FixedVector)
        return timestamps.values

    def births(self, first: int, last: int) -> DeltaRun:
        before = zeros(PhysicalType.BOOL, last - first)
        return DeltaRun(np.arange(first, last, dtype=np.int32), self.inserted_at(last)[first:], before)

    def is_changed(self, after: int, until: int) -> bool:
        return self.row_count(until) > self.row_count(after) or super().is_changed(after, until)

    def keys(self, count: int) -> KeyVector:
        """Return the encoded keys of the first ``count`` rows."""
        cells = self._keys.view(count)
        if isinstance(cells, BytesVector):
            return BytesKeys(cells.offsets, cells.data)
        return U64Keys(cells.values.view(np.uint64), self._key_width)

    def keys_at(self, rows: np.ndarray) -> KeyVector:
        return take_keys(self.keys(self._row_count), rows)

    def keys_in(self, first: int, last: int) -> KeyVector:
        return slice_keys(self.keys(last), first, last)

    def key_order(self, first: int, last: int) -> np.ndarray | None:
        if first:
            return first + argsort_keys(slice_keys(self.keys(last), first, last))
        return self._runs.whole(self.keys(last))

    def runs(self, lower: bytes | None, upper: bytes | None) -> list[RowRun]:
        keys, runs = self.keys(self._row_count), list[RowRun]()
        orders = self._runs.of(keys)
        if sum(map(len, orders)) > len(keys):  # others have put rows into them that came meanwhile
            keys = self.keys(self._row_count)
        for order in orders:
            first = 0 if lower is None else place_of_key(keys, order, lower)
            last = len(order) if upper is None else place_of_key(keys, order, upper)
            if first < last:
                runs.append(RowRun(self, first, last, key_bytes(keys, int(order[first])), order))
        return runs

    def row_range(self, lower: bytes | None, upper: bytes | None) -> tuple[int, int]:
        return 0, self._row_count

    def zone_maps(self, column_id: int, first: int, last: int) -> list[ZoneMap]:
        return []

    @property
    def row_bytes(self) -> dict[int, float]:
        rows = max(self._row_count, 1)
        return {column_id: column.filled_bytes / rows for column_id, column in self._columns.items()}


def _key_cells(keys: KeyVector) -> Vector:
    if isinstance(keys, BytesKeys):
        return BytesVector(keys.offsets, keys.data)
    return FixedVector(keys.values.view(np.int64))
