"""Scans of one row by its whole key, ``id = 7 AND name = 'x'``: read as gets are, without a filter.

Filters of one form differ only in their literals. The first of a form is compiled, which shows whether the form selects
one key, and this one: names may be words of SQL, say. The others take their key from the text. What is not plain
is left to the batch lane: other filters and options, literals of other types than the key, rows that only look-ups
find.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from ....schemas.limits.limits import Limits
from ....schemas.protocol.service import ScanStream
from ....schemas.rows.scan import ScanSpec
from ...filter.compiled import FilterCache
from ...rowset.native.row_columns import RowColumns
from ...table.point_plan import PointPlan
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.point_read import UndecidedError
from ...vectors.arrow import to_arrow
from ...vectors.keys.key_vector import key_bytes
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.raw_cell import RawCell, one_cell, raw_key
from .plain_filter import UNSEEN, FilterPlans, is_plain, parts_of


@dataclass(frozen=True, slots=True, eq=False)
class PointScan:
    """The plan of a scan of one row: how to read the row that filters of one form select."""

    order: tuple[int, ...]
    """For each key column, which of the literals is its value."""
    read: RowColumns
    cells: tuple[tuple[int, pa.DataType, Callable[[Any], bytes] | None], ...]
    """For each column of the result: which of the cells read, the type, and how to pack it; None: a string."""
    schema: pa.Schema

    def batch(self, found: Sequence[RawCell]) -> pa.RecordBatch:
        """Return a row as a batch."""
        arrays = [_array(found[i], kind, pack) for i, kind, pack in self.cells]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _PointPlans(FilterPlans[PointScan]):
    """None: the form selects no single key."""


class PointScans:
    """The plans of scans of one row. Thread safe."""

    def __init__(self, snapshot: Callable[[], int], filters: FilterCache, limits: Limits) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._limits = limits

    def scan(self, table: Table, spec: ScanSpec) -> ScanStream | None:
        """Return the row of a scan; None if the scan is none of one row, as far as its filter shows.

        Raises:
            UndecidedError: only the batch lane can tell.
            StoreError: a file is damaged.
        """
        if spec.limit is not None or (parts := parts_of(spec.where)) is None or not is_plain(spec):
            return None
        form, values = parts
        if any(op != "=" for _, op in form):
            return None
        names = tuple(name for name, _ in form)
        version = table.version
        plan = self._plan(spec, version, names, values)
        if plan is None:
            return None
        snapshot, key = self._snapshot(), [values[i] for i in plan.order]
        cells = version.plans[PointPlan].raw_cells(key, snapshot, self._limits, plan.read)
        if table.version is not version:
            raise UndecidedError
        batches = [] if cells is None else [plan.batch(cells)]
        return ScanStream(plan.schema, snapshot, iter(batches), source=(table.table_id, version.schema))

    def _plan(
        self, spec: ScanSpec, version: TableVersion, names: Sequence[str], values: Sequence[Any]
    ) -> PointScan | None:
        columns = None if spec.columns is None else tuple(spec.columns)
        form = type(spec.where), names, tuple(map(type, values)), columns
        plans = version.plans[_PointPlans]
        if (plan := plans.get(form, UNSEEN)) is not UNSEEN:
            return plan
        plan = self._new_plan(spec, version, names, values)
        is_settled = plan is not None or set(names) != {column.name for column in version.schema.key}
        if is_settled and version.schema.has_all(names) and version.schema.has_all(columns or ()):
            plans.keep(form, plan)
        return plan

    def _new_plan(
        self, spec: ScanSpec, version: TableVersion, names: Sequence[str], values: Sequence[Any]
    ) -> PointScan | None:
        schema = version.schema
        if sorted(names) != sorted(column.name for column in schema.key):
            return None
        try:
            columns = tuple(map(schema.column, schema.arrow.names if spec.columns is None else spec.columns))
            few = self._filters.compiled(spec.where, schema, version.encoder).few
        except InvalidArgumentError:
            return None
        order = tuple(names.index(column.name) for column in schema.key)
        key = [raw_key(column.logical)(values[i]) for column, i in zip(schema.key, order, strict=True)]
        if few is None or len(few) != 1 or None in key or key_bytes(few, 0) != version.encoder.encode_bound(key):
            return None
        if not columns or len({column.id for column in columns}) < len(columns):
            return None
        read = version.plans[PointPlan].columns_of(columns)
        kinds = [(read.ids.index(column.id), column.logical) for column in columns]
        cells = tuple((i, kind.arrow, _packed(kind.arrow)) for i, kind in kinds)
        return PointScan(order, read, cells, pa.schema([column.field for column in columns]))


def _packed_single(cell: float) -> bytes:
    if math.isnan(cell):
        raise UndecidedError  # it has been a double, which does not keep the bits of each NaN
    return _SINGLE(cell)


def _packed(kind: pa.DataType) -> Callable[[Any], bytes] | None:
    if pa.types.is_decimal(kind):
        return _wide
    physical = physical_of(kind)
    if physical is not PhysicalType.BYTES and kind.bit_width not in (1, 8 * physical.width):
        return Struct(_NARROWER[kind.id]).pack
    return _PACKED.get(physical)


def _wide(cell: int) -> bytes:
    """Arrow's decimals have 16 bytes, whatever their digits."""
    return cell.to_bytes(16, "little", signed=True)


_SINGLE = Struct("<f").pack
_PACKED: dict[PhysicalType, Callable[[Any], bytes]] = {
    PhysicalType.BOOL: Struct("<?").pack,
    PhysicalType.INT8: Struct("<b").pack,
    PhysicalType.INT16: Struct("<h").pack,
    PhysicalType.INT32: Struct("<i").pack,
    PhysicalType.INT64: Struct("<q").pack,
    PhysicalType.INT128: _wide,
    PhysicalType.FLOAT32: _packed_single,
    PhysicalType.FLOAT64: Struct("<d").pack,
}
_NARROWER = {
    pa.uint8().id: "<B",
    pa.uint16().id: "<H",
    pa.uint32().id: "<I",
    pa.uint64().id: "<Q",
    pa.float16().id: "<e",
}
_OFFSETS = Struct("<ii").pack
_IS_NULL, _NO_CELL = pa.py_buffer(b"\0"), pa.py_buffer(bytes(16))


def _array(cell: RawCell, kind: pa.DataType, pack: Callable[[Any], bytes] | None) -> pa.Array:
    """Return one cell as an array. (``pa.array`` takes five times as long.)"""
    if pa.types.is_nested(kind):
        return to_arrow(one_cell(cell, PhysicalType.BYTES), kind)
    if cell is None:
        buffers = [_IS_NULL, _NO_CELL, _NO_CELL]
        return pa.Array.from_buffers(kind, 1, buffers[:2] if pack else buffers, null_count=1)
    if pack is not None:
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(pack(cell))], null_count=0)
    assert isinstance(cell, bytes), "a string"
    return pa.Array.from_buffers(
        kind, 1, [None, pa.py_buffer(_OFFSETS(0, len(cell))), pa.py_buffer(cell)], null_count=0
    )
