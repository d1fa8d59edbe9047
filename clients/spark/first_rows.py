"""The rows that are there when a stream begins, cut into micro-batches by key.

All are read at one snapshot, and a micro-batch is a range of encoded keys, of all tablets together. So an offset is the
key where the next range begins: it means the same after rows were moved by compactions, tablets divided or moved, and
whatever limit there is by then.
"""

from __future__ import annotations

from ...schemas.description import ScanSplit
from ...schemas.scan import ScanSpec
from ..api.per_process import all_servers_at

_SPLITS_A_TABLET = 4
"""Of the rows of a micro-batch: more of them cut it better, and take longer to be planned."""
_SPLITS_MAX = 20_000
"""Of all micro-batches together."""


class FirstRows:
    """Plans all ranges at once, and keeps them. For one thread."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._planned: tuple[ScanSpec, int] | None = None
        self._ends: list[str | None] = []

    def end(self, scan: ScanSpec, begin: str | None, rows_max: int) -> str | None:
        """Return where a range ends, itself left out, that begins with the key ``begin`` (hexadecimal; None: the first)
        and has about ``rows_max`` rows at most; None: it is the last one. ``scan`` is pinned to a snapshot.

        Raises:
            SnapshotTooOldError: the table's history no longer reaches back to it.
        """
        if self._planned != (scan, rows_max) or begin not in self._ends:
            self._ends = [begin, *self._planned_ends(scan.model_copy(update={"key_lower": begin}), rows_max)]
            self._planned = (scan, rows_max)
        return self._ends[self._ends.index(begin) + 1]

    def _planned_ends(self, rest: ScanSpec, rows_max: int) -> list[str | None]:
        store = all_servers_at(self._uri)
        whole = store.plan(rest.model_copy(update={"split_bytes": None})).splits
        rows, size = sum(split.rows for split in whole), sum(split.bytes for split in whole)
        if rows <= rows_max:
            return [None]
        wanted = min(-(-rows // rows_max) * len(whole) * _SPLITS_A_TABLET, _SPLITS_MAX)
        splits = store.plan(rest.model_copy(update={"split_bytes": max(size // wanted, 1)})).splits
        return [*_cut(splits, -(-rows // rows_max)), None]


def _cut(splits: list[ScanSplit], count: int) -> list[str]:
    """Return the keys, ascending, between ``count`` ranges of about as many rows each; fewer where splits are few.

    The splits of each tablet follow one another, and those of all tablets overlap: so the first key of each stands for
    its rows, and the ends are quantiles of them all.
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
