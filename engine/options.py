"""Every option of a store, with its unit in its name."""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SkipValidation,
    field_validator,
    model_validator,
)

from ..schemas.limits.limits import Limits
from ..schemas.limits.usable import usable_memory
from ..schemas.message import Message
from ..schemas.rows.write import Durability
from ..schemas.store.placement import Placement, ServerIdentity
from ..schemas.store.store_key import StoreKey

MIB = 1 << 20
BUDGET_MIN = 16 * MIB
BUDGET_SHARES = {
    "memory_bytes": 2,
    "key_index_bytes": 4,
    "flush_bytes": 8,
    "flush_deltas_bytes": 16,
    "wal_queue_bytes": 16,
    "transaction_bytes": 8,
    "scan_lease_memory_bytes": 16,
    "scan_buffer_bytes": 16,
    "reads_bytes": 4,
}
"""Each option's fraction of a budget, as a divisor. These are limits: the page cache has the memory that they do not
use, but for a sixteenth, which stays free for running flushes and compactions. ``flush_bytes``, ``flush_deltas_bytes``
and ``transaction_bytes`` are parts of ``memory_bytes``."""
_EMBEDDED_SHARE = 4
"""The part of a machine's memory that is the budget of a store, as a divisor; a server takes a half."""
_ANSWERS_BYTES_MAX = 256 << 20
_NEVER_ABOVE_DEFAULT = frozenset(
    {
        "flush_bytes",
        "flush_deltas_bytes",
        "wal_queue_bytes",
        "transaction_bytes",
        "scan_lease_memory_bytes",
        "scan_buffer_bytes",
        "reads_bytes",
    }
)


