"""RowSet: base columns and deltas, in memory or on disk; what a scan and a write need of either.

One key lives in one row of one rowset, alive or dead. Rows have numbers from 0; a column is a run of base cells and the
deltas that bring them to a snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from ...schemas.table.column import ColumnSchema
from ..aggregate.slot_pool import SlotPool
from ..cfile.zone_map import ZoneMap
from ..delta import LIVE
from ..delta.history import History, Moments, moments_of, within
from ..delta.patch import apply_all
from ..delta.run import DeltaRun
from ..delta.tracker import DeltaTracker
from ..filter.bound import BoundFilter
from ..vectors.keys.key_bounds import KeyBounds
from ..vectors.keys.keys import KeyVector
from ..vectors.physical import physical_of
from ..vectors.raw_cell import RawCell
from ..vectors.vector import FixedVector, Vector, zeros
from .liveness import LiveRows
from .native.cell_table import CellTable
from .native.morsel_filter import Chosen
from .native.row_columns import RowColumns
from .row_run import RowRun

_GATHER_BELOW = 1 / 8
"""Base cells are fetched one by one where fewer than this share of the rows is asked for."""


class RowSet(ABC):
    """A MemRowSet or DiskRowSet. Reading takes no lock; changing takes the tablet's write lock."""

    slot: int
    """The rowset's number in the tablet's key index."""
    deltas: DeltaTracker
    live: LiveRows
    base_is_own: bool
    """Whether `base` returns memory that nobody else has, so that deltas may be written into it."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def row_count(self, snapshot: int) -> int:
        """Return how many rows, counted from row 0, a snapshot has to look at."""

    @abstractmethod
    def key_bounds(self, snapshot: int) -> KeyBounds | None:
        """Return a least and a greatest key of the rows born by the snapshot; None when there are none."""

    @abstractmethod
    def base(self, column: ColumnSchema, first: int, last: int) -> Vector:
        """Return the base cells of rows [first, last)."""

    @abstractmethod
    def base_at(self, column: ColumnSchema, rows: np.ndarray) -> Vector:
        """Return the base cells of ``rows`` (int64, any order)."""

    @abstractmethod
    def base_live(self, first: int, last: int) -> np.ndarray | None:
        """Return which rows of [first, last) the base shows as existing; None for all."""

    @abstractmethod
    def base_live_at(self, rows: np.ndarray) -> np.ndarray | None:
        """Return which of ``rows`` the base shows as existing; None for all."""

    @abstractmethod
    def raw_cells(self, row: int, snapshot: int, columns: RowColumns) -> list[RawCell] | None:
        """Return the base cells of a row, and whether the base shows it as existing; None if only `gather` can read
        them at ``snapshot``, or if the row was inserted later.

        Raises:
            CorruptionError, UnreadableFileError: a page cannot be read.
            CorruptPageError: a cell cannot be decoded.
        """

    @abstractmethod
    def read_base(self, table: CellTable, rows: np.ndarray, positions: np.ndarray, snapshot: int) -> set[int]:
        """Read base cells and base liveness of ``rows`` (int64, ascending) into the table's rows ``positions``, and
        return the numbers of the columns that only `gather` can read, or `live_at` for the last one.

        Raises as `raw_cells`.
        """

    @abstractmethod
    def keys_at(self, rows: np.ndarray) -> KeyVector:
        """Return the encoded keys of ``rows`` (int64, any order)."""

    @abstractmethod
    def keys_in(self, first: int, last: int) -> KeyVector:
        """Return the encoded keys of rows [first, last)."""

    @abstractmethod
    def find(self, keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
        """Return the row number (int64) of each key, alive or dead, -1 for those that no row has.

        ``hashes`` are `hash_keys` of ``keys``. Of a MemRowSet under the tablet's write lock only.
        """

    @abstractmethod
    def key_order(self, first: int, last: int) -> np.ndarray | None:
        """Return rows [first, last) sorted by key; None when they stand in key order already."""

    @abstractmethod
    def row_range(self, lower: bytes | None, upper: bytes | None) -> tuple[int, int]:
        """Return a range of rows that holds every key in [lower, upper); it may hold others too."""

    @abstractmethod
    def runs(self, lower: bytes | None, upper: bytes | None) -> list[RowRun]:
        """Return exactly the rows with keys in [lower, upper), which may be dead or come later than a snapshot, in runs
        of at least one row in key order."""

    @abstractmethod
    def zone_maps(self, column_id: int, first: int, last: int) -> list[ZoneMap]:
        """Return bounds which together cover the base cells of rows [first, last); empty when unknown."""

    @property
    @abstractmethod
    def row_bytes(self) -> dict[int, float]:
        """Average bytes of a cell, by column id, before encoding."""

    def read(self, column: ColumnSchema, first: int, last: int, snapshot: int) -> Vector:
        """Return the cells of rows [first, last) as ``snapshot`` sees them."""
        return self.deltas.apply(column.id, self.base(column, first, last), first, snapshot, self.base_is_own)

    def read_many(
        self, columns: Sequence[ColumnSchema], first: int, last: int, snapshot: int, as_strings: bool = False
    ) -> list[Vector]:
        """Return the cells of several columns, each as `read` does.

        With ``as_strings`` a column may come without its dictionary, for those who do not need codes.
        """
        del as_strings
        return [self.read(column, first, last, snapshot) for column in columns]

    def choose(
        self,
        bound: BoundFilter,
        columns: Sequence[ColumnSchema],
        first: int,
        last: int,
        snapshot: int,
        among: np.ndarray | None,
    ) -> Chosen | None:
        """Return which of the rows [first, last), at least one, match a filter of ``columns``, among those that are
        True in ``among`` (None: all); None if only `read` and `gather` tell."""
        del bound, columns, first, last, snapshot, among

    def fold(
        self,
        pool: SlotPool,
        where: BoundFilter | None,
        columns: Sequence[ColumnSchema],
        first: int,
        last: int,
        snapshot: int,
        among: np.ndarray | None,
    ) -> int | None:
        """Fold the rows [first, last), at least one, that match a filter (None: all) of ``columns`` and are True in
        ``among`` (None: all) into slots of a pool; return how many they are, or None if only `read` and `gather` tell.
        """
        del pool, where, columns, first, last, snapshot, among

    def gather(self, column: ColumnSchema, rows: np.ndarray, snapshot: int) -> Vector:
        """Return the cells of ``rows`` (ascending, distinct) as ``snapshot`` sees them."""
        return self.deltas.apply_at(column.id, self.base_at(column, rows), rows, snapshot)

    def live_in(self, first: int, last: int, snapshot: int) -> np.ndarray | None:
        """Return which rows of [first, last) exist at ``snapshot``; None for all."""
        base = self.base_live(first, last)
        patches = self.deltas.patches(LIVE, first, last, snapshot)
        if not patches:
            return base
        cells = FixedVector(np.ones(last - first, np.uint8) if base is None else base.astype(np.uint8))
        patched = apply_all(patches, cells, first, is_own=True)
        assert isinstance(patched, FixedVector)
        return patched.values.astype(np.bool_)

    def live_at(self, rows: np.ndarray, snapshot: int) -> np.ndarray:
        """Return which of ``rows`` (ascending, distinct) exist at ``snapshot``."""
        visible = rows < self.row_count(snapshot)
        base = self.base_live_at(rows)
        cells = FixedVector(np.ones(len(rows), np.uint8) if base is None else base.astype(np.uint8))
        patched = self.deltas.apply_at(LIVE, cells, rows, snapshot)
        assert isinstance(patched, FixedVector)
        return visible & patched.values.astype(np.bool_)

    def births(self, first: int, last: int) -> DeltaRun | None:
        """Return when rows [first, last) came to be, as UNDO of their liveness; None where the deltas have it."""
        del first, last
        return None

    def is_changed(self, after: int, until: int) -> bool:
        """Whether there may be a change with ``after`` < timestamp <= ``until``."""
        return self.deltas.is_changed(after, until)

    def changes(self, first: int, last: int, after: int, until: int, column_ids: Collection[int]) -> Moments:
        """Return which rows of [first, last) were born, died or changed in one of the columns ``column_ids`` by a
        commit in (after, until], and when: each row and commit once."""
        stamps = self.deltas.stamps(first, last, after, until, column_ids)
        births = self.births(first, last)
        born = within(births.rowids, births.timestamps, after, until) if births else None
        return moments_of([born, *stamps] if born else stamps)

    def cells_at(self, column: ColumnSchema, moments: Moments) -> Vector:
        """Return a column's cell at each moment; what the row holds while it is dead means nothing."""
        if not len(moments):
            return zeros(physical_of(column.logical.arrow), 0)
        first, last = moments.first_row, moments.last_row
        if len(moments) < (last - first) * _GATHER_BELOW:
            base = self.base_at(column, moments.rowids)
        else:
            base = self.base(column, first, last).take(moments.rowids - first)
        return self._history(column.id, moments).at(base, moments)

    def lives_at(self, moments: Moments) -> np.ndarray:
        """Return whether the row exists at each moment."""
        if not len(moments):
            return np.empty(0, np.bool_)
        first, last = moments.first_row, moments.last_row
        base = self.base_live(first, last)
        cells = np.ones(len(moments), np.uint8) if base is None else base[moments.rowids - first].astype(np.uint8)
        history, births = self._history(LIVE, moments), self.births(first, last)
        known = History([*history.undo, births], history.redo) if births else history
        alive = known.at(FixedVector(cells), moments)
        assert isinstance(alive, FixedVector)
        return alive.values.astype(np.bool_)

    def _history(self, column_id: int, moments: Moments) -> History:
        earliest, latest = int(moments.timestamps.min()), int(moments.timestamps.max())
        return self.deltas.history(column_id, moments.first_row, moments.last_row, earliest, latest)

    def zone_maps_at(self, column_id: int, first: int, last: int, snapshot: int) -> list[ZoneMap]:
        """Return bounds of the cells that ``snapshot`` sees; empty when unknown or when deltas may have moved them."""
        is_touched = self.deltas.touches(column_id, snapshot, first, last)
        return [] if is_touched else self.zone_maps(column_id, first, last)

    def touched(self, column_ids: Iterable[int], first: int, last: int, snapshot: int) -> np.ndarray:
        """Return the rows of [first, last), ascending, in which a column differs from the base at ``snapshot``."""
        patches = [patch for number in column_ids for patch in self.deltas.patches(number, first, last, snapshot)]
        windows = [(patch.rows.rowids, *patch.rows.window(first, last)) for patch in patches]
        rows = [rowids[low:high] for rowids, low, high in windows]
        return np.unique(np.concatenate(rows)) if rows else np.empty(0, np.int32)
