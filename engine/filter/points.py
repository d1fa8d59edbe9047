"""The primary keys that a filter lists: when it fixes every key column to a value or a list of values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...schemas.table.table import TableSchema
from ..expression.literal import Cell
from ..vectors.arrow import from_arrow
from ..vectors.keys.keys import KeyEncoder, KeyVector
from ..vectors.physical import PhysicalType
from ..vectors.vector import Vector
from .arrow import constants_of
from .bound import And, BoundFilter, Compare, Node, OneOf

POINTS_MAX = 100_000
"""The most keys to look up one by one."""


def key_points(bound: BoundFilter, schema: TableSchema, encoder: KeyEncoder) -> KeyVector | None:
    """Return distinct encoded keys that include those of all rows that the filter can select; None if it does not list
    them, or lists more than ``POINTS_MAX``."""
    listed = [_cells(bound.root, column.id) for column in schema.key]
    known = [cells for cells in listed if cells is not None]
    if len(known) < len(listed) or math.prod(len(cells) for _, cells in known) > POINTS_MAX:
        return None
    return keys_of_cells(known, encoder)


def keys_of_cells(known: Sequence[tuple[PhysicalType, tuple[Cell, ...]]], encoder: KeyEncoder) -> KeyVector:
    """Return the encoded keys that a filter lists: all combinations of cells, given for each key column; in key order
    if these are."""
    vectors = [_vector(cells, physical) for physical, cells in known]
    places = np.meshgrid(*(np.arange(len(cells)) for _, cells in known), indexing="ij")
    return encoder.encode([vector.take(place.reshape(-1)) for vector, place in zip(vectors, places, strict=True)])


def _cells(node: Node, column_id: int) -> tuple[PhysicalType, tuple[Cell, ...]] | None:
    """Return the shortest list of cells that a column is fixed to; None if there is none."""
    parts = node.parts if isinstance(node, And) else (node,)
    lists: list[tuple[PhysicalType, tuple[Cell, ...]]] = []
    for part in parts:
        if isinstance(part, Compare) and part.column_id == column_id and part.op == "=":
            lists.append((part.physical, (part.cell,)))
        elif isinstance(part, OneOf) and part.column_id == column_id and not part.negated:
            lists.append((part.physical, part.cells))
    return min(lists, key=lambda found: len(found[1]), default=None)


def _vector(cells: tuple[Cell, ...], physical: PhysicalType) -> Vector:
    return from_arrow(constants_of(cells, physical), physical)
