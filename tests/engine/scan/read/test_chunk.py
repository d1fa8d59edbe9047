"""How a rowset is cut into chunks, and bounds of several pages as one."""

import itertools

import pytest

from nyala.engine.cfile.zone_map import ZoneMap
from nyala.engine.codecs.codec import BLOCK_ROWS, PAGE_ROWS
from nyala.engine.scan.read.chunk import _chunk_rows, _ranges
from nyala.engine.scan.read.zones import joined


@pytest.mark.parametrize("size", [BLOCK_ROWS, 4096, PAGE_ROWS])
@pytest.mark.parametrize(
    ("first", "last"), [(0, 1), (0, 200_000), (1023, 1025), (65_535, 65_537), (5, 5), (1024, 2048)]
)
def test_cuts_cover_each_row_once_and_end_where_blocks_do(first: int, last: int, size: int) -> None:
    cuts = list(_ranges(first, last, size))
    assert list(itertools.chain(*(range(*cut) for cut in cuts))) == list(range(first, last))
    assert all(end % size == 0 for _, end in cuts[:-1])


@pytest.mark.parametrize("first", [0, 1, 1023, 5 * BLOCK_ROWS, 65_530, 3 * PAGE_ROWS + 77])
def test_cuts_of_a_scan_with_a_limit_begin_small_and_grow(first: int) -> None:
    """A few rows are found at once, and a filter that finds none soon reads whole pages."""
    last = first + 5 * PAGE_ROWS
    cuts = list(_ranges(first, last, BLOCK_ROWS, PAGE_ROWS))
    assert list(itertools.chain(*(range(*cut) for cut in cuts))) == list(range(first, last))
    assert cuts[0][1] - first <= BLOCK_ROWS
    assert all(end % BLOCK_ROWS == 0 for _, end in cuts[:-1])
    assert not any(start // PAGE_ROWS < (end - 1) // PAGE_ROWS for start, end in cuts), "a chunk of two pages"
    assert sum(end - start == PAGE_ROWS for start, end in cuts) > 0 and len(cuts) <= 5 + 2 * 7


@pytest.mark.parametrize(
    ("row_bytes", "chunk_bytes", "most", "rows"),
    [
        (1, 1 << 30, PAGE_ROWS, PAGE_ROWS),
        (100, 1, PAGE_ROWS, BLOCK_ROWS),
        (64, 1 << 22, PAGE_ROWS, PAGE_ROWS),
        (65, 1 << 22, PAGE_ROWS, PAGE_ROWS // 2),
        (1, 1 << 30, 1, BLOCK_ROWS),
        (1, 1 << 30, 2 * BLOCK_ROWS, 2 * BLOCK_ROWS),
        (1, 1 << 30, 2 * BLOCK_ROWS + 1, 4 * BLOCK_ROWS),
        (1, 1 << 30, 10**9, PAGE_ROWS),
    ],
)
def test_chunks_have_about_what_is_asked_for(row_bytes: float, chunk_bytes: int, most: int, rows: int) -> None:
    assert _chunk_rows(row_bytes, chunk_bytes, most) == rows


def zone(low: object, high: object, nulls: int = 0, rows: int = 10, exact: bool = True, nan: bool = False) -> ZoneMap:
    return ZoneMap(low, high, nulls, rows, exact=exact, has_nan=nan)  # pyright: ignore[reportArgumentType]


def test_joined_bounds_hold_all_pages() -> None:
    assert joined([]) is None
    assert joined([zone(1, 5)]) == zone(1, 5)
    assert joined([zone(1, 5), zone(-3, 2, nulls=4)]) == zone(-3, 5, nulls=4, rows=20)
    assert joined([zone(1.0, 2.0, nan=True), zone(0.5, 1.0)]) == zone(0.5, 2.0, rows=20, nan=True)


def test_a_page_of_nothing_but_null_bounds_nothing() -> None:
    empty = zone(None, None, nulls=10)
    assert joined([empty, zone(1, 5)]) == zone(1, 5, nulls=10, rows=20)
    assert joined([empty, empty]) == zone(None, None, nulls=20, rows=20)


def test_one_page_without_an_upper_bound_leaves_all_without() -> None:
    found = joined([zone(b"a", b"b"), zone(b"\xff", None, exact=False)])
    assert found == zone(b"a", None, rows=20, exact=False)
