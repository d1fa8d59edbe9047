"""Cut a stream of vectors into pages: every page but the last has the same number of rows.

That number is 65,536 for all but streams of very long cells. It is fixed when the first page's worth of rows has
been seen, so that a reader finds a row's page by a shift.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from ...schemas.errors import InvalidArgumentError
from ..codecs.codec import PAGE_ROWS
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, Vector, concat
from .format import MAX_PAGE_BYTES

TARGET_PAGE_BYTES = 64 * 1024 * 1024
"""What a page of long cells should stay under, on average."""
MIN_PAGE_ROWS = 1024


def cell_bytes(vector: Vector) -> int:
    """Return the bytes of the cells of ``vector``, without offsets and with no use made of a dictionary."""
    if isinstance(vector, BytesVector):
        return vector.data_bytes
    if isinstance(vector, DictionaryVector):
        if len(vector.dictionary) == 0:
            return 0
        return int(vector.dictionary.lengths[vector.codes].sum(dtype=np.int64))
    return vector.values.nbytes


def choose_page_rows(vectors: Iterable[Vector], physical: PhysicalType) -> tuple[int, Iterator[Vector]]:
    """Return the rows of a page, and all of ``vectors`` again.

    Looks at the first 65,536 rows or 64 MiB, whichever end first, and takes the largest power of two between 1,024
    and 65,536 with which a page of cells of their average size stays under ``TARGET_PAGE_BYTES``.
    """
    rest = iter(vectors)
    if physical is not PhysicalType.BYTES:
        return PAGE_ROWS, rest
    head: list[Vector] = []
    row_count = size = 0
    while row_count < PAGE_ROWS and size < TARGET_PAGE_BYTES:
        vector = next(rest, None)
        if vector is None:
            break
        head.append(vector)
        row_count += len(vector)
        size += cell_bytes(vector)
    page_rows = PAGE_ROWS
    while page_rows > MIN_PAGE_ROWS and page_rows * size > TARGET_PAGE_BYTES * row_count:
        page_rows //= 2
    return page_rows, chain(head, rest)


def cut_pages(vectors: Iterable[Vector], page_rows: int) -> Iterator[Vector]:
    """Yield the rows of ``vectors`` as vectors of ``page_rows`` rows, the last one of what is left.

    Holds one page at a time. Raises InvalidArgumentError when the cells of one take more than ``MAX_PAGE_BYTES``.
    """
    pending: list[Vector] = []
    pending_rows = pending_bytes = 0
    for vector in vectors:
        first = 0
        while first < len(vector):
            last = min(len(vector), first + page_rows - pending_rows)
            piece = vector.slice(first, last)
            first = last
            pending.append(piece)
            pending_rows += len(piece)
            pending_bytes += cell_bytes(piece)
            if pending_bytes > MAX_PAGE_BYTES:
                raise InvalidArgumentError(
                    f"{pending_rows} cells take {pending_bytes} bytes; a page holds {MAX_PAGE_BYTES}"
                )
            if pending_rows == page_rows:
                yield concat(pending)
                pending, pending_rows, pending_bytes = [], 0, 0
    if pending:
        yield concat(pending)
