"""Numbers for the keys of rows, and for the sets of cells that rows lack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc


def key_codes(rows: pa.RecordBatch, key: Sequence[str]) -> np.ndarray:
    """Return a number for each row of a user's data, from 0, equal for equal keys (int64)."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in key:
        if name in rows.schema.names:  # an auto-increment column, which the store will fill, is not
            coded = pc.dictionary_encode(rows.column(name), null_encoding="encode")
            mixed = codes * max(len(coded.dictionary), 1) + coded.indices.to_numpy()
            _, codes = np.unique(mixed, return_inverse=True)
    return codes


def shapes_of(is_absent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tell which of a user's rows lack the same cells: return for bools of rows by columns a code for each row, and the
    bools of each code."""
    packed, codes = np.unique(np.packbits(is_absent, axis=1), axis=0, return_inverse=True)
    return codes.reshape(-1), np.unpackbits(packed, axis=1, count=is_absent.shape[1]).astype(bool)
