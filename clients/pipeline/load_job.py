"""Bulk load: files of rows, or a data frame, written to a table by many tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from ...schemas.description import TableDescription
from ...schemas.errors import InvalidArgumentError
from ...schemas.operation import Operation
from ...schemas.transaction import StagedBatch, TransactionCommit
from ...schemas.write import RowError, Stage, WriteCommand, WriteResult, combine
from ..casting import Caster
from ..table import Table
from .executor import Where, executor_of
from .input_files import InputFile, input_files
from .link import Store, StoreLink
from .progress import Show, run_tasks

TASK_ROWS = 2 * 1024 * 1024
BATCH_ROWS = 131_072
BATCH_BYTES = 16 * 1024 * 1024
NUMBERS = 64
"""Answers that the store keeps of each writer: what is sent again is known only among the newest so many."""
ERRORS_MAX = 1_000


class RefusedRow(RowError):
    """A row that the table did not take; ``row`` counts from the start of its file."""

    file: str


class LoadResult(BaseModel):
    """What a load came to. Rows that an earlier run of the same load has written count as they did then."""

    model_config = ConfigDict(frozen=True)

    table: str
    files: int
    rows: int
    applied: int
    ignored: int
    error_count: int
    errors: list[RefusedRow]
    """The first thousand."""


@dataclass(frozen=True)
class LoadTask:
    """Write some row groups of a Parquet file, or all of another file."""

    link: StoreLink
    about: TableDescription
    op: Operation
    file: InputFile
    row_groups: tuple[int, ...] | None
    first_row: int
    batch_rows: int
    writer: str
    """Under which its batches are numbered: made of the input, so that they are the same each time."""
    stage: Stage | None = None
    """The part of a transaction that its rows are, if they are not to be seen at once."""


def load(
    store: Store,
    table: str,
    source: Any,
    *,
    op: str | Operation = Operation.UPSERT,
    atomic: bool = False,
    run: str = "",
    executor: Where = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> LoadResult:
    """Write the rows of files to a table: Parquet, CSV, Arrow or JSON lines, by their suffixes.

    ``source`` is a path or URI of a file or folder, or a list of them; or rows as ``Table.write`` takes them, or a
    DataFrame of Spark, which the connector writes. Tasks run side by side: if two rows have one key, either may come
    last. Each batch is one commit; with ``atomic`` all files together are one, and any row that is refused stops it.

    Batches are numbered by what the files are (path, size, time of the last change), so that a load that was killed and
    is run again applies none twice. To load a file that has not changed a second time, name another ``run``.

    Rows that are refused do not stop the others; they stand in the result.

    Raises:
        NotFoundError: there is no such table, file or folder.
        InvalidArgumentError: a file cannot be read, or its columns do not fit the table.
    """
    link = StoreLink.to(store)
    about = link.service.describe_table(table)
    if not _is_places(source):
        return _load_frame(link, about, source, _operation(op))
    files = input_files(source)
    tasks = [task for file in files for task in _tasks(link, about, file, _operation(op), run)]
    if atomic:
        tasks = _staged(tasks)
    runner = executor_of(executor, workers)
    done = dict(run_tasks(runner, load_part, tasks, lambda result: result.rows, f"load {table}", show))
    if atomic:
        return _committed(link, tasks, len(files))
    results = [(tasks[number].file, done[number]) for number in range(len(tasks))]
    return _combined(about.name, len(files), results)


def _operation(op: str | Operation) -> Operation:
    try:
        return Operation(op)
    except ValueError:
        raise InvalidArgumentError(f"no operation is called {op!r}; there are {', '.join(Operation)}") from None


def _is_places(source: Any) -> bool:
    if isinstance(source, str | Path):
        return True
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(each, str | Path) for each in source)


def _load_frame(link: StoreLink, about: TableDescription, frame: Any, op: Operation) -> LoadResult:
    """Write rows that are here; those of a DataFrame of Spark by the connector."""
    if type(frame).__module__.startswith("pyspark.sql"):
        from .spark_frame import write_spark_frame

        rows = write_spark_frame(link, about.name, frame, op)
        return LoadResult(table=about.name, files=0, rows=rows, applied=rows, ignored=0, error_count=0, errors=[])
    result = Table(link.service, about).write(frame, op, on_error="return")
    errors = [RefusedRow(file="", **error.model_dump()) for error in result.errors]
    return LoadResult(table=about.name, files=0, errors=errors, **_counts(result))


def _counts(result: WriteResult) -> dict[str, int]:
    return result.model_dump(include={"rows", "applied", "ignored", "error_count"})


def _tasks(link: StoreLink, about: TableDescription, file: InputFile, op: Operation, run: str) -> Iterator[LoadTask]:
    groups = file.row_groups() if file.suffix == ".parquet" else None
    said = f"{about.table_id}:{op}:{run}:{file.digest}"
    name = f"load-{hashlib.blake2b(said.encode(), digest_size=12).hexdigest()}"
    if groups is None:
        yield LoadTask(link, about, op, file, None, 0, BATCH_ROWS, name)
        return
    rows = [rows for rows, _ in groups]
    row_bytes = sum(size for _, size in groups) // max(sum(rows), 1)
    batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(row_bytes, 1)))
    first_row = 0
    for number, chosen in enumerate(_in_tasks(rows)):
        yield LoadTask(link, about, op, file, tuple(chosen), first_row, batch_rows, f"{name}-{number}")
        first_row += sum(rows[group] for group in chosen)


def _in_tasks(groups: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of row groups, of which the rows are given, in runs of about the rows of one task."""
    chosen: list[int] = []
    rows = 0
    for number, size in enumerate(groups):
        if chosen and rows + size > TASK_ROWS:
            yield chosen
            chosen, rows = [], 0
        chosen.append(number)
        rows += size
    if chosen:
        yield chosen


