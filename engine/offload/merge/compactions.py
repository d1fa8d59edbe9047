"""Compactions whose merges are done outside: rowsets are handed out, with a lease, and their outputs put in place.

The files of the rowsets get a second name, in a directory of the task (``compactions/<id>/<task>``), so that nothing
takes them from whoever merges them; outputs are written beside them. Each task is committed for itself. A tablet with
rowsets that are handed out is flushed, and otherwise left alone by maintenance: else all the work would be for nothing.
Nothing depends on that, for a commit checks that the rowsets are still the tablet's.

Compactions live as long as the store is open; what is there when it is opened again belongs to nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ....schemas.compaction import (
    TASK_FILES_MAX,
    CompactionBegin,
    CompactionCommit,
    CompactionDone,
    CompactionPlan,
    CompactionTask,
    MergedTask,
)
from ....schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ...catalog.catalog import Catalog
from ...compaction.merge import TARGET_BYTES, TARGET_ROWS
from ...fs.copy import bring
from ...fs.failures import named
from ...fs.filesystem import FileSystem, join
from ...fs.subdirectory import DirectoryFileSystem
from ...fs.tree import remove_quietly
from ...maintenance.op import MaintenanceOp
from ...maintenance.upkeep import TabletOp, work_on
from ...manifest import files
from ...manifest.environment import Environment
from ...manifest.manifest import TabletEntry
from ...room import Room
from ...rowset.diskrowset import DiskRowSet
from ...scan.snapshots import Snapshots
from ...table.table import Table
from ...table.table_version import TableVersion, check_here
from ...tablet.tablet import Tablet
from ..compaction.install_merge import OutsideMerge, check_current, prepared, put_merged
from ..leases import Leases
from .check import check_task
from .run import INPUTS
from .tasks import groups

ROOT = "compactions"
_ATTEMPTS = 5


@dataclass(slots=True, eq=False)
class _Task:
    """A task that was handed out; ``outcome`` says what became of it, once it is over."""

    plan: CompactionTask
    tablet: Tablet
    rowsets: TabletEntry
    lock: threading.Lock = field(default_factory=threading.Lock)
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
    """The compactions of one store that are done outside. Thread safe."""

    def __init__(
        self,
        catalog: Catalog,
        environment: Environment,
        snapshots: Snapshots,
        room: Room,
        now: Callable[[], int],
        new_timestamp: Callable[[], int],
        flushed: Callable[[], None],
        notify: Callable[[], None],
    ) -> None:
        """``now`` tells the time in microseconds since 1970; ``new_timestamp`` never gives one twice; ``flushed`` is
        called after tablets were flushed, and ``notify`` when there may be maintenance to do."""
        self._catalog = catalog
        self._snapshots = snapshots
        self._flushed = flushed
        self._notify = notify
        self._environment = environment
        self._new_timestamp = new_timestamp
        self._leases: Leases[_Compaction] = Leases("compaction", now, room)
        self._open: dict[str, _Compaction] = {}

    def begin(self, asked: CompactionBegin) -> CompactionPlan:
        """Flush the tablets of a table and hand out the rowsets that are worth merging; there may be none.

        Raises:
            ConflictError: rowsets of a tablet are handed out already.
            NotFoundError: there is no such table or tablet.
            StorageFullError, UnavailableError: there are too many, the table could not be flushed, or files cannot have
                two names on this disk.
        """
        table = self._catalog.table(asked.table)
        ancient_history_mark = self._snapshots.ancient_history_mark(table)
        for compaction_id in self._leases.expired():
            self._drop_expired(compaction_id)
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
                            self._drop_open(tablet.handed_out)
                        self._hand_out(found, tablet, ancient_history_mark)
            except StoreError:
                self._drop(found)
                if table.version is not found.version and table.dropped_until is None:
                    continue  # a tablet has gone; the new table version shows where its rows are
                raise
            if table.version is found.version:
                break
            self._drop(found)
        else:
            raise UnavailableError(f"table {table.name!r} keeps being altered: try again later", 1.0)
        if found.tasks:
            self._open[found.compaction_id] = found
            self._leases.add(found.compaction_id, found, asked.ttl_seconds)
        return CompactionPlan(
            compaction_id=found.compaction_id,
            table=table.name,
            schema_=found.version.schema,
            tasks=tuple(task.plan for task in found.tasks),
            rowset_bytes=TARGET_BYTES,
            rowset_rows=TARGET_ROWS,
            ttl_seconds=asked.ttl_seconds,
        )

    def commit(self, asked: CompactionCommit) -> CompactionDone:
        """Put the outputs of a task in the place of its rowsets; a task that is over is answered as it was then.

        Raises:
            NotFoundError: there is no such compaction any more.
            ConflictError: the rowsets are not what was handed out any more. Nothing changed; the task is over.
            InvalidArgumentError: a file is not what it should be. Nothing changed; another attempt may be committed.
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
        """Wait for the commits as long again. Raises NotFoundError when the compaction is gone."""
        self._leases.renew(compaction_id)

    def abort(self, compaction_id: str) -> None:
        """Drop what was not committed. Raises NotFoundError when the compaction is gone already."""
        self._leases.end_known(compaction_id)
        self._drop(self._open.pop(compaction_id))

    def _drop_open(self, compaction_id: str) -> None:
        if self._leases.end(compaction_id):
            self._drop(self._open.pop(compaction_id))

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of dropping compactions whose time is over."""
        return [
            TabletOp(f"drop compaction {compaction_id}", lambda: 1.0, partial(self._drop_expired, compaction_id))
            for compaction_id in self._leases.expired()
        ]

    def _drop_expired(self, compaction_id: str) -> None:
        if self._leases.end_expired(compaction_id):
            self._drop(self._open.pop(compaction_id))

    def _drop(self, found: _Compaction) -> None:
        self._end(found, found.tasks)
        for tablet in found.version.tablets:  # one may have been flushed, and no more
            _take_back(found, tablet)
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
        """Give the files of some rowsets names that stay."""
        number, ids = len(found.tasks), {rowset.rowset_id for rowset in group}
        rowsets = tuple(rowset for rowset in entry.rowsets if rowset.id in ids)
        mine = entry.model_copy(update={"rowsets": rowsets})
        directory = join(found.directory, str(number))
        fs, home = self._environment.fs, files.directory(entry.home)
        target = join(join(directory, INPUTS), home)
        fs.make_directory(target)
        for name in (name for rowset in rowsets for name in rowset.file_names):
            fs.link(join(home, name), join(target, name))
        plan = CompactionTask(
            number=number,
            tablet=tablet.tablet_id,
            entry=mine.model_dump(mode="json"),
            timestamp=timestamp,
            history_mark=ancient_history_mark,
            directory=directory,
            first_file_id=self._environment.manifest.new_ids(TASK_FILES_MAX),
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
            environment.latch.check()  # it may be in place
            check_current(tablet, environment, task.rowsets.rowsets)  # the tablet may have gone meanwhile
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
        """Let go of the files of tasks, and of tablets that have no other."""
        for task in tasks:
            remove_quietly(self._environment.fs, task.plan.directory)
        under_way = {task.tablet for task in found.tasks if task.outcome is None and task not in tasks}
        for tablet in {task.tablet for task in tasks} - under_way:
            _take_back(found, tablet)
        if not under_way:
            remove_quietly(self._environment.fs, found.directory)


def sweep(fs: FileSystem) -> None:
    """Remove what compactions have left that a former process had begun: those who merge may go on writing."""
    remove_quietly(fs, ROOT)


def _take_back(found: _Compaction, tablet: Tablet) -> None:
    if tablet.handed_out == found.compaction_id:
        tablet.handed_out = None


def _chosen(version: TableVersion, wanted: Sequence[int] | None, name: str) -> list[Tablet]:
    """Return the tablets that are meant.

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
