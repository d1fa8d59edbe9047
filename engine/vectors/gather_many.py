"""Copy rows of many vectors into one: how merges bring rows into order, without laying the vectors end to end first.

A place is a vector's number << 32 | a row of it (int64). Places are trusted: they come from merges, not from disk.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..kernels import gather_many as kernels
from .gather import check_data_bytes
from .memory import address_of, allocate
from .vector import BytesVector, DictionaryVector, FixedVector, Vector, as_bytes

_GATHER_FIXED: dict[int, Callable[[int, int, int, int], None]] = {
    1: kernels.gather_u8_at_places,
    2: kernels.gather_u16_at_places,
    4: kernels.gather_u32_at_places,
    8: kernels.gather_u64_at_places,
    16: kernels.gather_u128_at_places,
}


def place_of(number: int, row: int) -> int:
    """Return the place of a row of the vector ``number``; those of the rows after it follow one by one."""
    return row + (number << kernels.ROW_BITS)


def take_from(vectors: Sequence[Vector], places: np.ndarray) -> FixedVector | BytesVector:
    """Return the cells at ``places`` (int64) of vectors of one physical type. Dictionaries are resolved.

    Raises OverflowError when the result would hold more than 2**31 - 1 bytes of strings.
    """
    valid = _valid(vectors, places)
    fixed = [vector for vector in vectors if isinstance(vector, FixedVector)]
    if fixed:
        assert len(fixed) == len(vectors), "fixed and byte vectors do not mix"
        return FixedVector(_take_fixed([vector.values for vector in fixed], places), valid)
    coded = [vector for vector in vectors if isinstance(vector, DictionaryVector) and len(vector.dictionary)]
    if len(coded) < len(vectors):
        return _take_bytes([as_bytes(vector) for vector in vectors], places, valid)
    values = allocate(len(places), np.int64)
    bases = _table([vector.codes for vector in coded])
    kernels.gather_codes_at_places(address_of(bases), address_of(places), len(places), address_of(values))
    return _take_bytes([vector.dictionary for vector in coded], values, valid)


def _take_fixed(cells: Sequence[np.ndarray], places: np.ndarray) -> np.ndarray:
    result = allocate(len(places), cells[0].dtype)
    bases = _table(cells)
    gather = _GATHER_FIXED[result.dtype.itemsize]
    gather(address_of(bases), address_of(places), len(places), address_of(result))
    return result


def _take_bytes(vectors: Sequence[BytesVector], places: np.ndarray, valid: np.ndarray | None) -> BytesVector:
    offsets, data = _table([vector.offsets for vector in vectors]), _table([vector.data for vector in vectors])
    ends_of_data = data + np.array([len(vector.data) for vector in vectors])
    count = len(places)
    ends = allocate(count + 1, np.int32)
    flags = 0 if valid is None else address_of(valid)
    total = int(
        kernels.gather_offsets_at_places(address_of(offsets), address_of(places), count, flags, address_of(ends))
    )
    cells = allocate(check_data_bytes(total), np.uint8)
    tables = address_of(offsets), address_of(data), address_of(ends_of_data)
    kernels.gather_strings_at_places(*tables, address_of(places), count, address_of(ends), address_of(cells))
    return BytesVector(ends, cells, valid)


def _valid(vectors: Sequence[Vector], places: np.ndarray) -> np.ndarray | None:
    if all(vector.valid is None for vector in vectors):
        return None
    all_valid = np.ones(max(len(vector) for vector in vectors), np.bool_)
    return _take_fixed([all_valid if vector.valid is None else vector.valid for vector in vectors], places)


def _table(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([address_of(array) for array in arrays], np.int64)
