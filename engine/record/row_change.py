"""A change of one row in the log: what `change.pack_record` returns for it, from raw cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from ..codecs.single_row import RowPacker
from ..vectors.physical import PhysicalType
from ..vectors.raw_cell import RawCell
from .change import ChangeKind, part_header
from .change_rows import head_of

_END = Struct("<I")


class RowChange:
    """How changes of one row are logged that have one kind and given columns, worked out once."""

    def __init__(self, kind: ChangeKind, columns: Mapping[int, PhysicalType]) -> None:
        """``columns``: their types by id, in the order in which cells are given."""
        self.kind = kind
        self._head = head_of(columns, 1)
        self._row = RowPacker(columns)

    def pack(self, tablet_id: int, cells: Sequence[RawCell]) -> bytes:
        """Return the part of a record that changes a row to these cells."""
        row = self._row.pack(cells)
        size = len(self._head) + _END.size + len(row)
        padding = bytes(-size % 8)
        header = part_header(tablet_id, self.kind, size + len(padding))
        return b"".join((header, self._head, _END.pack(len(row)), row, padding))
