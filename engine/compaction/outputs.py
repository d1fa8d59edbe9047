"""The DiskRowSets that a compaction writes, while it reads its inputs; cut at a size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...schemas.table.table import TableSchema
from ..cfile.stream import StreamReader
from ..codecs.codec import PAGE_ROWS
from ..delta.file import DeltaFileWriter
from ..delta.run import DeltaRun
from ..manifest import files
from ..manifest.environment import Files
from ..manifest.rowset_entry import RowsetEntry
from ..rowset.base_file import BaseFileWriter
from ..rowset.diskrowset import DiskRowSet
from ..tablet.open import open_rowset
from ..tablet.tablet import Tablet
from ..vectors.keys.keys import KeyVector
from ..vectors.vector import Vector


class Names(Protocol):
    """Assigns the names of the files that a compaction writes."""

    def name(self, kind: str) -> tuple[int, str]:
        """Return the id and the path of a new file; ``kind`` is base, undo or redo."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """The timestamp, log position and schema of the bases that a compaction writes."""

    timestamp: int
    lsn: int
    schema: TableSchema
    """The schema to write."""


@dataclass(frozen=True, slots=True, eq=False)
class OutputRowSet:
    """A rowset that a flush or compaction has written: its manifest entry, and the open rowset, which has no slot
    yet."""

    entry: RowsetEntry
    rowset: DiskRowSet


class OutputWriter:
    """Writes base and UNDO file of one output of a flush or compaction in one pass over its rows."""

    def __init__(self, tablet: Tablet, environment: Files, new: Names, moment: Moment) -> None:
        self._tablet = tablet
        self._environment = environment
        self._moment = moment
        self._base_id, base_path = new.name("base")
        self._undo_id, undo_path = new.name("undo")
        fs, schema, encodings = environment.fs, moment.schema, files.encodings(moment.schema)
        column_ids = [column.id for column in schema.columns]
        self._base = BaseFileWriter(fs, base_path, self._base_id, encodings, column_ids, schema.row_column)
        try:
            self._undo = DeltaFileWriter(fs, undo_path, self._undo_id, "undo", self._base_id, encodings)
        except BaseException:
            self._base.abort()
            raise

    @property
    def row_count(self) -> int:
        """Rows of the runs that have ended."""
        return self._base.row_count

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._base.size_bytes + self._undo.size_bytes

    def append(self, column_id: int, cells: Vector | None, undo: DeltaRun | None) -> None:
        """Add a column's part of a run of rows: cells (None for liveness, and for copied pages) and UNDO, with rows
        counted from the start of the run."""
        if cells is not None:
            self._base.append(column_id, cells)
        if undo is None:
            return
        rowids = (undo.rowids + self.row_count).astype(np.int32)
        self._undo.append(column_id, DeltaRun(rowids, undo.timestamps, undo.values))

    def copy_rows(self, column_id: int, stream: StreamReader, first: int) -> bool:
        """Copy the encoded pages of PAGE_ROWS rows of a base file, from row ``first`` on, instead of appending cells.

        Returns False if that is not possible."""
        return self._base.copy_rows(column_id, stream, first)

    def end_run(self, keys: KeyVector, alive: np.ndarray) -> None:
        """End the run of rows; every column has its part of it."""
        self._base.end_run(keys, alive)

    def finish(self) -> OutputRowSet:
        """Write the rest, sync the files and open them."""
        alive = self._base.finish(self._moment.timestamp, self._moment.schema.version)
        if self._undo.is_empty:
            self._undo.abort()
        else:
            self._undo.finish()
        undo = () if self._undo.is_empty else (self._undo_id,)
        entry = RowsetEntry(id=self._base_id, undo=undo, durable_lsn=self._moment.lsn)
        rowset = open_rowset(self._tablet, self._environment, entry, slot=-1)
        if not alive.all():
            rowset.live.load(alive)
        return OutputRowSet(entry, rowset)

    def abort(self) -> None:
        """Remove the files unless they were finished."""
        try:
            self._base.abort()
        finally:
            self._undo.abort()


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows [first, last) of a run that go to one output of a compaction."""

    output: int
    writer: OutputWriter
    first: int
    last: int


class Outputs:
    """The rowsets that a compaction writes: starts a new one when the last has enough rows or bytes."""

    def __init__(
        self,
        tablet: Tablet,
        environment: Files,
        new: Names,
        moment: Moment,
        target_rows: int,
        target_bytes: int,
    ) -> None:
        self.written: list[OutputRowSet] = []
        """The finished outputs, in key order."""
        self._what = (tablet, environment, new, moment)
        self._target_rows = target_rows
        self._target_bytes = target_bytes
        self._writers: list[OutputWriter] = []

    def pieces(self, row_count: int) -> Iterator[Piece]:
        """Yield the pieces of the next run of rows; write each completely before taking the next."""
        first = 0
        while first < row_count:
            writer = self._writer()
            last = min(row_count, first + self._target_rows - writer.row_count)
            yield Piece(len(self.written), writer, first, last)
            first = last

    def start_page(self) -> None:
        """Start a new output, so that the next pages can be copied, unless the last one is small or ends with a whole
        page."""
        if not self._writers or self._writers[-1].row_count % PAGE_ROWS == 0:
            return
        writer = self._writers[-1]
        if 2 * writer.size_bytes >= self._target_bytes or 2 * writer.row_count >= self._target_rows:
            self._finish_last()

    def finish(self) -> list[OutputRowSet]:
        """Finish the last output and return all."""
        self._finish_last()
        return self.written

    def abort(self) -> None:
        """Remove unfinished outputs."""
        for writer in self._writers:
            writer.abort()

    def _writer(self) -> OutputWriter:
        if self._writers:
            writer = self._writers[-1]
            if writer.row_count >= self._target_rows or writer.size_bytes >= self._target_bytes:
                self._finish_last()
        if not self._writers:
            self._writers.append(OutputWriter(*self._what))
        return self._writers[-1]

    def _finish_last(self) -> None:
        if self._writers:
            self.written.append(self._writers[-1].finish())
            self._writers.clear()
