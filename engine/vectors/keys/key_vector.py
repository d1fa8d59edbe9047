"""Encoded primary keys, one per row, which compare like the rows.

A key is a byte string whose memcmp order is the key columns' order (see `key_encoder`). If all key columns have a fixed
width and fit in 8 bytes, the string is one unsigned integer instead: its big-endian bytes are the key, so comparing the
integers is comparing the strings.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...kernels.keys import bounds, hashing
from ...kernels.keys import keys as kernels
from ..gather import checked_indices, concat_bytes, gather_bytes, gather_fixed
from ..memory.memory import address_of, allocate, allocate_zeroed
from ..vector import BytesVector
from .key_bounds import KeyBounds


@dataclass(frozen=True, slots=True, eq=False)
class U64Keys:
    """Encoded keys of at most 8 bytes: ``values`` (uint64), of which the low ``width`` bytes are the key."""

    values: np.ndarray
    width: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys in this form."""
        return self.values.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class BytesKeys:
    """Encoded keys of any length: key i is ``data[offsets[i] : offsets[i + 1]]``, as in a BytesVector."""

    offsets: np.ndarray
    data: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and their offsets."""
        return int(self.offsets[-1]) - int(self.offsets[0]) + self.offsets.nbytes


KeyVector = U64Keys | BytesKeys


def key_bytes(keys: KeyVector, row: int) -> bytes:
    """Return the encoded key of one row."""
    if isinstance(keys, U64Keys):
        return int(keys.values[row]).to_bytes(keys.width, "big")
    return keys.data[keys.offsets[row] : keys.offsets[row + 1]].tobytes()


def outermost_keys(keys: KeyVector) -> KeyBounds:
    """Return the least and the greatest of at least one encoded key, in any order."""
    if isinstance(keys, U64Keys):
        least, greatest = int(keys.values.argmin()), int(keys.values.argmax())
    else:
        rows = np.zeros(2, np.int64)
        kernels.outermost_strings(address_of(keys.offsets), address_of(keys.data), len(keys), address_of(rows))
        least, greatest = rows.tolist()
    return key_bytes(keys, least), key_bytes(keys, greatest)


def keys_as_bytes(keys: KeyVector) -> BytesVector:
    """Return the encoded keys as cells of bytes."""
    if isinstance(keys, BytesKeys):
        return BytesVector(keys.offsets, keys.data)
    big_endian = keys.values.astype(">u8").view(np.uint8).reshape(-1, 8)
    data = np.ascontiguousarray(big_endian[:, 8 - keys.width :]).reshape(-1)
    return BytesVector(np.arange(len(keys) + 1, dtype=np.int32) * np.int32(keys.width), data)


def hash_keys(keys: KeyVector) -> np.ndarray:
    """Return a 64-bit hash (uint64) of each encoded key. On disk only Bloom filters contain it
    (`rowset.key_filter`)."""
    result = allocate(len(keys), np.uint64)
    if isinstance(keys, U64Keys):
        hashing.hash_u64(address_of(keys.values), len(keys), address_of(result))
    else:
        places = address_of(keys.offsets), address_of(keys.data)
        hashing.hash_strings(*places, len(keys), address_of(result))
    return result


def take_keys(keys: KeyVector, indices: np.ndarray) -> KeyVector:
    """Return the encoded keys of the rows at ``indices``. Raises IndexError outside [0, len)."""
    indices = checked_indices(indices, len(keys))
    if isinstance(keys, U64Keys):
        return U64Keys(gather_fixed(keys.values, indices), keys.width)
    return BytesKeys(*gather_bytes(keys.offsets, keys.data, indices))


def slice_keys(keys: KeyVector, first: int, last: int) -> KeyVector:
    """Return the encoded keys of rows [first, last) as views."""
    if isinstance(keys, U64Keys):
        return U64Keys(keys.values[first:last], keys.width)
    return BytesKeys(keys.offsets[first : last + 1], keys.data)


def concat_keys(parts: Sequence[KeyVector]) -> KeyVector:
    """Return the encoded keys of all ``parts`` (at least one, all of one form), one after the other."""
    if len(parts) == 1:
        return parts[0]
    words = [part for part in parts if isinstance(part, U64Keys)]
    if words:
        assert len(words) == len(parts), "keys of two forms do not mix"
        return U64Keys(np.concatenate([part.values for part in words]), words[0].width)
    strings = [part for part in parts if isinstance(part, BytesKeys)]
    return BytesKeys(*concat_bytes([(part.offsets, part.data) for part in strings]))


def equal_at(keys: KeyVector, indices: np.ndarray, other: KeyVector, other_indices: np.ndarray) -> np.ndarray:
    """Return whether the encoded key ``keys[indices[i]]`` equals ``other[other_indices[i]]``, one bool a pair."""
    indices = checked_indices(indices, len(keys))
    other_indices = checked_indices(other_indices, len(other))
    assert len(indices) == len(other_indices), "rows are compared in pairs"
    if isinstance(keys, U64Keys):
        assert isinstance(other, U64Keys), "keys of two forms do not mix"
        return gather_fixed(keys.values, indices) == gather_fixed(other.values, other_indices)
    assert isinstance(other, BytesKeys), "keys of two forms do not mix"
    result = allocate(len(indices), np.bool_)
    kernels.equal_strings_at(
        address_of(keys.offsets),
        address_of(keys.data),
        address_of(indices),
        address_of(other.offsets),
        address_of(other.data),
        address_of(other_indices),
        len(indices),
        address_of(result),
    )
    return result


def first_occurrences(keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
    """Return for each row the first row with the same encoded key (perhaps itself), int64.

    ``hashes`` are `hash_keys` of ``keys``; keys with equal hashes are compared.
    """
    count = len(keys)
    assert len(hashes) == count, "one hash a key"
    slot_count = max(16, 1 << (2 * count - 1).bit_length()) if count else 16
    slots = allocate_zeroed(slot_count, np.uint64)
    result = allocate(count, np.int64)
    table = address_of(hashes), count, address_of(slots), slot_count, address_of(result)
    if isinstance(keys, U64Keys):
        kernels.first_of_u64(address_of(keys.values), *table)
    else:
        kernels.first_of_strings(address_of(keys.offsets), address_of(keys.data), *table)
    return result


def lower_bound(sorted_keys: KeyVector, bound: bytes) -> int:
    """Return how many encoded keys sort before ``bound``: the first row at or after it."""
    if isinstance(sorted_keys, U64Keys):
        width = sorted_keys.width
        word = int.from_bytes(bound[:width].ljust(width, b"\0"), "big")
        is_longer = len(bound) > width  # then an equal key is its prefix, and so smaller
        # numpy's search gives up the GIL, and with many threads it takes longer to get it back than to search.
        find = bisect_right if is_longer else bisect_left
        return find(memoryview(sorted_keys.values), word)  # pyright: ignore[reportArgumentType]
    places = address_of(sorted_keys.offsets), address_of(sorted_keys.data)
    cells = np.frombuffer(bound, np.uint8)
    return int(kernels.string_lower_bound(*places, len(sorted_keys), address_of(cells), len(bound)))


def keys_less_equal(keys: KeyVector, bound: bytes) -> np.ndarray:
    """Return whether each encoded key sorts at or before ``bound``, one bool a row."""
    if isinstance(keys, U64Keys):
        word = _bound_word(bound, keys.width)
        return keys.values < word if len(bound) < keys.width else keys.values <= word
    result = allocate(len(keys), np.bool_)
    places = address_of(keys.offsets), address_of(keys.data)
    cells = np.frombuffer(bound, np.uint8)
    kernels.strings_less_equal(*places, len(keys), address_of(cells), len(bound), address_of(result))
    return result


def keys_at_least(keys: KeyVector, bound: bytes) -> np.ndarray:
    """Return whether each encoded key sorts at or after ``bound``, one bool a row."""
    if isinstance(keys, U64Keys):
        word = _bound_word(bound, keys.width)
        return keys.values > word if len(bound) > keys.width else keys.values >= word
    result = allocate(len(keys), np.int32)
    ends, cells = np.array([0, len(bound)], np.int32), np.frombuffer(bound or b"\0", np.uint8)
    places = address_of(keys.offsets), address_of(keys.data)
    bounds.count_bounds(address_of(ends), address_of(cells), 1, *places, len(keys), address_of(result))
    return result > 0


def _bound_word(bound: bytes, width: int) -> np.uint64:
    """Return the first ``width`` bytes of the bound, padded with zeros, in the form of keys."""
    return np.uint64(int.from_bytes(bound[:width].ljust(width, b"\0"), "big"))
