"""RowsPlan: what a write of a few rows needs to know beside their values: how they become vectors, and where they go.

It is the `RowPlan` of their columns, for rows that are decided together. Only what is plain gets through, as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ....schemas.limits.limits import Limits
from ....schemas.rows.operation import Operation
from ....schemas.table.column import ColumnSchema
from ...partition.router import NOWHERE
from ...record.change import ROW_FORM_MAX
from ...tablet.tablet import Tablet
from ...vectors.arrow import from_arrow
from ...vectors.json_text import not_json
from ...vectors.keys.keys import BytesKeys, KeyVector, hash_keys, take_keys
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.raw_cell import plain_type, raw_value, vector_of_cells
from ...vectors.vector import BytesVector, FixedVector, Vector
from ..casts import FIRST_DATE, LAST_DATE
from ..table_version import TableVersion, grouped
from .row_plan import PlansByForm, RowPlan, plan_of

ROWS_MAX = ROW_FORM_MAX
_BYTES_MAX = 64 << 10
"""Of all rows of a write; larger ones gain nothing."""
_TEXT = {str}


class RowsOfTablet(NamedTuple):
    """A few rows of different keys that belong to one tablet, as the plan lane writes them."""

    tablet: Tablet
    columns: list[Vector]
    """Those of the key first."""
    keys: KeyVector
    hashes: np.ndarray


class PlannedRows(NamedTuple):
    """A few rows that fit their table, as the plan lane writes them."""

    parts: list[RowsOfTablet]
    """By ascending id of the tablet."""
    row_count: int
    size_bytes: int
    """About as many as the rows take in memory."""


class _ColumnMaker:
    """Makes vectors of one column."""

    def __init__(self, column: ColumnSchema) -> None:
        self.name = column.name
        self.arrow = column.logical.arrow
        self._kind = column.logical
        self._physical = physical_of(self.arrow)
        plain, _ = plain_type(column.logical)
        self._plain = {plain}
        self._convert = raw_value(column.logical)
        self._nullable = column.nullable

    def of_values(self, values: Sequence[Any]) -> Vector | None:
        """Return Python values as a vector; None if only the batch lane can judge one."""
        cells, valid, types = values, None, set(map(type, values))
        if types != self._plain:
            is_plain_text = types == _TEXT and self._kind.is_text and self._kind.name != "json"
            cells = self._encoded(values) if is_plain_text else list(map(self._convert, values))
            if None in cells:
                if not self._nullable or cells.count(None) > sum(value is None for value in values):
                    return None
                valid = np.array([cell is not None for cell in cells])
                nothing = b"" if self._physical is PhysicalType.BYTES else 0
                cells = [nothing if cell is None else cell for cell in cells]
        try:
            return vector_of_cells(cells, self._physical, valid)
        except OverflowError:
            return None

    def _encoded(self, values: Sequence[str]) -> Sequence[bytes | None]:
        """Return text as raw cells; one None if some is too long, or is not UTF-8."""
        try:
            cells = [value.encode() for value in values]
        except UnicodeEncodeError:  # half of a surrogate pair
            return [None]
        return cells if max(map(len, values)) <= (self._kind.length or _BYTES_MAX) else [None]

    def of_array(self, array: pa.Array) -> Vector | None:
        """Return validated cells of the column's type as a vector; None if only the batch lane can judge one."""
        if self._kind.is_nested or (array.null_count and not self._nullable):
            return None
        vector = from_arrow(array, self._physical)
        if isinstance(vector, BytesVector):
            is_plain = self._kind.name != "varchar" or vector.lengths.max() <= self._kind.length
            is_plain = is_plain and (self._kind.name != "json" or not_json(vector) is None)
        else:
            is_plain = self._kind.name != "date" or _are_known_dates(vector)
        return vector if is_plain else None


