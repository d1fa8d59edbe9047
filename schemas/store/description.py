"""Descriptions of tables and the store itself: the JSON answers of actions."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from ..message import Message, new_dict, new_list
from ..table.column import ColumnSchema
from ..table.partition_schema import WHOLE, PartitionSchema, TabletPartition
from ..table.table import TableOptions
from .maintenance import FailingWork


class TableStore(Message, frozen=True):
    """In the description of a table: one of the stores that have its tablets, and the table's id there; neither is ever
    reused."""

    store_uuid: str
    """32 hexadecimal digits, assigned when the data directory was created."""
    table_id: int
    server: str | None = None
    """Its server's name, if several servers share the table."""


class TableDescription(Message, frozen=True):
    """The store's description of a table: the answer of ``describe_table`` and ``create_table``."""

    name: str
    table_id: int
    schema_version: int
    columns: list[ColumnSchema]
    primary_key: list[str]
    unique_key: bool = True
    """False: the store numbers every new row in the last key column, so that other key columns may repeat."""
    partitions: list[dict[str, Any]] = Field(default_factory=new_list)
    options: TableOptions
    stores: list[TableStore] = Field(default_factory=new_list)
    """Identifies the table: the store that has it, or all that share it."""
    cell_bytes_before: int | None = None
    """The greatest value that the option ``cell_bytes_max`` has had, if it is lower now: cells may be as long. Written
    only if there is one."""

    @property
    def bound_id(self) -> int | None:
        """What requests name so that they mean this table only, whichever has its name by then. None: they can mean it
        by its name only. Each of several servers has an id of its own, and a server of version 0.1, which tells of no
        store, refuses requests with ids."""
        return self.table_id if len(self.stores) == 1 else None

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: each for name, each in written(self).items() if name != "cell_bytes_before" or each}


class TabletPlace(Message, frozen=True):
    """One tablet in a store's description of a table, as its server knows it."""

    tablet: int
    """Its number on this server."""
    partition: TabletPartition
    """Its partition of the table."""
    server: str | None = None
    """The other server that has it, as far as this one knows; None: this one."""


class TabletMap(Message, frozen=True):
    """The store's description of a table's tablets, the answer of ``tablets``: the partitions, and which of the tablets
    are here."""

    schema_version: int
    partitions: PartitionSchema
    tablets: list[TabletPlace]


class TableNames(Message, frozen=True):
    """The names of a store's tables: the answer of ``tables``."""

    tables: list[str]


class DroppedTable(Message, frozen=True):
    """A table of a store that was dropped and can be recalled."""

    table_id: int
    name: str
    """Its name when it was dropped; several may have the same."""
    until: datetime
    """It is kept at least until this time, in UTC; then maintenance deletes it."""


class DroppedTables(Message, frozen=True):
    """A store's dropped tables: the answer of ``dropped_tables``."""

    tables: list[DroppedTable]


class ColumnStats(Message):
    """The size of one column on disk, over all rowsets of a tablet or table."""

    name: str
    encodings: list[str]
    bytes_on_disk: int
    raw_bytes: int
    """Bytes of the cells before encoding and compression."""


class KeyIndexStats(Message):
    """A tablet's statistics of its key index: how it finds keys in its DiskRowSets."""

    bytes: int
    """Memory of the index."""
    mode: Literal["index", "partial", "search"]
    """Whether all rowsets, some, or none are in the index: the others are searched with their Bloom filters."""


class RowsetStats(Message):
    """A tablet's statistics of a rowset on disk. Its keys are told by their place among the first and last keys of all
    rowsets of the tablet."""

    first_key: int
    """How many different first and last keys are smaller than its first key."""
    last_key: int
    """How many are smaller than its last key."""
    rows: int
    bytes_on_disk: int
    redo_bytes: int = 0
    undo_bytes: int = 0


