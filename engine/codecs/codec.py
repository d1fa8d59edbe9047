"""The interface of every codec: it turns one page of one column into bytes and back.

A page holds up to 65,536 rows; mini-blocks of 1,024 rows inside it can be decoded alone, so that a
point read touches 8 KB and not 512. Validity (which rows are NULL) is stored by the page, not by
the codec; cells under NULL arrive as zero or empty. They come back so, unless a codec ``fills_nulls``.

The order of calls on bytes from disk: checksum, then ``check``, then ``decode`` and ``gather`` as
often as wanted. ``check`` looks at everything that a kernel takes on trust, so that a forged page
whose checksum is right raises `CorruptPageError` and never touches foreign memory. What only shows
up while decoding (a damaged LZ4 block) raises the same error there.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ..kernels.pages.blocks import BLOCK_ROWS
from ..vectors.physical import PhysicalType
from ..vectors.vector import Vector

PAGE_ROWS = 65_536
"""Most rows of one page."""


class CorruptPageError(Exception):
    """A page cannot be decoded: its payload contradicts itself. The file's reader adds path and offset."""


class Codec(Protocol):
    """One encoding of pages. Codecs have no state and may be used by many threads at once."""

    @property
    def code(self) -> int:
        """The number in every page header on disk: never reuse or renumber."""
        ...

    @property
    def name(self) -> str:
        """The word in schemas and statistics."""
        ...

    @property
    def fills_nulls(self) -> bool:
        """Whether it stores anything under NULL, whatever takes the fewest bits: the reader of a page puts zeros
        there."""
        ...

    def supports(self, physical: PhysicalType) -> bool:
        """Return whether the codec can store cells of this type."""
        ...

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload (uint8) of one page: the cells of ``vector``, at most PAGE_ROWS."""
        ...

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Raise `CorruptPageError` when kernels could not safely decode ``payload`` (uint8)."""
        ...

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> Vector:
        """Return rows [first, last) of the page, in memory of their own.

        ``row_count`` is that of the page. Raises IndexError outside [0, row_count] and
        `CorruptPageError` for damage that ``check`` cannot see.
        """
        ...

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> Vector:
        """Return the cells at ``rows`` (int64, any order, repeats allowed), in that order.

        Decodes only the mini-blocks that hold them. Raises as ``decode`` does.
        """
        ...

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the ranges [first, last) of a payload that kernels read for one ``row``.

        ``payload`` is memory for one that was checked before. The caller fills a range before it takes the next: where
        that is may depend on it.
        """
        ...


def block_count(row_count: int) -> int:
    """Return how many mini-blocks a page of ``row_count`` rows has."""
    return -(-row_count // BLOCK_ROWS)


def check_range(first: int, last: int, row_count: int) -> None:
    """Raise IndexError unless rows [first, last) to decode are in a page: 0 <= first <= last <= row_count."""
    if not 0 <= first <= last <= row_count:
        raise IndexError(f"rows [{first}, {last}) are not in a page of {row_count}")


def check_rows(rows: np.ndarray, row_count: int) -> np.ndarray:
    """Return the ``rows`` to decode of a page as contiguous int64; IndexError when one is outside [0, row_count)."""
    rows = np.ascontiguousarray(rows, np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= row_count):
        raise IndexError(f"a row is outside a page of {row_count} rows")
    return rows


def require(condition: bool | np.bool_, why: str) -> None:
    """Raise `CorruptPageError` with ``why`` unless ``condition``."""
    if not condition:
        raise CorruptPageError(why)
