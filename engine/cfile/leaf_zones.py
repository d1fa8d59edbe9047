"""Zone maps of the leaves of struct columns: bounds of one field, at any depth of structs, in the cells of a page.

A leaf is what is reached by structs alone and is none itself: a leaf of a NULL is NULL. Leaves that have a width get
bounds; text, lists and maps get none. They come from the arrays that the shredded codec takes a page apart into, or
from the values of the dictionary. Pages of plain cells have none: writing does not look into these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ..vectors.arrow import from_arrow, to_arrow
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import BytesVector, DictionaryVector, Vector, concat
from .zone_map import ZoneMap, zone_map_of

Path = tuple[int, ...]
"""The numbers of the fields from a column down to a leaf."""


@dataclass(frozen=True, slots=True)
class LeafField:
    """A leaf of a struct type, which has zone maps of its own."""

    path: Path
    physical: PhysicalType

    @property
    def has_bounds(self) -> bool:
        """Whether zone maps are kept of it."""
        return self.physical is not PhysicalType.BYTES


@lru_cache(maxsize=1024)
def leaves_of(kind: pa.DataType) -> tuple[LeafField, ...]:
    """Return the leaves of a type that have zone maps, in the order of its fields; none unless it is a struct."""
    return tuple(_leaves(kind, ())) if pa.types.is_struct(kind) else ()


@lru_cache(maxsize=1024)
def leaves_named(kind: str) -> tuple[LeafField, ...]:
    """Return the leaves of a struct type, for zone maps, by its text. Raises ValueError if it is none."""
    try:
        return leaves_of(LogicalType.parse(kind).arrow)
    except InvalidArgumentError as error:
        raise ValueError(str(error)) from None


def _leaves(kind: pa.DataType, path: Path) -> list[LeafField]:
    if not pa.types.is_struct(kind):
        return [LeafField(path, physical_of(kind))]
    return [leaf for i in range(kind.num_fields) for leaf in _leaves(kind.field(i).type, (*path, i))]


def leaf_zone_maps(array: pa.Array) -> list[ZoneMap | None]:
    """Return the zone map of each leaf of the cells of a page, None without bounds; none at all if no leaf has any."""
    leaves = leaves_of(array.type)
    if not any(leaf.has_bounds for leaf in leaves):
        return []
    return [_zone_map(array, leaf) if leaf.has_bounds else None for leaf in leaves]


class LeavesOfValues:
    """The zone maps of the leaves of pages of codes; the leaves of each value of the dictionary are read once."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._leaves = leaves_of(kind) if any(leaf.has_bounds for leaf in leaves_of(kind)) else ()
        self._values: list[Vector | None] = []
        self._count = 0

    def zone_maps(self, cells: DictionaryVector) -> list[ZoneMap | None]:
        """Return what `leaf_zone_maps` does for a page; its dictionary is that of earlier pages, or begins with it.

        Raises MalformedCellError if a value is no cell of the type.
        """
        codes = cells.codes if cells.valid is None else cells.codes[cells.valid]
        if not self._leaves or not len(codes):
            return []
        self._read(cells.dictionary)
        used = np.zeros(self._count, np.bool_)
        used[codes] = True
        places = np.flatnonzero(used)
        return [
            None if values is None else _of_codes(values, leaf.physical, codes, places, len(cells))
            for values, leaf in zip(self._values, self._leaves, strict=True)
        ]

    def _read(self, dictionary: BytesVector) -> None:
        """Read the leaves of the values that came since."""
        if len(dictionary) == self._count:
            return
        array = to_arrow(dictionary.slice(self._count, len(dictionary)), self._kind)
        more = [_cells(array, leaf) if leaf.has_bounds else None for leaf in self._leaves]
        if self._count:
            more = [
                None if old is None or new is None else concat([old, new])
                for old, new in zip(self._values, more, strict=True)
            ]
        self._values, self._count = more, len(dictionary)


def _of_codes(values: Vector, physical: PhysicalType, codes: np.ndarray, places: np.ndarray, row_count: int) -> ZoneMap:
    """Return the zone map of a leaf of ``row_count`` rows, from its cell in each value, the codes of rows that are not
    NULL, and the values that they use."""
    nulls = row_count - len(codes)
    if values.valid is not None:
        nulls += int(np.count_nonzero(~values.valid[codes]))
    return replace(zone_map_of(values.take(places), physical), null_count=nulls, row_count=row_count)


def leaf_zone_map(cells: Vector, kind: pa.DataType, path: Path) -> ZoneMap | None:
    """Return the zone map of one leaf of some cells of a struct column."""
    (leaf,) = (leaf for leaf in leaves_of(kind) if leaf.path == path)
    return _zone_map(to_arrow(cells, kind), leaf) if leaf.has_bounds else None


def _zone_map(array: pa.Array, leaf: LeafField) -> ZoneMap | None:
    cells = _cells(array, leaf)
    return None if cells is None else zone_map_of(cells, leaf.physical)


def _cells(array: pa.Array, leaf: LeafField) -> Vector | None:
    for number in leaf.path:
        array = pc.struct_field(array, [number]) if array.null_count else array.field(number)
    try:
        return from_arrow(array, leaf.physical)
    except OverflowError:  # a decimal of more digits than its type has: only damage makes that, and it must be readable
        return None
