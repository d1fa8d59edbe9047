"""Backup: the rows of a table at a snapshot, or the changes since the last backup, as Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel

from ....schemas.cells.timestamp import Moment
from ....schemas.errors import (
    ConflictError,
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
)
from ....schemas.protocol.service import StoreService
from ....schemas.rows.changes import ChangeSpec, feed_schema
from ....schemas.rows.scan import ScanSpec
from ....schemas.store.description import TableDescription
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.executor import Executor
from ...executors.progress import Show, run_tasks
from ..folder import Folder, Place
from ..lease import FolderLease, lost
from ..link import Store, StoreLink
from ..splits import (
    SPLIT_BYTES,
    TableSplit,
    TabletLabel,
    count_rows,
    in_order,
    label_of,
    snapshot_of,
    split_table,
    tablets_of,
)
from .chain import METADATA, PLAN, Backup, BackupPlan, TableBackups, backups_of, name_of
from .owner import why_not_continued
from .parts import DataFile, PartTask, sweep, write_part
from .tablet_sums import tablet_sums, total_of
from .verification import TabletChecksum
from .verify_job import can_sum, checked

_BEGINNINGS = 3
"""How often to restart a backup because the table was altered during it."""
_PLANS = 20
"""How often to plan while tablets move."""


class BackupResult(BaseModel, frozen=True):
    """The outcome of a backup of a table."""

    table: str
    kind: Literal["full", "increment"]
    folder: str
    since: int | None
    until: int
    rows: int
    bytes: int
    files: int
    resumed: bool
    """Whether it continued an earlier run."""
    checksum: str | None
    """Of all rows of the table at ``until``, if computed."""
    why_full: str | None = None
    """Why it is a full backup, if an increment was expected."""


@dataclass(frozen=True)
class _Run:
    """The context of one backup run."""

    link: StoreLink
    table: str
    root: Folder
    lease: FolderLease
    force_full: bool
    as_of: Moment | None
    checksum: bool | None
    split_bytes: int
    executor: Executor
    show: Show


def backup(
    store: Store,
    table: str,
    root: Place,
    *,
    force_full: bool = False,
    as_of: Moment | None = None,
    checksum: bool | None = None,
    split_bytes: int = SPLIT_BYTES,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> BackupResult:
    """Back up a table into the folder ``root``, a path or a URI: in full the first time, then only the changes.

    The next run resumes an interrupted one: at its snapshot, with the files it completed. Readers and writers are not
    blocked. The backup stores a checksum of all rows, by which a restore is verified, unless ``checksum`` is False (or
    numpy is missing). The checksum is computed from the rows read, except for an increment after columns were changed,
    which needs a scan of the table. With ``checksum`` True an increment always scans the table, and the two results are
    compared. Use ``root`` for the backups of one store only.

    Raises:
        NotFoundError: the table does not exist.
        SnapshotTooOldError: the changes since the last backup are no longer kept; ``force_full`` takes a full backup.
        UnavailableError: another run is backing up the table into the folder; the message names it.
        InvalidArgumentError: ``as_of`` is not after the last backup, or ``root`` has backups of another store.
        CorruptionError: the changes do not add up to the rows of the table.
    """
    link = StoreLink.to(store)
    runner = executor_of(executor, workers)
    place = Folder.at(root)
    about = link.service.describe_table(table)
    with FolderLease(place, f"_lease-{_identity(about)}", f"the backup of table {table!r} in {place}") as lease:
        run = _Run(link, table, place, lease, force_full, as_of, checksum, split_bytes, runner, show)
        for _ in range(_BEGINNINGS):
            done = _attempt(run)
            if done:
                return done
    raise ConflictError(f"table {table!r} kept being altered during the backup: run the job again")


def _identity(about: TableDescription) -> str:
    """Return a short unique name of the table."""
    first = min(((each.store_uuid, each.table_id) for each in about.stores), default=("", about.table_id))
    return f"{first[0][:8]}-{first[1]}"


def _discard(folder: Folder, run: _Run) -> None:
    """Remove an unfinished backup, after checking that it is this run's, and unfinished."""
    run.lease.check()
    if folder.has(METADATA):
        raise lost(f"the backup {folder}")
    folder.remove_all()


def _attempt(run: _Run) -> BackupResult | None:
    """Return a backup, or None to start again."""
    about = run.link.service.describe_table(run.table)
    backups = backups_of(run.root, about)
    for name in list(backups.finished)[-1:]:  # a run may have been killed after it had written the metadata
        _tidy(backups.folder.child(name), backups.finished[name])
    name, plan = _unfinished(backups, about, run) or _begun(backups, about, run)
    folder = backups.folder.child(name)
    resumed = bool(folder.names(".note.json"))
    try:
        parts = _written(folder, plan, run)
    except (ConflictError, InvalidArgumentError, NotFoundError):
        if _is_as_planned(plan, run):
            raise
        _discard(folder, run)
        return None
    except SnapshotTooOldError as error:
        _discard(folder, run)
        if resumed:
            return None
        raise _gone(error) from None
    if not _is_of_one_table(plan, parts, run.link.service.describe_table(run.table)):
        _discard(folder, run)
        return None
    made = _finished(folder, plan, parts, _before(plan, backups), run)
    return BackupResult(
        table=made.table.name,
        kind=made.kind,
        folder=str(folder),
        since=made.since,
        until=made.until,
        rows=made.rows,
        bytes=made.bytes,
        files=len(made.parts),
        resumed=resumed,
        checksum=made.checksum,
        why_full=plan.why_full,
    )


