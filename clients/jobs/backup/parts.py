"""Parts: Parquet files, each with the rows of one scan, and notes that describe them.

A part exists once its note does: a small JSON file that is written last. The notes of a killed run let the next run
resume; a file without a note is garbage, and removed when the job ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, Field, NonNegativeInt

from ....schemas import compute as pc
from ....schemas.errors import ConflictError, CorruptionError
from ....schemas.rows.changes import GONE, OPS
from ....schemas.table.names import BEFORE
from ...convert.zoned import zoned
from ..files.parquet_form import from_parquet, parquet_schema, to_parquet
from ..folder import Folder
from ..link import StoreLink
from ..splits import TableSplit, TabletLabel
from .verification import Checksum

NOTE = ".note.json"
ROW_GROUP_BYTES = 32 * 1024 * 1024
COMPRESSION = "zstd"
_MODULUS = 1 << 64


class DataFile(BaseModel, frozen=True):
    """One file of a backup or an export."""

    file: str = Field(pattern=r"^part-[0-9]+-[0-9a-f]+\.parquet$")
    """Its name, in the note's folder."""
    tablet: TabletLabel
    kind: Literal["rows", "changes"]
    """rows: existing rows; changes: their changes, with the column ``_op``."""
    rows: NonNegativeInt
    bytes: NonNegativeInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    checksum: Checksum | None = None
    """What it adds to the sum of the tablet's row hashes, if computed: see ``row_hash``."""
    rows_added: int | None = None
    """What changes add to the number of the tablet's rows, if computed."""


class PartSums:
    """The checksums of one part of a backup: what its rows or changes add to its tablet's sums."""

    def __init__(self) -> None:
        self.rows = 0
        self._total = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the table, or changes with their before values."""
        if "_op" not in batch.schema.names:
            self._count(batch, 1)
            return
        op = batch.column("_op")
        earlier = [name for name in batch.schema.names if name.startswith(BEFORE)]
        names = [name.removeprefix(BEFORE) for name in earlier]
        self._count(batch.filter(pc.invert(pc.is_in(op, pa.array(GONE)))).select(names), 1)
        self._count(batch.filter(pc.not_equal(op, "insert")).select(earlier).rename_columns(names), -1)

    def _count(self, rows: pa.RecordBatch, sign: int) -> None:
        from .row_hash import row_hashes

        self.rows += sign * rows.num_rows
        self._total += sign * int(row_hashes(rows).sum())

    @property
    def text(self) -> str:
        """The sum of the added hashes: 16 hexadecimal digits."""
        return f"{self._total % _MODULUS:016x}"


@dataclass(frozen=True)
class PartTask:
    """A task of a backup or an export: write the result of a scan to a Parquet file, unless that was done."""

    link: StoreLink
    split: TableSplit
    folder: Folder
    number: int
    schema: pa.Schema
    """The expected columns of the scan; a table whose columns changed meanwhile is rejected."""
    sums: bool = False
    is_zoned: bool = False
    """Whether timestamps get the zone UTC: for other readers than ``read_part``."""

    @property
    def name(self) -> str:
        """The name of the part, the same for every writer."""
        return f"part-{self.number:05d}"

    @property
    def note(self) -> str:
        """The file that marks the part as complete; Spark and others ignore such names."""
        return f"_{self.name}{NOTE}"


def write_part(task: PartTask) -> DataFile:
    """Return the part of a backup or an export that a task is to write; write it unless an earlier run did.

    Raises:
        ConflictError: the table's columns have changed.
    """
    if done := _done(task):
        return done
    # A file for each attempt: two may run at once.
    file = f"{task.name}-{uuid.uuid4().hex[:8]}.parquet"
    stream = task.link.scan(task.split)
    if not stream.schema.equals(task.schema):
        raise ConflictError(f"the columns of table {task.split.scan.table!r} changed during the read: start again")
    sums = PartSums() if task.sums else None
    schema = pa.schema([field for field in stream.schema if not field.name.startswith(BEFORE)])
    if task.is_zoned:
        schema = zoned(schema)
    rows, size, sha256 = _write_file(task.folder, file, schema, stream.batches, sums)
    part = DataFile(
        file=file,
        tablet=task.split.label,
        kind="changes" if task.split.scan.changes else "rows",
        rows=rows,
        bytes=size,
        sha256=sha256,
        checksum=sums.text if sums else None,
        rows_added=sums.rows if sums and task.split.scan.changes else None,
    )
    task.folder.write_model(task.note, part)
    return part


def _done(task: PartTask) -> DataFile | None:
    """Return the part that an earlier run wrote; None if there is none, or its note or file is damaged."""
    if not task.folder.has(task.note):
        return None
    try:
        part = task.folder.read_model(task.note, DataFile)
    except CorruptionError:
        return None
    is_meant = part.file.startswith(f"{task.name}-") and part.tablet == task.split.label
    return part if is_meant and task.folder.size(part.file) == part.bytes else None


def read_part(folder: Folder, part: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a backup, which has the columns of ``schema``.

    Raises:
        CorruptionError: the file is missing, or not as it was written.
    """
    import hashlib

    import pyarrow.parquet as pq

    def wrong(why: str) -> CorruptionError:
        return CorruptionError(f"{folder}/{part.file}", 0, why)

    size = folder.size(part.file)
    if size is None:
        raise wrong("the file is missing")
    if size != part.bytes:
        raise wrong(f"it has {size:,} bytes, not {part.bytes:,}")
    data = folder.read(part.file)
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise wrong(f"its SHA-256 is not {part.sha256}")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        told, stored = file.schema_arrow, parquet_schema(schema)
        if (told.names, told.types) != (stored.names, stored.types):
            raise wrong(f"it has the columns {_columns(told)}, not {_columns(stored)}")
        if file.metadata.num_rows != part.rows:
            raise wrong(f"it has {file.metadata.num_rows:,} rows, not {part.rows:,}")
        for batch in file.iter_batches():
            if "_op" in schema.names and not pc.all(pc.is_in(batch.column("_op"), pa.array(OPS))).as_py():
                raise wrong(f"its column _op has a value other than {', '.join(OPS)}")
            yield from_parquet(batch, schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise wrong(f"it cannot be read as Parquet: {str(error).partition(chr(10))[0]}") from None


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in list(schema)[:20])


def sweep(folder: Folder, parts: list[DataFile]) -> None:
    """Delete from the folder of a backup or an export the notes, and the files of failed attempts."""
    wanted = {part.file for part in parts}
    for name in folder.names():
        if name.startswith(("part-", "_part-")) and name not in wanted:
            with suppress(FileNotFoundError):
                folder.remove(name)


def _write_file(
    folder: Folder, file: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], sums: PartSums | None
) -> tuple[int, int, str]:
    """Write the columns of ``schema`` to a Parquet file; return its rows, bytes and SHA-256."""
    import pyarrow.parquet as pq

    rows = 0
    with folder.writer(file) as sink:
        stored = parquet_schema(schema)
        with pq.ParquetWriter(sink, stored, compression=COMPRESSION) as writer:
            for group in _row_groups(batches):
                writer.write_table(pa.Table.from_batches([to_parquet(each, stored) for each in group.to_batches()]))
                rows += group.num_rows
                if sums is not None:
                    for batch in group.to_batches():
                        sums.add(batch)
        size, sha256 = sink.bytes, sink.sha256
    folder.sync(file)
    return rows, size, sha256


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.nbytes for each in waiting) >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)
