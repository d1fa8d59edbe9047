"""Export: the rows of a table at a snapshot as Parquet files, one for each split."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ....schemas.cells.timestamp import Moment, read_moment
from ....schemas.errors import AlreadyPresentError, ConflictError
from ....schemas.rows.scan import ScanSpec
from ....schemas.table.names import Names, listed
from ...convert.where import Where, where_json
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.progress import Show, run_tasks
from ..folder import Folder, Place
from ..lease import FolderLease
from ..link import Store, StoreLink
from ..splits import SPLIT_BYTES, TableSplit, check_count, count_rows, snapshot_of, split_table
from .parts import DataFile, PartTask, sweep, write_part

METADATA, PLAN = "_export.json", "_plan.json"
"""Spark, pyarrow, Hive and others ignore files with such names. Not ``_metadata.json``, the name in version 0.1: Spark
takes names that begin with ``_metadata`` for footers of Parquet."""
ZONE = "UTC"
"""The zone that exported timestamps have."""
_LEASE = "_lease"


class ExportResult(BaseModel, frozen=True):
    """The outcome of an export of a table; also the content of ``_export.json``, which is written last."""

    table: str
    snapshot: int
    folder: str
    rows: int
    bytes: int
    parts: list[DataFile]
    resumed: bool = False


class _Plan(BaseModel):
    """The content of ``_plan.json``, from which another run resumes an export."""

    asked: dict[str, Any]
    """The requested scan."""
    zone: str | None = None
    """Of its timestamps: None if version 0.1 began it, which wrote them without one."""
    snapshot: int
    splits: list[TableSplit]
    columns: list[tuple[int, str, str]] | None = None
    """Id, name and type of the columns that it reads; None if an earlier version began it."""
    rows: int | None
    """The number of rows, if known: counting with a filter reads its columns, so it is done only if tablets may move to
    another server meanwhile."""


def export(
    store: Store,
    table: str,
    folder: Place,
    *,
    columns: Names | None = None,
    where: Where = None,
    as_of: Moment | None = None,
    split_bytes: int = SPLIT_BYTES,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> ExportResult:
    """Write the rows of a table at a snapshot (default: now) to a folder of Parquet files.

    Spark, DuckDB, pyarrow and others read the folder as one dataset. The next run of the same export resumes an
    interrupted one.

    Raises:
        NotFoundError: the table or a column does not exist.
        AlreadyPresentError: the folder contains an export, or other files; or an unfinished export of other columns.
        ConflictError: the columns of the table changed meanwhile.
        UnavailableError: another run exports into it; the message names it.
    """
    link = StoreLink.to(store)
    place = Folder.at(folder)
    runner = executor_of(executor, workers)
    names = None if columns is None else listed(columns)
    moment = None if as_of is None else read_moment(as_of)
    asked = ScanSpec(table=table, columns=names, where=where_json(where), as_of=moment)
    with FolderLease(place, _LEASE, f"the export into {place}") as lease:
        plan, resumed = _planned(link, place, asked.checked(), split_bytes)
        schema = link.service.scan(asked.model_copy(update={"limit": 0})).schema
        splits = enumerate(plan.splits)
        tasks = [PartTask(link, split, place, number, schema, is_zoned=True) for number, split in splits]
        parts = dict(run_tasks(runner, write_part, tasks, lambda part: part.rows, f"export {table}", show))
        check_count(f"table {table!r}", sum(part.rows for part in parts.values()), plan.rows)
        if plan.columns != _columns(link, asked):  # two columns may have had one name
            raise ConflictError(
                f"the columns of table {table!r} changed during the export: empty {place} and start again"
            )
        made = ExportResult(
            table=table,
            snapshot=plan.snapshot,
            folder=str(place),
            rows=sum(part.rows for part in parts.values()),
            bytes=sum(part.bytes for part in parts.values()),
            parts=[parts[number] for number in range(len(tasks))],
            resumed=resumed,
        )
        lease.check()
        place.write_model(METADATA, made, only_new=True)
        sweep(place, made.parts)
        place.remove(PLAN)
        return made


def _planned(link: StoreLink, place: Folder, asked: ScanSpec, split_bytes: int) -> tuple[_Plan, bool]:
    """Return the plan, and whether an earlier run made it."""
    request = asked.model_dump(mode="json")
    if place.has(PLAN) and not place.has(METADATA):
        plan = place.read_model(PLAN, _Plan)
        if (plan.asked, plan.zone) == (request, ZONE):
            if plan.columns in (now := _columns(link, asked), None):
                return plan.model_copy(update={"columns": now}), True
            raise AlreadyPresentError(
                f"{place} contains an unfinished export of table {asked.table!r}, whose columns have changed since: "
                "empty it, or use another folder"
            )
        raise AlreadyPresentError(f"{place} contains another, unfinished export: empty it, or use another folder")
    if [name for name in place.names() if not name.startswith(_LEASE)]:
        raise AlreadyPresentError(f"{place} is not empty: use another folder")
    columns = _columns(link, asked)
    snapshot = snapshot_of(link.service, asked.as_of)
    pinned = asked.pinned(snapshot)
    splits = split_table(link.service, pinned, split_bytes).splits
    is_shared = any(split.server for split in splits)
    rows = count_rows(link.service, pinned) if asked.where is None or is_shared else None
    plan = _Plan(asked=request, zone=ZONE, snapshot=snapshot, splits=splits, columns=columns, rows=rows)
    place.make()
    place.write_model(PLAN, plan)
    return plan, False


def _columns(link: StoreLink, asked: ScanSpec) -> list[tuple[int, str, str]]:
    """Return the columns of the table that a scan reads; with a filter, all."""
    columns = link.service.describe_table(asked.table).columns
    read = None if asked.where is not None or asked.columns is None else set(asked.columns)
    return [(each.id, each.name, each.type) for each in columns if read is None or each.name in read]
