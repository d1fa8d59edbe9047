"""Delta compactions: fewer REDO files to search, or none at all for some columns.

A minor one merges the REDO files of a DiskRowSet into one; likewise UNDO files of about one size, of which each major
one adds one: a delta is written once more as its file grows to several times the size, however long the history is. A
major one moves the base of some columns forward to F, the newest timestamp in the REDO files:

    base at B   REDO B..F             ->  base at F (a new file)   UNDO B..F (a new file)     the chosen columns
    base at B   REDO B..F             ->  base at B                REDO B..F (a new file)     liveness, other columns

So from then on each column has its own base timestamp. Deltas in memory are all newer than F and stay unchanged;
writers wait only for the switch-over. Rows are processed by the page (`steps`: fewer if their cells are long), one
column after the other: memory holds the deltas of one page of rows, and a page of output.

Deltas that no snapshot at or after the ancient history mark can see are dropped; earlier snapshots are rejected from
then on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..delta import LIVE
from ..delta.file import DeltaFile, DeltaFileWriter
from ..delta.run import DeltaRun, collapsed, invert, merge_runs
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.manifest import TabletEntry
from ..rowset import steps
from ..rowset.base_file import ColumnsFile, ColumnsMetadata, write_columns_file
from ..rowset.diskrowset import DiskRowSet, base_timestamps
from ..tablet.tablet import Tablet
from ..vectors.vector import Vector
from .file_transaction import NewFiles, new_files, retire
from .report import FlushReport

_FAILED = "a delta compaction could not be finished; the tablet is unchanged"
_SMALL_BYTES = 256 << 10
"""UNDO files below so many times the number that is merged are of the first tier."""


def minor(
    tablet: Tablet,
    rowset: DiskRowSet,
    environment: Environment,
    ancient_history_mark: int = 0,
    fan_in: int | None = None,
) -> FlushReport | None:
    """Compact the deltas of a rowset: merge its REDO files, and its UNDO files of about one size (`mergeable`), if it
    has ``fan_in`` of them; None if it has neither. Without ``fan_in``, merge all REDO files and all UNDO files.

    The caller holds the maintenance lock.

    Raises:
        StorageFullError: the disk is full; nothing changed.
        UnavailableError: the disk failed.
    """
    mark, stores, schema = ancient_history_mark, rowset.deltas.stores, tablet.schema
    redo, undo = stores.redo, stores.undo
    old_redo = redo if len(redo) >= (fan_in or 2) else ()
    run = mergeable(undo, fan_in) if fan_in else range(len(undo) if len(undo) >= 2 else 0)
    old_undo = undo[run.start : run.stop]
    old = [*old_redo, *old_undo]
    if not old:
        return None
    with new_files(tablet, environment, _FAILED) as new:
        if old_redo:
            redo = _merge_redo(schema, rowset, environment, new, frozenset(), mark)
        if old_undo:
            merged = _merge_undo(schema, rowset, environment, new, old_undo, mark)
            undo = (*undo[: run.start], *merged, *undo[run.stop :])
        written = [file for file in (*redo, *undo) if file not in (*stores.redo, *stores.undo)]
        floor = mark if _deltas_in(written) < _deltas_in(old) else 0

        def put() -> None:
            with tablet.write_lock:
                deltas = rowset.deltas.successor(undo=undo, redo=redo)
                tablet.replace_diskrowset(rowset, rowset.with_files(deltas), floor)

        freed = sum(file.size_bytes for file in old)
        edit = _edit(rowset, {"redo": _ids(redo), "undo": _ids(undo)}, floor)
        new.commit(edit, put, partial(retire, environment, old))
    return FlushReport(_deltas_in(old), sum(file.size_bytes for file in written), freed)


def mergeable(undo: Sequence[DeltaFile], fan_in: int) -> range:
    """Return the places of the UNDO files that a minor compaction merges: ``fan_in`` neighbours or more of one tier,
    the newest first; empty if there are none.

    To merge all of them again and again would write the whole history each time. So files are put into tiers, each
    ``fan_in`` times as large as the one before; a file is at least in the tier of each newer one. (Tiering: Dayan,
    Athanassoulis, Idreos, "Monkey", SIGMOD 2017.)
    """
    end, limit = len(undo), _SMALL_BYTES * fan_in
    for place in reversed(range(len(undo))):
        size = undo[place].size_bytes
        if size >= limit:  # this and the older files are of a higher tier
            if end - place > fan_in:
                return range(place + 1, end)
            end = place + 1
            while size >= limit:
                limit *= fan_in
    return range(end if end >= fan_in else 0)


def major(
    tablet: Tablet,
    rowset: DiskRowSet,
    environment: Environment,
    column_ids: Collection[int] | None = None,
    ancient_history_mark: int = 0,
) -> FlushReport | None:
    """Compact the deltas of a rowset: bring the base of columns up to the REDO files; None if these have no deltas of
    them.

    ``column_ids`` None means all columns; liveness is never moved. The caller holds the maintenance lock.

    Raises:
        StorageFullError: the disk is full; nothing changed.
        UnavailableError: the disk failed.
    """
    stores, schema = rowset.deltas.stores, tablet.schema
    changed = {column_id for file in stores.redo for column_id in file.column_ids}.intersection(schema.by_id)
    chosen = frozenset(changed if column_ids is None else changed.intersection(column_ids))
    if not chosen:
        return None
    mark = ancient_history_mark
    with new_files(tablet, environment, _FAILED) as new:
        moved = _write_columns(schema, rowset, environment, new, chosen)
        undo = _write_undo(schema, rowset, environment, new, chosen, mark)
        redo = _merge_redo(schema, rowset, environment, new, chosen, mark)
        kept_columns = {column_id: file for column_id, file in rowset.columns.items() if column_id in schema.by_id}
        columns = {**kept_columns, **dict.fromkeys(chosen, moved)}
        floor = mark if _deltas_in(undo) + _deltas_in(redo) < _deltas_in(stores.redo) else 0
        all_undo = (*stores.undo, *undo)
        column_files = {column_id: file.file_id for column_id, file in columns.items()}

        def put() -> None:
            with tablet.write_lock:
                deltas = rowset.deltas.successor(all_undo, redo, base_timestamps(columns))
                tablet.replace_diskrowset(rowset, rowset.with_files(deltas, columns), floor)

        kept = {file.file_id for file in columns.values()}
        old = [*stores.redo, *(file for file in rowset.columns_files if file.file_id not in kept)]
        freed = sum(file.size_bytes for file in old)
        edit = _edit(rowset, {"columns": column_files, "undo": _ids(all_undo), "redo": _ids(redo)}, floor)
        new.commit(edit, put, partial(retire, environment, old))
    written = sum(file.size_bytes for file in (moved, *undo, *redo))
    return FlushReport(_deltas_in(stores.redo), written, freed)


def _write_columns(
    schema: TableSchema, rowset: DiskRowSet, environment: Environment, new: NewFiles, chosen: Collection[int]
) -> ColumnsFile:
    """Write the base of the chosen columns at F."""
    redo = rowset.deltas.stores.redo
    file_id, path = new.name("base")
    metadata = ColumnsMetadata(
        rowset_id=rowset.rowset_id,
        row_count=len(rowset),
        base_timestamp=max(file.metadata.last_timestamp for file in redo),
    )
    columns = {
        column_id: (cells for cells, _ in _brought(rowset, schema.by_id[column_id], redo)) for column_id in chosen
    }
    write_columns_file(environment.fs, path, file_id, columns, files.encodings(schema), metadata)
    return ColumnsFile.open(environment.fs, path, file_id, environment.page_cache)


def _write_undo(
    schema: TableSchema, rowset: DiskRowSet, environment: Environment, new: NewFiles, chosen: Collection[int], mark: int
) -> tuple[DeltaFile, ...]:
    """Write the UNDO deltas of the chosen columns, as far back as the history; return the new file, if any."""
    redo = rowset.deltas.stores.redo

    def pieces(column: ColumnSchema) -> Iterator[DeltaRun]:
        return (_after(undo, mark) for _, undo in _brought(rowset, column, redo) if undo is not None)

    columns = {column_id: pieces(schema.by_id[column_id]) for column_id in chosen}
    return _write_deltas(schema, rowset, environment, new, "undo", columns)


def _merge_redo(
    schema: TableSchema,
    rowset: DiskRowSet,
    environment: Environment,
    new: NewFiles,
    without: Collection[int],
    mark: int,
) -> tuple[DeltaFile, ...]:
    """Merge the REDO files without some columns; return the new file, or an empty result."""
    merged = _merged(schema, rowset, rowset.deltas.stores.redo, without)
    columns = {column_id: (collapsed(run, mark) for run in runs) for column_id, runs in merged.items()}
    return _write_deltas(schema, rowset, environment, new, "redo", columns)


def _merge_undo(
    schema: TableSchema,
    rowset: DiskRowSet,
    environment: Environment,
    new: NewFiles,
    undo: Sequence[DeltaFile],
    mark: int,
) -> tuple[DeltaFile, ...]:
    """Merge UNDO files, as far back as the history; return the new file, or an empty result."""
    merged = _merged(schema, rowset, undo, ())
    columns = {column_id: (_after(run, mark) for run in runs) for column_id, runs in merged.items()}
    return _write_deltas(schema, rowset, environment, new, "undo", columns)


def _merged(
    schema: TableSchema, rowset: DiskRowSet, delta_files: Sequence[DeltaFile], without: Collection[int]
) -> dict[int, Iterator[DeltaRun]]:
    """Return all deltas of each column in files, oldest first, a page of rows at a time, without those of dropped
    columns."""

    def deltas_bytes(column_id: int) -> float:
        return sum(file.value_bytes(column_id) for file in delta_files) / len(rowset)

    def runs(column_id: int) -> Iterator[DeltaRun]:
        found = (_run(delta_files, column_id, first, last) for first, last in _spans(rowset, deltas_bytes(column_id)))
        return (run for run in found if run is not None)

    there = {column_id for file in delta_files for column_id in file.column_ids}
    kept = there.intersection((LIVE, *schema.by_id)).difference(without)
    return {column_id: runs(column_id) for column_id in kept}


def _write_deltas(
    schema: TableSchema,
    rowset: DiskRowSet,
    environment: Environment,
    new: NewFiles,
    kind: str,
    columns: Mapping[int, Iterable[DeltaRun]],
) -> tuple[DeltaFile, ...]:
    """Write a delta file; return it opened, or an empty result if there are no deltas."""
    if not columns:
        return ()
    file_id, path = new.name(kind)
    encodings = files.encodings(schema)
    with DeltaFileWriter(environment.fs, path, file_id, kind, rowset.rowset_id, encodings) as writer:
        for column_id in sorted(columns):
            writer.add(column_id, columns[column_id])
        if writer.is_empty:
            return ()
        writer.finish()
    return (DeltaFile.open(environment.fs, path, file_id, kind, rowset.rowset_id, environment.page_cache),)


def _after(undo: DeltaRun, mark: int) -> DeltaRun:
    """Drop the UNDO deltas that no snapshot at or after ``mark`` needs."""
    is_seen = undo.timestamps > mark
    return undo if is_seen.all() else undo.take(np.flatnonzero(is_seen))


def _brought(
    rowset: DiskRowSet, column: ColumnSchema, redo: Sequence[DeltaFile]
) -> Iterator[tuple[Vector, DeltaRun | None]]:
    """Yield for each page of rows a column's cells brought forward, and the UNDO run that reverses that."""
    for first, last in _spans(rowset, steps.row_bytes(rowset, column.id, redo)):
        base = rowset.base(column, first, last)
        run = _run(redo, column.id, first, last)
        if run is None:
            yield base, None
            continue
        cells, undo = invert(base, DeltaRun(run.rowids - np.int32(first), run.timestamps, run.values))
        yield cells, DeltaRun(run.rowids, undo.timestamps, undo.values)


