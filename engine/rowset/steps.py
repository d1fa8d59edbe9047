"""How many rows of a rowset to take at once, so that their cells fit in memory however long they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..cfile import cutter
from ..cfile.stream import StreamReader
from ..codecs.codec import PAGE_ROWS
from ..delta.file import DeltaFile
from .diskrowset import DiskRowSet

BYTES_AT_ONCE = 32 << 20
"""About how many bytes of cells of one column to hold in memory."""
DELTAS_BYTES_AT_ONCE = 128 << 20
"""The same with the deltas of these rows: more, since whole pages are quicker than parts of them."""
_WHOLE_ROWS = 4
"""So many times the bytes of one column may all columns of rows have that are written as wholes."""
_LEAST_ROWS = 8
"""Fewer rows at a time would read the same pages again and again."""


def rows_at_once(row_bytes: float, most_bytes: int) -> int:
    """Return a power of two, at most PAGE_ROWS: so many rows of ``row_bytes`` each have about ``most_bytes``."""
    rows = PAGE_ROWS
    while rows > _LEAST_ROWS and rows * row_bytes > most_bytes:
        rows //= 2
    return rows


def widest_row(rowset: DiskRowSet, delta_files: Collection[DeltaFile] = ()) -> float:
    """Return about how many bytes the longest cells of a row have, in one column, with its deltas in these files."""
    return max((row_bytes(rowset, column_id, delta_files) for column_id in rowset.column_ids), default=1.0)


def rows_of(rowsets: Iterable[tuple[DiskRowSet, Collection[DeltaFile]]], are_whole: bool, most_bytes: int) -> int:
    """Return how many rows of each of some rowsets, with their deltas in these files, to take at once: one column has
    about ``most_bytes``. Columns come one after the other, unless rows ``are_whole``; then all have four times that."""
    pairs = list(rowsets)
    if not are_whole:
        return rows_at_once(sum(widest_row(*pair) for pair in pairs), most_bytes)
    whole = sum(row_bytes(rowset, column_id, deltas) for rowset, deltas in pairs for column_id in rowset.column_ids)
    return rows_at_once(whole, _WHOLE_ROWS * most_bytes)


def row_bytes(rowset: DiskRowSet, column_id: int, delta_files: Iterable[DeltaFile] = ()) -> float:
    """Return about how many bytes a row has in a column, with its deltas in these files; of rows that differ much, a
    long one."""
    base = _densest(rowset.base_stream(column_id)) if rowset.has_base(column_id) else 0.0
    return base + sum(file.value_bytes(column_id) for file in delta_files) / len(rowset)


def _densest(stream: StreamReader) -> float:
    """Return the bytes of a long row of a stream: pages that were cut by their bytes tell where such rows are."""
    average = stream.raw_bytes / max(stream.row_count, 1)
    pages = stream.entry.pages
    if stream.page_rows != 1 or len(pages) < 2:
        return average
    return max(average, cutter.TARGET_PAGE_BYTES / 2 / min(page.row_count for page in pages[:-1]))
