"""Bulk import: rowset files that are built elsewhere and attached to a table; the messages between builders and store.

``import_begin`` returns a plan. The builder writes files into its staging directory, one or more for each tablet, and
keeps an ``ImportFile`` of each; ``import_commit`` lists the files that count.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from .limits import Limits
from .partition_schema import PartitionSchema, TabletPartition
from .table import TableSchema

IMPORT_ID_LENGTH_MAX = 64
TTL_SECONDS_MAX = 30 * 86_400
IMPORT_FILES_MAX = 100_000
"""Files of one import: so many ids are set aside for it."""


class ImportMode(StrEnum):
    """What becomes of an imported row whose key is in the table already."""

    INSERT_ONLY = "insert_only"
    """The import is refused."""
    UPSERT = "upsert"
    """It changes the row that is there."""


class _ImportBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ImportBegin(_ImportBody):
    """The body of ``import_begin``."""

    table: str
    ttl_seconds: int = Field(default=24 * 3600, ge=1, le=TTL_SECONDS_MAX)
    """After so many seconds without a commit the import and its files are dropped."""


class ImportTablet(_ImportBody):
    """A tablet that files are built for, and which rows it holds."""

    id: PositiveInt
    partition: TabletPartition
    elsewhere: str | None = None
    """The server that has it; None: the one that the import is for."""


class ImportPlan(_ImportBody):
    """The answer of ``import_begin``: all that is needed to build files that the table can take."""

    import_id: str
    table: str
    schema_: TableSchema
    """Columns with their ids, types, encodings and compressions."""
    partitions: PartitionSchema
    tablets: tuple[ImportTablet, ...]
    limits: Limits
    storage: str | None = None
    """Where ``staging`` lies, as a URI; None: in the store's directory, which builders must reach by a path of their
    own."""
    staging: str
    """The directory of the files."""
    first_file_id: PositiveInt
    """The files have the numbers from here on, ``IMPORT_FILES_MAX`` of them; a number stands in every page of its
    file. Two attempts to build the same file may share one."""
    rowset_bytes: PositiveInt
    """About how many bytes of rows one file should have."""
    ttl_seconds: PositiveInt


class ImportFile(_ImportBody):
    """A file that was built. Keys are encoded, in hexadecimal."""

    tablet: PositiveInt
    name: str
    """In the staging directory."""
    file_id: PositiveInt
    rows: PositiveInt
    min_key: str
    max_key: str
    bytes: PositiveInt
    crc: NonNegativeInt
    """The CRC-32 of the whole file."""
    schema_version: PositiveInt


class ImportCommit(_ImportBody):
    """The body of ``import_commit``; the files that it does not name are dropped."""

    import_id: str = Field(max_length=IMPORT_ID_LENGTH_MAX)
    files: tuple[ImportFile, ...] = Field(max_length=IMPORT_FILES_MAX)
    mode: ImportMode = ImportMode.INSERT_ONLY


class ImportAbort(_ImportBody):
    """The body of ``import_abort``."""

    import_id: str = Field(max_length=IMPORT_ID_LENGTH_MAX)
