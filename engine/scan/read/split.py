"""Splits: cut a scan of a tablet into ranges of keys with about equally many bytes.

Possible ends are sampled from the chunks that the scan would read, because with overlapping rowsets no single rowset
knows the distribution of keys. A sample represents the rows up to the next one; the ends are quantiles of all samples.
Ranges follow one another without a gap, and a row belongs to the range of its key whatever rowset it moves to. So the
splits read the same rows as the whole scan, each row once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np

from ....schemas.rows.prune_count import PruneCount
from ...codecs.codec import BLOCK_ROWS
from ...filter.prune import KeyRange
from ...rowset.memrowset import MemRowSet
from ...rowset.rowset import RowSet
from ...tablet.version import Version
from ...vectors.keys.keys import key_bytes
from .chunk import Chunk, ScanRequest, chunks

SPLITS_MAX = 10_000
"""The most splits of one tablet."""
_SAMPLES_A_SPLIT = 16


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a scan of a tablet; rows and bytes are estimates."""

    keys: KeyRange
    rows: int
    bytes: int


def split(version: Version, request: ScanRequest, split_bytes: int | None) -> tuple[list[Split], PruneCount]:
    """Return the parts of a scan, of about ``split_bytes`` each (None: one), and the counts of its pruning.

    A scan that reads nothing has one part too.
    """
    return split_rowsets(version.rowsets(), request, split_bytes)


def split_rowsets(
    rowsets: Iterable[RowSet], request: ScanRequest, split_bytes: int | None
) -> tuple[list[Split], PruneCount]:
    """Return the parts of a scan of some rowsets, as `split` does."""
    count = PruneCount()
    wanted = [chunk for rowset in rowsets for chunk in chunks(rowset, request, count)]
    whole = Split(request.keys, count.rows_in_chunks, int(count.bytes_in_chunks))
    parts = 1 if split_bytes is None else min(ceil(whole.bytes / split_bytes), whole.rows, SPLITS_MAX)
    return [whole] if parts <= 1 else _even_splits(list(_samples(wanted, whole.rows, parts)), whole, parts), count


def _samples(wanted: list[Chunk], rows: int, parts: int) -> Iterator[tuple[bytes, int]]:
    """Yield keys and how many rows each represents."""
    step = max(rows // (parts * _SAMPLES_A_SPLIT), 1)
    for chunk in wanted:
        # On disk, reading a key decodes its mini-block, which holds its neighbours too.
        every = step if isinstance(chunk.rowset, MemRowSet) or step < BLOCK_ROWS else step // BLOCK_ROWS * BLOCK_ROWS
        places = np.arange(chunk.first, chunk.last, every)
        keys = chunk.rowset.keys_at(places)
        weights = np.diff(np.append(places, chunk.last))
        for row, weight in enumerate(weights.tolist()):
            yield key_bytes(keys, row), weight


def _even_splits(samples: list[tuple[bytes, int]], whole: Split, parts: int) -> list[Split]:
    """Return consecutive ranges with about equally many sampled rows; fewer than ``parts`` if samples are few."""
    samples.sort()
    share, row_bytes = whole.rows / parts, whole.bytes / whole.rows
    splits: list[Split] = []
    lower, rows = whole.keys.lower, 0
    for key, weight in samples:
        if rows >= share * 0.999 and (lower is None or key > lower) and len(splits) < parts - 1:
            splits.append(Split(KeyRange(lower, key), rows, int(rows * row_bytes)))
            lower, rows = key, 0
        rows += weight
    return [*splits, Split(KeyRange(lower, whole.keys.upper), rows, int(rows * row_bytes))]
