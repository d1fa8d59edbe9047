"""Bulk load: files of rows, or a data frame, written to a table by many tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.operation import Operation
from ....schemas.rows.transaction import TransactionCommit
from ....schemas.rows.write import Stage
from ....schemas.store.description import TableDescription
from ...api.table import Table
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.progress import JobProgress, Show
from ..folder import Place
from ..link import Store, StoreLink
from .file_format import NOTES, OTHER_NOTES, ReadOptions, is_note
from .input_files import InputFile, input_files
from .load_part import LoadTask, PartResult, load_part
from .rejects import RefusedRow, Rejects

TASK_ROWS = 2 * 1024 * 1024
BATCH_ROWS = 131_072
BATCH_BYTES = 16 * 1024 * 1024
ERRORS_MAX = 1_000
_COUNTS = {"rows", "applied", "ignored", "stale", "error_count", "truncated"}


class LoadResult(BaseModel, frozen=True):
    """The outcome of a load of files. Each row of the files is counted once: applied, ignored, stale,
    skipped or rejected."""

    table: str
    files: int
    rows: int
    applied: int
    ignored: int
    stale: int = 0
    """Rows older than those of their keys: see the table option ``order_by``."""
    skipped: int = 0
    """Rows written by an earlier run of the same load; rows refused then are refused again."""
    error_count: int
    errors: list[RefusedRow]
    """The first thousand."""
    rejected: int = 0
    """Refused rows written to the file of rejected rows."""
    replaced: int | None = None
    """Applied rows of an upsert that met a row with their key, in the table or before them in the files; None if nobody
    counted them: of data frames."""
    truncated: int = 0
    """Cells of applied rows that were cut to the length of their varchar column."""


def load(
    store: Store,
    table: str,
    source: Any,
    *,
    op: str | Operation = Operation.UPSERT,
    atomic: bool = False,
    run: str = "",
    options: ReadOptions | None = None,
    rejects: Place | None = None,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> LoadResult:
    """Write the rows of files to a table: Parquet, CSV, TSV, Arrow and JSON, compressed or not, by suffix.

    ``source`` is a path or URI of a file or folder, or a list of them; or rows in a form that ``Table.write`` takes; or
    a Spark DataFrame, which the connector writes. Tasks run in parallel: if two rows have the same key, either may come
    last. Each batch is one commit. With ``atomic`` all files are one commit, which any rejected row rejects.

    Batches are numbered by the identity of the files (path, size, modification time), so that running an interrupted
    load again applies no batch twice. To load an unchanged file a second time, pass another ``run``.

    Rows that are rejected, or have a value that the table cannot hold, do not stop the others. They are in the result,
    and with ``rejects`` also in that file (.csv or .jsonl): of the rows that the table rejects the first thousand of a
    batch, of those that cannot be parsed all.

    Raises:
        NotFoundError: the table, a file or a folder does not exist.
        InvalidArgumentError: a file cannot be read, or its columns do not fit the table.
    """
    link = StoreLink.to(store)
    about = link.service.describe_table(table)
    if not _is_places(source):
        return _load_frame(link, about, source, operation_of(op))
    files = input_files(source, options)
    aside = _rejects(rejects, files, about, executor)
    since = link.service.now()
    tasks = [task for file in files for task in tasks_of(link, about, file, operation_of(op), run, since)]
    if atomic:
        tasks = staged(tasks)
    with JobProgress(f"load {table}", len(tasks), show) as progress, closing(aside) if aside else nullcontext():
        if executor == "local":
            tasks = [replace(task, rejects=aside, told=progress.advance) for task in tasks]
        parts = [PartResult() for _ in tasks]
        for number, part in executor_of(executor, workers).run(load_part, tasks, progress.ended):
            parts[number] = part
            progress.add(0 if executor == "local" else part.rows)
        if atomic:
            parts = [*parts, _committed(link, tasks, parts, since)]
    return _combined(about.name, len(files), parts, aside)


def _rejects(
    path: Place | None, files: Sequence[InputFile], about: TableDescription, executor: ExecutorChoice
) -> Rejects | None:
    if path is None:
        return None
    if executor != "local":
        raise InvalidArgumentError("rejects works only if this process loads the files: leave out the executor")
    names = [column.name for column in about.columns]
    notes = OTHER_NOTES if set(NOTES) & set(names) else NOTES
    if any(file.format in ("json", "jsonl") for file in files):
        return Rejects(Path(path), names, notes)
    found = dict.fromkeys(name for file in files for name in file.schema().names)
    return Rejects(Path(path), [name for name in found if name in names or not is_note(name)], notes)


def operation_of(op: str | Operation) -> Operation:
    try:
        return Operation(op)
    except ValueError:
        raise InvalidArgumentError(f"unknown operation {op!r}; known: {', '.join(Operation)}") from None


def _is_places(source: Any) -> bool:
    kinds = str | Path | InputFile
    if isinstance(source, kinds):
        return True
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(each, kinds) for each in source)


def _load_frame(link: StoreLink, about: TableDescription, frame: Any, op: Operation) -> LoadResult:
    """Write rows from memory; the connector writes Spark DataFrames."""
    if type(frame).__module__.startswith("pyspark.sql"):
        from .spark_frame import write_spark_frame

        rows, cut = write_spark_frame(link, about, frame, op)
        counts = {"rows": rows, "applied": rows, "ignored": 0, "stale": 0, "error_count": 0, "truncated": cut}
        return LoadResult(table=about.name, files=0, errors=[], **counts)
    result = Table(link.service, about).write(frame, op, on_error="return")
    errors = [RefusedRow(file="", **error.model_dump()) for error in result.errors]
    return LoadResult(table=about.name, files=0, errors=errors, **result.model_dump(include=_COUNTS))


def tasks_of(
    link: StoreLink, about: TableDescription, file: InputFile, op: Operation, run: str, since: int
) -> Iterator[LoadTask]:
    groups = file.row_groups() if file.format == "parquet" else None
    said = f"{about.table_id}:{op}:{run}:{file.digest}"
    name = f"load-{hashlib.blake2b(said.encode(), digest_size=12).hexdigest()}"
    if groups is None:
        yield LoadTask(link, about, op, file, None, 0, BATCH_ROWS, name, since)
        return
    rows = [rows for rows, _ in groups]
    row_bytes = sum(size for _, size in groups) // max(sum(rows), 1)
    batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(row_bytes, 1)))
    first_row = 0
    for number, chosen in enumerate(_in_tasks(rows)):
        yield LoadTask(link, about, op, file, tuple(chosen), first_row, batch_rows, f"{name}-{number}", since)
        first_row += sum(rows[group] for group in chosen)


def _in_tasks(groups: Sequence[int]) -> Iterator[list[int]]:
    """Yield runs of row group numbers, each with about the rows of one task."""
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


def staged(tasks: Sequence[LoadTask]) -> list[LoadTask]:
    """Return the tasks as parts of one transaction, which is named after its input."""
    said = ":".join(task.writer for task in tasks)
    name = f"load-{hashlib.blake2b(said.encode(), digest_size=12).hexdigest()}"
    return [replace(task, stage=Stage(transaction=name, part=str(part))) for part, task in enumerate(tasks)]


def _committed(link: StoreLink, tasks: Sequence[LoadTask], parts: Sequence[PartResult], since: int) -> PartResult:
    """Make all staged rows visible, or none."""
    first = tasks[0].stage
    assert first is not None
    if any(part.error_count for part in parts):
        link.service.abort_transaction(first.transaction)
        return PartResult()
    by_name = {name: number for number, part in enumerate(parts) if part.staged for name in part.staged.parts}
    result = link.service.commit_transaction(TransactionCommit(transaction=first.transaction, parts=list(by_name)))
    made = PartResult(error_count=result.error_count)
    for error in result.errors:
        number = by_name[error.part]
        places, staged = parts[number].places, parts[number].staged
        assert places and staged, "staged"
        sent = staged.as_staged(error).row
        place = {"file": str(tasks[number].file), "row": places.row(sent), "line": places.line(sent)}
        made.errors.append(RefusedRow(**place, code=error.code, message=error.message))
    if result.error_count:
        link.service.abort_transaction(first.transaction)
    if result.timestamp <= since:
        made.skipped = result.applied + result.ignored + result.stale
    else:
        made.applied, made.ignored = result.applied, result.ignored  # despite errors: on other servers
        made.stale = result.stale
        made.truncated = result.cells_truncated
        made.replaced = result.replaced
    return made


def _combined(table: str, files: int, parts: Sequence[PartResult], aside: Rejects | None) -> LoadResult:
    return LoadResult(
        table=table,
        files=files,
        rows=sum(part.rows for part in parts),
        applied=sum(part.applied for part in parts),
        ignored=sum(part.ignored for part in parts),
        stale=sum(part.stale for part in parts),
        skipped=sum(part.skipped for part in parts),
        error_count=sum(part.error_count for part in parts),
        errors=[error for part in parts for error in part.errors][:ERRORS_MAX],
        rejected=aside.rows if aside else 0,
        replaced=sum(part.replaced for part in parts),
        truncated=sum(part.truncated for part in parts),
    )
