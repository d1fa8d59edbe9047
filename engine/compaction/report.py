"""FlushReport: the answer of each kind of work on a tablet: flushes, compactions, merges and the removal of history."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What a flush or compaction wrote, and what it made unnecessary; ``rows`` are rows or deltas."""

    rows: int
    bytes_written: int
    bytes_freed: int = 0
