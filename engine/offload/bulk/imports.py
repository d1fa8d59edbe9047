"""Imports that are not committed yet. They last while the store is open, and have a time to live.

An import's files are in its own directory, ``imports/<id>``, until they are attached or the import is dropped; opening
the store removes such directories. A committed import is remembered like the answer to a numbered write: in its own log
record, and in the store for as long as it remembers such answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ....schemas.errors import InvalidArgumentError, NotFoundError
from ....schemas.rows.write import Durability, WriteResult
from ....schemas.store.bucket_place import BucketPlace
from ....schemas.store.bulk import IMPORT_FILES_MAX, ImportBegin, ImportCommit, ImportPlan, ImportTablet
from ...catalog.catalog import Catalog
from ...commit.commit_log import Commit
from ...commit.numbered_writes import Answered, NumberedWrites, Ticket, number_of
from ...commit.room import Room
from ...compaction.merge import TARGET_BYTES
from ...fs.encryption.opening import is_encrypted
from ...fs.failures import named
from ...fs.filesystem import FileSystem, join
from ...fs.tree import remove_quietly
from ...maintenance.op import MaintenanceOp
from ...mvcc.clock import Clock
from ...table.pending_write import RepeatedWrite
from ...table.table import Table
from ...table.table_version import TableVersion
from ..leases import Leases
from .check import check_names
from .commit import Importer
from .staged import Staging

ROOT = "imports"
_ID = re.compile(r"([1-9][0-9]{0,18})-[0-9a-f]{1,16}")


@dataclass(frozen=True, slots=True)
class Storage:
    """The place of a store's import files."""

    fs: FileSystem
    root: str
    uri: str | None = None
    """The URI, if it is not with the store."""
    bucket: BucketPlace | None = None
    """The bucket, if it is that of the store."""

    @classmethod
    def of(cls, store: FileSystem, uri: str | None, store_uuid: str, bucket: BucketPlace | None = None) -> Storage:
        """Return the store's own directory or ``bucket``, or the place at ``uri``, which stores may share."""
        if uri is None:
            return cls(store, ROOT, bucket=bucket)
        if is_encrypted(store):
            why = "files outside the data directory would not be encrypted"
            raise InvalidArgumentError(f"an encrypted store cannot have import_storage: {why}; leave it out")
        from ...fs.arrow import ArrowFileSystem  # loads the clients of S3 and the like

        return cls(ArrowFileSystem.from_uri(uri), join(ROOT, store_uuid), uri)

    def directory(self, import_id: str) -> str:
        return join(self.root, import_id)

    def sweep(self) -> None:
        """Remove the imports of an earlier process as far as possible; their builders may still be writing."""
        remove_quietly(self.fs, self.root)


@dataclass(frozen=True, slots=True)
class _Import:
    table: Table
    version: TableVersion
    first_file_id: int


class Imports:
    """The imports of one store that are not committed yet. Thread safe."""

    def __init__(
        self,
        catalog: Catalog,
        importer: Importer,
        writers: NumberedWrites,
        storage: Storage,
        room: Room,
        clock: Clock,
        new_timestamp: Callable[[], int],
        notify: Callable[[], None],
    ) -> None:
        """``new_timestamp`` is unique at each call; ``notify`` wakes
        maintenance."""
        self._catalog = catalog
        self._notify = notify
        self._new_timestamp = new_timestamp
        self._importer = importer
        self._writers = writers
        self._storage = storage
        self._open: Leases[_Import] = Leases("import", self._remove, clock, room)

    def begin(self, asked: ImportBegin) -> ImportPlan:
        """Begin an import: make its directory, reserve file numbers, and return all that builders need.

        Raises:
            NotFoundError: there is no such table.
            InvalidArgumentError: the store numbers the table's rows, so files cannot be built elsewhere.
            StorageFullError, UnavailableError: there are too many imports, or the directory could not be made.
        """
        table = self._catalog.table(asked.table)
        with self._open.begun():
            return self._begin(asked, table)

    def _begin(self, asked: ImportBegin, table: Table) -> ImportPlan:
        version = table.version
        schema = version.schema
        if schema.auto_incrementing:
            raise InvalidArgumentError(
                f"table {table.name!r} has no unique key: only the store can number its rows, so an import is not "
                "possible"
            )
        import_id = f"{table.table_id}-{self._new_timestamp():x}"
        directory = self._storage.directory(import_id)
        with named("the directory of an import could not be created"):
            self._storage.fs.make_directory(directory)
        first = self._importer.environment.manifest.new_file_ids(IMPORT_FILES_MAX)
        self._open.add(import_id, _Import(table, version, first), asked.ttl_seconds)
        return ImportPlan(
            import_id=import_id,
            table=table.name,
            schema_=schema,
            partitions=version.partitions,
            tablets=tuple(
                ImportTablet(id=each.tablet_id, partition=each.partition, elsewhere=each.elsewhere)
                for each in version.tablets
            ),
            limits=self._importer.limits,
            storage=self._storage.uri,
            staging=directory,
            first_file_id=first,
            rowset_bytes=TARGET_BYTES,
            ttl_seconds=asked.ttl_seconds,
            bucket=self._storage.bucket,
        )

    def commit(self, asked: ImportCommit) -> WriteResult:
        """Attach the files of an import, all at one timestamp; wait until that is durable and visible.

        For an import that was committed before, returns its first answer. Raises as ``Importer.commit``, and:

        Raises:
            NotFoundError: the import is gone, and the store does not remember a commit of it.
        """
        import_id = asked.import_id
        number = number_of(_table_of(import_id), f"import:{import_id}", 0)
        found = self._writers.once(number, lambda ticket: self._commit(asked, ticket))
        if isinstance(found, Answered):
            return RepeatedWrite(found, self._importer.log, Durability.FSYNC).result()
        commit, answer = found
        self._importer.log.acknowledge(commit, Durability.FSYNC)
        self._open.end(import_id)
        self._notify()
        return answer.model_copy(update={"timestamp": commit.timestamp})

    def _commit(self, asked: ImportCommit, ticket: Ticket) -> tuple[Commit, WriteResult]:
        with self._open.used(asked.import_id) as begun:
            first = begun.first_file_id
            check_names(asked.files, first, first + IMPORT_FILES_MAX)
            staging = Staging(self._storage.fs, self._storage.directory(asked.import_id))
            return self._importer.commit(begun.table, begun.version, staging, asked.files, asked.mode, ticket)

    def abort(self, import_id: str) -> None:
        """Drop an import and its files; does nothing if there is no such import."""
        _table_of(import_id)
        self._open.end(import_id)

    def __len__(self) -> int:
        """Return the number of imports that have not ended."""
        return len(self._open)

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of dropping expired imports."""
        return self._open.removals()

    def _remove(self, import_id: str, _: _Import) -> None:
        remove_quietly(self._storage.fs, self._storage.directory(import_id))


def _table_of(import_id: str) -> int:
    """Return the id of an import's table. Raises NotFoundError for an invalid import id."""
    if found := _ID.fullmatch(import_id):
        return int(found[1])
    raise NotFoundError(f"{import_id!r} is not the id of an import")
