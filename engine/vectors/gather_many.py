"""Copies rows of many vectors into one: puts the rows of merges in order, without concatenating the vectors first.

Places are trusted: they come from merges, not from disk.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..kernels.cells import gather_many as kernels
from .gather import check_data_bytes, concat_bytes
from .memory.memory import address_of, address_or_0, addresses, allocate
from .places import Places
from .vector import BytesVector, DictionaryVector, FixedVector, Vector, as_bytes

_GATHER_FIXED: dict[int, Callable[[int, int, int, int, int, int], None]] = {
    1: kernels.gather_u8_at_places,
    2: kernels.gather_u16_at_places,
    4: kernels.gather_u32_at_places,
    8: kernels.gather_u64_at_places,
    16: kernels.gather_u128_at_places,
}


def take_from(vectors: Sequence[Vector], places: Places) -> FixedVector | BytesVector:
    """Return the cells at ``places`` (each at most once) of vectors of one physical type, without dictionaries.

    Raises OverflowError if the result would hold more than 2**31 - 1 bytes of strings.
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
    if sum(map(len, dictionaries)) <= len(places) and (longest := _longest(dictionaries)) <= kernels.SHORT_BYTES:
        return _take_coded(codes, dictionaries, longest, places, valid)
    values = allocate(len(places), np.int64)
    bases = addresses(codes)
    kernels.gather_codes_at_places(address_of(bases), *_wanted(places), address_of(values))
    return _take_values(dictionaries, values, valid)


def _wanted(places: Places) -> tuple[int, int, int, int]:
    """Return places in the form that kernels take."""
    return address_of(places.words), len(places), places.row_bits, places.place_bits


def _take_fixed(cells: Sequence[np.ndarray], places: Places) -> np.ndarray:
    result = allocate(len(places), cells[0].dtype)
    bases = addresses(cells)
    gather = _GATHER_FIXED[result.dtype.itemsize]
    gather(address_of(bases), *_wanted(places), address_of(result))
    return result


def _take_bytes(vectors: Sequence[BytesVector], places: Places, valid: np.ndarray | None) -> BytesVector:
    """Takes each cell at most once, so the result is no larger than the input."""
    ends, cells = _room(len(places), sum(vector.data_bytes for vector in vectors))
    offsets, data, data_ends = _string_tables(vectors)
    strings = address_of(offsets), address_of(data), address_of(data_ends)
    target = address_of(ends), address_of(cells)
    kernels.copy_strings_at_places(*strings, *_wanted(places), address_or_0(valid), *target)
    return BytesVector(ends, cells[: ends[-1]], valid)


def _take_coded(
    codes: Sequence[np.ndarray],
    dictionaries: Sequence[BytesVector],
    longest: int,
    places: Places,
    valid: np.ndarray | None,
) -> BytesVector:
    """Concatenates short strings of small dictionaries: reserving the longest length for each cell costs little."""
    offsets, data = concat_bytes([(dictionary.offsets, dictionary.data) for dictionary in dictionaries])
    ends, cells = _room(len(places), len(places) * longest)
    first_codes = np.cumsum([0, *map(len, dictionaries[:-1])])
    code_bases, offset_bases = addresses(codes), address_of(offsets) + first_codes * offsets.itemsize
    strings, target = (address_of(code_bases), address_of(offset_bases)), (address_of(ends), address_of(cells))
    kernels.copy_coded_at_places(*strings, address_of(data), longest, *_wanted(places), address_or_0(valid), *target)
    return BytesVector(ends, cells[: ends[-1]], valid)


def _room(count: int, bytes_max: int) -> tuple[np.ndarray, np.ndarray]:
    """Return memory for the offsets and the data of ``count`` strings that take at most ``bytes_max``."""
    return allocate(count + 1, np.int32), allocate(check_data_bytes(bytes_max), np.uint8)


def _take_values(dictionaries: Sequence[BytesVector], values: np.ndarray, valid: np.ndarray | None) -> BytesVector:
    """Values may be taken repeatedly: adds up their lengths first."""
    offsets, data, data_ends = _string_tables(dictionaries)
    ends, wanted = allocate(len(values) + 1, np.int32), (address_of(values), len(values))
    flags = address_or_0(valid)
    total = int(kernels.gather_offsets_of_values(address_of(offsets), *wanted, flags, address_of(ends)))
    cells = allocate(check_data_bytes(total), np.uint8)
    strings = address_of(offsets), address_of(data), address_of(data_ends)
    target = address_of(ends), address_of(cells)
    kernels.gather_values(*strings, *wanted, *target)
    return BytesVector(ends, cells, valid)


def _string_tables(vectors: Sequence[BytesVector]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each vector the addresses of its offsets, of its data, and past its data."""
    offsets, data = addresses([vector.offsets for vector in vectors]), addresses([vector.data for vector in vectors])
    return offsets, data, data + np.array([len(vector.data) for vector in vectors])


def _longest(vectors: Sequence[BytesVector]) -> int:
    """Return the bytes of the longest string of all."""
    return int(np.concatenate([vector.lengths for vector in vectors]).max())


def _valid(vectors: Sequence[Vector], places: Places) -> np.ndarray | None:
    if all(vector.valid is None for vector in vectors):
        return None
    all_valid = np.ones(max(len(vector) for vector in vectors), np.bool_)
    return _take_fixed([all_valid if vector.valid is None else vector.valid for vector in vectors], places)
