"""Checks the files of a task before they become part of a table; nothing but their cells is trusted.

Each file must have the checksum that its writer gave, the columns of the table, keys and deltas in order, and the
requested timestamps. `row_places` later checks that all rows are there, and no others.
"""

from __future__ import annotations

from ....schemas.errors import CorruptionError, InvalidArgumentError
from ....schemas.store.compaction import TASK_FILES_MAX, CompactionTask, MergedFile, MergedRowset, MergedTask
from ....schemas.table.table import TableSchema
from ...cfile.cache import PageCache
from ...codecs.checksum import crc32_of
from ...delta import LIVE
from ...delta.file import DeltaFile
from ...fs.copy import pieces_of
from ...fs.filesystem import FileSystem
from ...manifest import files
from ...rowset.diskrowset import DiskRowSet
from ...rowset.soundness import verify_deltas, verify_keys, verify_nulls, verify_rows, verify_streams
from ...tablet.tablet import Tablet


def check_task(merged: MergedTask, task: CompactionTask, schema: TableSchema, tablet: Tablet, fs: FileSystem) -> None:
    """Check the files that an outside merge wrote for a task, in ``fs``; ``schema`` is that of the plan.

    Raises:
        InvalidArgumentError: a file is wrong; the text has its name, and why.
        OSError: it cannot be read.
    """
    _check_numbers(merged, task)
    previous: bytes | None = None  # the least key may be empty
    for rowset in merged.rowsets:
        _check_whole(rowset.base, "base", tablet, fs)
        if rowset.undo:
            _check_whole(rowset.undo, "undo", tablet, fs)
        try:
            _check_content(rowset, task, schema, tablet, fs)
        except CorruptionError as error:
            raise _wrong(rowset.base, error.why) from error
        if previous is not None and bytes.fromhex(rowset.min_key) <= previous:
            raise _wrong(rowset.base, "its first key is not above the last key of the file before it")
        previous = bytes.fromhex(rowset.max_key)


def _check_numbers(merged: MergedTask, task: CompactionTask) -> None:
    first = task.first_file_id
    numbers: set[int] = set()
    for file in (file for rowset in merged.rowsets for file in (rowset.base, rowset.undo) if file):
        if not first <= file.file_id < first + TASK_FILES_MAX:
            raise _wrong(file, f"its number is outside the plan's range, {first} to {first + TASK_FILES_MAX - 1}")
        if file.file_id in numbers:
            raise _wrong(file, "its number occurs twice")
        numbers.add(file.file_id)


def _check_whole(file: MergedFile, kind: str, tablet: Tablet, fs: FileSystem) -> None:
    path = files.path(tablet.directory_id, file.file_id, kind)
    if not fs.exists(path):
        raise _wrong(file, "the server does not find it")
    size, crc = crc32_of(pieces_of(fs, path))
    if (size, crc) != (file.bytes, file.crc):
        raise _wrong(file, f"its size ({size:,} of {file.bytes:,} bytes) or the checksum is wrong")


def _check_content(
    merged: MergedRowset, task: CompactionTask, schema: TableSchema, tablet: Tablet, fs: FileSystem
) -> None:
    base_id = merged.base.file_id
    path = files.path(tablet.directory_id, base_id, "base")
    rowset = DiskRowSet.open(fs, path, base_id, -1, tablet.schema.key, tablet.encoder, PageCache())
    try:
        said = rowset.metadata
        if (said.row_count, said.min_key, said.max_key) != (merged.rows, merged.min_key, merged.max_key):
            raise _wrong(merged.base, "its footer and the result of the task disagree on rows or keys")
        if (said.schema_version, said.base_timestamp) != (schema.version, task.timestamp):
            raise _wrong(merged.base, "it was written for another schema version or another timestamp")
        verify_streams(schema, files.encodings(schema), rowset, may_have_dead_rows=True)
        verify_keys(rowset)
        verify_rows(rowset)
        verify_nulls(schema, rowset.reader)
        if merged.undo:
            _check_undo(merged.undo, rowset, task, schema, tablet, fs)
    finally:
        rowset.close()


def _check_undo(
    merged: MergedFile,
    rowset: DiskRowSet,
    task: CompactionTask,
    schema: TableSchema,
    tablet: Tablet,
    fs: FileSystem,
) -> None:
    path = files.path(tablet.directory_id, merged.file_id, "undo")
    try:
        file = DeltaFile.open(fs, path, merged.file_id, "undo", rowset.rowset_id, PageCache())
        for column_id in file.column_ids:
            if column_id != LIVE and column_id not in schema.by_id:
                raise _wrong(merged, f"it has changes of column {column_id}, which is not in the table")
            if (verify_deltas(file.reader, column_id, len(rowset)) > task.timestamp).any():
                raise _wrong(merged, "it has changes that are later than the base file")
        file.close()
    except CorruptionError as error:
        raise _wrong(merged, error.why) from error


def _wrong(file: MergedFile, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"file {file.file_id} of the compaction cannot be installed: {why}")
