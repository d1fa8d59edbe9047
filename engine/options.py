"""Every knob of a store, with its unit in its name."""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ..schemas.limits import Limits
from ..schemas.placement import Placement, ServerIdentity
from ..schemas.write import Durability

MIB = 1 << 20
_BUDGET_SHARES = {
    "memory_bytes": 2,
    "key_index_bytes": 4,
    "flush_bytes": 8,
    "flush_deltas_bytes": 16,
    "page_cache_bytes": 16,
    "wal_queue_bytes": 16,
    "transaction_bytes": 8,
    "scan_lease_memory_bytes": 16,
}
"""Of a budget each gets one part in so many. An eighth is left for what flushes and compactions have in hand;
``flush_bytes``, ``flush_deltas_bytes`` and ``transaction_bytes`` are parts of ``memory_bytes``."""
_NEVER_ABOVE_DEFAULT = frozenset(
    {
        "flush_bytes",
        "flush_deltas_bytes",
        "page_cache_bytes",
        "wal_queue_bytes",
        "transaction_bytes",
        "scan_lease_memory_bytes",
    }
)


class StoreOptions(BaseModel):
    """How a store runs; given when it is opened, never stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    maintenance: Literal["on", "off"] = "on"
    """``off`` starts no background thread: every flush is asked for by ``maintain``."""
    durability: Durability = Durability.FSYNC
    """What an acknowledgement means when the command does not say."""
    limits: Limits = Field(default_factory=Limits)
    flush_bytes: PositiveInt = 96 * MIB
    """A MemRowSet of this size is flushed."""
    direct_load_bytes: PositiveInt = 16 * MIB
    """New rows in key order that come in a batch of this size, for one tablet, are written to disk at once."""
    direct_load_unsorted_bytes: PositiveInt = 96 * MIB
    """The same for rows in another order, whose rowset will overlap others."""
    flush_deltas_bytes: PositiveInt = 32 * MIB
    """DeltaMemStores of a tablet that take this much are flushed."""
    redo_files_count: int = Field(default=8, ge=2)
    """So many REDO files, or UNDO files, of one rowset are merged into one."""
    redo_share: PositiveFloat = 0.1
    """Base columns are rewritten when the REDO files take this share of their bytes."""
    history_gc_bytes: PositiveInt = 8 * MIB
    """Files that only snapshots before a table's history can see are dropped when they take this much."""
    compaction_bytes: PositiveInt = 256 * MIB
    """Rowsets of at most so many bytes are merged at once in the background."""
    budget_bytes: int | None = Field(default=None, ge=16 * MIB)
    """What the store may take in all, beside the 300 MB of a process that has opened an empty one: shared out to the
    options below, and to ``flush_bytes`` and ``flush_deltas_bytes``, as far as they are not given."""
    memory_bytes: PositiveInt = 1024 * MIB
    """The hard limit of what unflushed rows and changes, of all tablets, and batches on their way may take: at it a
    write is refused at once, with the time after which to try again."""
    memory_soft_share: float = Field(default=0.5, gt=0, lt=1)
    """The soft limit, as a share of ``memory_bytes``: from there on writers are slowed down while flushes work."""
    memory_throttle_seconds: NonNegativeFloat = 2.0
    """How long a batch waits at most before it is let in; near the soft limit far shorter."""
    memory_patience_seconds: NonNegativeFloat = 60
    """How long a load in this process (``write_all``) tries again by itself after it was refused."""
    transaction_bytes: PositiveInt = 256 * MIB
    """Rows of one transaction that go through memory: those that change rows that are there, or whose keys it names
    more than once. No more than half of ``memory_bytes`` in any case. New rows are written to disk on the way."""
    staging_ttl_seconds: PositiveFloat = 3600
    """A transaction of which no part came for so long, and that was not committed, is thrown away."""
    unfinished_max: PositiveInt = 256
    """Transactions, imports, pins, outside compactions and moves that were begun and not ended: so many of each."""
    staging_bytes: PositiveInt = 64 * 1024 * MIB
    """All rows on disk of transactions that are not committed."""
    pinned_bytes: PositiveInt = 64 * 1024 * MIB
    """What pins may keep of files that nothing else needs any more, before the one begun first is released."""
    peer_unfinished_share: float = Field(default=0.5, gt=0, le=1)
    """The part of both that one other machine may have. Clients on the server's own machine have no share."""
    disk_reserve_bytes: NonNegativeInt = 512 * MIB
    """What is left of the disk for the log and for flushes: transactions, imports, pins, compactions done outside and
    moves that come do not take it."""
    key_index_bytes: NonNegativeInt = 256 * MIB
    """Key indexes of all tablets, about 21 bytes a key (17 to 26). Rowsets that do not fit are searched for keys by
    their Bloom filters; 0 is no index at all. MemRowSets have indexes of their own, which count as memory stores."""
    wal_segment_bytes: PositiveInt = 64 * MIB
    """The log is files of this size, each reserved on the disk at once."""
    wal_queue_bytes: PositiveInt = 64 * MIB
    """Commits on their way to the log, before writers wait for the disk."""
    page_cache_bytes: PositiveInt = 512 * MIB
    """Pages that were read and verified: encoded, but not compressed as a whole; of deltas, decoded."""
    scan_threads: NonNegativeInt = 0
    """Threads that read ahead of whoever scans; 0: whoever scans reads, which was the faster (`caller_runs`)."""
    load_threads: PositiveInt = Field(default_factory=lambda: min(os.cpu_count() or 1, 8))
    """Threads that write the rowsets of large transactions, beside the one that reads what was staged."""
    scan_batch_bytes: PositiveInt = 8 * MIB
    """About how many bytes of cells a scan decodes at once; up to four times as many where a filter leaves all rows."""
    scan_lease_seconds: PositiveFloat = 300
    """A scan that was planned, and of which no part was read for so long, keeps no rows and files any more."""
    scan_leases_count: PositiveInt = 1024
    """So many planned scans keep what they are to read; of more, the one that was used the longest ago does not."""
    scan_lease_disk_bytes: NonNegativeInt = 4096 * MIB
    """What they may keep on disk of files that were replaced or dropped since, before the oldest is forgotten."""
    scan_lease_memory_bytes: NonNegativeInt = 256 * MIB
    """The same of rows and changes in memory that were flushed since."""
    import_storage: str | None = None
    """Where the files of bulk imports are put, as a URI such as ``s3://bucket/prefix?region=...``; None: in the store's
    directory. It is told to those who build files; credentials belong into the environment."""
    clock_error_seconds: NonNegativeInt = 10
    """How far in the future a moment may lie and still be taken for now."""

    placement: Placement | None = None
    """Which servers share the tables that are made from now on; None: this store has all of their tablets."""
    server: str | None = None
    """Which of them this store is."""

    @model_validator(mode="after")
    def _check_server(self) -> "StoreOptions":
        servers = self.placement.servers if self.placement else {}
        if self.server not in (servers or (None,)):
            known = ", ".join(servers) or "none without a placement"
            raise ValueError(f"server {self.server!r} is not in the placement; its servers are: {known}")
        return self

    @property
    def here(self) -> ServerIdentity | None:
        """The placement as this server sees it."""
        return ServerIdentity(self.placement, self.server) if self.placement and self.server else None

    @model_validator(mode="before")
    @classmethod
    def _share_out(cls, given: Any) -> Any:
        budget = given.get("budget_bytes") if isinstance(given, dict) else None
        if not isinstance(budget, int):
            return given
        shares = {name: max(budget // parts, 1) for name, parts in _BUDGET_SHARES.items()}
        for name in _NEVER_ABOVE_DEFAULT:
            shares[name] = min(shares[name], cls.model_fields[name].default)
        return {**shares, **given}


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
    disk_reserve_bytes: int
    key_index_bytes: int
    wal_segment_bytes: int
    wal_queue_bytes: int
    page_cache_bytes: int
    scan_threads: int
    load_threads: int
    scan_batch_bytes: int
    scan_lease_seconds: float
    scan_leases_count: int
    scan_lease_disk_bytes: int
    scan_lease_memory_bytes: int
    import_storage: str | None
    clock_error_seconds: int
    placement: Placement | Mapping[str, Any] | None
    server: str | None
