"""Compactions whose merges are done outside: hands out rowsets with a lease, and installs the outputs.

The files of the rowsets get a second name in a directory of the task (``compactions/<id>/<task>``), so that the store
cannot delete them under the worker; outputs are written beside them. Each task is committed alone. Maintenance only
flushes a tablet with rowsets handed out: a rewrite would waste the work outside. Correctness does not depend on that,
since a commit checks that the rowsets are still the tablet's.

Compactions last while the store is open; opening it removes the directories of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ....schemas.store.bucket_place import BucketPlace
from ....schemas.store.compaction import (
    TASK_FILES_MAX,
    CompactionBegin,
    CompactionCommit,
    CompactionDone,
    CompactionPlan,
    CompactionTask,
    MergedTask,
)
from ... import threads
from ...catalog.catalog import Catalog
from ...commit.room import Room
from ...compaction.merge import TARGET_BYTES, TARGET_ROWS
from ...fs.copy import bring
from ...fs.failures import named
from ...fs.filesystem import FileSystem, join
from ...fs.subdirectory import DirectoryFileSystem
from ...fs.tree import remove_quietly
from ...maintenance.op import MaintenanceOp
from ...maintenance.upkeep import work_on
from ...manifest import files
from ...manifest.environment import Environment
from ...manifest.manifest import TabletEntry
from ...mvcc.clock import Clock
from ...rowset.diskrowset import DiskRowSet
from ...scan.plan.snapshots import Snapshots
from ...table.table import Table
from ...table.table_version import TableVersion, check_here
from ...tablet.tablet import Tablet
from ..leases import Leases
from .check import check_task
from .install_merge import OutsideMerge, check_current, prepared, put_merged
from .run import INPUTS
from .tasks import groups

ROOT = "compactions"
_ATTEMPTS = 5


@dataclass(slots=True, eq=False)
class _Task:
    """A task that was handed out; ``outcome`` is set at its end."""

    plan: CompactionTask
    tablet: Tablet
    rowsets: TabletEntry
    lock: threads.Lock = field(default_factory=threads.new_lock)
    outcome: CompactionDone | ConflictError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Compaction:
    compaction_id: str
    table: Table
    version: TableVersion
    tasks: list[_Task] = field(default_factory=list)

    @property
    def directory(self) -> str:
        return join(ROOT, self.compaction_id)


class Compactions:
    """The outside compactions of one store. Thread safe."""

    def __init__(
        self,
        catalog: Catalog,
        environment: Environment,
        snapshots: Snapshots,
        room: Room,
        clock: Clock,
        new_timestamp: Callable[[], int],
        flushed: Callable[[], None],
        notify: Callable[[], None],
        bucket: BucketPlace | None = None,
    ) -> None:
        """``new_timestamp`` is unique at each call; ``flushed`` is called after
        flushes; ``notify`` wakes maintenance; ``bucket`` is that of the store."""
        self._bucket = bucket
        self._catalog = catalog
        self._snapshots = snapshots
        self._flushed = flushed
        self._notify = notify
        self._environment = environment
        self._new_timestamp = new_timestamp
        self._leases: Leases[_Compaction] = Leases("compaction", self._drop, clock, room)

    def begin(self, asked: CompactionBegin) -> CompactionPlan:
        """Flush the tablets of a table and hand out the rowsets that are worth merging; there may be none.

        Raises:
            ConflictError: rowsets of a tablet are handed out already.
            NotFoundError: there is no such table or tablet.
            StorageFullError, UnavailableError: there are too many compactions, the table could not be flushed, or this
                disk does not support hard links.
        """
        table = self._catalog.table(asked.table)
        ancient_history_mark = self._snapshots.ancient_history_mark(table)
        for compaction_id in self._leases.expired():
            self._leases.end_expired(compaction_id)
        with self._leases.begun():
            plan = self._begin(asked, table, ancient_history_mark)
        self._flushed()
        return plan

    def _begin(self, asked: CompactionBegin, table: Table, ancient_history_mark: int) -> CompactionPlan:
        for _ in range(_ATTEMPTS):
            found = _Compaction(f"{table.table_id}-{self._new_timestamp():x}", table, table.version)
            try:
                with named("rowsets could not be handed out to be merged"):
                    for tablet in _chosen(found.version, asked.tablets, table.name):
                        if asked.replace and tablet.handed_out:
                            self._leases.end(tablet.handed_out)
                        self._hand_out(found, tablet, ancient_history_mark)
                if table.version is found.version:
                    if found.tasks:
                        self._leases.add(found.compaction_id, found, asked.ttl_seconds)
                    break
            except BaseException as error:
                self._drop(found.compaction_id, found)
                is_altered = table.version is not found.version and table.dropped_until is None
                if isinstance(error, StoreError) and is_altered:
                    continue  # a tablet is gone; the new table version shows where its rows are
                raise
            self._drop(found.compaction_id, found)
        else:
            raise UnavailableError(f"table {table.name!r} keeps being altered: try again later", 1.0)
        return CompactionPlan(
            compaction_id=found.compaction_id,
            table=table.name,
            schema_=found.version.schema,
            tasks=tuple(task.plan for task in found.tasks),
            rowset_bytes=TARGET_BYTES,
            rowset_rows=TARGET_ROWS,
            ttl_seconds=asked.ttl_seconds,
            bucket=self._bucket,
        )

    def commit(self, asked: CompactionCommit) -> CompactionDone:
        """Replace the rowsets of a task by its outputs; a task that has ended gets its first answer.

        Raises:
            NotFoundError: the compaction is gone.
            ConflictError: the rowsets have changed since they were handed out. Nothing changed; the task has ended.
            InvalidArgumentError: a file is wrong. Nothing changed; another attempt may be committed.
            StorageFullError, UnavailableError: nothing changed.
        """
        with self._leases.used(asked.compaction_id) as found:
            task = next((task for task in found.tasks if task.plan.number == asked.task.number), None)
            if task is None:
                raise InvalidArgumentError(f"the compaction has no task {asked.task.number}")
            with task.lock:
                if task.outcome is None:
                    try:
                        task.outcome = self._put(found, task, asked.task)
                    except ConflictError as error:
                        task.outcome = error
                    self._end(found, [task])
        if isinstance(task.outcome, ConflictError):
            raise ConflictError(task.outcome.message)
        self._flushed()
        self._notify()
        return task.outcome

    def renew(self, compaction_id: str) -> None:
        """Restart the lease. Raises NotFoundError if the compaction is gone."""
        self._leases.renew(compaction_id)

    def abort(self, compaction_id: str) -> None:
        """Drop uncommitted tasks. Raises NotFoundError if the compaction is gone already."""
        self._leases.end_known(compaction_id)

    def __len__(self) -> int:
        """Return the number of outside compactions that have not ended."""
        return len(self._leases)

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of dropping expired compactions."""
        return self._leases.removals()

    def _drop(self, _: str, found: _Compaction) -> None:
        for tablet in found.version.tablets:  # including one whose first task could not be made
            _take_back(found, tablet)
        self._end(found, found.tasks)
        remove_quietly(self._environment.fs, found.directory)

    def _hand_out(self, found: _Compaction, tablet: Tablet, ancient_history_mark: int) -> None:
        environment = self._environment
        with work_on(tablet, environment):
            if tablet.handed_out:
                raise ConflictError(
                    f"rowsets of tablet {tablet.tablet_id} are already handed out to compaction "
                    f"{tablet.handed_out!r}: wait until it ends, or replace it with replace=True"
                )
            timestamp = prepared(tablet, environment, ancient_history_mark)
            entry = environment.manifest.current.tablet(tablet.tablet_id)
            if entry is None:
                raise NotFoundError(f"table {found.table.name!r} was dropped")
            for group in groups(tablet.version.disk, ancient_history_mark, found.version.schema, TARGET_BYTES):
                tablet.handed_out = found.compaction_id
                found.tasks.append(self._task(found, tablet, entry, group, timestamp, ancient_history_mark))

    def _task(
        self,
        found: _Compaction,
        tablet: Tablet,
        entry: TabletEntry,
        group: Sequence[DiskRowSet],
        timestamp: int,
        ancient_history_mark: int,
    ) -> _Task:
        """Make a task of some rowsets, with lasting names for their files. In a bucket they have their own: nobody else
        replaces what is handed out, and an object that is gone nevertheless ends the task, no more."""
        number, ids = len(found.tasks), {rowset.rowset_id for rowset in group}
        rowsets = tuple(rowset for rowset in entry.rowsets if rowset.id in ids)
        mine = entry.model_copy(update={"rowsets": rowsets})
        directory = join(found.directory, str(number))
        if self._bucket is None:
            fs, home = self._environment.fs, files.directory(entry.home)
            target = join(join(directory, INPUTS), home)
            fs.make_directory(target)
            for name in (name for rowset in rowsets for name in rowset.file_names):
                fs.link(join(home, name), join(target, name))
        plan = CompactionTask(
            number=number,
            tablet=tablet.tablet_id,
            entry=mine.told(),
            timestamp=timestamp,
            history_mark=ancient_history_mark,
            directory=directory,
            first_file_id=self._environment.manifest.new_file_ids(TASK_FILES_MAX),
            rows=sum(map(len, group)),
            bytes=sum(rowset.bytes_on_disk for rowset in group),
        )
        return _Task(plan, tablet, mine)

    def _put(self, found: _Compaction, task: _Task, merged: MergedTask) -> CompactionDone:
        environment, tablet, plan = self._environment, task.tablet, task.plan
        staging = join(plan.directory, merged.attempt)
        check_current(tablet, environment, task.rowsets.rowsets)
        with named("the files of a compaction could not be read"):
            check_task(merged, plan, found.version.schema, tablet, DirectoryFileSystem(environment.fs, staging))

        def give_place(file_id: int, kind: str, path: str) -> None:
            name = join(staging, files.path(tablet.directory_id, file_id, kind))
            bring(environment.fs, name, environment.fs, path)

        outside = OutsideMerge(
            rowsets=task.rowsets.rowsets,
            timestamp=plan.timestamp,
            ancient_history_mark=plan.history_mark,
            outputs=tuple((each.base.file_id, each.undo and each.undo.file_id) for each in merged.rowsets),
            is_history_lost=merged.is_history_lost,
        )
        try:
            with work_on(tablet, environment):
                done = put_merged(tablet, environment, outside, give_place)
        except UnavailableError:
            environment.latch.check()  # the merge may be installed
            check_current(tablet, environment, task.rowsets.rowsets)  # the tablet may be gone
            raise
        return CompactionDone(
            tablet=tablet.tablet_id,
            rowsets_before=len(task.rowsets.rowsets),
            rowsets=len(merged.rowsets),
            rows=done.rows,
            bytes_written=done.bytes_written,
            bytes_freed=done.bytes_freed,
        )

    def _end(self, found: _Compaction, tasks: Sequence[_Task]) -> None:
        """Release the files of tasks, and tablets without other tasks."""
        for task in tasks:
            remove_quietly(self._environment.fs, task.plan.directory)
        under_way = {task.tablet for task in found.tasks if task.outcome is None and task not in tasks}
        for tablet in {task.tablet for task in tasks} - under_way:
            _take_back(found, tablet)
        if not under_way:
            remove_quietly(self._environment.fs, found.directory)


def sweep(fs: FileSystem) -> None:
    """Remove the outside compactions of an earlier process; their workers may still be writing."""
    remove_quietly(fs, ROOT)


def _take_back(found: _Compaction, tablet: Tablet) -> None:
    if tablet.handed_out == found.compaction_id:
        tablet.handed_out = None


def _chosen(version: TableVersion, wanted: Sequence[int] | None, name: str) -> list[Tablet]:
    """Return the tablets with the ``wanted`` ids; None means all that are here and sound.

    Raises:
        NotFoundError: the table has no such tablet.
        WrongServerError: another server has it.
        CorruptionError: it is in quarantine.
    """
    if wanted is None:
        return [tablet for tablet in version.tablets if not tablet.elsewhere and not tablet.quarantine]
    by_id = {tablet.tablet_id: tablet for tablet in version.tablets}
    for tablet_id in wanted:
        if tablet_id not in by_id:
            raise NotFoundError(f"table {name!r} has no tablet {tablet_id}")
        check_here(by_id[tablet_id])
    return [by_id[tablet_id] for tablet_id in dict.fromkeys(wanted)]
