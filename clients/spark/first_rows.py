"""Divides the rows that exist when a stream begins into micro-batches by key.

All are read at one snapshot, and a micro-batch is a range of encoded keys over all tablets. So an offset is the key
where the next range begins: it keeps its meaning after compactions, after tablets were split or moved, and with another
limit.
"""

from __future__ import annotations

from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanSplit
from .server import ServerOptions

_SPLITS_A_TABLET = 4
"""Splits of a tablet for each micro-batch: more divide the rows better, and take longer to plan."""
_SPLITS_MAX = 20_000
"""Splits for all micro-batches together."""


class FirstRows:
    """Divides the rows that exist when a Spark stream begins into micro-batches: plans all ranges of keys at once and
    caches them. For one thread."""

    def __init__(self, server: ServerOptions) -> None:
        self._server = server
        self._planned: tuple[ScanSpec, int] | None = None
        self._ends: list[str | None] = []

    def end(self, scan: ScanSpec, begin: str | None, rows_max: int) -> str | None:
        """Return the exclusive end of the range that begins with the key ``begin`` (hexadecimal; None: the first) and
        has at most about ``rows_max`` rows; None if it is the last. ``scan`` is pinned to a snapshot.

        Raises:
            SnapshotTooOldError: the table's history no longer reaches back to the snapshot.
        """
        if self._planned != (scan, rows_max) or begin not in self._ends:
            self._ends = [begin, *self._planned_ends(scan.model_copy(update={"key_lower": begin}), rows_max)]
            self._planned = (scan, rows_max)
        return self._ends[self._ends.index(begin) + 1]

    def _planned_ends(self, rest: ScanSpec, rows_max: int) -> list[str | None]:
        store = self._server.all_servers()
        whole = store.plan(rest.model_copy(update={"split_bytes": None})).splits
        rows, size = sum(split.rows for split in whole), sum(split.bytes for split in whole)
        if rows <= rows_max:
            return [None]
        wanted = min(-(-rows // rows_max) * len(whole) * _SPLITS_A_TABLET, _SPLITS_MAX)
        splits = store.plan(rest.model_copy(update={"split_bytes": max(size // wanted, 1)})).splits
        return [*_range_bounds(splits, -(-rows // rows_max)), None]


def _range_bounds(splits: list[ScanSplit], count: int) -> list[str]:
    """Return the ascending keys between ``count`` ranges of about equal size; fewer if there are few splits.

    The splits of one tablet are consecutive, and tablets overlap: so each split's first key stands for all its rows,
    and the bounds are quantiles of these keys.
    """
    share = sum(split.rows for split in splits) / count
    found: list[str] = []
    rows = 0
    for key, weight in sorted((split.key_lower or "", split.rows) for split in splits):
        if rows >= share * 0.999 and key and key not in found[-1:] and len(found) < count - 1:
            found.append(key)
            rows = 0
        rows += weight
    return found
