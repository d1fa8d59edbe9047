"""The file of rejected rows: each with the reason, to be corrected and loaded again."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from ....schemas.cells.literal import to_json
from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.write import RowError
from .file_format import NOTES
from .pieces import UNSPLIT

_CSV, _JSON = (".csv",), (".jsonl", ".ndjson")


class RefusedRow(RowError, frozen=True):
    """A row of a loaded file that the table refused, or that could not be read; ``row`` counts from the start of its
    file."""

    file: str
    line: int | None = None
    """Its line in the file, from 1, if known; empty lines are not counted."""

    @property
    def place(self) -> str:
        """Where the row is, as text."""
        return f"{self.file}, {f'row {self.row:,}' if self.line is None else f'line {self.line:,}'}"


class Rejects:
    """Writes the rows that a load rejected to a file, as CSV or JSON lines by its suffix; created with the first row.
    Thread safe.

    A row has the columns of its input and ``_file``, ``_line`` and ``_error``, which a load ignores; ``_line`` is ``row
    N``, from 0, if the line is not known. A line that could not be split into cells is in ``_text``.
    """

    def __init__(self, path: Path, columns: Sequence[str], notes: Sequence[str] = NOTES) -> None:
        """``columns`` are the CSV header, ``notes`` the names of the columns that are added.

        Raises:
            InvalidArgumentError: the suffix names no format.
        """
        if path.suffix not in _CSV + _JSON:
            raise InvalidArgumentError(f"the file for rejected rows must end in .csv or .jsonl, not {path.name}")
        self.path = path
        self.rows = 0
        self._columns = [*columns, *notes]
        self._notes = notes
        self._lock = threading.Lock()
        self._known: set[tuple[str, int]] = set()
        self._file: TextIO | None = None

    def add(self, refused: RefusedRow, cells: Mapping[str, Any]) -> None:
        """Write one row."""
        place = f"row {refused.row}" if refused.line is None else refused.line
        row = {self._notes[-1] if name == UNSPLIT else name: cell for name, cell in cells.items()}
        row |= dict(zip(self._notes, (refused.file, place, refused.message), strict=False))
        line = self._csv(row) if self.path.suffix in _CSV else _json(row)
        with self._lock:
            if (refused.file, refused.row) in self._known:
                return  # the task was retried
            self._known.add((refused.file, refused.row))
            if self._file is None:
                self._file = self._opened()
            self._file.write(line)
            self.rows += 1

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _opened(self) -> TextIO:
        file = self.path.open("w", encoding="utf-8", newline="")
        if self.path.suffix in _CSV:
            file.write(self._csv(dict(zip(self._columns, self._columns, strict=True))))
        return file

    def _csv(self, row: Mapping[str, Any]) -> str:
        """Return a line with NULL as nothing and everything else quoted, so that a load can tell them apart."""
        cells = (to_json(row.get(name)) for name in self._columns)
        words = (cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells)
        return ",".join("" if word is None else f'"{word.replace(chr(34), chr(34) * 2)}"' for word in words) + "\n"


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps({name: to_json(cell) for name, cell in row.items()}, ensure_ascii=False) + "\n"
