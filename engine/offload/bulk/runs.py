"""Runs: the rows of an import divided by tablet, in scratch files between the two stages of a build.

A task of the first stage reads some of the input and writes one run for each tablet of its rows; a task of the second
stage reads all runs of a tablet. A run is an Arrow IPC stream of whole rows, columns named by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from ....schemas.errors import CorruptionError
from ....schemas.rows.batches import in_one
from ...codecs.checksum import crc32
from ...fs.failures import named
from ...fs.filesystem import FileSystem, WritableFile
from ...tablet.open import unlink_quietly
from ...vectors.arrow_stream import END_OF_STREAM
from .target import Target

_BUFFERED_BYTES = 32 << 20
"""Rows that are divided by tablet at once: few and long pieces are read faster than many short ones."""


@dataclass(frozen=True, slots=True)
class ScratchRun:
    """A scratch file of an import with rows of one tablet."""

    tablet: int
    path: str
    rows: int
    bytes: int
    """Bytes of the rows in memory."""
    crc: int
    truncated: int
    """How many cells of its rows were cut to the length of their column."""


def write_runs(target: Target, batches: Iterable[pa.RecordBatch], scratch: FileSystem, token: str) -> list[ScratchRun]:
    """Check the batches of an import and write their rows by tablet; ``token`` makes this attempt's file names unique.

    Raises:
        InvalidArgumentError: a batch, or one of its rows, is invalid.
        StorageFullError, UnavailableError: the disk failed. An error removes the files.
    """
    files: dict[int, _RunFile] = {}
    try:
        with named("a run of an import could not be written"):
            for batch in _gathered(batches, min(_BUFFERED_BYTES, target.plan.limits.batch_bytes // 2)):
                for tablet_id, rows, truncated in target.by_tablet(batch):
                    if tablet_id not in files:
                        files[tablet_id] = _RunFile(scratch, f"{tablet_id}-{token}.run", rows.schema)
                    files[tablet_id].add(rows, truncated)
            return [file.finish(tablet_id) for tablet_id, file in sorted(files.items())]
    except BaseException:
        for file in files.values():
            file.abort()
        raise


def read_run(scratch: FileSystem, run: ScratchRun) -> list[pa.RecordBatch]:
    """Return the rows of a run of an import, in memory. Raises CorruptionError if it is not what was written."""
    with named("a run of an import could not be read"):
        file = scratch.open(run.path)
        try:
            view = file.view()
        finally:
            file.close()
    if crc32(view) != run.crc:
        raise CorruptionError(
            run.path, 0, "the checksum of a run is wrong: the scratch directory returned bytes that were not written"
        )
    return list(pa.ipc.open_stream(pa.py_buffer(view)))


class _RunFile:
    def __init__(self, scratch: FileSystem, path: str, schema: pa.Schema) -> None:
        self._scratch = scratch
        self._path = path
        self._file: WritableFile = scratch.create(path)
        self._rows = self._bytes = self._crc = self._truncated = 0
        try:
            self._append(schema.serialize())
        except BaseException:
            self.abort()
            raise

    def add(self, rows: pa.RecordBatch, truncated: int) -> None:
        self._append(rows.serialize())
        self._truncated += truncated
        self._rows += rows.num_rows
        self._bytes += rows.nbytes

    def finish(self, tablet_id: int) -> ScratchRun:
        self._append(END_OF_STREAM)
        self._file.close()
        return ScratchRun(tablet_id, self._path, self._rows, self._bytes, self._crc, self._truncated)

    def abort(self) -> None:
        self._file.close()
        unlink_quietly(self._scratch, self._path)

    def _append(self, content: pa.Buffer) -> None:
        view = memoryview(content)
        self._crc = crc32(view, self._crc)
        self._file.append(view)


def _gathered(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterable[pa.RecordBatch]:
    """Combine small batches, up to ``most_bytes``: none becomes larger than a batch may be."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and (batch.schema != waiting[0].schema or size + batch.nbytes > most_bytes):
            yield in_one(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield in_one(waiting)
