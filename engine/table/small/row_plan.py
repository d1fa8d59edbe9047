"""RowPlan: what a write of one row needs to know beside its values, worked out once.

It depends on the version of the table, the operation and the columns that the row has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from ....schemas.cells.moment import python_cell
from ....schemas.cells.timestamp import microseconds_of
from ....schemas.errors import InvalidArgumentError
from ....schemas.limits.limits import Limits
from ....schemas.rows.operation import Operation
from ...filter.expiry import Expiry
from ...partition.router import NOWHERE
from ...record.change import ChangeKind
from ...record.row_change import RowChange
from ...tablet.row_write import RowPlace, RowValues
from ...tablet.tablet import Tablet
from ...vectors.arrow import from_arrow
from ...vectors.keys.placed_key import KeyPlacer, PlacedKey
from ...vectors.physical import physical_of
from ...vectors.raw_cell import RawCell, plain_type, raw_cell, raw_value
from ..checked_batch import columns_of
from ..point_plan import PointPlan
from ..routed_batch import shape_of
from ..table_version import TableVersion
from .row_merge import Combine, combines_of

_STRING_BYTES_MAX = 32 << 10
_CELL_BYTES = 24
"""No cell takes more as Arrow, without its string."""
_PLANS_MAX = 256


class PlannedRow(NamedTuple):
    """A row that fits its table, as the plan lane writes it."""

    tablet: Tablet
    key: PlacedKey
    cells: list[RawCell]
    """Those of the key columns first."""
    size_bytes: int
    """About as many as the row takes in memory."""


class Written(NamedTuple):
    """How the plan lane logs and applies one kind of change."""

    change: RowChange
    ids: list[int]
    """Of its columns."""
    sources: list[tuple[int, RawCell]]
    """For each of its columns, which cell of the row it gets; -1: none, but this default."""
    values: RowValues


class RowPlan:
    """The plan of writes of single rows of one form. Thread safe."""

    def __init__(
        self, version: TableVersion, operation: Operation, names: Sequence[str], combines: Mapping[int, Combine]
    ) -> None:
        """``combines`` merge cells with those of a live row, by column id. Raises InvalidArgumentError if no row can
        have these columns."""
        schema = version.schema
        columns = columns_of(names, schema, operation)
        self.version = version
        self.operation = operation.value
        self.columns = columns
        """Those of the rows; of the key first."""
        self._columns = [
            (column.name, *plain_type(column.logical), raw_value(column.logical), column.nullable) for column in columns
        ]
        self._types = {column.name: column.logical.arrow for column in columns}
        self._schema: pa.Schema | None = None
        """The last schema of a batch that had these types."""
        self._strings = [i for i, column in enumerate(columns) if column.logical.is_variable]
        self._place = KeyPlacer(version.encoder).place
        self.key_columns = version.plans[PointPlan].key
        self.order: int | None = None
        """Which cell of a row orders it among the changes of its key; None: it has none."""
        self.order_columns = self.key_columns
        """The columns to read for that from the row that there is; of the key first."""
        if schema.ordering in columns:
            self.order = columns.index(schema.ordering)
            self.order_columns = version.plans[PointPlan].columns_of((schema.ordering,))
        merges = tuple(column for column in columns if column.id in combines)
        self.merge_columns = self.key_columns if not merges else version.plans[PointPlan].columns_of(merges)
        """The columns to read for merges from the row that there is; of the key first."""
        places = {column_id: i for i, column_id in enumerate(self.merge_columns.ids)}
        self.merges = [(columns.index(column), places[column.id], combines[column.id]) for column in merges]
        """Which cells of a row are merged: with which ones of those columns, and how."""
        self.expiry = Expiry.of(schema)
        """When rows expire; None: never."""
        self.expiry_columns = self.key_columns
        """The columns to read for that from the row that there is; of the key first."""
        if self.expiry:
            self.expiry_columns = version.plans[PointPlan].columns_of((self.expiry.column,))
        self.physicals = {column.id: physical_of(column.logical.arrow) for column in schema.columns}
        """The types of all columns of the table, by id."""
        sent = {column.id: i for i, column in enumerate(columns)}
        self.filled: int | None = None
        """Which cell of a row is the moment at which it is written, unless it has one; None: there is none."""
        if schema.filled and operation.base is not Operation.DELETE:
            self.filled = sent.setdefault(schema.filled.id, len(columns))
        self.other_bytes = version.bytes_of_defaults(sent) + _CELL_BYTES * len(schema.columns)
        """About as many as a row takes beside its strings."""
        self._decide(version, operation, sent)

    def _decide(self, version: TableVersion, operation: Operation, sent: Mapping[int, int]) -> None:
        """Decide what becomes of rows whose key is ``if_alive``, or not; None: only the batch lane can tell, or
        refuses."""
        base, shape = operation.base, shape_of(version, set(sent))
        mutable = [column_id for column_id in sent if column_id not in version.immutable]
        self.if_alive: Written | None = None
        self.if_absent: Written | None = None
        if base is Operation.DELETE:
            self.if_alive = _written(version, ChangeKind.DELETE, [column.id for column in version.schema.key], sent)
        elif base is not Operation.INSERT and shape.has_values and (operation.ignores or not shape.has_immutable):
            self.if_alive = _written(version, ChangeKind.UPDATE, mutable, sent)
        if base in (Operation.INSERT, Operation.UPSERT) and shape.is_complete:
            everything = [column.id for column in version.schema.columns]
            self.if_absent = _written(version, ChangeKind.STORE, everything, sent)

    def has_types_of(self, schema: pa.Schema) -> bool:
        """Whether a batch of these columns has exactly the types of the table."""
        if schema is not self._schema and (self._schema is None or not schema.equals(self._schema)):
            if any(schema.field(name).type != kind for name, kind in self._types.items()):
                return False
            self._schema = schema
        return True

    def row_of(self, batch: pa.RecordBatch) -> dict[str, Any] | None:
        """Return the only row of a batch as Python values by column; None if only the batch lane can judge it."""
        if not self.has_types_of(batch.schema):
            return None
        try:
            batch.validate(full=True)
            cells = zip(batch.schema.names, batch.columns, strict=True)
            return {name: python_cell(column[0]) for name, column in cells}
        except ValueError:  # malformed
            return None

    def planned(self, row: Mapping[str, Any], limits: Limits) -> PlannedRow | None:
        """Return a row with its tablet, given as Python values by column; None if only the batch lane can judge it."""
        cells: list[Any] = []
        for name, plain, bound, convert, nullable in self._columns:
            cell = value = row[name]
            if type(value) is not plain or (bound and not -bound <= value < bound):
                cell = None if value is None else convert(value)
                if cell is None and not (nullable and value is None):
                    return None
            cells.append(cell)
        size = 0
        for i in self._strings:
            if cells[i] is not None:
                size += len(cells[i])
        if size > min(_STRING_BYTES_MAX, limits.cell_bytes) or size + self.other_bytes > limits.batch_bytes:
            return None
        version = self.version
        key_cells = cells[: version.schema.key_columns]
        key, number = self._place(key_cells), version.router.number_of_cells(key_cells)
        if key.length > limits.key_bytes or number == NOWHERE or not version.is_here(number):
            return None
        return PlannedRow(version.tablets[number], key, cells, size + self.other_bytes)

    def whole(self, cells: Sequence[RawCell], now: int) -> Sequence[RawCell]:
        """Return the cells of a row with the moment ``now`` as that at which it is written, if it needs one."""
        if self.filled is None or (self.filled < len(cells) and cells[self.filled] is not None):
            return cells
        return [*cells[: self.filled], microseconds_of(now), *cells[self.filled + 1 :]]

    def written(self, place: RowPlace) -> Written | None:
        """Return what becomes of a row, None if only the batch lane can tell, or refuses."""
        return self.if_alive if place.is_alive else self.if_absent


Plan = TypeVar("Plan")


class PlansByForm(dict[tuple[Operation, tuple[str, ...]], Plan | None], ABC):
    """Plans of one kind for one version of a table, by operation and columns. Each is made by ``_new_plan`` when it is
    first looked up; None: the batch lane has to judge such rows. Names that are no columns are not kept: anybody may
    send a million of them."""

    def __init__(self, version: TableVersion) -> None:
        super().__init__()
        self._version = version

    def __missing__(self, form: tuple[Operation, tuple[str, ...]]) -> Plan | None:
        if not self._version.schema.has_all(form[1]):
            return None
        plan = self._new_plan(*form)
        if len(self) >= _PLANS_MAX:
            self.clear()
        self[form] = plan
        return plan

    @abstractmethod
    def _new_plan(self, operation: Operation, names: tuple[str, ...]) -> Plan | None: ...


class _RowPlans(PlansByForm[RowPlan]):
    def _new_plan(self, operation: Operation, names: tuple[str, ...]) -> RowPlan | None:
        schema = self._version.schema
        if schema.auto_incrementing is not None:
            return None
        combines = combines_of(self._version, names) if operation is Operation.MERGE else {}
        if combines is None:
            return None
        if any(schema.by_id[number].name not in names for number in self._version.formulas):
            return None
        try:
            plan = RowPlan(self._version, operation, names, combines)
        except InvalidArgumentError:
            return None
        return None if plan.order is not None and operation.base is Operation.DELETE else plan


def plan_of(version: TableVersion, operation: Operation, names: tuple[str, ...]) -> RowPlan | None:
    """Return the plan for rows that have the columns ``names``; None if the batch lane has to judge them."""
    return version.plans[_RowPlans][operation, names]


def _written(version: TableVersion, kind: ChangeKind, ids: Sequence[int], sent: Mapping[int, int]) -> Written:
    schema = version.schema
    columns = {column_id: physical_of(schema.by_id[column_id].logical.arrow) for column_id in ids}
    sources = [(sent[number], None) if number in sent else (-1, _default(version, number)) for number in ids]
    key = {column.id for column in schema.key}
    values = {number: (physical, i) for i, (number, physical) in enumerate(columns.items()) if number not in key}
    return Written(RowChange(kind, columns), list(ids), sources, values)


def _default(version: TableVersion, column_id: int) -> RawCell:
    cell = version.defaults[column_id]
    return raw_cell(from_arrow(pa.repeat(cell, 1), physical_of(cell.type)), 0)
