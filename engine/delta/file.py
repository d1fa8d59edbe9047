"""Delta files: a cfile of kind ``redo`` or ``undo`` with three streams for each changed column.

    (column id, "rowid")       ascending
    (column id, "timestamp")   ascending within a row
    (column id, "value")

The zone maps of the rowid stream lead from a range of rows to its deltas; smallest and largest timestamps of the whole
file stand in its metadata, so that a snapshot that sees all or nothing of a file does not open a page of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from ...schemas.errors import CorruptionError
from ..cfile.cache import PageCache
from ..cfile.format import StreamKey
from ..cfile.reader import CFileReader
from ..cfile.stream import StreamReader
from ..cfile.writer import CFileInfo, CFileWriter
from ..fs.filesystem import FileSystem
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector
from .history import Stamps, within
from .run import DeltaRun


@dataclass(frozen=True, slots=True)
class ColumnEncoding:
    """How a column's cells are stored."""

    physical: PhysicalType
    encoding: str
    compression: str


class DeltaFileMetadata(BaseModel):
    """What the footer of a delta file says of its deltas."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rowset_id: int
    first_timestamp: int
    last_timestamp: int
    deltas: dict[int, int]
    """How many there are for each column id."""


def write_delta_file(
    fs: FileSystem,
    path: str,
    file_id: int,
    kind: str,
    rowset_id: int,
    runs: Mapping[int, DeltaRun],
    encodings: Mapping[int, ColumnEncoding],
) -> CFileInfo:
    """Write runs by column id as one file and sync it; the caller syncs the directory. ``runs`` must not be empty."""
    metadata = DeltaFileMetadata(
        rowset_id=rowset_id,
        first_timestamp=min(int(run.timestamps.min()) for run in runs.values()),
        last_timestamp=max(int(run.timestamps.max()) for run in runs.values()),
        deltas={column_id: len(run) for column_id, run in runs.items()},
    )
    with CFileWriter(fs, path, file_id, kind) as writer:
        for column_id, run in sorted(runs.items()):
            how = encodings[column_id]
            rowids, timestamps = FixedVector(run.rowids), FixedVector(run.timestamps)
            writer.write_stream(StreamKey(column_id, "rowid"), PhysicalType.INT32, [rowids], "bitshuffle")
            writer.write_stream(StreamKey(column_id, "timestamp"), PhysicalType.INT64, [timestamps], "bitshuffle")
            writer.write_stream(
                StreamKey(column_id, "value"), how.physical, [run.values], how.encoding, how.compression, False
            )
        return writer.finish(metadata.model_dump(mode="json"))


class DeltaFile:
    """An open delta file. Many threads may read it."""

    def __init__(self, reader: CFileReader, path: str) -> None:
        self._reader = reader
        self.path = path
        self.metadata = DeltaFileMetadata.model_validate(reader.metadata)
        self.size_bytes = reader.size_bytes
        self._check_row_counts()

    @classmethod
    def open(cls, fs: FileSystem, path: str, file_id: int, cache: PageCache) -> DeltaFile:
        """Open ``path``. Raises CorruptionError when it is not the delta file that was written there."""
        return cls(CFileReader.open(fs, path, file_id, cache), path)

    @property
    def column_ids(self) -> list[int]:
        """The columns with deltas."""
        return list(self.metadata.deltas)

    def run(self, column_id: int, first_row: int, last_row: int) -> DeltaRun | None:
        """Return the deltas of a column for rows [first_row, last_row), or None when there are none."""
        found = self._find(column_id, first_row, last_row)
        if found is None:
            return None
        low, rowids = found
        high = low + len(rowids)
        timestamps = _values(self._stream(column_id, "timestamp"), low, high)
        return DeltaRun(rowids, timestamps, self._stream(column_id, "value").read(low, high))

    def is_changed(self, after: int, until: int) -> bool:
        """Whether there may be a delta with ``after`` < timestamp <= ``until``."""
        return self.metadata.last_timestamp > after and self.metadata.first_timestamp <= until

    def stamps(self, column_id: int, first_row: int, last_row: int, after: int, until: int) -> Stamps | None:
        """Return which rows of [first_row, last_row) a column's deltas changed in (after, until], and when; no values
        are read. None when there are none."""
        found = self._find(column_id, first_row, last_row)
        if found is None:
            return None
        low, rowids = found
        timestamps = _values(self._stream(column_id, "timestamp"), low, low + len(rowids))
        return within(rowids, timestamps, after, until)

    def close(self) -> None:
        """Let go of the file; memory that views still use stays until they are dropped."""
        self._reader.close()

    def _find(self, column_id: int, first_row: int, last_row: int) -> tuple[int, np.ndarray] | None:
        """Return the position of a column's first delta for rows [first_row, last_row), and the rows of all of them."""
        if column_id not in self.metadata.deltas:
            return None
        rowids = self._stream(column_id, "rowid")
        first, last = _page_span(rowids, first_row, last_row)
        if first == last:
            return None
        found = _values(rowids, first, last)
        low, high = (int(at) for at in np.searchsorted(found, (first_row, last_row)))
        return (first + low, found[low:high]) if low < high else None

    def _stream(self, column_id: int, role: str) -> StreamReader:
        return self._reader.stream(StreamKey(column_id, role))

    def _check_row_counts(self) -> None:
        for column_id, count in self.metadata.deltas.items():
            for role in ("rowid", "timestamp", "value"):
                if self._stream(column_id, role).row_count != count:
                    why = f"the {role} stream of column {column_id} does not hold {count} deltas"
                    raise CorruptionError(self.path, 0, why)


def _values(stream: StreamReader, first: int, last: int) -> np.ndarray:
    vector = stream.read(first, last)
    assert isinstance(vector, FixedVector)
    return vector.values


def _page_span(rowids: StreamReader, first_row: int, last_row: int) -> tuple[int, int]:
    """Return the range of deltas in the pages whose rowids may lie in [first_row, last_row)."""
    zones = rowids.zone_maps
    first = next((page for page, zone in enumerate(zones) if zone.max is None or zone.max >= first_row), len(zones))
    last = next((page for page, zone in enumerate(zones) if zone.min is not None and zone.min >= last_row), len(zones))
    start = min(first * rowids.page_rows, rowids.row_count)
    return start, max(min(last * rowids.page_rows, rowids.row_count), start)
