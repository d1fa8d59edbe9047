"""The pass of a merge over the rows of DiskRowSets, in key order, into new rowsets.

The new base shows a row at one timestamp F: its REDO deltas up to F are applied; inverted, they become UNDO deltas
after the existing ones. The pass takes a chunk of each rowset at a time, all columns side by side, wherever the files
are: in the store (`merge`), or on another machine (`offload.merge`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..codecs.codec import PAGE_ROWS
from ..delta import LIVE
from ..delta.file import DeltaFile
from ..delta.run import DeltaRun, invert, merge_runs
from ..filter.expiry import Expiry
from ..rowset import steps
from ..rowset.diskrowset import DiskRowSet
from ..rowset.location import pack
from ..vectors.vector import FixedVector, Vector, concat
from .key_merge import MergedRows, RowRange, merged_rows
from .outputs import Outputs, OutputWriter
from .switch_over import MovedRowSet

LONG_RUN_PAGES = 4
"""If this many pages do not mix with other rowsets, a new output is started so that they can be copied."""
RowFilter = Callable[[Mapping[int, Vector], int], np.ndarray]
"""Given key cells and a number of rows, returns which rows belong to a part."""


@dataclass(frozen=True, slots=True, eq=False)
class MergeInput:
    moved: MovedRowSet
    """Until the outputs have slots, a location packs the number of the row's output and its row there."""
    memory: dict[int, list[DeltaRun]]
    """Its deltas in memory up to F, oldest runs first."""

    @property
    def rowset(self) -> DiskRowSet:
        assert isinstance(self.moved.rowset, DiskRowSet)
        return self.moved.rowset

    @property
    def delta_files(self) -> tuple[DeltaFile, ...]:
        stores = self.rowset.deltas.stores
        return (*stores.redo, *stores.undo)

    def redo(self, column_id: int, first: int, last: int) -> list[DeltaRun]:
        runs = [file.run(column_id, first, last) for file in self.rowset.deltas.stores.redo]
        runs += [run.slice(first, last) for run in self.memory.get(column_id, [])]
        return [run for run in runs if run]

    def undo(self, column_id: int, first: int, last: int) -> list[DeltaRun]:
        runs = [file.run(column_id, first, last) for file in self.rowset.deltas.stores.undo]
        return [run for run in runs if run]