def _staged(tasks: Sequence[LoadTask]) -> list[LoadTask]:
    """Return the tasks as parts of one transaction, which is called by its input."""
    said = ":".join(task.writer for task in tasks)
    name = f"load-{hashlib.blake2b(said.encode(), digest_size=12).hexdigest()}"
    return [replace(task, stage=Stage(transaction=name, part=str(part))) for part, task in enumerate(tasks)]


def _committed(link: StoreLink, tasks: Sequence[LoadTask], files: int) -> LoadResult:
    """Make all rows that were staged visible, or none."""
    by_part = {task.stage.part: task for task in tasks if task.stage}
    first = tasks[0].stage
    assert first is not None
    commit = TransactionCommit(transaction=first.transaction, parts=list(by_part))
    result = link.service.commit_transaction(commit)
    errors = [
        RefusedRow(
            file=str(by_part[error.part].file),
            row=by_part[error.part].first_row + error.row,
            code=error.code,
            message=error.message,
        )
        for error in result.errors
    ]
    if result.error_count:
        link.service.abort_transaction(first.transaction)
    return LoadResult(table=tasks[0].about.name, files=files, errors=errors, **_counts(result))


def load_part(task: LoadTask) -> WriteResult:
    """Write the rows of one task; error positions count from the start of the file."""
    reader = task.file.read(_types(task.about), task.row_groups, task.batch_rows)
    caster = Caster(reader.schema, task.about.columns)
    if task.stage is not None:
        command = WriteCommand(table=task.about.name, op=task.op, stage=task.stage)
        staged = task.link.service.stage(command, (StagedBatch(caster.cast(batch)) for batch in _filled(reader)))
        return WriteResult(timestamp=0, rows=staged.rows, applied=0)
    results: list[WriteResult] = []
    row = task.first_row
    for number, batch in enumerate(_filled(reader)):
        # A writer for every so many batches: the store knows their answers as long as it knows the writer.
        command = WriteCommand(table=task.about.name, op=task.op, writer=f"{task.writer}.{number // NUMBERS}")
        result = task.link.service.write(command, caster.cast(batch), number % NUMBERS)
        results.append(result.shifted(row))
        row += batch.num_rows
    return combine(results) if results else WriteResult(timestamp=0, rows=0, applied=0)


def _filled(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    return (batch for batch in reader if batch.num_rows)


def _types(about: TableDescription) -> pa.Schema:
    return pa.schema([column.field for column in about.columns])


def _combined(table: str, files: int, results: Sequence[tuple[InputFile, WriteResult]]) -> LoadResult:
    errors = [RefusedRow(file=str(file), **error.model_dump()) for file, result in results for error in result.errors]
    return LoadResult(
        table=table,
        files=files,
        rows=sum(result.rows for _, result in results),
        applied=sum(result.applied for _, result in results),
        ignored=sum(result.ignored for _, result in results),
        error_count=sum(result.error_count for _, result in results),
        errors=errors[:ERRORS_MAX],
    )
