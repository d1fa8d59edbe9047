"""Restore: a table made anew from a chain of backups."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from ...schemas.alter import Alteration, RenameTable, SetComment, Step
from ...schemas.description import TableDescription
from ...schemas.errors import AlreadyPresentError, CorruptionError, InvalidArgumentError, NotFoundError
from ...schemas.operation import Operation
from ...schemas.service import StoreService
from ...schemas.timestamp import parse_moment
from .chain import Backup, TableBackups, backups_called
from .definition import Levels, create_like
from .executor import Executor, Where, executor_of
from .folder import Folder, Place
from .link import Store, StoreLink
from .parts import Part, read_part
from .progress import Show, run_tasks
from .verify_job import checked
from .writing import Projection, write_rows


class RestoreResult(BaseModel):
    """What a restore came to."""

    model_config = ConfigDict(frozen=True)

    table: str
    until: int
    """The snapshot of the source that the table shows."""
    backups: int
    """How long the chain was."""
    rows_written: int
    """Rows and changes that were written by this run."""
    resumed: bool
    verified: bool
    """Whether the rows were summed up and compared with what the backup says."""


@dataclass(frozen=True)
class RestoreTask:
    """Write one part into the new table."""

    link: StoreLink
    into: TableDescription
    """The new table, with the column ids of the source."""
    was: TableDescription
    folder: Folder
    part: Part


def restore(
    store: Store,
    root: Place,
    table: str,
    *,
    name: str | None = None,
    at: int | str | None = None,
    partition_by: Levels | None = None,
    verify: bool = True,
    executor: Where = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> RestoreResult:
    """Make a table from the backups of ``table`` in ``root``, as it was at the newest one that ended by ``at``.

    It gets the columns, key, partitions (or ``partition_by``), options and comments of then, is called ``name`` (by
    default as then) once all of it is there, and ``<name>.restoring-<until>`` before. A run that was killed is gone on
    with by the next one that restores the same. With ``verify`` its rows are summed up before, if the backup says what
    they should come to.

    Raises:
        NotFoundError: there is no such backup.
        ConflictError: a backup that the chain needs is missing.
        AlreadyPresentError: the store has a table of that name.
        CorruptionError: a file is not what was written, or the rows are not what they should be.
    """
    link = StoreLink.to(store)
    runner = executor_of(executor, workers)
    backups = backups_called(Folder.at(root), table)
    chain = backups.chain(None if at is None else parse_moment(at, "at"))
    wanted = chain[-1][1]
    name = name or wanted.table.name
    if name in link.service.tables():
        raise AlreadyPresentError(f"there is a table {name!r} already: restore it by another name, or drop that first")
    under_way = _UnderWay(link.service, wanted, name, backups, partition_by)
    resumed = under_way.stages > 0
    written = 0
    for number, (folder, made) in enumerate(chain):
        if number >= under_way.stages:
            tasks = _tasks(link, under_way.table, wanted, folder, made)
            what = f"restore {name}, {number + 1} of {len(chain)}"
            written += sum(rows for _, rows in run_tasks(runner, write_part_into, tasks, int, what, show))
            under_way.ended(number + 1)
    verified = verify and wanted.checksum is not None
    if verified:
        _check(wanted, *_sum_of(link, under_way.table.name, runner, show))
    under_way.complete(name)
    return RestoreResult(
        table=name,
        until=wanted.until,
        backups=len(chain),
        rows_written=written,
        resumed=resumed,
        verified=verified,
    )


class _UnderWay:
    """The table that is being restored, under a name of its own; its comment says how far it is."""

    def __init__(
        self, service: StoreService, wanted: Backup, name: str, backups: TableBackups, partition_by: Levels | None
    ) -> None:
        self._service = service
        self._wanted = wanted
        self._name = f"{name}.restoring-{wanted.until}"
        self._from = str(backups.folder)
        self.stages = 0
        """How many of the chain's backups are in it."""
        try:
            found = service.describe_table(self._name)
        except NotFoundError:
            found = create_like(service, wanted.table, self._name, self._comment(), partition_by)
        else:
            self.stages = self._stages_of(found.options.comment)
        self.table = _with_ids_of(found, wanted.table)

    def ended(self, stages: int) -> None:
        """Note that one more backup is in it."""
        self.stages = stages
        self._alter(SetComment(comment=self._comment()))

    def complete(self, name: str) -> None:
        """Give it its name and comment."""
        self._alter(SetComment(comment=self._wanted.table.options.comment), RenameTable(to=name))

    def _alter(self, *steps: Step) -> None:
        self._service.alter_table(Alteration(table=self._name, steps=list(steps)))

    def _comment(self) -> str:
        return json.dumps({"restoring_from": self._from[-600:], "backups_done": self.stages})

    def _stages_of(self, comment: str) -> int:
        try:
            said = json.loads(comment)
            if said["restoring_from"] == self._from[-600:]:
                return int(said["backups_done"])
        except (ValueError, KeyError, TypeError):
            pass
        raise InvalidArgumentError(
            f"the table {self._name!r} was not made by a restore from {self._from}: drop it, or restore by another name"
        )


def _with_ids_of(made: TableDescription, source: TableDescription) -> TableDescription:
    """Return a table's description with the column ids of the one it was made like."""
    ids = {column.name: column.id for column in source.columns}
    columns = [column.model_copy(update={"id": ids[column.name]}) for column in made.columns]
    return made.model_copy(update={"columns": columns})


def _tasks(link: StoreLink, into: TableDescription, wanted: Backup, folder: Folder, made: Backup) -> list[RestoreTask]:
    """Return what is to be written of one backup. Tablets that are gone in the end went with their rows: a range that
    was dropped; or are in a later backup in full: the heirs of one that was split."""
    tablets = set(wanted.tablets)
    return [
        RestoreTask(link, into, made.table, folder, part) for part in made.parts if part.rows and part.tablet in tablets
    ]


def write_part_into(task: RestoreTask) -> int:
    """Write one part; return how many rows and changes it has."""
    projection = Projection(task.was, task.into)
    write = partial(write_rows, task.link.service, task.into)
    if task.part.kind == "rows":
        write(map(projection.rows, read_part(task.folder, task.part)), projection.schema, Operation.UPSERT)
        return task.part.rows
    batches = list(read_part(task.folder, task.part))
    # Cells that are immutable are set in new rows only: rows that changed begin anew.
    starts_anew = any(column.immutable for column in task.into.columns)
    gone = batches if starts_anew else (batch.filter(_is_gone(batch)) for batch in batches)
    write(map(projection.keys, gone), projection.key, Operation.DELETE_IGNORE)
    there = (batch.filter(pc.invert(_is_gone(batch))) for batch in batches)
    write(map(projection.rows, there), projection.schema, Operation.UPSERT)
    return task.part.rows


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
