"""Copy rows of many vectors into one: how merges bring rows into order, without laying the vectors end to end first.

A place is a vector's number << 32 | a row of it (int64). Places are trusted: they come from merges, not from disk.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..kernels import gather_many as kernels
from .gather import check_data_bytes
from .memory import address_of, addresses, allocate
from .vector import BytesVector, DictionaryVector, FixedVector, Vector, as_bytes

_GATHER_FIXED: dict[int, Callable[[int, int, int, int], None]] = {
    1: kernels.gather_u8_at_places,
    2: kernels.gather_u16_at_places,
    4: kernels.gather_u32_at_places,
    8: kernels.gather_u64_at_places,
    16: kernels.gather_u128_at_places,
}


_SHORT_BYTES = 32
"""Strings up to so long are copied in one piece."""


def place_of(number: int, row: int) -> int:
    """Return the place of a row of the vector ``number``; those of the rows after it follow one by one."""
    return row + (number << kernels.ROW_BITS)


def take_from(vectors: Sequence[Vector], places: np.ndarray) -> FixedVector | BytesVector:
    """Return the cells at ``places`` (int64, each at most once) of vectors of one physical type. Dictionaries are
    resolved.

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
    codes, dictionaries = [vector.codes for vector in coded], [vector.dictionary for vector in coded]
    if sum(map(len, dictionaries)) <= len(places) and (longest := max(map(_longest, dictionaries))) <= _SHORT_BYTES:
        bases = addresses(codes)  # room for the longest in the place of each is not much
        return _copy_at_once(dictionaries, address_of(bases), places, valid, len(places) * longest)
    values = allocate(len(places), np.int64)
    bases = addresses(codes)
    kernels.gather_codes_at_places(address_of(bases), address_of(places), len(places), address_of(values))
    return _take_repeated(dictionaries, values, valid)


def _take_fixed(cells: Sequence[np.ndarray], places: np.ndarray) -> np.ndarray:
    result = allocate(len(places), cells[0].dtype)
    bases = addresses(cells)
    gather = _GATHER_FIXED[result.dtype.itemsize]
    gather(address_of(bases), address_of(places), len(places), address_of(result))
    return result


def _take_bytes(vectors: Sequence[BytesVector], places: np.ndarray, valid: np.ndarray | None) -> BytesVector:
    """Cells that are taken once have no more bytes than there are."""
    return _copy_at_once(vectors, 0, places, valid, sum(vector.data_bytes for vector in vectors))


def _copy_at_once(
    vectors: Sequence[BytesVector], codes: int, places: np.ndarray, valid: np.ndarray | None, bytes_max: int
) -> BytesVector:
    """Copy strings of at most ``bytes_max`` bytes together, by their codes unless ``codes`` is 0."""
    count, flags = len(places), 0 if valid is None else address_of(valid)
    ends, cells = allocate(count + 1, np.int32), allocate(check_data_bytes(bytes_max), np.uint8)
    offsets, data, data_ends = _string_tables(vectors)
    strings = codes, address_of(offsets), address_of(data), address_of(data_ends)
    kernels.copy_strings_at_places(*strings, address_of(places), count, flags, address_of(ends), address_of(cells))
    return BytesVector(ends, cells[: ends[-1]], valid)


def _take_repeated(vectors: Sequence[BytesVector], places: np.ndarray, valid: np.ndarray | None) -> BytesVector:
    """Strings that may be taken again and again: their lengths are added up first."""
    count, flags = len(places), 0 if valid is None else address_of(valid)
    offsets, data, data_ends = _string_tables(vectors)
    ends = allocate(count + 1, np.int32)
    strings, wanted = (address_of(offsets), address_of(data), address_of(data_ends)), (address_of(places), count)
    total = int(kernels.gather_offsets_at_places(strings[0], *wanted, flags, address_of(ends)))
    cells = allocate(check_data_bytes(total), np.uint8)
    kernels.gather_strings_at_places(*strings, *wanted, address_of(ends), address_of(cells))
    return BytesVector(ends, cells, valid)


def _string_tables(vectors: Sequence[BytesVector]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each vector the addresses of its offsets, of its data, and past its data."""
    offsets, data = addresses([vector.offsets for vector in vectors]), addresses([vector.data for vector in vectors])
    return offsets, data, data + np.array([len(vector.data) for vector in vectors])


def _longest(cells: BytesVector) -> int:
    return int(cells.lengths.max())


def _valid(vectors: Sequence[Vector], places: np.ndarray) -> np.ndarray | None:
    if all(vector.valid is None for vector in vectors):
        return None
    all_valid = np.ones(max(len(vector) for vector in vectors), np.bool_)
    return _take_fixed([all_valid if vector.valid is None else vector.valid for vector in vectors], places)
