"""Whether the groups of an aggregate are surely few, by what is in memory: zone maps, dictionaries, MemRowSets, and how
many changes there are. No page is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ....schemas.limits.limits import Limits
from ....schemas.table.column import ColumnSchema
from ....schemas.table.table import TableSchema
from ...aggregate.states import FLOATS, StateKind
from ...cfile.stream import StreamReader
from ...rowset.diskrowset import DiskRowSet
from ...rowset.rowset import RowSet
from ...tablet.version import Version
from ...vectors.arrow import to_arrow
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.vector import BytesVector, FixedVector, Vector
from ..read.chunk import ScanRequest

FEW = 10_000
"""So many groups are sent in less time than a reader takes to ask for several parts and to combine these."""
_NUMBERS_LOOKED_AT = 1 << 20
"""The most numbers of a MemRowSet that are looked at."""
_VALUES_COMPARED = 1 << 14
"""The most values of dictionaries that are compared; more are only counted."""
_NUMBER_BYTES = 32
"""More than a number takes in an answer, or all of a string but its bytes."""


def groups_at_most(
    versions: Sequence[Version], schema: TableSchema, request: ScanRequest, rows: int, limits: Limits
) -> int | None:
    """Return a number that the groups of an aggregate of at most ``rows`` rows do not exceed; None unless they are few,
    and an answer with all of them surely fits in memory."""
    plan = request.aggregate
    if plan is None:
        return None
    rowsets = [rowset for version in versions for rowset in version.rowsets()]
    groups, strings = 1, list[_SeenCells]()
    for column in plan.group_by:
        cells = _SeenCells(column, rowsets, request.snapshot, schema.stored_cell_bytes(column, limits))
        groups *= max(cells.count, 1)
        strings.append(cells)
        if min(groups, rows) > FEW:
            return None
    groups = min(groups, rows)
    for state in plan.states:
        if state.kind is StateKind.BOUNDS and state.column and state.physical is PhysicalType.BYTES:
            bytes_max = schema.stored_cell_bytes(state.column, limits)
            strings += [_SeenCells(state.column, rowsets, request.snapshot, bytes_max)] * len(state.parts)
    answer_bytes = groups * len(plan.names) * _NUMBER_BYTES + sum(cells.most_bytes(groups) for cells in strings)
    return groups if answer_bytes <= limits.aggregate_bytes else None


class _SeenCells:
    """The cells of a column that a snapshot may see. Each changed one counts as different from all others."""

    def __init__(self, column: ColumnSchema, rowsets: Iterable[RowSet], snapshot: int, bytes_max: int) -> None:
        """No string has more than ``bytes_max`` bytes."""
        self._column = column
        self._physical = physical_of(column.logical.arrow)
        self._bytes_max = bytes_max if self._physical is PhysicalType.BYTES else 0
        self._longest = self._all_bytes = 0
        self._ends: list[int] = []
        self._dictionaries: list[BytesVector] = []
        self.count = int(column.nullable)
        """At most so many are different, NULL included."""
        for rowset in rowsets:
            if rows := rowset.row_count(snapshot):
                changes = rowset.deltas.changes_at_most(column.id, snapshot)
                self._add(changes, changes * self._bytes_max, self._bytes_max if changes else 0)
                self._add_base(rowset, rows)
        if self._ends:
            self.count += max(self._ends) - min(self._ends) + 1
        values = sum(map(len, self._dictionaries))
        if len(self._dictionaries) > 1 and values <= _VALUES_COMPARED:
            values = len(pa.chunked_array([to_arrow(each, pa.binary()) for each in self._dictionaries]).unique())
        self.count += values

    def most_bytes(self, groups: int) -> int:
        """Return the most bytes of strings, one for each group: they are cells of different rows."""
        return min(groups * self._longest, self._all_bytes)

    def _add(self, different: int, all_bytes: int, longest: int) -> None:
        self.count += different
        self._all_bytes += all_bytes
        self._longest = max(self._longest, longest)

    def _add_base(self, rowset: RowSet, rows: int) -> None:
        if not isinstance(rowset, DiskRowSet):
            self._add_vector(rowset.base(self._column, 0, rows))
        elif not rowset.has_base(self._column.id):
            self._add(1, rows * self._bytes_max, self._bytes_max)  # all rows have the same
        elif self._physical is PhysicalType.BYTES:
            self._add_strings(rowset.base_stream(self._column.id))
        else:
            self._add_numbers(rowset.base_stream(self._column.id))

    def _add_vector(self, cells: Vector) -> None:
        if isinstance(cells, FixedVector) and cells.values.dtype.kind in "iu" and len(cells) <= _NUMBERS_LOOKED_AT:
            self._ends += [int(cells.values.min()), int(cells.values.max())]
        elif isinstance(cells, BytesVector):
            self._add(len(cells), int(cells.offsets[-1] - cells.offsets[0]), self._bytes_max)
        else:
            self._add(len(cells), len(cells) * self._bytes_max, self._bytes_max)

    def _add_strings(self, stream: StreamReader) -> None:
        dictionary = stream.known_dictionary
        if stream.value_count is not None and dictionary is not None:
            self._dictionaries.append(dictionary)
            self._add(0, stream.raw_bytes, stream.longest_value)
        else:
            different = stream.row_count if stream.value_count is None else stream.value_count
            self._add(different, stream.raw_bytes, self._bytes_max)

    def _add_numbers(self, stream: StreamReader) -> None:
        zones = stream.page_zones
        if not len(zones.maps) or self._physical in FLOATS:
            self._add(stream.row_count, 0, 0)
        elif zones.numbers is None:
            self._ends += [end for zone in zones.maps if zone.min is not None for end in (zone.min, zone.max)]
        elif zones.numbers.are_known.any():
            known = zones.numbers.are_known
            self._ends += [int(zones.numbers.lows[known].min()), int(zones.numbers.highs[known].max())]
