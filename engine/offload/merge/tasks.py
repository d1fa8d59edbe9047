"""Chooses the rowsets of a tablet to merge: those whose key ranges overlap, and small neighbours.

The tasks of a tablet share neither rowsets nor key ranges. So they can be merged and installed independently.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.table.table import TableSchema
from ...compaction.policy import MIN_GAIN
from ...maintenance.upkeep import candidate
from ...rowset.diskrowset import DiskRowSet


def groups(
    rowsets: Sequence[DiskRowSet], ancient_history_mark: int, schema: TableSchema, target_bytes: int
) -> list[list[DiskRowSet]]:
    """Return the rowsets that are worth an outside merge, one list per task, in key order."""
    found: list[list[DiskRowSet]] = []
    size = 0
    for overlapping in _overlapping(rowsets):
        more = sum(rowset.bytes_on_disk for rowset in overlapping)
        if found and size + more <= target_bytes:
            found[-1] += overlapping
            size += more
        else:
            found.append(overlapping)
            size = more
    return [group for group in found if len(group) > 1 or _is_worth_it(group[0], ancient_history_mark, schema)]


def _overlapping(rowsets: Sequence[DiskRowSet]) -> list[list[DiskRowSet]]:
    """Return the rowsets in groups whose key ranges do not overlap."""
    runs: list[list[DiskRowSet]] = []
    last = b""
    for rowset in sorted(rowsets, key=lambda rowset: rowset.min_key):
        if runs and rowset.min_key <= last:
            runs[-1].append(rowset)
        else:
            runs.append([rowset])
        last = max(last, rowset.max_key)
    return runs


def _is_worth_it(rowset: DiskRowSet, ancient_history_mark: int, schema: TableSchema) -> bool:
    """Whether a single rowset is worth rewriting: to apply its deltas, or to drop what nobody reads any more."""
    return bool(rowset.deltas.stores.redo) or candidate(rowset, ancient_history_mark, schema).dead_share >= MIN_GAIN
