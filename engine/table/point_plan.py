"""PointPlan: what point reads of single rows need to know about a table, worked out once for each of its versions."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

from ...schemas.limits.limits import Limits
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from .. import threads
from ..commit.row_stamps import RowStamps, Stamps
from ..filter.expiry import Expiry
from ..partition.router import NOWHERE
from ..rowset.native.row_columns import RowColumns
from ..tablet.point_read import UndecidedError, read_row
from ..tablet.tablet import Tablet
from ..vectors.memory.memory import address_of, allocate
from ..vectors.raw_cell import RawCell, python_value, raw_key
from .table_version import TableVersion

_KEY_BYTES_MAX = 4096
_PARTS_MAX = 64
_WORD = Struct("<Q")


class _KeyMemory(threads.local):
    """Memory of one thread for an encoded key."""

    def __init__(self) -> None:
        self._memory = allocate(_KEY_BYTES_MAX, np.uint8)
        self.address = address_of(self._memory)
        self.cells = self._memory.data


_KEY = _KeyMemory()


class PointPlan:
    """How to read rows of one table version by their keys. Thread safe."""

    def __init__(self, version: TableVersion) -> None:
        schema = version.schema
        self._version = version
        self.columns = RowColumns.of(schema.columns, schema.key_columns)
        self.key = self.columns
        """The columns of the key."""
        if len(schema.key) < len(schema.columns):
            self.key = RowColumns.of(tuple(schema.key), schema.key_columns)
        self._parts: dict[tuple[int, ...], RowColumns] = {}
        """Some of the columns, by their ids."""
        self._names = [column.name for column in schema.columns]
        converted = [(i, python_value(column.logical)) for i, column in enumerate(schema.columns)]
        self._conversions = [(i, convert) for i, convert in converted if convert]
        self._raw_keys = [raw_key(column.logical) for column in schema.key]
        self._strings = [i for i, column in enumerate(schema.key) if column.logical.is_variable]
        self._key_columns = schema.key
        self._first_word = 0
        """What makes the only key column, an integer, an encoded key; 0 for other keys."""
        if len(schema.key) == 1 and version.encoder.is_u64:
            self._first_word = 1 << (8 * version.encoder.width - 1)
        self._expiry = Expiry.of(schema)
        self._always = (self._expiry.column,) if self._expiry else ()
        """The columns that every read of rows needs."""
        self._known: TableDescription | None = None
        """A caller's description of the table whose key columns are those of this version."""

    def columns_of(self, columns: tuple[ColumnSchema, ...]) -> RowColumns:
        """Return the columns of the key and these: always the same for the same ones, for what readers keep."""
        wanted = {column.id: column for column in (*self._key_columns, *columns, *self._always)}
        if len(wanted) == len(self._names):
            return self.columns
        if len(wanted) == len(self._key_columns):
            return self.key
        ids = tuple(wanted)
        known = self._parts.get(ids)
        if known is None:
            if len(self._parts) >= _PARTS_MAX:
                self._parts.clear()
            known = self._parts[ids] = RowColumns.of(tuple(wanted.values()), len(self._key_columns))
        return known

    def get(self, known: TableDescription, key: Sequence[Any], snapshot: int, limits: Limits) -> dict[str, Any] | None:
        """Return the row with a key, alive at ``snapshot``, as Python values by name; None if there is none.

        Raises:
            UndecidedError: only the batch lane can tell, or raises the right error.
        """
        if known is not self._known:
            if known.columns[: len(known.primary_key)] != list(self._key_columns):
                raise UndecidedError
            self._known = known
        cells = self.raw_cells(key, snapshot, limits, self.columns)
        return None if cells is None else self._row(cells)

    def raw_cells(self, key: Sequence[Any], snapshot: int, limits: Limits, columns: RowColumns) -> list[RawCell] | None:
        """Return the cells of some columns, which come from ``columns_of``; else like ``get``."""
        raw = [convert(value) for convert, value in zip(self._raw_keys, key, strict=True)]
        if None in raw or any(len(raw[i]) > limits.cell_bytes for i in self._strings):
            raise UndecidedError
        tablet = self._tablet_of(raw)
        placed = self._placed(raw)
        if tablet is None:
            return None
        cells = read_row(tablet, placed, raw, snapshot, columns)
        if snapshot < tablet.version.history_floor:
            raise UndecidedError
        if cells and (expiry := self._expiry) and expiry.is_gone(cells[columns.ids.index(expiry.column.id)], snapshot):
            return None
        return cells

    @property
    def is_expiring(self) -> bool:
        """Whether rows end by the clock, without a commit."""
        return self._expiry is not None

    def stamps(self, key: Sequence[Any], stamps: RowStamps, table_id: int) -> Stamps:
        """Return the stamps of the row with a key, which ``get`` has found."""
        raw = [convert(value) for convert, value in zip(self._raw_keys, key, strict=True)]
        return stamps.of(table_id, *self._placed(raw))

    def _row(self, cells: list[RawCell]) -> dict[str, Any]:
        for i, convert in self._conversions:
            if cells[i] is not None:
                cells[i] = convert(cells[i])
        return dict(zip(self._names, cells, strict=True))

    def _tablet_of(self, raw: list[RawCell]) -> Tablet | None:
        """Return the tablet of a key, None if no range covers it."""
        version = self._version
        number = version.router.number_of_cells(raw)
        if number == NOWHERE:
            return None
        if not version.is_here(number):
            raise UndecidedError
        return version.tablets[number]

    def _placed(self, raw: list[Any]) -> tuple[int, int]:
        """Encode a key in this thread's memory; return its address and length (-1: a uint64)."""
        memory, encoder = _KEY, self._version.encoder
        if self._first_word:
            _WORD.pack_into(memory.cells, 0, raw[0] + self._first_word)
            return memory.address, -1
        encoded = encoder.encode_bound(raw)
        if encoder.is_u64:
            encoded, length = encoded[::-1] + bytes(8 - len(encoded)), -1
        else:
            length = len(encoded)
        if len(encoded) > _KEY_BYTES_MAX:
            raise UndecidedError
        memory.cells[: len(encoded)] = encoded
        return memory.address, length
