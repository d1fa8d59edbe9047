"""What a snapshot sees, change by change: the slow rule that reads of deltas are held against."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from nyala.engine.delta.patch import Patch, apply_all
from nyala.engine.vectors.arrow import from_arrow, to_arrow
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector, Vector

Change = tuple[int, int, object]
"""Row, timestamp, cell."""


def redo_of(changes: Iterable[Change], snapshot: int) -> dict[int, object]:
    """The last cell of each row at or before ``snapshot``, where those of a row come in the order of time."""
    return {row: cell for row, timestamp, cell in changes if timestamp <= snapshot}


def undo_of(changes: Iterable[Change], snapshot: int) -> dict[int, object]:
    """The cell of each row before its first change after ``snapshot``."""
    return {row: cell for row, timestamp, cell in reversed(list(changes)) if timestamp > snapshot}


def seen(patches: list[Patch], first: int, last: int) -> dict[int, int]:
    """The cells (int64, none of them the base's -1) that patches bring to rows [first, last)."""
    base = FixedVector(np.full(last - first, -1, np.int64))
    found = apply_all(patches, base, first, is_own=False)
    assert isinstance(found, FixedVector) and (base.values == -1).all()
    hits = np.flatnonzero(found.values != -1)
    return dict(zip((hits + first).tolist(), found.values[hits].tolist(), strict=True))


def vector_of(cells: list[object], arrow_type: pa.DataType, physical: PhysicalType) -> Vector:
    return from_arrow(pa.array(cells, arrow_type), physical)


def cells_of(vector: Vector, arrow_type: pa.DataType) -> list[object]:
    return to_arrow(vector, arrow_type).to_pylist()
