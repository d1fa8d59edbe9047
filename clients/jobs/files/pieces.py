"""Pieces of a file to load: the rows that fit its table, and those that do not, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .lines import Lines

UNSPLIT = " text"
"""In the place of a column: the text of a line that could not be split into cells."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of a file to load that does not fit its table. ``row`` counts rows from 0, ``line`` lines from 1."""

    row: int
    line: int | None
    message: str
    cells: Mapping[str, Any]
    """The file's content, as far as it could be read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a file to load from ``first_row`` on: the good ones in ``batch``, in order, and the ``bad`` ones."""

    batch: pa.RecordBatch
    first_row: int
    bad: Sequence[BadRow] = ()
    absent: Mapping[str, pa.BooleanArray] = field(default_factory=dict)
    """For each column that some rows lack, which do: their cells are NULL. Only JSON has such rows."""
    lines: Lines | None = None
    """The lines of its rows, if they are lines of text."""

    @property
    def rows(self) -> int:
        """The number of rows of the file in it."""
        return self.batch.num_rows + len(self.bad)