class Merge:
    """The pass of a merge over the rows of its input rowsets."""

    def __init__(
        self,
        schema: TableSchema,
        inputs: Sequence[MergeInput],
        outputs: Outputs,
        ancient_history_mark: int,
        may_expire: bool = True,
    ) -> None:
        """``may_expire`` also drops rows that expired before the history."""
        self._schema = schema
        self._inputs = inputs
        self._outputs = outputs
        self._ancient = ancient_history_mark
        self._expiry = Expiry.of(schema) if may_expire else None
        self.is_history_lost = False
        """Whether anything was dropped: then snapshots before the ancient history mark can no longer be read."""

    def run(self, wanted: RowFilter | None) -> None:
        """Write the outputs of all rows, or of those that ``wanted`` selects."""
        for rows in merged_rows([one.rowset for one in self._inputs], self._chunk_rows()):
            if wanted:
                chosen = wanted(self._key_cells(rows), len(rows))
                rows = rows if chosen.all() else rows.without(~chosen)
            if len(rows):
                self._write(rows)
        self._outputs.finish()

    def _key_cells(self, rows: MergedRows) -> dict[int, Vector]:
        return {column.id: self._column(column, rows)[0] for column in self._schema.key}

    def _chunk_rows(self) -> int:
        """Return a power of two that keeps the cells of a chunk of every input that are in memory together, and their
        history, within the bytes of a step."""
        are_whole = self._schema.row_column
        of_cells = steps.rows_of(((one.rowset, ()) for one in self._inputs), are_whole, steps.BYTES_AT_ONCE)
        with_deltas = ((one.rowset, one.delta_files) for one in self._inputs)
        return min(of_cells, steps.rows_of(with_deltas, are_whole, steps.DELTAS_BYTES_AT_ONCE))

    def _write(self, rows: MergedRows) -> None:
        if self._ancient:
            alive, undo = self._liveness(rows)
            gone = _ancient_dead(alive, undo)
            if self._expiry:
                gone |= alive & self._have_expired(self._expiry, rows, undo)
            if gone.any():
                rows, self.is_history_lost = rows.without(gone), True
        if rows.page and rows.unmixed_rows >= LONG_RUN_PAGES * PAGE_ROWS:
            self._outputs.start_page()
        for piece in self._outputs.pieces(len(rows)):
            mine = rows.slice(piece.first, piece.last)
            alive, births = self._liveness(mine)
            piece.writer.append(LIVE, None, births)
            for column in self._schema.columns:
                if mine.page and self._copies(column, mine.page, piece.writer):
                    piece.writer.append(column.id, None, self._history(column, mine.page))
                else:
                    piece.writer.append(column.id, *self._column(column, mine))
            first = piece.writer.row_count
            piece.writer.end_run(mine.keys, alive)
            for part, positions, rowids in mine.by_part():
                rows_there = pack(piece.output, first + positions)
                self._inputs[part.source].moved.locations[rowids] = rows_there

    def _have_expired(self, expiry: Expiry, rows: MergedRows, births: DeltaRun) -> np.ndarray:
        """Return which rows expired at the ancient history mark or earlier, unless they came since (``births`` are the
        UNDO deltas of liveness), or their moment was set since."""
        cells, undo = self._column(expiry.column, rows)
        gone = expiry.are_gone(cells, self._ancient)
        gone[births.rowids] = False
        gone[undo.rowids] = False
        return gone

    def _liveness(self, rows: MergedRows) -> tuple[np.ndarray, DeltaRun]:
        """Return which rows are alive at F, and the UNDO deltas of liveness."""
        cells, undo = self._column(None, rows)
        assert isinstance(cells, FixedVector)
        return cells.values.astype(np.bool_), undo

    def _column(self, column: ColumnSchema | None, rows: MergedRows) -> tuple[Vector, DeltaRun]:
        """Return the cells of a column (None for liveness) at F, and its UNDO deltas, both by position in ``rows``."""
        cells: list[Vector] = []
        undo: list[DeltaRun] = []
        start = 0
        for part in rows.parts:
            base, history = self._part(column, part)
            cells.append(base)
            if history:
                undo.append(_shifted(history, start))
            start += len(base)
        whole = concat(cells)
        if not undo:
            return rows.arranged(whole), DeltaRun(np.empty(0, np.int32), np.empty(0, np.int64), whole.slice(0, 0))
        return rows.arranged(whole), rows.arranged_run(merge_runs(undo))

    def _part(self, column: ColumnSchema | None, part: RowRange) -> tuple[Vector, DeltaRun | None]:
        """Return cells at F and UNDO deltas of a range of rows of one input, counted from its first row."""
        source, first, last = self._inputs[part.source], part.first, part.last
        base = source.rowset.base(column, first, last) if column else _base_liveness(source.rowset, first, last)
        redo = source.redo(column.id if column else LIVE, first, last)
        if not redo:
            return base, self._history(column, part)
        base, inverted = invert(base, _shifted(merge_runs(redo), -first))
        return base, self._history(column, part, inverted)

    def _history(self, column: ColumnSchema | None, part: RowRange, newest: DeltaRun | None = None) -> DeltaRun | None:
        """Return the UNDO deltas of a range of rows of one input, counted from its first row, ``newest`` after the
        existing ones."""
        source, first, last = self._inputs[part.source], part.first, part.last
        births = None if column else source.rowset.births(first, last)
        runs = ([births] if births else []) + source.undo(column.id if column else LIVE, first, last)
        history = [_shifted(run, -first) for run in runs] + ([newest] if newest else [])
        if not history:
            return None
        undo = merge_runs(history)
        wanted = undo.timestamps > self._ancient
        if wanted.all():
            return undo
        self.is_history_lost = True
        return undo.take(np.flatnonzero(wanted))

    def _copies(self, column: ColumnSchema, page: RowRange, writer: OutputWriter) -> bool:
        """Copy an encoded page of a column if the output would have the same cells; return whether it was copied."""
        source = self._inputs[page.source]
        rowset = source.rowset
        is_as_written = rowset.metadata.schema_version == self._schema.version and rowset.has_base(column.id)
        if not is_as_written or source.redo(column.id, page.first, page.last):
            return False
        return writer.copy_rows(column.id, rowset.base_stream(column.id), page.first)


def _base_liveness(rowset: DiskRowSet, first: int, last: int) -> FixedVector:
    alive = rowset.base_live(first, last)
    return FixedVector(np.ones(last - first, np.uint8) if alive is None else alive.astype(np.uint8))


def _ancient_dead(alive: np.ndarray, undo: DeltaRun) -> np.ndarray:
    """Return which rows have been dead since the ancient history mark or earlier: ``undo`` has all later changes."""
    gone = ~alive
    gone[undo.rowids] = False
    return gone


def _shifted(run: DeltaRun, rows: int) -> DeltaRun:
    return DeltaRun(run.rowids + np.int32(rows), run.timestamps, run.values) if rows else run
