"""Every knob of a store, with its unit in its name."""

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from ..schemas.limits import Limits
from ..schemas.write import Durability

MIB = 1 << 20


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
    flush_deltas_bytes: PositiveInt = 32 * MIB
    """DeltaMemStores of a tablet that take this much are flushed."""
    redo_files_count: int = Field(default=8, ge=2)
    """So many REDO files of one rowset are merged into one."""
    redo_share: PositiveFloat = 0.1
    """Base columns are rewritten when the REDO files take this share of their bytes."""
    history_gc_bytes: PositiveInt = 8 * MIB
    """Files that only snapshots before a table's history can see are dropped when they take this much."""
    compaction_bytes: PositiveInt = 256 * MIB
    """Rowsets of at most so many bytes are merged at once in the background."""
    memory_bytes: PositiveInt = 1024 * MIB
    """Memory stores of all tablets: writers wait for flushes above it."""
    memory_wait_seconds: NonNegativeInt = 60
    """How long a writer waits for memory before it is told to come again."""
    wal_segment_bytes: PositiveInt = 64 * MIB
    page_cache_bytes: PositiveInt = 64 * MIB
    """Pages that were compressed as a whole, decompressed."""
    scan_threads: PositiveInt = Field(default_factory=lambda: min(os.cpu_count() or 1, 8))
    scan_batch_bytes: PositiveInt = 4 * MIB
    """About how many bytes of cells a scan decodes at once."""
    clock_error_seconds: NonNegativeInt = 10
    """How far in the future a moment may lie and still be taken for now."""
