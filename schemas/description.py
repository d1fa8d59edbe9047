"""What a store says of a table, a scan and itself: the JSON answers of the actions."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .column import ColumnSchema
from .partition_schema import WHOLE, PartitionSchema, TabletPartition
from .scan import ScanSpec
from .table import TableOptions


class TableStore(BaseModel):
    """A store that has tablets of a table, and what it calls the table: neither is ever used again for another."""

    model_config = ConfigDict(frozen=True)

    store_uuid: str
    """32 hexadecimal digits, given when the data directory was made."""
    table_id: int
    server: str | None = None
    """What its server is called, where several share the table."""


class TableDescription(BaseModel):
    """The answer of ``describe_table`` and ``create_table``."""

    model_config = ConfigDict(frozen=True)

    name: str
    table_id: int
    schema_version: int
    columns: list[ColumnSchema]
    primary_key: list[str]
    unique_key: bool = True
    """False: the store gives every new row a number, the last column of the key, so that the others may repeat."""
    partitions: list[dict[str, Any]] = Field(default_factory=list)
    options: TableOptions
    stores: list[TableStore] = []
    """Which table it is: the store that has it, or all that share it."""


class TabletPlace(BaseModel):
    """One tablet as a server knows it."""

    model_config = ConfigDict(frozen=True)

    tablet: int
    """Its number, on this server."""
    partition: TabletPartition
    """Which rows of the table it holds."""
    server: str | None = None
    """The other server that has it, as far as this one knows; None: it is here."""


class TabletMap(BaseModel):
    """The answer of ``tablets``: how a table is cut, and which of its tablets are here."""

    model_config = ConfigDict(frozen=True)

    schema_version: int
    partitions: PartitionSchema
    tablets: list[TabletPlace]


class TableNames(BaseModel):
    """The answer of ``tables``."""

    model_config = ConfigDict(frozen=True)

    tables: list[str]


class DroppedTable(BaseModel):
    """A table that was dropped and can be recalled."""

    model_config = ConfigDict(frozen=True)

    table_id: int
    name: str
    """As it was dropped; several may have one name."""
    until: datetime
    """It is kept until this moment, with zone UTC, at least; then maintenance deletes it."""


class DroppedTables(BaseModel):
    """The answer of ``dropped_tables``."""

    model_config = ConfigDict(frozen=True)

    tables: list[DroppedTable]


class ColumnStats(BaseModel):
    """What one column takes on disk, over all rowsets of a tablet or table."""

    name: str
    encodings: list[str]
    bytes_on_disk: int
    raw_bytes: int
    """Bytes of the cells before encoding and compression."""


class KeyIndexStats(BaseModel):
    """How a tablet finds keys in its DiskRowSets."""

    bytes: int
    """Memory of the index."""
    mode: Literal["index", "partial", "search"]
    """All rowsets are in the index, some, or none: the others are searched, by their Bloom filters."""


class TabletStats(BaseModel):
    """The state of one tablet."""

    tablet: int
    live_rows: int
    rowsets: int
    delta_files: int
    memory_bytes: int
    bytes_on_disk: int
    average_rowset_height: float
    """The expected number of rowsets that a random key's lookup would have to search."""
    redo_bytes: int = 0
    """Changes on disk that scans of the newest snapshot look through."""
    undo_bytes: int = 0
    """Old values on disk, which only scans of the past look through."""
    dropped_bytes: int = 0
    """Bytes on disk of columns that were dropped; a merge of rowsets gives them back."""
    history_floor: int = 0
    """Snapshots below this timestamp can no longer be read."""
    key_index: KeyIndexStats = Field(default_factory=lambda: KeyIndexStats(bytes=0, mode="index"))
    partition: TabletPartition = WHOLE
    """Which rows of the table it holds."""
    quarantine: str | None = None
    """Why its rows can be neither read nor written: a file of it is damaged. The counts above are 0 then."""


