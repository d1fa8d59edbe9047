"""The rows of `pgoutput`'s messages as columns of text.

Messages of one table are laid end to end, and all rows are read at once, a column after the other: the place of a cell
follows from the length of the cell before it. No step is in Python for each row.

A message is ``I oid N row``, ``U oid [K row | O row] N row`` or ``D oid (K row | O row)``; a row is a count of its
columns (int16), and for each ``n`` (NULL), ``u`` (an unchanged large value) or ``t``, a length (int32) and text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.errors import InternalError

_PADDING = b"\0" * 8
"""What is read of the length of a cell that has none."""
_HEADER = 5
"""The kind of a message and the number of its table."""
_LONG_CELLS = 256
"""The average length from which cells are copied one by one."""
_NULL, _UNCHANGED, _TEXT = b"nut"
_INSERT, _DELETE = b"ID"
_NEW, _OLD = b"NO"


@dataclass(frozen=True)
class Cells:
    """Where the cells of one column are in a buffer of PostgreSQL's messages."""

    kinds: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @property
    def is_unchanged(self) -> np.ndarray:
        """Which cells are large values that an update left as they are."""
        return self.kinds == _UNCHANGED

    def replaced(self, which: np.ndarray, other: Cells) -> Cells:
        """Return the cells with others in the places ``which``, in order."""
        kinds, starts, lengths = self.kinds.copy(), self.starts.copy(), self.lengths.copy()
        kinds[which], starts[which], lengths[which] = other.kinds, other.starts, other.lengths
        return Cells(kinds, starts, lengths)

    def taken(self, which: np.ndarray) -> Cells:
        """Return the cells at ``which``, places or bools."""
        return Cells(self.kinds[which], self.starts[which], self.lengths[which])

    @staticmethod
    def joined(first: Cells, second: Cells, order: np.ndarray) -> Cells:
        """Return the cells of two columns, one behind the other, in an order."""
        pairs = zip(
            (first.kinds, first.starts, first.lengths), (second.kinds, second.starts, second.lengths), strict=True
        )
        return Cells(*(np.concatenate(pair)[order] for pair in pairs))


@dataclass(frozen=True)
class Tuples:
    """The rows of PostgreSQL's messages of one table, in order: deletes of keys, and rows as they are now."""

    data: bytes
    is_delete: np.ndarray
    is_moved: np.ndarray
    """Which rows continue the one that is deleted before them."""
    columns: list[Cells]

    def text(self, column: int) -> pa.Array:
        """Return the text of a column; NULL where there is none."""
        cells = self.columns[column]
        return gathered(self.data, cells.starts, cells.lengths, cells.kinds == _TEXT)


def read_tuples(messages: Sequence[bytes], columns: int, key: Sequence[int]) -> Tuples:
    """Read PostgreSQL's messages of a table with so many columns; ``key`` are the numbers of those of the key.

    Raises:
        InternalError: a row has another number of columns.
    """
    data = b"".join(messages) + _PADDING
    view = np.frombuffer(data, np.uint8)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    starts = np.cumsum(lengths) - lengths
    kinds, marks = view[starts], view[starts + _HEADER]
    at = starts + _HEADER + 1
    has_old = np.flatnonzero(marks != _NEW)
    old, old_end = _read_rows(view, at[has_old], columns)
    at[has_old] = old_end + 1  # behind the mark of the new row
    has_new = np.flatnonzero(kinds != _DELETE)
    new, _ = _read_rows(view, at[has_new], columns)
    # Of updates with an old row: where its key is, and where the new row is.
    is_update = np.isin(has_old, has_new, assume_unique=True)
    in_new = np.searchsorted(has_new, has_old[is_update])
    is_full = marks[has_old[is_update]] == _OLD
    for number, cells in enumerate(new):
        lacks = cells.is_unchanged[in_new]
        if number not in key:  # an old key has no other cells
            lacks &= is_full
        if lacks.any():
            new[number] = cells.replaced(in_new[lacks], old[number].taken(is_update).taken(lacks))
    differs = np.zeros(len(in_new), np.bool_)
    for number in key:
        differs |= _differ(data, old[number].taken(is_update), new[number].taken(in_new))
    deletes = ~is_update
    deletes[np.flatnonzero(is_update)[differs]] = True
    return _in_order(data, (has_old, old, np.flatnonzero(deletes)), (has_new, new), in_new[differs])


def _in_order(
    data: bytes,
    before: tuple[np.ndarray, list[Cells], np.ndarray],
    after: tuple[np.ndarray, list[Cells]],
    moved: np.ndarray,
) -> Tuples:
    """Return deletes and new rows in the order of their messages; of one message the delete first."""
    (has_old, old, deletes), (has_new, new) = before, after
    places = np.concatenate([2 * has_old[deletes], 2 * has_new + 1])
    order = np.argsort(places, kind="stable")
    is_delete = np.arange(len(places)) < len(deletes)
    is_moved = np.zeros(len(places), np.bool_)
    is_moved[len(deletes) + moved] = True
    columns = [Cells.joined(was.taken(deletes), now, order) for was, now in zip(old, new, strict=True)]
    return Tuples(data, is_delete[order], is_moved[order], columns)


def _read_rows(view: np.ndarray, at: np.ndarray, columns: int) -> tuple[list[Cells], np.ndarray]:
    """Return the cells of rows that begin at ``at``, and where the rows end."""
    counts = (view[at].astype(np.int64) << 8) | view[at + 1]
    if (counts != columns).any():
        raise InternalError(f"a row of the stream has {counts[counts != columns][0]} columns, not {columns}")
    at = at + 2
    cells = []
    for _ in range(columns):
        kinds = view[at]
        has_text = kinds == _TEXT
        lengths = np.where(has_text, _big_endian(view, at + 1), 0)
        cells.append(Cells(kinds, at + 5, lengths))
        at = at + 1 + np.where(has_text, 4 + lengths, 0)
    return cells, at


def _big_endian(view: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the 32-bit integers at places."""
    value = view[at].astype(np.int64)
    for byte in range(1, 4):
        value = (value << 8) | view[at + byte]
    return value


def _differ(data: bytes, was: Cells, now: Cells) -> np.ndarray:
    """Return which cells of a key column differ. A large value that did not change does not."""
    differs = (was.lengths != now.lengths) & ~now.is_unchanged
    same = np.flatnonzero(~differs & ~now.is_unchanged)
    if len(same):
        left = gathered(data, was.starts[same], was.lengths[same])
        right = gathered(data, now.starts[same], now.lengths[same])
        differs[same] = pc.not_equal(left.cast(pa.binary()), right.cast(pa.binary())).to_numpy(zero_copy_only=False)
    return differs


def gathered(data: bytes, starts: np.ndarray, lengths: np.ndarray, is_valid: np.ndarray | None = None) -> pa.Array:
    """Return the texts at places of a buffer of PostgreSQL's messages as an Arrow array."""
    count = len(starts)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if total > _LONG_CELLS * count:
        ends = (starts + lengths).tolist()
        body = pa.py_buffer(b"".join([data[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]))
    else:
        index = np.arange(total) + np.repeat(starts - offsets[:-1], lengths)
        body = pa.py_buffer(np.frombuffer(data, np.uint8)[index])
    valid = None if is_valid is None else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [valid, pa.py_buffer(offsets), body])
