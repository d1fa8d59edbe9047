"""Which rows of a rowset are alive now: one bool a row, made when the first row dies."""

import numpy as np


class LiveRows:
    """The newest liveness of the rows of one rowset; guarded by the tablet's write lock."""

    def __init__(self, row_count: int) -> None:
        self._row_count = row_count
        self._dead: np.ndarray | None = None
        self.dead_count = 0

    @property
    def live_count(self) -> int:
        """The number of live rows."""
        return self._row_count - self.dead_count

    def grow(self, row_count: int) -> None:
        """Add ``row_count`` rows, all alive."""
        self._row_count += row_count

    def at(self, rowids: np.ndarray) -> np.ndarray:
        """Return for each row whether it is alive."""
        if self._dead is None:
            return np.ones(len(rowids), np.bool_)
        alive = np.ones(len(rowids), np.bool_)
        known = rowids < len(self._dead)
        alive[known] = ~self._dead[rowids[known]]
        return alive

    def is_alive(self, row: int) -> bool:
        """Return the same for one row."""
        return self._dead is None or row >= len(self._dead) or not self._dead.item(row)

    def set(self, rowids: np.ndarray, alive: bool) -> None:
        """Mark rows, each named once, as alive or dead."""
        if not len(rowids):
            return
        dead = self._reserve(int(rowids.max()) + 1)
        self.dead_count += int(np.count_nonzero(dead[rowids] == alive)) * (-1 if alive else 1)
        dead[rowids] = not alive

    def follow(self, rowids: np.ndarray, alive: np.ndarray) -> None:
        """Mark rows as alive or dead, one after the other: a row named several times ends as the last one says."""
        dead, touched = self._reserve(int(rowids.max()) + 1), np.unique(rowids)
        before = int(np.count_nonzero(dead[touched]))
        dead[rowids] = ~alive  # for repeated rows, numpy keeps the last
        self.dead_count += int(np.count_nonzero(dead[touched])) - before

    def set_row(self, row: int, alive: bool) -> None:
        """Mark one row as alive or dead."""
        dead = self._reserve(row + 1)
        self.dead_count += int(dead.item(row) == alive) * (-1 if alive else 1)
        dead[row] = not alive

    def load(self, alive: np.ndarray) -> None:
        """Take over the liveness of all rows."""
        self._dead = ~alive
        self.dead_count = int(np.count_nonzero(self._dead))

    def _reserve(self, row_count: int) -> np.ndarray:
        if self._dead is None or len(self._dead) < row_count:
            grown = np.zeros(max(row_count, self._row_count), np.bool_)
            if self._dead is not None:
                grown[: len(self._dead)] = self._dead
            self._dead = grown
        return self._dead