def _run(delta_files: Sequence[DeltaFile], column_id: int, first: int, last: int) -> DeltaRun | None:
    """Return the deltas of a column for rows [first, last) in files, oldest first; None if there are none."""
    runs = [run for file in delta_files if (run := file.run(column_id, first, last)) is not None]
    return merge_runs(runs) if runs else None


def _spans(rowset: DiskRowSet, row_bytes: float) -> Iterator[tuple[int, int]]:
    """Yield the pages of rows; parts of them if rows of so many bytes are long."""
    count = steps.rows_at_once(row_bytes, steps.DELTAS_BYTES_AT_ONCE)
    for first in range(0, len(rowset), count):
        yield first, min(first + count, len(rowset))


def _edit(rowset: DiskRowSet, update: dict[str, object], history_floor: int) -> Callable[[TabletEntry], TabletEntry]:
    def edit(tablet: TabletEntry) -> TabletEntry:
        entry = tablet.rowset(rowset.rowset_id).model_copy(update=update)
        return tablet.with_rowset(entry, history_floor)

    return edit


def _ids(delta_files: Sequence[DeltaFile]) -> tuple[int, ...]:
    return tuple(file.file_id for file in delta_files)


def _deltas_in(delta_files: Sequence[DeltaFile]) -> int:
    return sum(sum(file.metadata.deltas.values()) for file in delta_files)