def _unfinished(backups: TableBackups, about: TableDescription, run: _Run) -> tuple[str, BackupPlan] | None:
    """Return the backup that an earlier run began, if it can be continued; remove others."""
    last = backups.last
    for name in reversed(backups.unfinished):
        folder = backups.folder.child(name)
        plan = _plan_in(folder)
        follows = plan and plan.since == (last.until if last and plan.kind == "increment" else None)
        wanted = plan and (plan.kind == "full" or not run.force_full) and run.as_of is None
        is_same = plan and not why_not_continued(plan.table, about) and _same_columns(plan.table, about)
        if plan and follows and wanted and is_same:
            return name, plan
        _discard(folder, run)
    return None


def _plan_in(folder: Folder) -> BackupPlan | None:
    """Return the plan of an unfinished backup; None if there is none that this version can continue."""
    try:
        return folder.read_model(PLAN, BackupPlan) if folder.has(PLAN) else None
    except CorruptionError:
        return None


def _begun(backups: TableBackups, about: TableDescription, run: _Run) -> tuple[str, BackupPlan]:
    """Start a new backup and write its plan before anything else."""
    service = run.link.service
    last = None if run.force_full else backups.last
    why_full = why_not_continued(last.table, about) if last else None
    until = snapshot_of(service, run.as_of)
    if (newest := backups.last) and until <= newest.until:
        raise InvalidArgumentError(f"the last backup ended at {newest.moment}; {until} must be later")
    why_full = why_full or (_why_another_past(service, last, about) if last else None)
    last = None if why_full else last
    sums = run.checksum is not False and can_sum()
    about, tablets, splits = _planned(service, run, last, until, sums)
    plan = BackupPlan(
        kind="increment" if last else "full",
        since=last.until if last else None,
        until=until,
        table=about,
        tablets=tablets,
        sums=sums,
        splits=splits,
        why_full=why_full,
        rows=None if last else count_rows(service, ScanSpec(table=about.name, as_of=until)),
    )
    name = name_of(plan)
    folder = backups.folder.child(name)
    folder.make()
    folder.write_model(PLAN, plan)
    return name, plan


def _why_another_past(service: StoreService, last: Backup, about: TableDescription) -> str | None:
    """Return why the changes since the last backup do not lead from its rows to those of the table, where their number
    shows it: tablets that are others are read in full anyway."""
    if last.table_rows is None or set(tablets_of(service, about.name)) != set(last.tablets):
        return None
    try:
        rows = count_rows(service, ScanSpec(table=about.name, as_of=last.until))
    except SnapshotTooOldError:
        return None  # the plan says so
    if rows == last.table_rows:
        return None
    return (
        f"the table had {last.table_rows:,} rows at the last backup, but now has {rows:,} at the same timestamp: its "
        "store was put back to an earlier state, or its ttl was different meanwhile"
    )


def _planned(
    service: StoreService, run: _Run, last: Backup | None, until: int, sums: bool
) -> tuple[TableDescription, list[TabletLabel], list[TableSplit]]:
    """Return the table, its tablets, and what to read of them, all of one version of the table.

    Raises:
        SnapshotTooOldError: the changes since the last backup are no longer kept.
        ConflictError: tablets move, or the table is altered, faster than it can be planned.
    """
    for _ in range(_PLANS):
        about = service.describe_table(run.table)
        try:
            found = _splits(service, about, last, until, sums, run.split_bytes)
        except SnapshotTooOldError as error:
            raise _gone(error) from None
        if found:
            return about, *found
    raise ConflictError(f"table {run.table!r} kept being altered, or its tablets kept moving: run the job again")


def _splits(
    service: StoreService, about: TableDescription, last: Backup | None, until: int, sums: bool, split_bytes: int
) -> tuple[list[TabletLabel], list[TableSplit]] | None:
    """Return the tablets and what to read: the changes of tablets in the last backup, all rows of others.

    So the rows of dropped ranges are not listed one by one: a restore skips the files of tablets that no longer exist.
    A tablet that was split or moved counts as gone, and its successors as new. None if the table changed meanwhile.
    """
    columns = [column.name for column in about.columns]
    whole = split_table(service, ScanSpec(table=about.name, columns=columns, as_of=until), split_bytes)
    known = set(last.tablets) & set(whole.tablets) if last else set[TabletLabel]()
    splits, found = whole.of(set(whole.tablets) - known), [whole]
    if last and known:
        before = sums and last.sums is not None and _same_columns(last.table, about)
        feed = ChangeSpec(since=last.until, until=until, before=before)
        changed = split_table(service, ScanSpec(table=about.name, columns=columns, changes=feed), split_bytes)
        splits = changed.of(known) + splits
        found.append(changed)
    if any((each.tablets, each.schema_version) != (whole.tablets, about.schema_version) for each in found):
        return None
    return in_order(whole.tablets), splits


