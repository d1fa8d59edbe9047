"""Restore: a new table from a chain of backups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pydantic import BaseModel

from ....schemas import compute as pc
from ....schemas.cells.timestamp import Moment, read_moment
from ....schemas.errors import AlreadyPresentError, CorruptionError, RowErrors
from ....schemas.rows.changes import feed_schema
from ....schemas.store.description import TableDescription
from ....schemas.table.operation import Operation
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.executor import Executor
from ...executors.progress import Show, run_tasks
from ..definition import Levels
from ..folder import Folder, Place
from ..link import Store, StoreLink
from ..under_way import TableUnderWay
from ..writing import Projection, replacing, write_rows
from .chain import Backup, backups_called
from .parts import DataFile, read_part
from .verify_job import can_sum, checked


class RestoreResult(BaseModel, frozen=True):
    """The outcome of a restore."""

    table: str
    until: int
    """The source's snapshot that the table shows."""
    backups: int
    """Number of backups in the chain."""
    rows_written: int
    """Rows and changes written by this run."""
    resumed: bool
    verified: bool
    """Whether the checksum of the rows was compared with the backup's."""


@dataclass(frozen=True)
class RestoreTask:
    """Write one part into the new table."""

    link: StoreLink
    into: TableDescription
    """The new table, with the column ids of the source."""
    was: TableDescription
    folder: Folder
    part: DataFile


def restore(
    store: Store,
    root: Place,
    table: str,
    *,
    name: str | None = None,
    at: Moment | None = None,
    partition_by: Levels | None = None,
    verify: bool = True,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> RestoreResult:
    """Create a table from the backups of ``table`` in ``root``, as of the newest backup that ended by ``at``.

    The table gets the columns, key, partitions (or ``partition_by``), options and comments of that time. It is named
    ``name`` (default: its name then) when complete, and ``<name>.restoring-<until>`` before. The next run of the same
    restore resumes an interrupted one. With ``verify`` the checksum of its rows is compared with the backup's first, if
    the backup has one.

    Raises:
        NotFoundError: there is no such backup.
        ConflictError: a backup that the chain needs is missing.
        AlreadyPresentError: the store has a table of that name.
        UnavailableError: another run makes the same table; the message names it.
        CorruptionError: a file is damaged, or the rows do not match the checksum.
    """
    link = StoreLink.to(store)
    runner = executor_of(executor, workers)
    moment = None if at is None else read_moment(at, "at")
    backups = backups_called(Folder.at(root), table, moment)
    chain = backups.chain(moment)
    wanted = chain[-1][1]
    name = name or wanted.table.name
    is_there = AlreadyPresentError(f"table {name!r} already exists: restore to another name, or drop it first")
    if name in link.service.tables():
        raise is_there
    unfinished = f"{name}.restoring-{wanted.until}"
    written = 0
    with TableUnderWay(link.service, unfinished, wanted.table, str(backups.folder), partition_by) as under_way:
        if name in link.service.tables():  # by a run that has just ended
            under_way.discard()
            raise is_there
        resumed = bool(under_way.done)
        for number, (folder, made) in enumerate(chain, 1):
            if number > max(under_way.done, default=0):
                tasks = _tasks(link, under_way.table, wanted, folder, made)
                what = f"restore {name}, {number} of {len(chain)}"
                for _, rows in run_tasks(runner, write_part_into, tasks, int, what, show):
                    written += rows
                    under_way.check()
                under_way.note([number])
        verified = verify and wanted.checksum is not None and can_sum()
        if verified:
            _check(wanted, *_sum_of(link, unfinished, runner, show))
        under_way.complete(name, wanted.table.options.comment)
    return RestoreResult(
        table=name,
        until=wanted.until,
        backups=len(chain),
        rows_written=written,
        resumed=resumed,
        verified=verified,
    )


def _tasks(link: StoreLink, into: TableDescription, wanted: Backup, folder: Folder, made: Backup) -> list[RestoreTask]:
    """Return the tasks for one backup. Skip tablets that no longer exist at the end: their range was dropped, or they
    were split and a later backup has all their rows."""
    tablets = set(wanted.tablets)
    return [RestoreTask(link, into, made.table, folder, part) for part in made.parts if part.tablet in tablets]


def write_part_into(task: RestoreTask) -> int:
    """Write one part; return the number of its rows and changes."""
    fields = [column.field for column in task.was.columns]
    is_rows = task.part.kind == "rows"
    batches = read_part(task.folder, task.part, pa.schema(fields) if is_rows else feed_schema(fields, before=False))
    try:
        (_write_rows if is_rows else _write_changes)(task, batches)
    except RowErrors as error:
        where = f"{task.folder}/{task.part.file}"
        raise CorruptionError(where, 0, f"it has rows that the table cannot hold: {error.message}") from None
    return task.part.rows


def _write_rows(task: RestoreTask, batches: Iterator[pa.RecordBatch]) -> None:
    projection = Projection(task.was, task.into)
    given = map(projection.rows, batches)
    write_rows(task.link.service, task.into, given, projection.schema, replacing(task.into))


def _write_changes(task: RestoreTask, given: Iterator[pa.RecordBatch]) -> None:
    projection = Projection(task.was, task.into)
    write = partial(write_rows, task.link.service, task.into)
    batches = list(given)
    # Immutable cells are set only in new rows: so delete changed rows and insert them again.
    starts_anew = any(column.immutable for column in task.into.columns)
    gone = batches if starts_anew else (batch.filter(_is_gone(batch)) for batch in batches)
    write(map(projection.keys, gone), projection.key, Operation.DELETE_IGNORE)
    there = (batch.filter(pc.invert(_is_gone(batch))) for batch in batches)
    write(map(projection.rows, there), projection.schema, Operation.UPSERT)


def _is_gone(batch: pa.RecordBatch) -> pa.Array:
    return pc.equal(batch.column("_op"), "delete")


def _sum_of(link: StoreLink, table: str, runner: Executor, show: Show) -> tuple[int, str]:
    found, _ = checked(link, table, link.service.now(), runner, show)
    return found.rows, found.checksum


def _check(wanted: Backup, rows: int, checksum: str) -> None:
    if (rows, checksum) != (wanted.table_rows, wanted.checksum):
        raise CorruptionError(
            "the restored table",
            0,
            f"it has {rows:,} rows with the checksum {checksum}; the table had {wanted.table_rows:,} rows with "
            f"{wanted.checksum} at {wanted.moment}",
        )
