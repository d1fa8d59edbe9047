"""One row in row encoding (`row`), from raw cells: what `row.encode` returns for it, without vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
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
    """Encodes single rows that have given columns, in row encoding."""

    def __init__(self, columns: Mapping[int, PhysicalType]) -> None:
        """``columns``: their types by id, in the order in which cells are given."""
        ids = list(columns)
        places = sorted(range(len(ids)), key=ids.__getitem__)
        self._columns = [(i, ids[i], _DATUMS[columns[ids[i]]]) for i in places]
        self._ids = sorted(ids)
        self._sizes = [_NUMBERS[columns[number]].size if columns[number] in _NUMBERS else 0 for number in self._ids]
        self._runs = [
            (place, _run_of([columns[ids[i]] for i in those]), those)
            for place, those in _runs([columns[ids[i]] in _NUMBERS for i in places], places)
        ]

    def pack(self, cells: Sequence[RawCell]) -> bytes:
        """Return the row with those of the cells that are not NULL."""
        if None in cells:
            return self._pack_some(cells)
        datums: list[bytes] = []
        sizes = self._sizes.copy()
        for place, form, those in self._runs:
            if isinstance(form, Struct):
                datums.append(form.pack(*[cells[i] for i in those]))
            else:
                datum = form(cells[those[0]])
                sizes[place] = len(datum)
                datums.append(datum)
        return _joined(self._ids, sizes, datums)

    def _pack_some(self, cells: Sequence[RawCell]) -> bytes:
        ids, datums = [], []
        for i, column_id, datum in self._columns:
            cell = cells[i]
            if cell is not None:
                ids.append(column_id)
                datums.append(datum(cell))
        return _joined(ids, list(map(len, datums)), datums)


def _runs(is_number: Sequence[bool], places: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
    """Return where each run of numbers, or each other cell, begins in the row, and the places of its cells."""
    starts = [i for i in range(len(places)) if not i or not (is_number[i] and is_number[i - 1])]
    return [(first, places[first:last]) for first, last in pairwise([*starts, len(places)])]


def _run_of(types: Sequence[PhysicalType]) -> Struct | Callable[[Any], bytes]:
    """Return how to encode the cells of a run together."""
    if types[0] not in _NUMBERS:
        return _DATUMS[types[0]]
    return Struct("<" + "".join([_NUMBERS[each].format[1:] for each in types]))


def _joined(ids: Sequence[int], sizes: Sequence[int], datums: Sequence[bytes]) -> bytes:
    """Return the row of columns with these ids, whose cells take so many bytes."""
    count, starts = len(ids), list(accumulate(sizes))
    del starts[-1:]
    wide = _code(max(ids[-1], count) if ids else 0)
    big = _code(starts[-1] if starts else 0)
    head = _head(wide, count, big, len(starts)).pack(_MARK | wide << 2 | big, count, *ids, *starts)
    return b"".join((head, *datums))


@lru_cache(maxsize=1024)
def _head(wide: int, ids: int, big: int, starts: int) -> Struct:
    return Struct(f"<B{1 + ids}{_UNITS[wide]}{starts}{_UNITS[big]}")


def _code(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 3
