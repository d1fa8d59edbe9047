"""What a batch of changes leaves of each key: which keys go, and the last cell of each column of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .row_shapes import shapes_of

NO_ROW = -1


def last_rows(keys: np.ndarray, places: np.ndarray, is_of_it: np.ndarray) -> np.ndarray:
    """Return for each key in a batch of changes the last of its rows for which ``is_of_it`` holds, by their places in
    the order of changes; ``NO_ROW`` if there is none.

    ``keys`` numbers the keys from 0.
    """
    last = np.full(int(keys.max(initial=-1)) + 1, NO_ROW, np.int64)
    last[keys[is_of_it]] = places[is_of_it]  # places ascend, and of several values of one index the last stays
    return last


def net_changes(
    rows: pa.RecordBatch,
    keys: np.ndarray,
    names: Sequence[str],
    is_delete: np.ndarray,
    resets: np.ndarray,
    has: np.ndarray,
) -> tuple[np.ndarray, list[pa.RecordBatch]]:
    """Return the rows of a batch of changes that delete their keys for good or for a while, in order, and what is to be
    upserted then: a batch for each set of columns.

    ``keys`` are the numbers of the rows' keys (``row_shapes.key_codes``). ``has`` are bools of rows by ``names``: which
    cells a row brings. ``resets`` are the rows that leave nothing of what their key had before: deletes, and images
    with all columns of the table.
    """
    places = np.arange(rows.num_rows)
    start = last_rows(keys, places, resets)
    counts = ~is_delete & (places >= start[keys])
    gone = start[start != NO_ROW]
    gone = gone[is_delete[gone]]
    return np.sort(gone), _images(rows, keys, places, names, has & counts[:, None])


def _images(
    rows: pa.RecordBatch, keys: np.ndarray, places: np.ndarray, names: Sequence[str], has: np.ndarray
) -> list[pa.RecordBatch]:
    """Return for each key the last cell of each column, of those that rows have (``has``)."""
    sources = np.stack([last_rows(keys, places, has[:, at]) for at in range(len(names))], axis=1)
    sources = sources[(sources != NO_ROW).any(axis=1)]
    if not len(sources):
        return []
    codes, absent = shapes_of(sources == NO_ROW)
    images = []
    for code, gone in enumerate(absent):
        mine = sources[codes == code]
        mine = mine[np.argsort(mine.max(axis=1), kind="stable")]
        kept = [(name, mine[:, at]) for at, name in enumerate(names) if not gone[at]]
        images.append(pa.record_batch({name: rows.column(name).take(pa.array(source)) for name, source in kept}))
    return images