class StoreOptions(Message, frozen=True, extra="forbid", hide_input_in_errors=True):
    """How a store runs; given when it is opened, never stored."""

    maintenance: Literal["on", "off"] = "on"
    """``off`` starts no background thread: only ``maintain`` flushes."""
    durability: Durability = Durability.FSYNC
    """What an acknowledgement guarantees when the command does not say."""
    limits: Limits = Field(default_factory=Limits)
    flush_bytes: PositiveInt = 96 * MIB
    """A MemRowSet is flushed at this size."""
    direct_load_bytes: PositiveInt = 16 * MIB
    """A batch with this much for one tablet, new rows in key order, is written to disk at once."""
    direct_load_unsorted_bytes: PositiveInt = 96 * MIB
    """The same for rows in any other order, whose rowset will overlap others."""
    flush_deltas_bytes: PositiveInt = 32 * MIB
    """The DeltaMemStores of a tablet are flushed at this size."""
    redo_files_count: int = Field(default=8, ge=2)
    """A rowset with this many REDO files, or UNDO files of about one size, has them merged into one."""
    redo_share: PositiveFloat = 0.1
    """Base columns are rewritten when their REDO files reach this share of their size."""
    history_gc_bytes: PositiveInt = 8 * MIB
    """Files that only snapshots before a table's history can see are dropped at this size."""
    compaction_bytes: PositiveInt = 256 * MIB
    """The most bytes of rowsets that one background merge takes."""
    budget_bytes: int = Field(default=0, ge=BUDGET_MIN)
    """The memory budget of the store, beside the 300 MB of a process with an empty one; by default a quarter of the
    memory that the process may use. Sets the options below, and ``flush_bytes`` and ``flush_deltas_bytes``, unless
    they are given."""
    memory_bytes: PositiveInt = 512 * MIB
    """The hard limit for unflushed rows and changes of all tablets and for batches in flight. At the limit a write is
    rejected at once, with a time to retry after."""
    memory_soft_share: float = Field(default=0.5, gt=0, lt=1)
    """The soft limit, as a share of ``memory_bytes``. Above it, writers slow down while flushes work."""
    memory_throttle_seconds: NonNegativeFloat = 2.0
    """The longest that a batch waits to be admitted; far shorter near the soft limit."""
    memory_patience_seconds: NonNegativeFloat = 60
    """How long a load in this process (``write_all``) retries after a rejection."""
    transaction_bytes: PositiveInt = 256 * MIB
    """The most bytes of one transaction's rows that pass through memory: rows whose keys exist, or occur in it more
    than once. Never more than half of ``memory_bytes``. New rows are written to disk while the commit is prepared."""
    staging_ttl_seconds: PositiveFloat = 3600
    """An uncommitted transaction is discarded when no part has arrived for this long."""
    unfinished_max: PositiveInt = 256
    """The most unfinished transactions, imports, pins, outside compactions and moves, of each kind."""
    staging_bytes: PositiveInt = 64 * 1024 * MIB
    """The most bytes on disk of all uncommitted transactions."""
    pinned_bytes: PositiveInt = 64 * 1024 * MIB
    """The most bytes of files that only pins keep. Beyond it, the oldest pin of the user with most is released; not in
    a bucket."""
    peer_unfinished_share: float = Field(default=0.5, gt=0, le=1)
    """One other machine's share of ``unfinished_max`` and ``staging_bytes``; local clients may use all of both."""
    recovery_seconds_max: PositiveFloat = 5.0
    """The longest replay of the log after a crash. Maintenance flushes earlier what would make it longer; estimated by
    what the log has, and by how long the last opening took."""
    disk_reserve_bytes: NonNegativeInt = 512 * MIB
    """Disk space reserved for the log and for flushes. Transactions, imports, pins, outside compactions and arriving
    moves do not use it."""
    disk_low_bytes: int | None = Field(default=None, ge=0)
    """With less free on the disk, writes get ``STORAGE_FULL``, until there is room again. None: a hundredth of the
    disk, at most 256 MiB."""
    key_index_bytes: NonNegativeInt = 256 * MIB
    """Key indexes of all tablets, about 21 bytes a key (17 to 26). Rowsets that do not fit are searched with their
    Bloom filters; 0 disables the index. MemRowSets have their own indexes, which count as memory stores."""
    wal_segment_bytes: PositiveInt = 64 * MIB
    """Size of a log file; each is reserved on the disk at once."""
    wal_queue_bytes: PositiveInt = 64 * MIB
    """Commits queued for the log before writers wait for the disk."""
    page_cache_bytes: int | None = Field(default=None, gt=0)
    """Cache of verified pages: encoded, but without block compression; deltas are decoded. None: the part of
    ``budget_bytes`` that nothing else uses, and a sixteenth of it at least."""
    scan_threads: NonNegativeInt = Field(default_factory=lambda: min(os.cpu_count() or 1, 8))
    """The most threads that read for a scan at once: its own, and helpers that all scans share in turns; 0 or 1: only
    its own."""
    load_threads: PositiveInt = Field(default_factory=lambda: min(os.cpu_count() or 1, 8))
    """Threads that write the rowsets of large transactions, beside the one that reads the staged rows."""
    scan_batch_bytes: PositiveInt = 8 * MIB
    """About how many bytes of cells a scan decodes at once; up to four times as many where a filter keeps all rows, and
    down to 1 MiB where ``reads_bytes`` are short."""
    reads_bytes: PositiveInt = 1536 * MIB
    """The most memory of all rows to sort, of all groups, and of rows that scans have in hand. Once half is taken,
    scans do not read ahead and read less at once. A user has no more than stays free for others."""
    scan_buffer_bytes: NonNegativeInt = 1024 * MIB
    """The most memory of results that were dropped to keep for the next scans, until a minute has passed without scans.
    All stores of a process share it: the last one opened sets it."""
    scan_lease_seconds: PositiveFloat = 300
    """A planned scan releases its rows and files when none of its parts has been read for this long."""
    scan_leases_count: PositiveInt = 1024
    """The most planned scans that keep their rows and files. Beyond it, one of the user with most is released."""
    scan_lease_disk_bytes: NonNegativeInt = 4096 * MIB
    """The most disk space of replaced or dropped files that planned scans keep, before the oldest scan is released."""
    scan_lease_memory_bytes: NonNegativeInt = 256 * MIB
    """The same for flushed rows and changes in memory."""
    import_storage: str | None = None
    """Where files of bulk imports go, as a URI such as ``s3://bucket/prefix?region=...``; None: the store's directory.
    Builders of files receive it; credentials belong in the environment."""
    bucket_cache: str | None = None
    """The directory with copies of the files of a store in a bucket, for one process. None: one of the store's own
    below ``~/.cache/nyala``."""
    bucket_cache_bytes: NonNegativeInt = 16 * 1024 * MIB
    """The most disk space of those copies; beyond it, the least recently used are deleted."""
    log_linger_ms: NonNegativeFloat = 0.0
    """How long the log of a store in a bucket waits for further commits before it sends a group; at most a fifth of
    ``lease_seconds``."""
    log_patience_seconds: PositiveFloat = 30.0
    """How long a commit waits for a bucket that does not answer, before it fails with an unknown outcome. After this
    time, and ``lease_seconds``, a server that can stand by leaves the store if a change of files waits."""
    lease_seconds: float = Field(default=5.0, ge=0.5, le=600)
    """How long the process that has a store in a bucket may be silent before another one may take it over."""
    key_file: str | None = None
    """A file with the key of an encrypted store; a new store is encrypted with it. See docs/encryption.md."""
    key_command: str | None = None
    """A shell command that prints this key, in place of ``key_file``."""
    key: SkipValidation[StoreKey | None] = Field(default=None, exclude=True, repr=False)
    """The key itself, in place of both: 32 bytes or 64 hexadecimal digits."""
    clock_error_seconds: NonNegativeInt = 10
    """How far in the future a timestamp may lie and still count as now."""

    placement: Placement | None = None
    """The servers that share new tables; None: this store has all of their tablets."""
    server: str | None = None
    """The name of this server in the placement."""

    @field_validator("key", mode="before")
    @classmethod
    def _parse_key(cls, given: Any) -> StoreKey | None:
        return None if given is None else StoreKey.of(given)

    @model_validator(mode="after")
    def _check_server(self) -> "StoreOptions":
        servers = self.placement.servers if self.placement else {}
        if self.server not in (servers or (None,)):
            known = ", ".join(servers) or "none, since no placement is given"
            raise ValueError(f"server {self.server!r} is not in the placement; its servers are: {known}")
        return self

    @model_validator(mode="after")
    def _check_linger(self) -> "StoreOptions":
        most = 1e3 * self.lease_seconds / 5
        if self.log_linger_ms > most:
            raise ValueError(
                f"log_linger_ms={self.log_linger_ms:g} is so long that the lease could expire: give at most {most:g} "
                f"ms, a fifth of lease_seconds={self.lease_seconds:g}"
            )
        return self

    @property
    def pages_min(self) -> int:
        """The least bytes of the page cache."""
        return self.budget_bytes // 16 if self.page_cache_bytes is None else self.page_cache_bytes

    @property
    def answers_bytes(self) -> int:
        """The most bytes of answers to gets that a store keeps."""
        return min(self.budget_bytes // 16, _ANSWERS_BYTES_MAX)

    @property
    def here(self) -> ServerIdentity | None:
        """The placement as this server sees it."""
        return ServerIdentity(self.placement, self.server) if self.placement and self.server else None

    @model_validator(mode="before")
    @classmethod
    def _share_out(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        budget = given.get("budget_bytes")
        if budget is None:
            budget = max(usable_memory() // _EMBEDDED_SHARE, BUDGET_MIN)
        if not isinstance(budget, int):
            return given
        shares = {name: max(budget // parts, 1) for name, parts in BUDGET_SHARES.items()}
        for name in _NEVER_ABOVE_DEFAULT:
            shares[name] = min(shares[name], cls.model_fields[name].default)
        return {**shares, **given, "budget_bytes": budget}


class StoreOptionsDict(TypedDict, total=False):
    """The options of a store as the keywords of ``nyala.open``; ``StoreOptions`` says what each means."""

    maintenance: Literal["on", "off"]
    durability: Durability | str
    limits: Limits | Mapping[str, int]
    flush_bytes: int
    direct_load_bytes: int
    direct_load_unsorted_bytes: int
    flush_deltas_bytes: int
    redo_files_count: int
    redo_share: float
    history_gc_bytes: int
    compaction_bytes: int
    budget_bytes: int | None
    memory_bytes: int
    memory_soft_share: float
    memory_throttle_seconds: float
    memory_patience_seconds: float
    transaction_bytes: int
    staging_ttl_seconds: float
    unfinished_max: int
    staging_bytes: int
    pinned_bytes: int
    peer_unfinished_share: float
    recovery_seconds_max: float
    disk_reserve_bytes: int
    disk_low_bytes: int | None
    key_index_bytes: int
    wal_segment_bytes: int
    wal_queue_bytes: int
    page_cache_bytes: int | None
    scan_threads: int
    load_threads: int
    scan_batch_bytes: int
    reads_bytes: int
    scan_buffer_bytes: int
    scan_lease_seconds: float
    scan_leases_count: int
    scan_lease_disk_bytes: int
    scan_lease_memory_bytes: int
    import_storage: str | None
    bucket_cache: str | None
    bucket_cache_bytes: int
    log_linger_ms: float
    log_patience_seconds: float
    lease_seconds: float
    key_file: str | None
    key_command: str | None
    key: StoreKey | str | bytes | None
    clock_error_seconds: int
    placement: Placement | Mapping[str, Any] | None
    server: str | None
