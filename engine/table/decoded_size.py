"""The size of strings that a batch spells out only once, or not at all: dictionary codes, runs and views."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.wrapped import unwrapped

_VIEW_WORDS = 4
"""A view has 16 bytes, of which the first four are the length of its cell."""


def decoded_bytes(array: pa.Array) -> int:
    """For the check of a batch to write, return how many bytes the cells of an array of dictionary codes or of views
    take as plain cells; 0 for an array of plain cells. The array must have passed ``validate(full=True)``."""
    array = unwrapped(array)
    if isinstance(array, pa.DictionaryArray):
        return int(_lengths(array).sum()) + decoded_bytes(array.dictionary)
    return int(_lengths(array).sum()) if _is_view(array) else 0


def without_views(array: pa.Array) -> pa.Array:
    """For the check of a batch to write, return an array of dictionary codes for views as one for plain cells, which
    Arrow can decode; any other array unchanged."""
    if not isinstance(array, pa.DictionaryArray) or not _is_view(array.dictionary):
        return array
    plain = pa.string() if pa.types.is_string_view(array.type.value_type) else pa.binary()
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain))


def _lengths(array: pa.Array) -> np.ndarray:
    """Return the bytes of each cell as int64, 0 for NULL."""
    array = unwrapped(array)
    if isinstance(array, pa.DictionaryArray):
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        lengths = _lengths(array.dictionary)
        cells = lengths[codes] if len(lengths) else np.zeros(len(codes), np.int64)
    elif _is_view(array):
        words = np.frombuffer(array.buffers()[1] or b"", np.int32)
        first = array.offset * _VIEW_WORDS
        cells = words[first : first + len(array) * _VIEW_WORDS : _VIEW_WORDS].astype(np.int64)
    elif _has_lengths(array.type):
        return pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        return np.zeros(len(array), np.int64)
    if array.null_count:
        cells[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return cells


def _is_view(array: pa.Array) -> bool:
    return pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type)


def _has_lengths(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
        )
    )