class RowsPlan:
    """The plan of writes of a few rows of one form. Thread safe."""

    def __init__(self, plan: RowPlan) -> None:
        self.plan = plan
        self._makers = [_ColumnMaker(column) for column in plan.columns]
        self._cells = itemgetter(*[maker.name for maker in self._makers])
        self._key_columns = plan.version.schema.key_columns

    def of_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[Vector] | None:
        """Return the columns of rows given as Python values by column; None if only the batch lane can judge them."""
        makers = self._makers
        if set(map(len, rows)) != {len(makers)}:
            return None
        try:
            found = list(map(self._cells, rows))
        except KeyError:
            return None
        columns = [found] if len(makers) == 1 else zip(*found, strict=True)
        return _all_of([maker.of_values(values) for maker, values in zip(makers, columns, strict=True)])

    def of_batch(self, batch: pa.RecordBatch) -> list[Vector] | None:
        """Return the columns of a batch; None if only the batch lane can judge them."""
        if not self.plan.has_types_of(batch.schema):
            return None
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return _all_of([maker.of_array(batch.column(maker.name)) for maker in self._makers])

    def planned(self, columns: list[Vector], limits: Limits) -> PlannedRows | None:
        """Return rows with their tablets; None if only the batch lane can judge them, as those of one key."""
        count, version = len(columns[0]), self.plan.version
        size = sum([vector.nbytes for vector in columns]) + count * self.plan.other_bytes
        if size > min(_BYTES_MAX, limits.cell_bytes, limits.batch_bytes) or count > limits.batch_rows:
            return None
        key = columns[: self._key_columns]
        keys = version.encoder.encode(key)
        if isinstance(keys, BytesKeys) and np.diff(keys.offsets).max() > limits.key_bytes:
            return None
        hashes = hash_keys(keys)
        if len(set(hashes.tolist())) < count:
            return None
        if not version.tablets:  # all ranges were dropped
            return None
        rows = RowsOfTablet(version.tablets[0], columns, keys, hashes)
        parts = _by_tablet(version, rows, self._key_columns)
        return None if parts is None else PlannedRows(parts, count, size)


class _RowsPlans(PlansByForm[RowsPlan]):
    def _new_plan(self, operation: Operation, names: tuple[str, ...]) -> RowsPlan | None:
        plan = plan_of(self._version, operation, names)
        return None if plan is None or plan.order is not None or plan.expiry or plan.merges else RowsPlan(plan)


def rows_plan_of(version: TableVersion, operation: Operation, names: tuple[str, ...]) -> RowsPlan | None:
    """Return the plan for rows that have the columns ``names``; None if the batch lane has to judge them."""
    return version.plans[_RowsPlans][operation, names]


def _by_tablet(version: TableVersion, rows: RowsOfTablet, key_columns: int) -> list[RowsOfTablet] | None:
    """Return rows by tablet; None if one has no tablet here."""
    numbers = version.router.numbers_of_key(rows.columns[:key_columns])
    if numbers is None:
        return [rows] if version.is_here(0) else None
    if NOWHERE in numbers:  # which `grouped` leaves out
        return None
    order, groups = grouped(numbers)
    if not all(version.is_here(number) for number, _, _ in groups):
        return None
    if len(groups) == 1:
        return [rows._replace(tablet=version.tablets[groups[0][0]])]
    parts: list[RowsOfTablet] = []
    for number, first, last in groups:
        those = order[first:last]
        columns = [vector.take(those) for vector in rows.columns]
        parts.append(RowsOfTablet(version.tablets[number], columns, take_keys(rows.keys, those), rows.hashes[those]))
    return parts


def _are_known_dates(vector: Vector) -> bool:
    assert isinstance(vector, FixedVector), "dates are numbers of days"
    return vector.values.min() >= FIRST_DATE and vector.values.max() <= LAST_DATE


def _all_of(vectors: list[Vector | None]) -> list[Vector] | None:
    found = [vector for vector in vectors if vector is not None]
    return found if len(found) == len(vectors) else None
