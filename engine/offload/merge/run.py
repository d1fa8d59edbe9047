"""Does a task: merges rowsets that a store has handed out, in any process that can read their files.

Memory is bounded as in the store: for one column, a chunk of each rowset at a time, and 8 bytes a row.
"""

from __future__ import annotations

import numpy as np
from pydantic import ValidationError

from ....schemas.errors import CorruptionError, InvalidArgumentError, NotFoundError
from ....schemas.store.compaction import (
    TASK_FILES_MAX,
    CompactionPlan,
    CompactionTask,
    MergedFile,
    MergedRowset,
    MergedTask,
)
from ...cfile.cache import PageCache
from ...codecs.checksum import crc32_of
from ...compaction.merge_rows import Merge, MergeInput
from ...compaction.outputs import Moment, OutputRowSet, Outputs
from ...compaction.switch_over import MovedRowSet
from ...fs.copy import pieces_of
from ...fs.failures import named
from ...fs.filesystem import FileSystem, join
from ...fs.subdirectory import DirectoryFileSystem
from ...manifest import files
from ...manifest.environment import LooseFiles
from ...manifest.manifest import TabletEntry
from ...tablet.open import open_tablet
from ...tablet.tablet import Tablet

INPUTS = "inputs"


class _Names:
    """Names from the file numbers of a task."""

    def __init__(self, directory_id: int, first: int) -> None:
        self._directory_id = directory_id
        self._next, self._last = first, first + TASK_FILES_MAX

    def name(self, kind: str) -> tuple[int, str]:
        """See Names."""
        if self._next == self._last:
            raise InvalidArgumentError(f"a task has at most {TASK_FILES_MAX:,} files: compact smaller parts")
        self._next += 1
        return self._next - 1, files.path(self._directory_id, self._next - 1, kind)


def merge_task(plan: CompactionPlan, task: CompactionTask, store: FileSystem, attempt: str) -> MergedTask:
    """Do a task of an outside merge: merge its rowsets into files beside them, durably; ``store`` has the files of the
    store.

    ``attempt``, some hexadecimal digits, makes this attempt's file names unique. Files of a failed attempt are removed
    with the task.

    Raises:
        NotFoundError: the files are gone.
        CorruptionError: a file is not what was written.
        StorageFullError, UnavailableError: the disk failed.
    """
    with named("rowsets could not be merged outside the store"):
        try:
            tablet = _opened(plan, task, store)
        except (CorruptionError, OSError):
            _check_there(plan, task, store)
            raise
        try:
            return _merged(plan, task, tablet, DirectoryFileSystem(store, join(task.directory, attempt)), attempt)
        except (CorruptionError, OSError):
            _check_there(plan, task, store)
            raise
        finally:
            tablet.close()


def _opened(plan: CompactionPlan, task: CompactionTask, store: FileSystem) -> Tablet:
    _check_there(plan, task, store)
    entry = _entry_of(task)
    inputs = store if plan.bucket else DirectoryFileSystem(store, join(task.directory, INPUTS))
    return open_tablet(entry, plan.schema_, LooseFiles(inputs, PageCache()))


def _entry_of(task: CompactionTask) -> TabletEntry:
    try:
        return TabletEntry.model_validate(task.entry)
    except ValidationError as error:
        raise InvalidArgumentError(f"this version cannot run this task: {error}") from None


def _merged(
    plan: CompactionPlan, task: CompactionTask, tablet: Tablet, staging: FileSystem, attempt: str
) -> MergedTask:
    directory = files.directory(tablet.directory_id)
    staging.make_directory(directory)
    names, moment = _Names(tablet.directory_id, task.first_file_id), Moment(task.timestamp, 0, plan.schema_)
    loose = LooseFiles(staging, PageCache())
    inputs = [
        MergeInput(MovedRowSet(rowset, {}, np.full(len(rowset), -1, np.int64)), {}) for rowset in tablet.version.disk
    ]
    outputs = Outputs(tablet, loose, names, moment, plan.rowset_rows, plan.rowset_bytes)
    try:
        merge = Merge(plan.schema_, inputs, outputs, task.history_mark, may_expire=False)
        merge.run(None)
    finally:
        outputs.abort()
    staging.sync_directory(directory)
    return MergedTask(
        number=task.number,
        attempt=attempt,
        rowsets=tuple(_told(output, staging, tablet.directory_id) for output in outputs.written),
        is_history_lost=merge.is_history_lost,
    )


def _told(output: OutputRowSet, staging: FileSystem, directory_id: int) -> MergedRowset:
    def file(file_id: int, kind: str) -> MergedFile:
        size, crc = crc32_of(pieces_of(staging, files.path(directory_id, file_id, kind)))
        return MergedFile(file_id=file_id, bytes=size, crc=crc)

    rowset = output.rowset
    told = MergedRowset(
        base=file(output.entry.id, "base"),
        undo=file(output.entry.undo[0], "undo") if output.entry.undo else None,
        rows=len(rowset),
        min_key=rowset.min_key.hex(),
        max_key=rowset.max_key.hex(),
    )
    rowset.close()
    return told


def _check_there(plan: CompactionPlan, task: CompactionTask, store: FileSystem) -> None:
    entry = _entry_of(task)
    home = files.directory(entry.home)
    inputs = [f"{home}/{name}" for rowset in entry.rowsets for name in rowset.file_names]
    if not all(map(store.exists, inputs if plan.bucket else [task.directory])):
        where = "bucket" if plan.bucket else "directory"
        raise NotFoundError(
            f"the files of task {task.number} are not in this {where}: it belongs to another store, the "
            "compaction expired or ended, or the server was restarted; start a new compaction"
        )
