"""Where the rows of statements go: to the terminal, to a pipe, or into a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from ....schemas.phrases import counted
from ..output import STREAMS, WRITERS, RowFormat
from .cells import holdable
from .form import SUFFIXES, SqlForm
from .waiting import StatementProgress

if TYPE_CHECKING:
    from ...sql.result import Result


class RowSink:
    """Writes the rows that ``nyala sql`` gets, those of one statement after the other in a form: to standard output, or
    to a file, which is created with the first rows."""

    def __init__(self, form: SqlForm | None = None, path: Path | None = None) -> None:
        """Raises InvalidArgumentError: the form needs a file, or is not that of the file's suffix."""
        self._form = SqlForm.TABLE
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        if path is not None:
            self.to_file(path)
        if form is not None:
            self.set_form(form)

    @property
    def form(self) -> SqlForm:
        """The form of the next rows."""
        return (SUFFIXES.get(self._path.suffix) if self._path else None) or self._form

    @property
    def path(self) -> Path | None:
        """The file that gets the rows; None: they go to standard output."""
        return self._path

    @property
    def is_screen(self) -> bool:
        """Whether a person reads the rows."""
        return self._path is None and sys.stdout.isatty()

    def set_form(self, form: SqlForm) -> None:
        """Change the form. Raises InvalidArgumentError: it needs a file, or is not that of the file's suffix."""
        if form.needs_file and self._path is None:
            raise InvalidArgumentError(f"{form} is only for files: name a file with --output FILE or \\o FILE")
        if self._path is not None and SUFFIXES.get(self._path.suffix, form) is not form:
            raise InvalidArgumentError(
                f"the suffix of {self._path.name} means {SUFFIXES[self._path.suffix]}: choose another file name for "
                f"{form}"
            )
        self._form = form

    def to_file(self, path: Path | None) -> None:
        """Write the next rows to a file; None: to standard output."""
        self.close()
        self._path = path
        if self._form.needs_file:
            self._form = SqlForm.TABLE

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def put(self, result: Result, progress: StatementProgress) -> str:
        """Write all rows of a result, or show the first; return a remark for the terminal, empty if there is none.

        Raises:
            StoreError: as the result; or the file already has rows, and its form holds those of one statement.
        """
        from .screen import show_rows

        form = self.form
        reader = holdable(_started(result, progress), form)
        if self._path is not None:
            return self._put_in_file(reader, form, self._path)
        if sys.stdout.isatty():
            progress.stop()
        if form is SqlForm.TABLE and sys.stdout.isatty():
            return show_rows(reader)
        sys.stdout.flush()
        STREAMS[RowFormat(form)](reader, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return ""

    def _put_in_file(self, reader: pa.RecordBatchReader, form: SqlForm, path: Path) -> str:
        if self._file is not None and form.needs_file:
            raise InvalidArgumentError(
                f"{path.name} already has the rows of one statement, and a file in {form} cannot take more: name "
                "another file"
            )
        if self._file is None:
            self._file = path.open("wb")
        write = STREAMS[RowFormat.TABLE] if form is SqlForm.TABLE else WRITERS[_SUFFIX_OF[form]]
        rows = write(reader, self._file)
        self._file.flush()
        return f"wrote {counted(rows, 'row')} to {path}"


_SUFFIX_OF = {form: suffix for suffix, form in SUFFIXES.items() if suffix in WRITERS}


def _started(result: Result, progress: StatementProgress) -> pa.RecordBatchReader:
    """Return the rows of a result of which the first were made: most errors come before anything is written."""
    batches: Iterator[pa.RecordBatch] = progress.of(iter(result))
    first = next(batches, None)
    return pa.RecordBatchReader.from_batches(result.schema, chain(() if first is None else (first,), batches))
