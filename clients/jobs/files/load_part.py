"""The tasks of a load: read, batch and write the rows of one file; record refused rows with their positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.operation import Operation
from ....schemas.rows.transaction import StagedBatch, StageResult
from ....schemas.rows.write import ROW_ERRORS_MAX, Stage, WriteCommand, WriteResult
from ....schemas.store.description import TableDescription
from ...convert.batching import in_batches, in_slices
from ...convert.casting import Caster
from ...convert.cells import python_rows
from ...convert.key_order import KeyOrder
from ..link import StoreLink
from .input_files import InputFile
from .lines import Lines
from .pieces import BadRow, Piece
from .rejects import RefusedRow, Rejects

NUMBERS = 64
"""Answers that the store keeps of each writer: a batch sent again is recognised only among the newest ones."""


@dataclass(frozen=True)
class LoadTask:
    """A task of a load: write some row groups of a Parquet file, or all of another file."""

    link: StoreLink
    about: TableDescription
    op: Operation
    file: InputFile
    row_groups: tuple[int, ...] | None
    first_row: int
    batch_rows: int
    writer: str
    """Numbers the batches: derived from the input, so that a second run uses the same name."""
    since: int
    """An earlier run applied what the store has up to this timestamp."""
    stage: Stage | None = None
    """The part of a transaction to stage the rows as, for atomic loads."""
    rejects: Rejects | None = None
    """Takes refused rows; only in the process that began the job."""
    told: Callable[[int], None] | None = None
    """Called with numbers of finished rows; only in that process, too."""


class Places:
    """Maps the rows that a load has sent to rows of the file, for the end of the queue of sent rows.

    Sent rows are counted from 0. Rows that could not be read lie between them.
    """

    def __init__(self, first_row: int) -> None:
        self._runs: deque[tuple[int, int]] = deque([(0, first_row)])
        """(a sent row, its row in the file): later rows are consecutive in both."""
        self._lines: deque[tuple[int, Lines | None]] = deque()
        """(a sent row, the lines of the rows from there on)."""

    def add(self, sent: int, piece: Piece, first_row: int) -> None:
        """Add a piece whose rows are sent from ``sent`` on; ``first_row`` is where its file's rows begin."""
        at = first_row + piece.first_row
        if not self._lines or piece.lines is not self._lines[-1][1]:
            self._lines.append((sent, piece.lines))
        for bad in piece.bad:
            self._runs.append((sent + (first_row + bad.row - at), first_row + bad.row + 1))
            sent, at = self._runs[-1]

    def row(self, sent: int) -> int:
        """Return the file row of a sent row."""
        start, row = next(run for run in reversed(self._runs) if run[0] <= sent)
        return row + sent - start

    def line(self, sent: int) -> int | None:
        """Return the line of a sent row, if it is known."""
        lines = next((lines for start, lines in reversed(self._lines) if start <= sent), None)
        return lines.line(self.row(sent)) if lines else None

    def forget(self, sent: int) -> None:
        """Drop rows before ``sent``: they are not needed any more."""
        for known in (self._runs, self._lines):
            while len(known) > 1 and known[1][0] <= sent:
                known.popleft()


@dataclass
class PartResult:
    """The outcome of one task of a load: what became of its rows, each counted once."""

    rows: int = 0
    applied: int = 0
    ignored: int = 0
    stale: int = 0
    skipped: int = 0
    """Rows that an earlier run applied or ignored."""
    replaced: int = 0
    """Rows of an upsert that replaced another."""
    truncated: int = 0
    """Cells that were cut to the length of their column."""
    error_count: int = 0
    errors: list[RefusedRow] = field(default_factory=list)
    places: Places | None = None
    """The file positions of staged rows, for the errors of the commit."""
    staged: StageResult | None = None
    """The staged parts, which the commit names."""


