"""Bulk import: messages between the store and builders of rowset files that are then attached to a table.

``import_begin`` returns a plan. The builder writes files into its staging directory, one or more for each tablet, and
keeps an ``ImportFile`` of each; ``import_commit`` lists the files to attach.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, NonNegativeInt, PositiveInt

from ..limits.limits import Limits
from ..message import Message
from ..table.partition_schema import PartitionSchema, TabletPartition
from ..table.table import TableSchema
from .bucket_place import InBucket

IMPORT_ID_LENGTH_MAX = 64
TTL_SECONDS_MAX = 30 * 86_400
IMPORT_FILES_MAX = 100_000
"""Files of one import: this many ids are reserved for it."""


class ImportMode(StrEnum):
    """A word of ``import_begin``: what an import does with a row whose key is in the table already."""

    INSERT_ONLY = "insert_only"
    """Reject the import."""
    UPSERT = "upsert"
    """Change the existing row."""


class ImportBegin(Message, frozen=True, extra="forbid"):
    """The body of ``import_begin``: lets builders make files for the store."""

    table: str
    ttl_seconds: int = Field(default=24 * 3600, ge=1, le=TTL_SECONDS_MAX)
    """After this many seconds without a commit, the import and its files are dropped."""


class ImportTablet(Message, frozen=True, extra="forbid"):
    """A tablet of an import's table to build files for, and its partition."""

    id: PositiveInt
    partition: TabletPartition
    elsewhere: str | None = None
    """The server that has it; None: the one that made the plan."""


class ImportPlan(InBucket, frozen=True, extra="forbid"):
    """The answer of ``import_begin``: everything needed to build files that the table accepts."""

    import_id: str
    """The number of the table, and the timestamp at which it began, in hexadecimal."""
    table: str
    schema_: TableSchema
    """Columns with their ids, types, encodings and compressions."""
    partitions: PartitionSchema
    tablets: tuple[ImportTablet, ...]
    limits: Limits
    storage: str | None = None
    """Where ``staging`` is, as a URI; None: in the store's ``bucket``, or in its directory, which builders must reach
    by their own path."""
    staging: str
    """The directory for the files."""
    first_file_id: PositiveInt
    """The first of ``IMPORT_FILES_MAX`` file numbers; every page of a file contains its number. Two attempts to build
    the same file may share one."""
    rowset_bytes: PositiveInt
    """Approximate bytes of rows for one file."""
    ttl_seconds: PositiveInt

    @property
    def began(self) -> int:
        """The timestamp at which it began."""
        return int(self.import_id.rpartition("-")[2], 16)


class ImportFile(Message, frozen=True, extra="forbid"):
    """The description of a file that was built for an import. Keys are encoded, in hexadecimal."""

    tablet: PositiveInt
    name: str
    """Within the staging directory."""
    file_id: PositiveInt
    rows: PositiveInt
    min_key: str
    max_key: str
    bytes: PositiveInt
    crc: NonNegativeInt
    """The CRC-32 of the whole file."""
    schema_version: PositiveInt


class ImportCommit(Message, frozen=True, extra="forbid"):
    """The body of ``import_commit``: the built files that the store attaches; those that it does not name are
    dropped."""

    import_id: str = Field(max_length=IMPORT_ID_LENGTH_MAX)
    files: tuple[ImportFile, ...] = Field(max_length=IMPORT_FILES_MAX)
    mode: ImportMode = ImportMode.INSERT_ONLY


class ImportAbort(Message, frozen=True, extra="forbid"):
    """The body of ``import_abort``: the store drops the built files."""

    import_id: str = Field(max_length=IMPORT_ID_LENGTH_MAX)
