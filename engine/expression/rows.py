"""The rows that an expression is evaluated on: columns that are read when they are first named, and parts of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa


class Rows:
    """The rows that an expression is evaluated on. Not thread safe."""

    def __init__(self, count: int, column: Callable[[str], pa.Array]) -> None:
        """``column`` returns the cells of a column by its name; it is called once for each."""
        self.count = count
        self._column = column
        self._cells: dict[str, pa.Array] = {}

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Rows:
        """Return the rows of a batch."""
        return cls(batch.num_rows, batch.column)

    def column(self, name: str) -> pa.Array:
        """Return the cells of a column."""
        cells = self._cells.get(name)
        if cells is None:
            cells = self._cells[name] = self._column(name)
        return cells

    def taken(self, places: np.ndarray) -> Rows:
        """Return the rows at some places (int64, ascending, distinct)."""
        if len(places) == self.count:
            return self
        chosen = pa.array(places)
        return Rows(len(places), lambda name: self.column(name).take(chosen))