class _Part:
    """A running task."""

    def __init__(self, task: LoadTask) -> None:
        self._task = task
        self._places = Places(task.first_row)
        self._done = PartResult()
        self._read = 0
        self._sent = 0

    def run(self) -> PartResult:
        if self._task.stage is not None:
            return self._stage(self._task.stage)
        for number, batch in enumerate(self._commits()):
            self._write(batch, number)
        return self._done

    def _stage(self, stage: Stage) -> PartResult:
        command = WriteCommand(table=self._task.about.name, op=self._task.op, stage=stage)
        self._done.staged = self._task.link.service.stage(command, map(StagedBatch, self._commits()))
        self._done.places = self._places
        return self._done

    def _write(self, batch: pa.RecordBatch, number: int) -> None:
        task, done = self._task, self._done
        # A new writer for every NUMBERS batches: the store keeps all their answers while it remembers the writer.
        writer = f"{task.writer}.{number // NUMBERS}"
        counts = task.op.base is Operation.UPSERT
        command = WriteCommand(table=task.about.name, op=task.op, writer=writer, count_replaced=counts)
        result = task.link.service.write(command, batch, number % NUMBERS)
        if result.timestamp <= task.since:
            done.skipped += result.applied + result.ignored + result.stale
        else:
            done.applied += result.applied
            done.ignored += result.ignored
            done.stale += result.stale
            done.truncated += result.truncated
            done.replaced += result.replaced
        self._refused(batch, result)
        self._sent += batch.num_rows
        self._places.forget(self._sent)

    def _refused(self, batch: pa.RecordBatch, result: WriteResult) -> None:
        """Record the rows that the table refused."""
        self._done.error_count += result.error_count
        for error in result.errors:
            sent = self._sent + error.row
            place = {"row": self._places.row(sent), "line": self._places.line(sent)}
            refused = RefusedRow(file=str(self._task.file), **place, code=error.code, message=error.message)
            self._add(refused, lambda at=error.row: python_rows(batch.slice(at, 1))[0])

    def _unreadable(self, bad: BadRow) -> None:
        """Record a row that does not fit the table."""
        self._done.error_count += 1
        row = self._task.first_row + bad.row
        code = InvalidArgumentError.code
        refused = RefusedRow(file=str(self._task.file), row=row, line=bad.line, code=code, message=bad.message)
        self._add(refused, lambda: dict(bad.cells))

    def _add(self, refused: RefusedRow, cells: Callable[[], dict[str, object]]) -> None:
        if len(self._done.errors) < ROW_ERRORS_MAX:
            self._done.errors.append(refused)
        if self._task.rejects is not None:
            self._task.rejects.add(refused, cells())

    def _commits(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in commits: the same batches on each run, since they are numbered."""
        task = self._task
        if not task.file.is_text:
            yield from self._batches()
            return
        is_new = task.op.base in (Operation.INSERT, Operation.UPSERT)
        for _, batches in groupby(self._batches(), lambda batch: batch.schema):
            yield from in_batches(in_slices(batches), KeyOrder(task.about.primary_key) if is_new else None)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        task, caster, given = self._task, None, None
        for piece in task.file.pieces(task.about.columns, task.row_groups, task.batch_rows):
            self._places.add(self._read, piece, task.first_row)
            self._read += piece.batch.num_rows
            self._done.rows += piece.rows
            for bad in piece.bad:
                self._unreadable(bad)
            if caster is None or given != piece.batch.schema:
                given = piece.batch.schema
                caster = _caster(task, given)
            if piece.batch.num_rows:
                yield caster.cast(piece.batch)
            if task.told:
                task.told(piece.rows)


def _caster(task: LoadTask, given: pa.Schema) -> Caster:
    """Return the caster for the rows of a file. Raises InvalidArgumentError, which names the file."""
    try:
        return Caster(given, task.about.columns)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{task.file}: {error.message}") from None


def load_part(task: LoadTask) -> PartResult:
    """Write the rows of the file, or part of a file, in one task of a load."""
    return _Part(task).run()
