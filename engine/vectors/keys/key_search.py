"""Finds a batch of keys in sorted keys, with one binary search per key, all in one kernel."""

import numpy as np

from ...kernels.keys import key_search as kernels
from ..memory.memory import address_of, allocate
from ..vector import BytesVector
from .key_vector import BytesKeys, KeyVector, U64Keys


def last_at_or_before(sorted_keys: KeyVector, keys: KeyVector) -> np.ndarray:
    """Return for each encoded key the row (int64) of the last sorted key that is not after it; -1 if all are after
    it."""
    if isinstance(sorted_keys, U64Keys):
        assert isinstance(keys, U64Keys), "keys of two forms do not mix"
        return np.searchsorted(sorted_keys.values, keys.values, "right") - 1
    assert isinstance(keys, BytesKeys), "keys of two forms do not mix"
    result = allocate(len(keys), np.int64)
    places = address_of(sorted_keys.offsets), address_of(sorted_keys.data), len(sorted_keys)
    wanted = address_of(keys.offsets), address_of(keys.data), len(keys)
    kernels.last_strings_at_or_before(*places, *wanted, address_of(result))
    return result


def rows_of(stored: KeyVector, firsts: np.ndarray, lasts: np.ndarray, keys: KeyVector) -> np.ndarray:
    """Return for each encoded key its row (int64) in ``stored``, -1 if there is none.

    Searches key i in rows [firsts[i], lasts[i]) (int64), which must be sorted; the whole need not be.
    """
    assert len(firsts) == len(lasts) == len(keys), "one range a key"
    assert not len(firsts) or 0 <= firsts.min() <= lasts.max() <= len(stored), "ranges lie within the stored keys"
    result = allocate(len(keys), np.int64)
    ranges = address_of(firsts), address_of(lasts)
    if isinstance(stored, U64Keys):
        assert isinstance(keys, U64Keys), "keys of two forms do not mix"
        kernels.rows_of_words(
            address_of(stored.values), len(stored), *ranges, address_of(keys.values), len(keys), address_of(result)
        )
    else:
        assert isinstance(keys, BytesKeys), "keys of two forms do not mix"
        places = address_of(stored.offsets), address_of(stored.data)
        wanted = address_of(keys.offsets), address_of(keys.data), len(keys)
        kernels.rows_of_strings(*places, *ranges, *wanted, address_of(result))
    return result


def keys_from_bytes(cells: BytesVector, width: int) -> KeyVector:
    """Return encoded keys, stored as cells of bytes, in the form for keys of ``width`` bytes (0: any length).

    Raises ValueError if a key has another width.
    """
    if not 0 < width <= 8:
        return BytesKeys(cells.offsets, cells.data)
    if not (cells.lengths == width).all():
        raise ValueError(f"an encoded key does not have {width} bytes")
    first, last = int(cells.offsets[0]), int(cells.offsets[-1])
    padded = np.zeros((len(cells), 8), np.uint8)
    padded[:, 8 - width :] = cells.data[first:last].reshape(-1, width)
    return U64Keys(padded.view(">u8").reshape(-1).astype(np.uint64), width)