def _written(folder: Folder, plan: BackupPlan, run: _Run) -> list[DataFile]:
    fields = [column.field for column in plan.table.columns]
    rows = pa.schema(fields)
    splits = [  # by the table's current name
        split.model_copy(update={"scan": split.scan.model_copy(update={"table": run.table})}) for split in plan.splits
    ]
    tasks = [
        PartTask(run.link, split, folder, number, *_given(split, rows, plan.sums))
        for number, split in enumerate(splits)
    ]
    done = run_tasks(run.executor, write_part, tasks, lambda part: part.rows, f"back up {run.table}", run.show)
    parts = dict(done)
    return [parts[number] for number in range(len(tasks))]


def _given(split: TableSplit, rows: pa.Schema, sums: bool) -> tuple[pa.Schema, bool]:
    """Return the columns of a split's scan, and whether to compute its sums."""
    changes = split.scan.changes
    if changes is None:
        return rows, sums
    return feed_schema(list(rows), changes.before), changes.before


def _before(plan: BackupPlan, backups: TableBackups) -> list[TabletChecksum] | None:
    """Return the sums that an increment starts from; none for a full backup, None if they are unknown."""
    if plan.kind == "full":
        return []
    last = next((each for each in backups.finished.values() if each.until == plan.since), None)
    return last.sums if last and _same_columns(last.table, plan.table) else None


def _finished(
    folder: Folder, plan: BackupPlan, parts: list[DataFile], before: list[TabletChecksum] | None, run: _Run
) -> Backup:
    sums, table_rows, total = _sums(folder, plan, parts, before, run)
    made = Backup(
        kind=plan.kind,
        since=plan.since,
        until=plan.until,
        table=plan.table,
        tablets=plan.tablets,
        parts=parts,
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        table_rows=table_rows,
        checksum=total,
        sums=sums,
    )
    run.lease.check()
    folder.write_model(METADATA, made.sealed(), only_new=True)
    _tidy(folder, made)
    return made


def _sums(
    folder: Folder, plan: BackupPlan, parts: list[DataFile], before: list[TabletChecksum] | None, run: _Run
) -> tuple[list[TabletChecksum] | None, int | None, str | None]:
    """Return the sums of the tablets and of the table, if wanted and known."""
    if not plan.sums:
        return None, None, None
    sums = None if before is None else tablet_sums(plan.tablets, parts, before)
    if sums is not None and (plan.kind == "full" or not run.checksum):
        return sums, *total_of(sums)
    found, _ = checked(run.link, run.table, plan.until, run.executor, run.show, run.split_bytes)
    if sums is not None and (found.rows, found.checksum) != total_of(sums):
        raise CorruptionError(
            str(folder),
            0,
            f"the table has {found.rows:,} rows with the checksum {found.checksum}, but the last backup and the later "
            "changes give {:,} rows with {}: take a full backup (force_full, --force-full)".format(*total_of(sums)),
        )
    is_as_planned = [label_of(each.server, each.tablet) for each in found.tablets] == plan.tablets
    return found.tablets if is_as_planned else None, found.rows, found.checksum


def _tidy(folder: Folder, made: Backup) -> None:
    """Remove the temporary files of a finished backup; the plan last, since it marks that this is still to be done."""
    if folder.has(PLAN):
        sweep(folder, made.parts)
        folder.remove(PLAN)


def _is_as_planned(plan: BackupPlan, run: _Run) -> bool:
    service = run.link.service
    now = tablets_of(service, run.table)
    return now == plan.tablets and _same_columns(plan.table, service.describe_table(run.table))


def _is_of_one_table(plan: BackupPlan, parts: list[DataFile], now: TableDescription) -> bool:
    """Return whether the parts are complete and of the planned table, whose rows expire as planned.

    A tablet that moved to another server is found by its partition; so is one that replaced it, after its range was
    dropped and added again. All rows can be counted; changes are trusted only if the table has the same version.
    """
    if not _same_columns(plan.table, now) or plan.table.options.ttl != now.options.ttl:
        return False
    if plan.rows is not None and sum(part.rows for part in parts) != plan.rows:
        return False
    is_shared = any(split.server for split in plan.splits)
    return plan.kind == "full" or not is_shared or now.schema_version == plan.table.schema_version


def _same_columns(left: TableDescription, right: TableDescription) -> bool:
    return [(each.id, each.name, each.type, each.nullable) for each in left.columns] == [
        (each.id, each.name, each.type, each.nullable) for each in right.columns
    ]


def _gone(error: SnapshotTooOldError) -> SnapshotTooOldError:
    return SnapshotTooOldError(
        f"{error.message}. The changes since the last backup are no longer kept: take a full backup (force_full, "
        "--force-full), and back up more often or keep a longer history (history_max_age_seconds)"
    )