class TabletStats(Message):
    """The statistics of one tablet: its state."""

    tablet: int
    live_rows: int
    rowsets: int
    delta_files: int
    memory_bytes: int
    bytes_on_disk: int
    average_rowset_height: float
    """The expected number of rowsets that the look-up of a random key searches."""
    redo_bytes: int = 0
    """Changes on disk that scans of the newest snapshot read."""
    undo_bytes: int = 0
    """Old values on disk, which only scans of the past read."""
    dropped_bytes: int = 0
    """Bytes on disk of dropped columns; a merge of rowsets frees them."""
    history_floor: int = 0
    """Snapshots below this timestamp can no longer be read."""
    key_index: KeyIndexStats = Field(default_factory=lambda: KeyIndexStats(bytes=0, mode="index"))
    partition: TabletPartition = WHOLE
    """Its partition of the table."""
    layout: list[RowsetStats] = Field(default_factory=new_list)
    """Its rowsets on disk, in no order."""
    rows_read: int = 0
    """About how many rows scans and look-ups have read since the server opened the tablet. Those that a scan reads in
    several tablets are divided by the sizes of these."""
    rows_written: int = 0
    """How many rows writes have changed since then."""
    quarantine: str | None = None
    """Why its rows can be neither read nor written: a file is damaged. The counts above are then 0."""


class MemoryStats(Message):
    """The memory of a whole store's unflushed rows and changes, and its effects since it was opened."""

    limit_bytes: int
    """Writes are rejected at this size with ``UNAVAILABLE`` and the time to retry."""
    soft_limit_bytes: int
    """Writers are slowed down from this size on."""
    stores_bytes: int
    """MemRowSets and DeltaMemStores of all tables."""
    flushing_bytes: int
    """Additional memory of running flushes: a sorted copy."""
    in_flight_bytes: int
    """Admitted batches that are not yet in these stores."""
    throttled_batches: int = 0
    throttled_seconds: float = 0.0
    """Total time that writers were slowed down."""
    refused_batches: int = 0


class TableStats(Message):
    """The statistics of a table in a store: the answer of ``table_stats``."""

    name: str
    live_rows: int
    bytes_on_disk: int
    tablets: list[TabletStats]
    columns: list[ColumnStats]
    last_change: int = 0
    """The timestamp of the last commit that changed rows of the table; 0 if there is none."""
    memory: MemoryStats | None = None
    """Of the whole store."""


class DamagedFile(Message):
    """In the health of a store: a file that differs from what was written, or cannot be read."""

    path: str
    """Within the data directory."""
    offset: int = 0
    why: str
    table: str | None = None
    """None if the file belongs to no table, or to several."""
    tablet: int | None = None
    is_quarantined: bool = False
    """Whether the tablet rejects all scans and writes; otherwise only those that need the damaged part fail."""
    next_step: str = ""


class Health(Message):
    """The health of a store, the answer of ``health``: ``ok``; ``degraded``: some files are damaged, the disk is nearly
    full, or maintenance fails, as the reason says, and everything else works; or ``read_only`` with the reason why
    writes are rejected."""

    status: str
    reason: str = ""
    version: str = ""
    server: str | None = None
    """The server's name in its placement; None: it has all tablets of its tables."""
    store_uuid: str = ""
    """Identifies the store: 32 hexadecimal digits, assigned when the data directory was created."""
    damaged: list[DamagedFile] = Field(default_factory=new_list)
    failing: list[FailingWork] = Field(default_factory=new_list)
    """The maintenance that failed when it was last tried, the longest failing first."""
    clock_ahead_seconds: float = 0.0
    """How far timestamps are ahead of this server's wall clock, if the clock was set back: see docs/servers.md."""
    processes: dict[str, str] = Field(default_factory=new_dict)
    """The processes behind this address, by their names in the placement, each with its ``store_uuid``. Empty: one."""
    name: str | None = None
    """The name of a store in a bucket, if the server waits for it when another process has it."""
    state: Literal["holder", "standby"] | None = None
    """Whether the server has that store, or stands by."""

    def degraded(self, reason: str) -> "Health":
        """Return this health with one more reason why the store is not ``ok``."""
        status = "degraded" if self.status == "ok" else self.status
        return self.model_copy(update={"status": status, "reason": self.reason or reason})

    @property
    def takes_writes(self) -> bool:
        """Whether writes are accepted, to all undamaged tablets."""
        return self.status != "read_only"