class MemoryStats(BaseModel):
    """What unflushed rows and changes of a whole store take, and what that has led to since it was opened."""

    limit_bytes: int
    """At this, writes are refused with ``UNAVAILABLE`` and the time to come again."""
    soft_limit_bytes: int
    """From this on writers are slowed down."""
    stores_bytes: int
    """MemRowSets and DeltaMemStores of all tables."""
    flushing_bytes: int
    """What the flushes under way take beside them: a sorted copy."""
    in_flight_bytes: int
    """Batches that are let in and not yet in them."""
    throttled_batches: int = 0
    throttled_seconds: float = 0.0
    """How long they waited, all together."""
    refused_batches: int = 0


class TableStats(BaseModel):
    """The answer of ``table_stats``."""

    name: str
    live_rows: int
    bytes_on_disk: int
    tablets: list[TabletStats]
    columns: list[ColumnStats]
    last_change: int = 0
    """The timestamp of the last commit that changed rows of the table; 0 if there is none."""
    memory: MemoryStats | None = None
    """Of the whole store."""


class ScanSplit(BaseModel):
    """One part of a scan that can be read on its own; rows and bytes are estimates from statistics."""

    tablet: int
    rows: int
    bytes: int
    key_lower: str | None = None
    """Encoded keys from here on, hexadecimal; None from the first. See ``ScanSpec``."""
    key_upper: str | None = None
    partition: TabletPartition | None = None
    """What the tablet holds."""
    server: str | None = None
    """The server that has the tablet; None: the one that was asked."""
    locations: list[str] = Field(default_factory=list)
    """Where that server is, the location to be preferred first."""
    planned: str | None = None
    """The digest of the columns on that server; None: that of the plan."""
    lease: str | None = None
    """What that server keeps for the scan; None: that of the plan."""

    def ticket(self, spec: ScanSpec) -> ScanSpec:
        """Return the part of the scan ``spec``, which is pinned to a snapshot, that this split is."""
        part = {
            "tablet": self.tablet,
            "partition": self.partition,
            "key_lower": self.key_lower,
            "key_upper": self.key_upper,
        }
        return spec.model_copy(update={"split_bytes": None, "all_parts": False, "pin": False, **part})


class ScanPlan(BaseModel):
    """How a scan would run: at which snapshot, in which parts, and what is left out and why."""

    snapshot: int
    schema_version: int
    splits: list[ScanSplit]
    planned: str | None = None
    """A digest of the columns that are read, for the tickets: see ``ScanSpec``."""
    explain: dict[str, Any] = Field(default_factory=dict)
    lease: str | None = None
    """What the server keeps for the tickets, if it was asked to: see ``ScanSpec``."""
    tablets_here: str = ""
    """Stands for the tablets that this server has: a sum over them, hexadecimal."""
    tablets_all: str = ""
    """The same for all tablets of the table: the sums of all servers add up to it, modulo 2 to the 64."""
    read_here: str = ""
    """The same as ``tablets_here``, without those in which no row can match."""
    read_all: str = ""
    """The same as ``tablets_all``, without those in which no row can match."""


class DamagedFile(BaseModel):
    """A file that is not what was written, or cannot be read."""

    path: str
    """In the data directory."""
    offset: int = 0
    why: str
    table: str | None = None
    """None for a file of no table, or of several."""
    tablet: int | None = None
    is_quarantined: bool = False
    """Whether the tablet takes no scans and writes at all; else only those that need the damaged part fail."""
    next_step: str = ""


class Health(BaseModel):
    """The answer of ``health``: ``ok``; ``degraded``: some files are damaged, all else works; or ``read_only`` with the
    reason why writes are refused."""

    status: str
    reason: str = ""
    version: str = ""
    server: str | None = None
    """What the server is called in the placement that it is part of; None: it has all of its tables' tablets."""
    store_uuid: str = ""
    """Which store it is, 32 hexadecimal digits: given when the data directory was made."""
    damaged: list[DamagedFile] = []
    clock_ahead_seconds: float = 0.0
    """How far timestamps are ahead of this server's wall clock. After a wall clock that was ahead: docs/servers.md."""

    @property
    def takes_writes(self) -> bool:
        """Whether writes are taken, to all tablets that are not damaged."""
        return self.status != "read_only"
