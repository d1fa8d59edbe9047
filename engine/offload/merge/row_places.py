"""Finds the rows of rowsets in the outputs of an outside merge by their keys, and so checks the merge.

Keys never change, and both sides are in key order: one more pass over the keys gives all locations, and shows that no
row was lost, duplicated or invented. Of the other columns, only liveness is read. Row numbers here run through all
rowsets, first the inputs, then the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ....schemas.errors import InvalidArgumentError
from ...compaction.key_merge import MergedRows, RowRange, merged_rows
from ...rowset.diskrowset import DiskRowSet
from ...rowset.location import ROWID_BITS
from ...vectors.keys.keys import equal_at

_ROWS_AT_ONCE = 1 << 16
"""Rows of each rowset in one step."""
_NO_COLUMNS: frozenset[int] = frozenset()


def place_rows(
    inputs: Sequence[DiskRowSet], outputs: Sequence[DiskRowSet], timestamp: int, ancient_history_mark: int
) -> list[np.ndarray]:
    """Return for each input of an outside merge the location of each row (int64): output number and row there, or -1 if
    it was dropped.

    Outputs show the rows at ``timestamp``. Only rows that have been dead since the ancient history mark or earlier may
    be dropped.

    Raises:
        InvalidArgumentError: the outputs are not a merge of the inputs; the text says where.
    """
    return _Places(inputs, outputs, timestamp, ancient_history_mark).found()


class _Places:
    def __init__(
        self, inputs: Sequence[DiskRowSet], outputs: Sequence[DiskRowSet], timestamp: int, ancient_history_mark: int
    ) -> None:
        self._inputs = inputs
        self._rowsets = [*inputs, *outputs]
        self._timestamp = timestamp
        self._ancient = ancient_history_mark
        self._starts = np.cumsum([0, *map(len, self._rowsets)])
        """The number of the first row of each rowset, and of the end."""
        self._input_rows = int(self._starts[len(inputs)])
        self._locations = np.full(self._input_rows, -1, np.int64)

    def found(self) -> list[np.ndarray]:
        for rows in merged_rows(self._rowsets, _ROWS_AT_ONCE):
            self._place(rows)
        return [self._locations[first:last] for first, last in pairwise(self._starts[: len(self._inputs) + 1].tolist())]

    def _place(self, rows: MergedRows) -> None:
        """Locate some rows: a key's rows in an input and in an output are adjacent in the merged order."""
        starts = self._starts
        numbers = np.concatenate(
            [np.arange(part.first, part.last) + starts[part.source] for part in rows.parts], dtype=np.int64
        )
        numbers = numbers if rows.order is None else numbers[rows.order]
        is_output = numbers >= self._input_rows
        old, new = _pairs(rows, is_output)
        alive = self._alive(rows)
        if alive is not None and (alive[old] != alive[new]).any():
            raise _wrong("a row that is live in the table is deleted in the files, or the reverse")
        self._locations[numbers[old]] = self._packed(numbers[new])
        if len(old) + len(new) < len(rows):
            is_lost = ~is_output
            is_lost[old] = False
            self._check_dead(numbers[is_lost], None if alive is None else alive[is_lost])

    def _packed(self, numbers: np.ndarray) -> np.ndarray:
        """Return row numbers of outputs as locations."""
        starts = self._starts[len(self._inputs) :]
        output = np.searchsorted(starts, numbers, side="right") - 1
        return (output << ROWID_BITS) | (numbers - starts[output])

    def _alive(self, rows: MergedRows) -> np.ndarray | None:
        """Return which rows are alive at the timestamp of the merge; None for all."""
        found = [self._living(part) for part in rows.parts]
        if all(living is None for living in found):
            return None
        whole = [
            np.ones(part.last - part.first, np.bool_) if living is None else living
            for part, living in zip(rows.parts, found, strict=True)
        ]
        return np.concatenate(whole) if rows.order is None else np.concatenate(whole)[rows.order]

    def _living(self, part: RowRange) -> np.ndarray | None:
        rowset = self._rowsets[part.source]
        if part.source < len(self._inputs):
            return rowset.live_in(part.first, part.last, self._timestamp)
        return rowset.base_live(part.first, part.last)

    def _check_dead(self, numbers: np.ndarray, alive: np.ndarray | None) -> None:
        """Check that dropped rows died before the history."""
        source = np.searchsorted(self._starts, numbers, side="right") - 1
        is_seen = alive is None or bool(alive.any())
        for number in np.unique(source).tolist():
            rowids = np.sort(numbers[source == number] - self._starts[number])
            is_seen = is_seen or self._lived(self._inputs[number], rowids)
        if is_seen:
            raise _wrong("the files lack a row that the history needs")

    def _lived(self, rowset: DiskRowSet, rowids: np.ndarray) -> bool:
        """Whether one of the ascending ``rowids`` was inserted or deleted after the ancient history mark."""
        first, last = int(rowids[0]), int(rowids[-1]) + 1
        changed = np.zeros(last - first, np.bool_)
        for stamps in rowset.deltas.stamps(first, last, self._ancient, self._timestamp, _NO_COLUMNS):
            changed[stamps[0] - first] = True
        return (rowset.born is not None and rowset.born > self._ancient) or bool(changed[rowids - first].any())


def _pairs(rows: MergedRows, is_output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of input rows and of output rows with equal keys; every output row has a partner."""
    first, second = np.arange(len(rows) - 1), np.arange(1, len(rows))
    equal = np.flatnonzero(equal_at(rows.keys, first, rows.keys, second))
    is_first = is_output[equal]
    old, new = equal + is_first, equal + ~is_first
    is_thrice = (equal[1:] == equal[:-1] + 1).any()
    if is_thrice or is_output[old].any() or len(new) != np.count_nonzero(is_output) or not is_output[new].all():
        raise _wrong("a key of the files is in none of the merged rowsets, or occurs twice")
    return old, new


def _wrong(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the files are not a merge of the rowsets that were handed out: {why}")
