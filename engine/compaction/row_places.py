"""Where the rows of rowsets are in the outputs of a merge that was done elsewhere: found by their keys, and so checked.

Keys never change, and both sides stand in their order: one more pass over the keys alone tells it, and that no row was
lost, doubled or made up. Of other columns only liveness is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...schemas.errors import InvalidArgumentError
from ..rowset.diskrowset import DiskRowSet
from ..rowset.location import pack
from ..vectors.keys import equal_at
from .key_merge import MergedRows, Part, merged_rows

_ROWS_AT_ONCE = 1 << 16
"""Of each rowset."""
NO_COLUMNS: frozenset[int] = frozenset()


def place_rows(
    inputs: Sequence[DiskRowSet], outputs: Sequence[DiskRowSet], timestamp: int, ancient_history_mark: int
) -> list[np.ndarray]:
    """Return for each input the location of each row (int64): the number of its output and the row there, -1 if it was
    left out.

    Outputs show the rows at ``timestamp``. Only rows may be left out that died at or before the ancient history mark
    and have been dead since.

    Raises:
        InvalidArgumentError: the outputs are not a merge of the inputs; the text says where.
    """
    locations = [np.full(len(rowset), -1, np.int64) for rowset in inputs]
    for rows in merged_rows([*inputs, *outputs], _ROWS_AT_ONCE):
        _place(rows, inputs, outputs, locations, timestamp, ancient_history_mark)
        for rowset in (*inputs, *outputs):
            rowset.let_go()
    return locations


def _place(
    rows: MergedRows,
    inputs: Sequence[DiskRowSet],
    outputs: Sequence[DiskRowSet],
    locations: Sequence[np.ndarray],
    timestamp: int,
    ancient_history_mark: int,
) -> None:
    """Place some rows: where a key is in an input and in an output, the two rows stand beside each other."""
    places = np.empty(len(rows), np.int64)
    is_output, alive = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    parts = list(rows.by_part())
    for part, positions, rowids in parts:
        number = part.source - len(inputs)
        is_output[positions] = number >= 0
        places[positions] = pack(number, rowids) if number >= 0 else rowids
        living = _living(outputs[number] if number >= 0 else inputs[part.source], part, timestamp, number >= 0)
        if living is not None:
            alive[positions] = living[rowids - part.first]
    old, new = _pairs(rows, is_output)
    if (alive[old] != alive[new]).any():
        raise _wrong("a row that lives is dead there, or the other way round")
    place_of = np.full(len(rows), -1, np.int64)
    place_of[old] = places[new]
    for part, positions, rowids in parts:
        if part.source < len(inputs):
            mine = place_of[positions]
            locations[part.source][rowids] = mine
            if (lost := mine < 0).any():
                _check_dead(inputs[part.source], rowids[lost], alive[positions[lost]], timestamp, ancient_history_mark)


def _living(rowset: DiskRowSet, part: Part, timestamp: int, is_output: bool) -> np.ndarray | None:
    """Return which rows of a part exist at the moment of the merge; None for all."""
    if is_output:
        return rowset.base_live(part.first, part.last)
    return rowset.live_in(part.first, part.last, timestamp)


def _pairs(rows: MergedRows, is_output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of rows of inputs, and those of the same keys in outputs; every row of an output has one."""
    first, second = np.arange(len(rows) - 1), np.arange(1, len(rows))
    equal = np.flatnonzero(equal_at(rows.keys, first, rows.keys, second))
    old = np.where(is_output[equal], equal + 1, equal)
    new = np.where(is_output[equal], equal, equal + 1)
    is_thrice = (equal[1:] == equal[:-1] + 1).any()
    if is_thrice or is_output[old].any() or len(new) != np.count_nonzero(is_output) or not is_output[new].all():
        raise _wrong("they have a key that no merged rowset has, or one twice")
    return old, new


def _check_dead(
    rowset: DiskRowSet, rowids: np.ndarray, alive: np.ndarray, timestamp: int, ancient_history_mark: int
) -> None:
    """Check that rows that were left out died before the history. ``rowids`` ascend."""
    first, last = int(rowids[0]), int(rowids[-1]) + 1
    changed = np.zeros(last - first, np.bool_)
    for stamps in rowset.deltas.stamps(first, last, ancient_history_mark, timestamp, NO_COLUMNS):
        changed[stamps[0] - first] = True
    is_new = rowset.born is not None and rowset.born > ancient_history_mark
    if is_new or alive.any() or changed[rowids - first].any():
        raise _wrong("they lack a row that the history still has")


def _wrong(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the files are not a merge of the rowsets that were handed out: {why}")
