"""Pages divided into mini-blocks: the directory, and which blocks a read needs."""

from collections.abc import Iterator

import numpy as np

from ..kernels.pages import blocks as kernels
from ..vectors.memory.memory import address_of, allocate
from .codec import BLOCK_ROWS, PAGE_ROWS, CorruptPageError, block_count, check_range, require

END = np.dtype("<u4")
"""One directory entry: where a block ends, counted from the first byte of the first block."""

_ALL_BLOCKS = np.arange(block_count(PAGE_ROWS), dtype=np.int64)


def block_sizes(payload: np.ndarray, row_count: int) -> np.ndarray:
    """Return the size of each mini-block of a page (int64) after checking that they fill the payload.

    Raises `CorruptPageError` if the directory does not fit, descends, or ends elsewhere.
    """
    require(row_count <= PAGE_ROWS, f"{row_count} rows are too many for a page")
    head = END.itemsize * block_count(row_count)
    require(len(payload) >= head, f"{len(payload)} bytes are too few for {row_count} rows")
    ends = payload[:head].view(END).astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    require((sizes >= 0).all(), "the ends of the blocks are not in ascending order")
    require((ends[-1] if len(ends) else 0) == len(payload) - head, "the blocks do not fill the page")
    return sizes


def ranges_of_block(
    payload: np.ndarray, head: int, row_count: int, row: int, width: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield the range of a payload that says where the mini-block of a row is, and then the range of the block. The
    directory follows ``head`` bytes. Of cells of ``width`` bytes that are stored as they are, one is enough. See
    `Codec.ranges_of_row`."""
    number, size = row // BLOCK_ROWS, END.itemsize
    place = head + size * number
    first = place - size if number else place
    yield first, place + size
    ends = payload[first : place + size].view(END).tolist()
    start = head + size * block_count(row_count) + (ends[0] if number else 0)
    length, i = ends[-1] - (ends[0] if number else 0), row - number * BLOCK_ROWS
    if length == min(BLOCK_ROWS, row_count - number * BLOCK_ROWS) * width:
        yield start + i * width, start + (i + 1) * width
    else:
        yield start, start + length


def rows_of_blocks(row_count: int) -> np.ndarray:
    """Return how many rows each mini-block of a page holds (int64)."""
    rows = np.full(block_count(row_count), BLOCK_ROWS, np.int64)
    if row_count % BLOCK_ROWS:
        rows[-1] = row_count % BLOCK_ROWS
    return rows


def blocks_of_range(first: int, last: int, row_count: int) -> tuple[np.ndarray, int]:
    """Return the numbers of a page's mini-blocks that hold rows [first, last), and the first of their rows.

    Raises IndexError unless 0 <= first <= last <= row_count.
    """
    assert row_count <= PAGE_ROWS, "refused by check"
    check_range(first, last, row_count)
    start = first // BLOCK_ROWS
    return _ALL_BLOCKS[start : max(start, block_count(last))], start * BLOCK_ROWS


def blocks_of_rows(rows: np.ndarray, row_count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of a page's mini-blocks that hold ``rows``, ascending, and the place of each row.

    The places (int64) count the cells of the needed blocks only. Raises IndexError for a row outside [0, row_count).
    """
    assert row_count <= PAGE_ROWS, "refused by check"
    rows = np.ascontiguousarray(rows, np.int64)
    places = allocate(len(rows), np.int64)
    room = np.empty((2, len(_ALL_BLOCKS)), np.int64)
    ordinals = address_of(room)
    touched = kernels.touched_blocks(
        address_of(rows),
        len(rows),
        row_count,
        ordinals,
        ordinals + room.nbytes // 2,
        address_of(places),
    )
    if touched < 0:
        raise IndexError(f"a row is outside a page of {row_count} rows")
    return room[1, :touched], places


def row_count_in(blocks: np.ndarray, row_count: int) -> int:
    """Return how many rows the listed mini-blocks (ascending) of a page hold."""
    if not len(blocks):
        return 0
    return (len(blocks) - 1) * BLOCK_ROWS + min(BLOCK_ROWS, row_count - int(blocks[-1]) * BLOCK_ROWS)


def pack(cells: np.ndarray, head: int = 0) -> np.ndarray:
    """Encode ``cells`` as a page: a directory and shuffled, compressed mini-blocks, after ``head`` spare bytes."""
    assert len(cells) <= PAGE_ROWS, "more rows than a page holds"
    width = cells.dtype.itemsize
    directory = END.itemsize * block_count(len(cells))
    payload = allocate(head + directory + cells.nbytes + kernels.PACK_SLACK_BYTES, np.uint8)
    scratch = np.empty(kernels.SCRATCH_BYTES, np.uint8)
    start = address_of(payload) + head
    packed = kernels.pack_blocks(address_of(cells), len(cells), width, start, start + directory, address_of(scratch))
    return payload[: head + directory + packed]


def check_packed(payload: np.ndarray, width: int, row_count: int) -> None:
    """Raise `CorruptPageError` unless the directory of mini-blocks is sound and none is larger than its cells."""
    sizes = block_sizes(payload, row_count)
    fits = (sizes > 0) & (sizes <= rows_of_blocks(row_count) * width)
    require(fits.all(), "a block is empty, or larger than its decoded cells")


def unpack(payload: np.ndarray, dtype: np.dtype, row_count: int, blocks: np.ndarray) -> np.ndarray:
    """Decode the listed mini-blocks of a page (ascending): return their cells, back to back; ``payload`` must be
    checked.

    Raises `CorruptPageError` if LZ4 rejects a block.
    """
    cells = allocate(row_count_in(blocks, row_count), dtype)
    scratch = np.empty(kernels.SCRATCH_BYTES, np.uint8)
    outcome = kernels.unpack_blocks(
        address_of(payload),
        row_count,
        dtype.itemsize,
        address_of(blocks),
        len(blocks),
        address_of(cells),
        address_of(scratch),
    )
    if outcome < 0:
        raise CorruptPageError(f"block {-1 - outcome} is not a valid LZ4 block")
    return cells


def loose_cells(payload: np.ndarray, dtype: np.dtype, row_count: int, head: int = 0) -> np.ndarray | None:
    """Return the cells of a page whose mini-blocks are all uncompressed, as a view; None for others."""
    start = head + END.itemsize * -(-row_count // BLOCK_ROWS)
    return payload[start:].view(dtype) if len(payload) == start + row_count * dtype.itemsize else None


def loosened(payload: np.ndarray, dtype: np.dtype, row_count: int, head: int = 0) -> np.ndarray:
    """Return a checked page with all mini-blocks uncompressed, so that a cell is read without the rest of its block.

    Raises `CorruptPageError` if LZ4 rejects a block.
    """
    cells = unpack(payload[head:], dtype, row_count, _ALL_BLOCKS[: block_count(row_count)])
    start = head + END.itemsize * block_count(row_count)
    loose = allocate(start + cells.nbytes, np.uint8)
    loose[:head] = payload[:head]
    loose[head:start].view(END)[:] = np.cumsum(rows_of_blocks(row_count)) * dtype.itemsize
    loose[start:] = cells.view(np.uint8)
    return loose
