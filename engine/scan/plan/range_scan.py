"""Scans of a short range of keys by a plain filter, ``id >= 7`` in key order with a limit, or ``id > 7 AND id < 20``:
read without compiling the filter.

The first filter of a form is compiled, which shows whether the form selects a range of keys and nothing else, and
whether the ends that are worked out here are those of the compiled filter. The others take theirs from the literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.service import OneBatch, ScanStream
from ....schemas.rows.prune_count import PruneCount
from ....schemas.rows.scan import ScanSpec
from ....schemas.table.table import TableSchema
from ...expression.tree import ComparisonOp
from ...filter.bound import And, BoundFilter, Compare
from ...filter.compiled import FilterCache
from ...filter.prune import KeyRange, cells_range, key_range
from ...rowset.native.row_columns import RowColumns
from ...table.point_plan import PointPlan
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.point_read import UndecidedError
from ...vectors.keys.keys import KeyEncoder
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.raw_cell import raw_key
from .plain_filter import UNSEEN, FilterPlans, Form, is_plain, parts_of
from .running_counts import RunningCounts
from .short_range import ROWS_MAX, short_rows

_TABLETS_MAX = 16


Condition = tuple[int, PhysicalType, ComparisonOp, Callable[[Any], Any]]
"""The column, its type, how a literal is compared with it, and what makes a cell of the literal."""


class LongRangeError(UndecidedError):
    """The keys of a scan are a range that is not short, or only chunks can tell."""


class _Ends(NamedTuple):
    """Which literals of filters of a form are the ends of the range of keys: each that is given once."""

    prefix: tuple[int, ...]
    """Those of the leading columns, which are compared for equality."""
    low: int | None
    high: int | None
    """Those of the next column; None: there is none."""
    excludes_low: bool
    includes_high: bool

    @classmethod
    def of(cls, conditions: Sequence[Condition], schema: TableSchema) -> _Ends | None:
        """Return the ends of a form that selects a range of keys; None if an end is given several times."""
        prefix: list[int] = []
        ends: dict[str, int] = {}
        for column in schema.key:
            of_column = {op: i for i, (column_id, _, op, _) in enumerate(conditions) if column_id == column.id}
            if list(of_column) == ["="]:
                prefix.append(of_column["="])
            elif of_column:
                ends = of_column
                break
        low, high = (next((ends[op] for op in ops if op in ends), None) for ops in ((">", ">="), ("<", "<=")))
        used = [*prefix, *(i for i in (low, high) if i is not None)]
        return cls(tuple(prefix), low, high, ">" in ends, "<=" in ends) if len(used) == len(conditions) else None

    def range(self, cells: Sequence[Any], schema: TableSchema, encoder: KeyEncoder) -> KeyRange:
        """Return the range of keys, given the cell of each literal."""
        low = None if self.low is None else (cells[self.low], self.excludes_low)
        high = None if self.high is None else (cells[self.high], self.includes_high)
        return cells_range([cells[i] for i in self.prefix], low, high, schema.key, encoder)


@dataclass(frozen=True, slots=True, eq=False)
class RangeScan:
    """The plan of scans whose filters have one form: their keys, and how to read the rows."""

    conditions: tuple[Condition, ...]
    """One for each literal."""
    ends: _Ends | None
    read: RowColumns
    names: list[str]
    """The columns of the result."""
    is_whole: bool
    """Whether these are all columns that are read, in their order."""
    schema: pa.Schema

    def keys(self, literals: Sequence[Any], schema: TableSchema, encoder: KeyEncoder) -> KeyRange:
        """Return the range of keys. Raises UndecidedError if a literal is no cell of its column."""
        cells: list[Any] = []
        for (_, _, _, convert), literal in zip(self.conditions, literals, strict=True):
            if (cell := convert(literal)) is None:
                raise UndecidedError
            cells.append(cell)
        if self.ends is not None:
            return self.ends.range(cells, schema, encoder)
        compared = zip(self.conditions, cells, strict=True)
        parts = tuple(Compare(column_id, physical, op, cell) for (column_id, physical, op, _), cell in compared)
        return key_range(BoundFilter(And(parts)), schema, encoder)

    def batches(self, rows: pa.RecordBatch | OneBatch) -> Iterator[pa.RecordBatch]:
        """Return rows that were read as batches of the result."""
        if not rows.num_rows:
            return iter(())
        if isinstance(rows, OneBatch) and self.is_whole:
            return rows
        batch = next(rows) if isinstance(rows, OneBatch) else rows
        return iter((batch if self.is_whole else batch.select(self.names),))


class _RangePlans(FilterPlans[RangeScan]):
    """None: the form selects no range of keys."""


class RangeScans:
    """The plans of scans of a short range. Thread safe."""

    def __init__(self, snapshot: Callable[[], int], filters: FilterCache, counts: RunningCounts) -> None:
        """``counts`` adds up what the scans read."""
        self._snapshot = snapshot
        self._filters = filters
        self._counts = counts

    def scan(self, table: Table, spec: ScanSpec) -> ScanStream | None:
        """Return the rows of a scan, in key order; None if it is none of a short range, as far as its filter shows.

        Raises:
            LongRangeError: the range is not short.
            UndecidedError: only another way can tell.
            StoreError: a file is damaged.
        """
        limit = spec.limit
        if (parts := parts_of(spec.where)) is None or not is_plain(spec):
            return None
        if limit is not None and (limit > ROWS_MAX or not spec.ordered):
            return None
        form, literals = parts
        version = table.version
        plan = self._plan(spec, version, form, literals)
        if plan is None:
            return None
        if len(version.tablets) > _TABLETS_MAX or not version.is_all_here:
            raise UndecidedError
        keys, snapshot = plan.keys(literals, version.schema, version.encoder), self._snapshot()
        versions = [tablet.version for tablet in version.tablets]
        if table.version is not version or any(snapshot < each.history_floor for each in versions):
            raise UndecidedError
        rowsets = (
            versions[0].rowsets() if len(versions) == 1 else [part for each in versions for part in each.rowsets()]
        )
        count = PruneCount()
        if (rows := short_rows(rowsets, keys, limit, snapshot, plan.read, count)) is None:
            raise LongRangeError
        self._counts.add(count)
        if len(version.tablets) == 1:
            version.tablets[0].rows_read += rows.num_rows
        return ScanStream(plan.schema, snapshot, plan.batches(rows), source=(table.table_id, version.schema))

    def _plan(self, spec: ScanSpec, version: TableVersion, form: Form, literals: Sequence[Any]) -> RangeScan | None:
        columns = None if spec.columns is None else tuple(spec.columns)
        key = type(spec.where), form, tuple(map(type, literals)), columns
        plans = version.plans[_RangePlans]
        if (plan := plans.get(key, UNSEEN)) is not UNSEEN:
            return plan
        if not version.schema.has_all([name for name, _ in form]) or not version.schema.has_all(columns or ()):
            return None
        try:
            plan = self._new_plan(spec, version, form, literals)
        except UndecidedError:
            return None
        plans.keep(key, plan)
        return plan

    def _new_plan(self, spec: ScanSpec, version: TableVersion, form: Form, literals: Sequence[Any]) -> RangeScan | None:
        schema = version.schema
        columns = tuple(map(schema.column, schema.arrow.names if spec.columns is None else spec.columns))
        try:
            compiled = self._filters.compiled(spec.where, schema, version.encoder)
        except InvalidArgumentError:
            return None
        if (
            schema.ttl
            or not compiled.is_key_range
            or not columns
            or len({column.id for column in columns}) < len(columns)
        ):
            return None
        conditions: list[Condition] = []
        for name, op in form:
            column = schema.column(name)
            if column not in schema.key:
                return None
            conditions.append((column.id, physical_of(column.logical.arrow), op, raw_key(column.logical)))
        read = version.plans[PointPlan].columns_of(columns)
        names, schema_read = [column.name for column in columns], pa.schema([column.field for column in columns])
        ends = _Ends.of(conditions, schema)
        plan = RangeScan(tuple(conditions), ends, read, names, read.columns == columns, schema_read)
        return plan if plan.keys(literals, schema, version.encoder) == compiled.keys else None
