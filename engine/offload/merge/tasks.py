"""Which rowsets of a tablet are merged with which: those whose key ranges overlap, and small ones that are neighbours.

What the tasks of a tablet have in common is nothing: not a rowset, not a range of keys. So they can be merged, and put
in place, one without the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.table import TableSchema
from ...compaction.policy import MIN_GAIN
from ...maintenance.upkeep import candidate
from ...rowset.diskrowset import DiskRowSet


def groups(
    rowsets: Sequence[DiskRowSet], ancient_history_mark: int, schema: TableSchema, target_bytes: int
) -> list[list[DiskRowSet]]:
    """Return the rowsets that are worth merging, those of a task in a list of their own, in the order of their keys."""
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
    """Return the rowsets in runs: no key range of one reaches into another."""
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
    """Whether a rowset alone is worth rewriting: to apply its deltas, or for what nobody reads any more."""
    return bool(rowset.deltas.stores.redo) or candidate(rowset, ancient_history_mark, schema).dead_share >= MIN_GAIN
