"""Builds the rowset files of one tablet from its runs: sorted by encoded key, encoded as the table says.

Memory holds all rows of the tablet, as read from the verified runs, their keys (8 bytes or their length each), and the
sorted rows of one file at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ....schemas.errors import AlreadyPresentError, InvalidArgumentError
from ....schemas.store.bulk import IMPORT_FILES_MAX, ImportFile
from ...codecs.checksum import crc32_of
from ...fs.copy import pieces_of
from ...fs.failures import named
from ...fs.filesystem import FileSystem
from ...manifest import files
from ...rowset.base_file import write_base_file
from ...vectors.arrow import from_arrow
from ...vectors.keys.keys import (
    KeyVector,
    argsort_keys,
    concat_keys,
    equal_at,
    key_bytes,
    keys_ascend,
    slice_keys,
    take_keys,
)
from ...vectors.physical import physical_of
from .runs import ScratchRun, read_run
from .target import Target, key_of

_COMBINED_BYTES = 1 << 30
"""Smaller amounts of rows are combined: fetching cells from one batch is faster than from many."""


def file_count(target: Target, runs: Sequence[ScratchRun]) -> int:
    """Return the number of files that an import builds for the rows of one tablet's runs."""
    return min(-(-sum(run.bytes for run in runs) // target.plan.rowset_bytes) or 1, sum(run.rows for run in runs))


def number_files(target: Target, runs: Sequence[ScratchRun]) -> dict[int, tuple[int, list[ScratchRun]]]:
    """Number the files of an import: return by tablet id the number of its first file in an import, and its runs: the
    tasks of the second stage.

    Raises:
        InvalidArgumentError: the import would have too many files.
    """
    by_tablet: dict[int, list[ScratchRun]] = {}
    for run in runs:
        by_tablet.setdefault(run.tablet, []).append(run)
    tasks: dict[int, tuple[int, list[ScratchRun]]] = {}
    count = 0
    for tablet_id, found in sorted(by_tablet.items()):
        tasks[tablet_id] = (target.plan.first_file_id + count, found)
        count += file_count(target, found)
    if count > IMPORT_FILES_MAX:
        raise InvalidArgumentError(
            f"an import has at most {IMPORT_FILES_MAX:,} files, not {count:,}: split it into several"
        )
    return tasks


def build_tablet(
    target: Target, first_file_id: int, runs: Sequence[ScratchRun], scratch: FileSystem, staging: FileSystem, token: str
) -> list[ImportFile]:
    """Build files of an import: write the rows of all runs of one tablet as rowset files into ``staging``, durably.

    ``token`` makes this attempt's file names unique.

    Raises:
        AlreadyPresentError: a key occurs twice; the text has it.
        CorruptionError: a run is not what was written.
        StorageFullError, UnavailableError: the disk failed. The files are removed with the import.
    """
    batches = [batch for run in runs for batch in read_run(scratch, run)]
    keys = concat_keys([target.version.keys_of(batch) for batch in batches])
    rows = pa.Table.from_batches(batches)
    if rows.nbytes < _COMBINED_BYTES:
        rows = rows.combine_chunks()
    order = None if keys_ascend(keys) else argsort_keys(keys)  # exports are often in key order
    if order is not None:
        keys = take_keys(keys, order)
        _check_distinct(target, rows, order, keys)
    pieces = rows.to_batches()
    built: list[ImportFile] = []
    with named("a file of an import could not be written"):
        for first, last in _spans(len(keys), file_count(target, runs)):
            chosen = rows.slice(first, last - first) if order is None else _rows_at(pieces, order[first:last])
            part = chosen.combine_chunks()
            file_keys = slice_keys(keys, first, last)
            file_id = first_file_id + len(built)
            name = f"{runs[0].tablet}-{file_id}-{token}.base"
            built.append(_write(target, runs[0].tablet, file_id, part, file_keys, staging, name))
        staging.sync_directory("")
    return built


def _spans(row_count: int, count: int) -> Iterator[tuple[int, int]]:
    yield from pairwise(np.linspace(0, row_count, count + 1).astype(np.int64).tolist())


def _rows_at(batches: Sequence[pa.RecordBatch], places: np.ndarray) -> pa.Table:
    """Return the rows at some places of all batches, in this order.

    A take of chunks would first make one array of them all, each time, which cannot have more than 2 GiB of text.
    """
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    numbers = np.searchsorted(starts, places, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    taken = [
        batches[number].take(pa.array(places[group] - starts[number]))
        for number, group in ((int(numbers[group[0]]), group) for group in groups)
    ]
    back = np.empty(len(places), np.int64)
    back[order] = np.arange(len(places))
    return pa.Table.from_batches([pa.concat_batches(taken).take(pa.array(back))])


def _check_distinct(target: Target, rows: pa.Table, order: np.ndarray, keys: KeyVector) -> None:
    before = np.arange(len(keys) - 1)
    repeated = np.flatnonzero(equal_at(keys, before, keys, before + 1))
    if len(repeated):
        key = key_of(target.version, rows, int(order[repeated[0]]))
        raise AlreadyPresentError(
            f"{len(repeated):,} keys occur more than once in the import, the first is {key}: keep one row of each"
        )


def _write(
    target: Target, tablet_id: int, file_id: int, rows: pa.Table, keys: KeyVector, staging: FileSystem, name: str
) -> ImportFile:
    schema = target.version.schema
    cells = {
        column.id: from_arrow(_whole(rows.column(str(column.id))), physical_of(column.logical.arrow))
        for column in schema.columns
    }
    write_base_file(staging, name, file_id, cells, None, keys, files.encodings(schema), 0, schema)
    size, crc = crc32_of(pieces_of(staging, name))
    return ImportFile(
        tablet=tablet_id,
        name=name,
        file_id=file_id,
        rows=len(keys),
        min_key=key_bytes(keys, 0).hex(),
        max_key=key_bytes(keys, len(keys) - 1).hex(),
        bytes=size,
        crc=crc,
        schema_version=schema.version,
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
