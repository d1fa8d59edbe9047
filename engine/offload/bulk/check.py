"""Checks a file that was built elsewhere before it becomes part of a table; nothing in it is trusted.

The whole file must have the checksum that its builder gave, which rules out errors of the storage between. The other
checks look for errors of the builder. All cells are decoded: by wrong zone maps scans would pass over rows, and Arrow
trusts text to be UTF-8.
"""

from __future__ import annotations

import errno
import posixpath

from ....schemas.errors import CorruptionError, InvalidArgumentError
from ....schemas.limits.limits import Limits
from ....schemas.store.bulk import ImportFile
from ...cfile.cache import PageCache
from ...codecs.checksum import crc32_of
from ...fs.copy import pieces_of
from ...fs.filesystem import FileSystem
from ...manifest import files
from ...rowset.diskrowset import DiskRowSet
from ...rowset.soundness import (
    verify_cells,
    verify_keys,
    verify_nulls,
    verify_partition,
    verify_rows,
    verify_streams,
)
from ...table.table_version import TableVersion, check_here

_NO_FILE = frozenset({errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENXIO})


def check_file(file: ImportFile, version: TableVersion, fs: FileSystem, path: str, limits: Limits) -> None:
    """Check an imported file at ``path`` against its builder's description and the needs of the table and the store.

    Raises:
        InvalidArgumentError: the file is wrong; the text says why.
        WrongServerError: another server has its tablet.
        CorruptionError: its tablet is in quarantine.
        OSError: it cannot be read.
    """
    number = next((n for n, tablet in enumerate(version.tablets) if tablet.tablet_id == file.tablet), None)
    if number is None:
        raise _wrong(file, f"the table has no tablet {file.tablet}")
    check_here(version.tablets[number])
    if not fs.exists(path):
        raise _wrong(file, "the server does not find it in the staging directory")
    try:
        size, crc = crc32_of(pieces_of(fs, path))
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _wrong(
                file, "it is a link or not a regular file: write files directly into the staging directory"
            ) from error
        raise
    if (size, crc) != (file.bytes, file.crc):
        raise _wrong(file, f"its size ({size:,} of {file.bytes:,} bytes) or the checksum is wrong")
    try:
        _check_content(file, version, number, fs, path, limits)
    except CorruptionError as error:
        raise _wrong(file, error.why) from error


def _check_content(
    file: ImportFile, version: TableVersion, number: int, fs: FileSystem, path: str, limits: Limits
) -> None:
    schema = version.schema
    rowset = DiskRowSet.open(fs, path, file.file_id, -1, schema.key, version.encoder, PageCache())
    try:
        said = rowset.metadata
        if (said.row_count, said.min_key, said.max_key) != (file.rows, file.min_key, file.max_key):
            raise _wrong(file, "its footer and the manifest of the import disagree on rows or keys")
        if said.schema_version != schema.version:
            raise _wrong(file, f"it was written with schema version {said.schema_version}, not {schema.version}")
        verify_streams(schema, files.encodings(schema), rowset)
        rowset.reader.verify()
        verify_keys(rowset)
        verify_rows(rowset)
        verify_nulls(schema, rowset.reader)
        verify_cells(schema, rowset.reader, lambda column: schema.cell_bytes(column, limits))
        if len(version.tablets) > 1 or version.partitions.range_columns:
            verify_partition(schema, version.router, number, rowset)
    finally:
        rowset.close()


def check_names(found: tuple[ImportFile, ...], first_id: int, last_id: int) -> None:
    """Check that the names of imported files stay inside the directory, and that their numbers are distinct and in
    range.

    Raises:
        InvalidArgumentError: with the first that fails.
    """
    names: set[str] = set()
    numbers: set[int] = set()
    for file in found:
        if not file.name or posixpath.basename(file.name) != file.name or file.name in (".", "..") or "\0" in file.name:
            raise _wrong(file, "its name is a path: give the bare name of the file")
        if not first_id <= file.file_id < last_id:
            raise _wrong(file, f"its number {file.file_id} is outside the plan's range, {first_id} to {last_id - 1}")
        if file.name in names or file.file_id in numbers:
            raise _wrong(file, "its name or number occurs twice: give the files of only one attempt of each task")
        names.add(file.name)
        numbers.add(file.file_id)


def _wrong(file: ImportFile, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"file {file.name!r} of the import cannot be attached: {why}")
