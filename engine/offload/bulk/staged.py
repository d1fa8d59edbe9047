"""Moves the files of an import into the tablets' directories and prepares their rowsets for attachment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ....schemas.errors import AlreadyPresentError, InvalidArgumentError
from ....schemas.store.bulk import ImportFile, ImportMode
from ....schemas.table.table import TableSchema
from ...fs.copy import bring
from ...fs.failures import named
from ...fs.filesystem import FileSystem, join
from ...manifest import files
from ...manifest.environment import Environment
from ...manifest.rowset_entry import RowsetEntry
from ...rowset import steps
from ...rowset.diskrowset import DiskRowSet
from ...table.table_version import TableVersion
from ...tablet.attach import NewKeys, StagedRowSet
from ...tablet.key_lookup import hashes_of
from ...tablet.open import open_rowset, remove_orphans
from ...tablet.tablet import Tablet
from .existing import existing_rows, rows_at, write_without
from .target import key_of


@dataclass(frozen=True, slots=True)
class Staging:
    """The directory of an import's files."""

    fs: FileSystem
    directory: str

    def path(self, name: str) -> str:
        return join(self.directory, name)


@dataclass(frozen=True, slots=True)
class StagedImport:
    """The rowsets and changes of the commit of an import."""

    rowsets: list[StagedRowSet] = field(default_factory=list)
    """Rowsets whose keys were in no tablet when they were looked up."""
    changes: list[pa.RecordBatch] = field(default_factory=list)
    """Whole rows, columns named by id, whose keys are in the table, alive or dead."""
    _paths: list[str] = field(default_factory=list)
    _watches: dict[int, NewKeys] = field(default_factory=dict)
    """For each tablet, by id, the first of those who watch it together."""


@contextmanager
def staged_import(
    environment: Environment,
    version: TableVersion,
    staging: Staging,
    imported: Sequence[ImportFile],
    mode: ImportMode,
    now: int,
    most_bytes: int,
) -> Iterator[StagedImport]:
    """Prepare the checked files of an import at the moment ``now``; rowsets that the body does not attach are removed.

    Raises:
        AlreadyPresentError: a key is in the table and ``mode`` does not allow that; the text has it.
        InvalidArgumentError: the rows whose keys are in the table have more than ``most_bytes``.
        StorageFullError, UnavailableError: nothing was applied.
    """
    found = StagedImport()
    by_id = {tablet.tablet_id: tablet for tablet in version.tablets}
    try:
        with named("the files of the import could not be copied into the store"):
            for file in imported:
                _stage(environment, version, by_id[file.tablet], staging, file, mode, now, most_bytes, found)
            for directory in {files.directory(by_id[file.tablet].directory_id) for file in imported}:
                environment.fs.sync_directory(directory)
        yield found
    finally:
        for watch in found._watches.values():
            watch.forget()
        for one in found.rowsets:
            if not one.is_logged:
                one.give_up()
        kept = {one.rowset.path for one in found.rowsets if one.is_logged}
        remove_orphans(environment, *(path for path in found._paths if path not in kept))


def _stage(
    environment: Environment,
    version: TableVersion,
    tablet: Tablet,
    staging: Staging,
    file: ImportFile,
    mode: ImportMode,
    now: int,
    most_bytes: int,
    found: StagedImport,
) -> None:
    path = files.path(tablet.directory_id, file.file_id, "base")
    found._paths.append(path)
    bring(staging.fs, staging.path(file.name), environment.fs, path)
    rowset = _opened(environment, tablet, file.file_id)
    hashes = np.concatenate([part for _, part in hashes_of(rowset)])
    new = NewKeys(tablet, hashes, found._watches.get(tablet.tablet_id))
    found._watches.setdefault(tablet.tablet_id, new)
    existing, alive = existing_rows(tablet, rowset, now)
    if not len(existing):
        found.rowsets.append(StagedRowSet(rowset, new, hashes))
        return
    try:
        if mode is ImportMode.INSERT_ONLY and alive.any():
            first = rows_at(rowset, version.schema, existing[alive][:1])
            raise _already_present(version, first, int(alive.sum()), file)
        _read(rowset, version.schema, existing, most_bytes, found)
        if len(existing) < len(rowset):
            rest = _rest(environment, version, tablet, rowset, existing, found)
            new.hashes = np.delete(hashes, existing)
            found.rowsets.append(StagedRowSet(rest, new, new.hashes))
    finally:
        rowset.close()


def _read(rowset: DiskRowSet, schema: TableSchema, existing: np.ndarray, most_bytes: int, found: StagedImport) -> None:
    """Read rows of a file whose keys are in the table, some at a time until they are too many for a commit."""
    size = sum(batch.nbytes for batch in found.changes)
    at_once = steps.rows_at_once(steps.widest_row(rowset), steps.BYTES_AT_ONCE)
    for first in range(0, len(existing), at_once):
        found.changes.append(rows_at(rowset, schema, existing[first : first + at_once]))
        size += found.changes[-1].nbytes
        if size > most_bytes:
            count = sum(batch.num_rows for batch in found.changes)
            raise InvalidArgumentError(
                f"at least {count:,} keys of the import are already in the table, or belonged to deleted rows; "
                f"their rows have {size:,} bytes, but one commit can change at most {most_bytes:,}: upsert these rows, "
                "and import the others"
            )


def _rest(
    environment: Environment,
    version: TableVersion,
    tablet: Tablet,
    rowset: DiskRowSet,
    existing: np.ndarray,
    found: StagedImport,
) -> DiskRowSet:
    """Write the rows of a file whose keys are not in the table as another file."""
    file_id = environment.manifest.new_file_id()
    path = files.path(tablet.directory_id, file_id, "base")
    found._paths.append(path)
    write_without(rowset, existing, version.schema, environment.fs, path, file_id)
    return _opened(environment, tablet, file_id)


def _opened(environment: Environment, tablet: Tablet, file_id: int) -> DiskRowSet:
    return open_rowset(tablet, environment, RowsetEntry(id=file_id, durable_lsn=0), slot=-1)


def _already_present(version: TableVersion, rows: pa.RecordBatch, count: int, file: ImportFile) -> AlreadyPresentError:
    key = key_of(version, rows, 0)
    return AlreadyPresentError(
        f"{count:,} keys of file {file.name!r} of the import are already in the table, the first is {key}: import with "
        'mode="upsert", or remove these rows; nothing was applied'
    )
