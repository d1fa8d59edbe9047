"""The account of a scan in sentences: the parts that took its time, and the parts that it could have left out."""

from __future__ import annotations

from collections.abc import Iterator

from ....schemas.rows.prune_count import PruneCount
from ...requests.recent_requests import RecentRequest
from ...requests.scan_summary import Scanned
from .words import duration, share

_MUCH = 0.3
_FEW_ROWS = 0.01
_MANY_ROWS = 100_000
_MANY_ROWSETS = 16


def times(scan: RecentRequest) -> dict[str, float]:
    """Return where the time of a scan went, for its page of the console: in seconds, in the order in which it
    passed."""
    assert scan.scanned is not None
    planned = min(scan.scanned.planned_seconds, scan.worked_seconds)
    return {
        "waiting": scan.admission_seconds,
        "planning": planned,
        "working": scan.worked_seconds - planned,
        "client": scan.client_seconds,
    }


def explained(scan: RecentRequest) -> list[str]:
    """Return what made a scan slow, as its page of the console tells it, as far as its numbers tell, and what would
    make it faster."""
    assert scan.scanned is not None
    found = [*_by_time(scan)]
    if scan.scanned.counts is None:
        found.append("Its reads are not counted here: it was a look-up by keys, or other processes counted them.")
    else:
        found += _by_reading(scan, scan.scanned, scan.scanned.counts)
    return found or ["It read only what it returned, and waited for nothing."]


def _by_time(scan: RecentRequest) -> Iterator[str]:
    spent = times(scan)
    whole = max(scan.seconds, 1e-9)
    if spent["waiting"] > _MUCH * whole:
        yield (
            f"It waited {duration(spent['waiting'])} for a place among the running requests: see the limits scans_max "
            "and plans_max."
        )
    if spent["client"] > _MUCH * whole:
        yield (
            f"Its client took {share(spent['client'], whole)} of the time to take the rows: the server waited for it. "
            "A faster client or network would help, a faster server would not."
        )
    if spent["planning"] > _MUCH * whole:
        yield f"Planning took {duration(spent['planning'])}: many tablets, or a filter with many values."
    own = scan.processor_seconds
    if scan.worked_seconds > _MUCH * whole and own < scan.worked_seconds * (1 - _MUCH):
        yield (
            f"The server worked for {duration(scan.worked_seconds)}, but the thread of the scan computed only for "
            f"{duration(own)}: otherwise it waited for the disk, for threads that read ahead, or for its turn among "
            "other long reads."
        )


def _by_reading(scan: RecentRequest, scanned: Scanned, counts: PruneCount) -> Iterator[str]:
    if counts.rowsets_by_key:
        yield f"{counts.rowsets_by_key:,} of {counts.rowsets:,} rowsets were left out: no key in range, or empty."
    if counts.chunks_by_zone_map:
        yield f"{counts.chunks_by_zone_map:,} of {counts.chunks:,} ranges of rows were left out by their zone maps."
    is_filtered = bool(scanned.filtered) and not scanned.is_aggregate
    if is_filtered and counts.rows_in_chunks > _MANY_ROWS and scan.rows < _FEW_ROWS * counts.rows_in_chunks:
        yield (
            f"It read {counts.rows_in_chunks:,} rows to return {scan.rows:,}. The filter's columns "
            f"({', '.join(scanned.filtered)}) lie scattered over the rowsets, so their zone maps leave out too little: "
            "a filter on leading columns of the key, or a partition by one of these columns, would read less."
        )
    if counts.chunks_touched_only:
        yield (
            f"{counts.chunks_touched_only:,} ranges were read only for cells that changed since they were written: a "
            "major compaction would let zone maps leave them out."
        )
    if scanned.is_ordered and counts.rowsets_read > _MANY_ROWSETS:
        yield (
            f"It merged {counts.rowsets_read:,} rowsets in the order of the key: compaction leaves fewer rowsets that "
            "overlap."
        )
