"""One row in row encoding (`row`), from raw cells: what `row.encode` returns for it, without vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import Any

from ..vectors.physical import PhysicalType
from ..vectors.raw_cell import RawCell

_MARK = 0x80
_LENGTH = Struct("<I")
_NUMBERS = {
    PhysicalType.BOOL: Struct("<B"),
    PhysicalType.INT8: Struct("<b"),
    PhysicalType.INT16: Struct("<h"),
    PhysicalType.INT32: Struct("<i"),
    PhysicalType.INT64: Struct("<q"),
    PhysicalType.FLOAT32: Struct("<f"),
    PhysicalType.FLOAT64: Struct("<d"),
}
_UNITS = {1: "B", 2: "H", 3: "I"}
"""The formats of ids and offsets, by the codes of their units."""


def _string(cell: bytes) -> bytes:
    return _LENGTH.pack(len(cell)) + cell


def _wide(cell: int) -> bytes:
    return cell.to_bytes(16, "little", signed=True)


_DATUMS: dict[PhysicalType, Callable[[Any], bytes]] = {
    **{physical: number.pack for physical, number in _NUMBERS.items()},
    PhysicalType.INT128: _wide,
    PhysicalType.BYTES: _string,
}


class RowPacker:
    """Encodes rows that have given columns."""

    def __init__(self, columns: Mapping[int, PhysicalType]) -> None:
        """``columns``: their types by id, in the order in which cells are given."""
        ids = list(columns)
        self._columns = [(i, ids[i], _DATUMS[columns[ids[i]]]) for i in sorted(range(len(ids)), key=ids.__getitem__)]

    def pack(self, cells: Sequence[RawCell]) -> bytes:
        """Return the row with those of the cells that are not NULL."""
        ids, datums = [], []
        for i, column_id, datum in self._columns:
            cell = cells[i]
            if cell is not None:
                ids.append(column_id)
                datums.append(datum(cell))
        starts = list(accumulate(map(len, datums)))
        del starts[-1:]
        wide = _code(max(ids[-1] if ids else 0, len(ids)))
        big = _code(starts[-1] if starts else 0)
        head = _head(wide, len(ids), big, len(starts)).pack(_MARK | wide << 2 | big, len(ids), *ids, *starts)
        return b"".join((head, *datums))


@lru_cache(maxsize=1024)
def _head(wide: int, ids: int, big: int, starts: int) -> Struct:
    return Struct(f"<B{1 + ids}{_UNITS[wide]}{starts}{_UNITS[big]}")


def _code(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 3
