"""Lines: on which line of a text file each row of a piece is, so that a row that the table refuses can name it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ....schemas import compute as pc


@dataclass(frozen=True, slots=True)
class Lines:
    """The line in a text file of each row from ``first_row`` on, counted from 1. Can be pickled, and holds no cells."""

    first_row: int
    first_line: int
    unsplit: Sequence[int] = ()
    """Rows, in order, that could not be split into cells, and so are not counted in ``line_ends``."""
    folded: Sequence[tuple[int, int]] = ()
    """Such rows with line ends in them, and how many."""
    line_ends: pa.Array | None = None
    """The number of line ends within each other row; None: no row has any."""
    each: pa.Array | None = None
    """The line of each row, where lines without a row lie between them; the members above then say nothing."""

    @property
    def line_ends_of_all(self) -> int:
        """The number of line ends within rows."""
        within = 0 if self.line_ends is None else pc.sum(self.line_ends).as_py() or 0
        return within + sum(count for _, count in self.folded)

    def line(self, row: int) -> int:
        """Return the line on which a row begins."""
        if self.each is not None:
            return self.each[row - self.first_row].as_py()
        line = self.first_line + row - self.first_row + sum(count for at, count in self.folded if at < row)
        if self.line_ends is None:
            return line
        before = row - self.first_row - bisect_left(self.unsplit, row)
        return line + (pc.sum(self.line_ends.slice(0, before)).as_py() or 0)
