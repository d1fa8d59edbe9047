"""The parts in which a scan can be read, with bounds of their rows and bytes; what was pruned, and why."""

from __future__ import annotations

from typing import Any

from ....schemas.rows.prune_count import PruneCount
from ....schemas.rows.scan_plan import ScanSplit
from ....schemas.table.table import TableSchema
from ...filter.compiled import described
from ...filter.prune import ALL_KEYS
from ...tablet.tablet import Tablet
from ..read.chunk import ScanRequest
from ..read.split import Split, split
from .resolve import ResolvedScan


def estimate(scan: ResolvedScan) -> tuple[list[ScanSplit], dict[str, Any]]:
    """Plan the splits of a scan: return those of the tablets with upper bounds of their rows and bytes, and what was
    pruned and why."""
    spec, request, wanted = scan.spec, scan.request, scan.wanted
    split_bytes = None if spec.is_whole else spec.split_bytes
    splits: list[ScanSplit] = []
    counts: list[PruneCount] = []
    for tablet, version in zip(wanted.tablets, scan.versions, strict=True):
        parts, count = split(version, request, split_bytes)
        counts.append(count)
        splits += _described(tablet, parts, request)
    if spec.all_parts:
        splits += _left_out(scan)
    else:
        # At a snapshot, a part without rows stays empty. One part is kept, for readers that need one.
        splits = [part for part in splits if part.rows] or splits[:1]
    tablets = {
        "tablets": len(scan.version.tablets),
        "tablets_to_read": len(wanted.tablets),
        "partition_levels": [level.explained() for level in wanted.levels],
    }
    return splits, tablets | _explain(counts, request, scan.version.schema)


def _described(tablet: Tablet, parts: list[Split], request: ScanRequest) -> list[ScanSplit]:
    """Describe the splits of a tablet. They cover all of its keys; reading applies the filter's bounds again."""
    ends = request.keys if request.is_split else ALL_KEYS
    lowers = [ends.lower, *(part.keys.lower for part in parts[1:])]
    uppers = [*(part.keys.upper for part in parts[:-1]), ends.upper]
    return [
        ScanSplit(
            tablet=tablet.tablet_id,
            partition=tablet.partition,
            rows=part.rows,
            bytes=part.bytes,
            key_lower=None if lower is None else lower.hex(),
            key_upper=None if upper is None else upper.hex(),
        )
        for part, lower, upper in zip(parts, lowers, uppers, strict=True)
    ]


def _left_out(scan: ResolvedScan) -> list[ScanSplit]:
    """Return the tablets here without a match, each as a part without rows."""
    read = {tablet.tablet_id for tablet in scan.wanted.tablets}
    return [
        ScanSplit(tablet=tablet.tablet_id, partition=tablet.partition, rows=0, bytes=0)
        for tablet in scan.version.tablets
        if tablet.tablet_id not in read and tablet.elsewhere is None
    ]


def _explain(counts: list[PruneCount], request: ScanRequest, schema: TableSchema) -> dict[str, Any]:
    pushed, evaluated = described(request.filter_tree, schema, request.now)
    unchanged = {"rowsets_unchanged": sum(count.rowsets_unchanged for count in counts)}
    return {
        **({"since": request.changes.since, **unchanged} if request.changes else {}),
        "snapshot": request.snapshot,
        "columns_read": [column.name for column in request.columns_read],
        "filter_pushed": pushed,
        "filter_evaluated": evaluated,
        "key_range": {
            "lower": request.keys.lower.hex() if request.keys.lower is not None else None,
            "upper": request.keys.upper.hex() if request.keys.upper is not None else None,
        },
        "rowsets": sum(count.rowsets for count in counts),
        "rowsets_pruned_by_key_range": sum(count.rowsets_by_key for count in counts),
        "rowsets_looked_up_by_key": sum(count.rowsets_by_look_up for count in counts),
        "chunks": sum(count.chunks for count in counts),
        "chunks_pruned_by_zone_map": sum(count.chunks_by_zone_map for count in counts),
        "chunks_read_where_updated": sum(count.chunks_touched_only for count in counts),
        "rows": sum(count.rows_total for count in counts),
        "rows_to_read": sum(count.rows_in_chunks for count in counts),
    }
