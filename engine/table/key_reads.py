"""Reads of rows by their keys: in pieces of few bytes, however many keys are given and however long their rows are.

How long rows are shows when their cells have been found, before they are copied. So some keys are looked up at once,
and fewer if their rows have too many bytes. A key that is given twice counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, UnavailableError, WrongServerError
from ...schemas.limits.limits import Limits
from ...schemas.rows.operation import Operation
from ...schemas.table.table import TableSchema
from ..filter.expiry import Expiry
from ..rowset.native.cell_table import CELL_SIZE, TooManyBytesError
from ..tablet.lookup import Asked, look_up_in
from ..tablet.point_batch import KEYS_MAX
from ..vectors.arrow import from_arrow
from ..vectors.keys.keys import take_keys
from .checked_batch import check_batch
from .point_plan import PointPlan
from .routed_batch import by_tablet, keyed
from .table_version import TableVersion

if TYPE_CHECKING:
    from .table import Table

PIECE_BYTES_MAX = 2 << 20
"""The most bytes of a piece of several rows: about a message."""
_CELLS_BYTES_MAX = 8 << 20
"""The most bytes of the table of cells of the keys that are looked up at once."""
_GROWTH, _SLOW_GROWTH = 4.0, 1.25
"""How many times as many keys follow a small piece: before, and after rows had too many bytes."""
_MARGIN = 1.25
_RETRY_SECONDS = 0.1


class KeyReads:
    """Reads the rows of a table by one list of keys, all at one snapshot. For one thread."""

    def __init__(self, table: Table, keys: pa.RecordBatch, snapshot: Callable[[], int], limits: Limits) -> None:
        self._table = table
        self._keys = keys
        self._snapshot = snapshot
        self._limits = limits
        self._version = table.version
        self._moment = 0
        self._next = 0
        """The position of the first key that has not been read."""
        cells = len(self._version.schema.columns) + 1
        self._count_max = max(min(KEYS_MAX, _CELLS_BYTES_MAX // (CELL_SIZE * cells)), 1)
        self._count = self._count_max
        self._growth = _GROWTH

    @property
    def schema(self) -> TableSchema:
        """The schema of the rows, once there are some."""
        return self._version.schema

    def whole(self) -> pa.RecordBatch | None:
        """Return the rows if they are a single piece; else None, and there is ``pieces``."""
        while self._keys.num_rows <= self._count:
            if (rows := self._again()) is not None:
                return rows
        return None

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows in the order of the keys; at least one batch. Absent keys are left out. The table's
        history must not lose any ``snapshot`` that is taken meanwhile.

        Raises:
            InvalidArgumentError: the keys do not fit the table.
            WrongServerError: another server has the tablet of a key. Only before the first batch.
            UnavailableError: after the first batch, the table was altered, or one of its tablets moved away.
        """
        yield self._first()
        while self._next < self._keys.num_rows:
            version = self._table.version
            if version.schema.columns != self.schema.columns:
                raise _changed(f"table {self._table.name!r} was altered")
            try:
                rows = self._read(version)
            except WrongServerError:
                raise _changed("a tablet moved to another server") from None
            if rows is not None:
                yield rows

    def _first(self) -> pa.RecordBatch:
        while True:
            if (rows := self._again()) is not None:
                return rows

    def _again(self) -> pa.RecordBatch | None:
        self._version, self._moment = self._table.version, self._snapshot()
        return self._read(self._version)

    def _read(self, version: TableVersion) -> pa.RecordBatch | None:
        """Return the rows of the next keys; None if they have to be read again."""
        keys = self._keys.slice(self._next, self._count)
        bytes_max = PIECE_BYTES_MAX if keys.num_rows > 1 else None
        try:
            rows = _rows_of(version, keys, self._moment, self._limits, bytes_max)
        except TooManyBytesError as error:
            self._count = max(int(keys.num_rows / (_MARGIN * error.times)), 1)
            self._growth = _SLOW_GROWTH
            return None
        if rows is None or self._table.version is not version:  # a dropped column may be missing from the rows
            return None
        self._next += keys.num_rows
        if self._next < self._keys.num_rows and rows.get_total_buffer_size() * self._growth <= PIECE_BYTES_MAX:
            self._count = min(int(self._count * self._growth) + 1, self._count_max)
        return rows


def _changed(why: str) -> UnavailableError:
    return UnavailableError(f"{why} during the read; repeat it", _RETRY_SECONDS)


def _rows_of(
    version: TableVersion, keys: pa.RecordBatch, snapshot: int, limits: Limits, bytes_max: int | None
) -> pa.RecordBatch | None:
    """Return the rows of keys; None if history that the snapshot needs was dropped meanwhile."""
    checked = check_batch(keys, version.schema, Operation.DELETE, limits)
    if checked.refusals.reasons:
        raise InvalidArgumentError(checked.refusals.reasons[0][1])
    checked, encoded = keyed(version, checked, Operation.DELETE, limits)
    rows = checked.rows
    numbers, missing = version.covers(rows)
    if numbers is not None and missing is not None:  # keys without a tablet have no rows
        kept = np.flatnonzero(~missing)
        rows, encoded, numbers = rows.take(pa.array(kept)), take_keys(encoded, kept), numbers[kept]
    if len(encoded):
        version.check_here(numbers)
    parts = by_tablet(version, rows, encoded, numbers)
    asked = [Asked(part.tablet, part.keys, part.hashes, part.positions) for part in parts]
    batch = look_up_in(asked, snapshot, version.plans[PointPlan].columns, bytes_max)
    if (expiry := Expiry.of(version.schema)) and batch.num_rows:
        cells = from_arrow(batch.column(expiry.column.name), expiry.physical)
        batch = batch.filter(pa.array(~expiry.are_gone(cells, snapshot)))
    return batch if all(snapshot >= each.tablet.version.history_floor for each in asked) else None
