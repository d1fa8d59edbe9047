"""PruneCount: what scans read and skipped, in rowsets, in ranges of rows, and in rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PruneCount:
    """Counts of what a scan, or all scans of a store, read and skip, as answers tell them. Each rowset and chunk has
    one outcome, counted when it is known: no number is the difference of others, which other threads may be about to
    raise."""

    rowsets_read: int = 0
    rowsets_by_key: int = 0
    rowsets_unchanged: int = 0
    rowsets_by_look_up: int = 0
    chunks_read: int = 0
    chunks_by_zone_map: int = 0
    chunks_touched_only: int = 0
    rows_in_chunks: int = 0
    rows_total: int = 0
    bytes_in_chunks: float = 0.0

    @property
    def rowsets(self) -> int:
        """All rowsets that were met."""
        return self.rowsets_read + self.rowsets_by_key + self.rowsets_unchanged + self.rowsets_by_look_up

    @property
    def chunks(self) -> int:
        """All chunks of the rowsets that were read."""
        return self.chunks_read + self.chunks_by_zone_map + self.chunks_touched_only

    def add(self, other: PruneCount) -> None:
        """Add the counts of another."""
        self.rowsets_read += other.rowsets_read
        self.rowsets_by_key += other.rowsets_by_key
        self.rowsets_unchanged += other.rowsets_unchanged
        self.rowsets_by_look_up += other.rowsets_by_look_up
        self.chunks_read += other.chunks_read
        self.chunks_by_zone_map += other.chunks_by_zone_map
        self.chunks_touched_only += other.chunks_touched_only
        self.rows_in_chunks += other.rows_in_chunks
        self.rows_total += other.rows_total
        self.bytes_in_chunks += other.bytes_in_chunks
