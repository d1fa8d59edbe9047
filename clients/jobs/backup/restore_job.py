"""Restore: a new table from a chain of backups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pydantic import BaseModel

from ....schemas import compute as pc
from ....schemas.cells.timestamp import Moment, read_moment
from ....schemas.errors import CorruptionError, RowErrors
from ....schemas.rows.changes import GONE, feed_schema
from ....schemas.rows.operation import Operation
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.progress import Show
from ..definition import Levels
from ..folder import Folder, Place
from ..link import Store, StoreLink
from ..under_way import TableUnderWay, check_free
from ..writing import FillTask, Projection, write_rows
from .chain import Backup, backups_called
from .parts import DataFile, read_part
from .verify_job import can_sum, checked


class RestoreResult(BaseModel, frozen=True):
    """The outcome of a restore from backups."""

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
class RestoreTask(FillTask):
    """A task of a restore: write the rows or changes in one part of a backup."""

    folder: Folder
    part: DataFile

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See FillTask."""
        fields = [column.field for column in self.was.columns]
        schema = pa.schema(fields) if self.part.kind == "rows" else feed_schema(fields, before=False)
        return read_part(self.folder, self.part, schema)

    def write(self) -> int:
        """See FillTask."""
        try:
            (super().write if self.part.kind == "rows" else self._write_changes)()
        except RowErrors as error:
            where = f"{self.folder}/{self.part.file}"
            raise CorruptionError(where, 0, f"it has rows that the table cannot hold: {error.message}") from None
        return self.part.rows

    def _write_changes(self) -> None:
        projection = Projection(self.was, self.into)
        write = partial(write_rows, self.target.service, self.into)
        batches = list(self.batches())
        # Immutable cells are set only in new rows: so delete changed rows and insert them again.
        starts_anew = any(column.immutable for column in self.into.columns)
        gone = batches if starts_anew else (batch.filter(_is_gone(batch)) for batch in batches)
        write(map(projection.keys, gone), projection.key, Operation.DELETE_IGNORE)
        there = (batch.filter(pc.invert(_is_gone(batch))) for batch in batches)
        write(map(projection.rows, there), projection.schema, Operation.UPSERT)


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
    check_free(link.service, name)
    unfinished = f"{name}.restoring-{wanted.until}"
    tablets, written = set(wanted.tablets), 0
    with TableUnderWay(link.service, name, unfinished, wanted.table, str(backups.folder), partition_by) as under_way:
        resumed = bool(under_way.done)
        for number, (folder, backup) in enumerate(chain, 1):
            if number > max(under_way.done, default=0):
                what = f"restore {name}, {number} of {len(chain)}"
                tasks = [
                    RestoreTask(backup.table, link, under_way.table, folder, part)
                    for part in backup.parts
                    if part.tablet in tablets  # else its range was dropped, or a later backup has all its rows
                ]
                written += sum(rows for _, rows in under_way.filled(tasks, runner, what, show))
                under_way.note([number])
        verified = verify and wanted.checksum is not None and can_sum()
        if verified:
            found, _ = checked(link, unfinished, link.service.now(), runner, show)
            _check(wanted, found.rows, found.checksum)
        under_way.complete()
    return RestoreResult(
        table=name,
        until=wanted.until,
        backups=len(chain),
        rows_written=written,
        resumed=resumed,
        verified=verified,
    )


def _is_gone(batch: pa.RecordBatch) -> pa.Array:
    return pc.is_in(batch.column("_op"), pa.array(GONE))


def _check(wanted: Backup, rows: int, checksum: str) -> None:
    if (rows, checksum) != (wanted.table_rows, wanted.checksum):
        raise CorruptionError(
            "the restored table",
            0,
            f"it has {rows:,} rows with the checksum {checksum}; the table had {wanted.table_rows:,} rows with "
            f"{wanted.checksum} at {wanted.moment}",
        )
