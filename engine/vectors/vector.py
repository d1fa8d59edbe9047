"""Vectors: consecutive cells of one column in memory.

Three shapes, all immutable by contract (nobody writes into a vector that others have)::

    FixedVector       values   v0 v1 v2 ...          one cell each, of a PhysicalType's dtype
    BytesVector       offsets  o0 o1 o2 ... on       cell i is data[o_i : o_(i+1)]; o0 may be > 0
                      data     bytes
    DictionaryVector  codes    c0 c1 c2 ...          cell i is cell c_i of the dictionary
                      dictionary BytesVector without NULLs

``valid`` is one bool a row, or None if no cell is NULL. A cell under NULL is zero, empty, or code 0, so that vectors
with equal cells have equal bytes.

``slice`` returns views; ``take``, ``concat`` and ``patch`` copy. They check row numbers once, and the kernels below
trust them. A BytesVector has at most 2**31 - 1 bytes; a larger one raises OverflowError.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .gather import checked_indices, concat_bytes, gather_bytes, gather_fixed, patch_bytes
from .memory.memory import allocate, allocate_zeroed
from .physical import PhysicalType, resized

_PADDING_BYTES = 64


@dataclass(frozen=True, slots=True, eq=False)
class FixedVector:
    """A vector of cells of a fixed width, side by side."""

    values: np.ndarray
    valid: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of the cells and of their validity."""
        return self.values.nbytes + _valid_nbytes(self.valid)

    def slice(self, first: int, last: int) -> "FixedVector":
        """Return rows [first, last) as views."""
        return FixedVector(self.values[first:last], _slice_valid(self.valid, first, last))

    def take(self, indices: np.ndarray) -> "FixedVector":
        """Return the rows at ``indices``, in that order. Raises IndexError outside [0, len)."""
        indices = checked_indices(indices, len(self))
        return FixedVector(gather_fixed(self.values, indices), _take_valid(self.valid, indices))


@dataclass(frozen=True, slots=True, eq=False)
class BytesVector:
    """A vector of cells of any length: ``data`` concatenates them, ``offsets`` (int32, rows + 1) locates them."""

    offsets: np.ndarray
    data: np.ndarray
    valid: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the cells, their offsets and their validity; not of data outside the slice."""
        return self.data_bytes + self.offsets.nbytes + _valid_nbytes(self.valid)

    @property
    def data_bytes(self) -> int:
        """Bytes of the cells alone."""
        return int(self.offsets[-1]) - int(self.offsets[0])

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each cell, int32."""
        return self.offsets[1:] - self.offsets[:-1]

    def slice(self, first: int, last: int) -> "BytesVector":
        """Return rows [first, last) as views; the offsets then start above 0."""
        offsets = self.offsets[first : last + 1]
        return BytesVector(offsets, self.data, _slice_valid(self.valid, first, last))

    def take(self, indices: np.ndarray) -> "BytesVector":
        """Return the rows at ``indices``, in that order. Raises IndexError outside [0, len)."""
        indices = checked_indices(indices, len(self))
        offsets, data = gather_bytes(self.offsets, self.data, indices)
        return BytesVector(offsets, data, _take_valid(self.valid, indices))


@dataclass(frozen=True, slots=True, eq=False)
class DictionaryVector:
    """A vector of repeated cells: each is a code (int32) into a dictionary of distinct values."""

    codes: np.ndarray
    dictionary: BytesVector
    valid: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes, the dictionary and the validity."""
        return self.codes.nbytes + self.dictionary.nbytes + _valid_nbytes(self.valid)

    def slice(self, first: int, last: int) -> "DictionaryVector":
        """Return rows [first, last) as views, with the same dictionary object."""
        valid = _slice_valid(self.valid, first, last)
        return DictionaryVector(self.codes[first:last], self.dictionary, valid)

    def take(self, indices: np.ndarray) -> "DictionaryVector":
        """Return the rows at ``indices``, with the same dictionary object. Raises IndexError outside [0, len)."""
        indices = checked_indices(indices, len(self))
        codes = gather_fixed(self.codes, indices)
        return DictionaryVector(codes, self.dictionary, _take_valid(self.valid, indices))


Vector = FixedVector | BytesVector | DictionaryVector


def stored_as(vector: Vector) -> PhysicalType:
    """Return the physical type of a vector's cells."""
    return _PHYSICAL[vector.values.dtype] if isinstance(vector, FixedVector) else PhysicalType.BYTES


_PHYSICAL = {physical.dtype: physical for physical in PhysicalType if physical is not PhysicalType.BYTES}


def conformed(vector: Vector, physical: PhysicalType) -> Vector:
    """Return a vector with the same cells as ``physical``: unchanged, or in another width if their column was widened.

    A narrower ``physical`` is for readers with an older schema, for whom all cells fit.
    """
    if not isinstance(vector, FixedVector) or vector.values.dtype == physical.dtype:
        return vector
    return FixedVector(resized(vector.values, physical.dtype), vector.valid)


def zeros(physical: PhysicalType, row_count: int) -> FixedVector | BytesVector:
    """Return a vector of ``row_count`` cells that are zero or empty, none of them NULL."""
    if physical is PhysicalType.BYTES:
        return BytesVector(allocate_zeroed(row_count + 1, np.int32), allocate(0, np.uint8))
    return FixedVector(allocate_zeroed(row_count, physical.dtype))


def nulls(physical: PhysicalType, row_count: int) -> FixedVector | BytesVector:
    """Return a vector of ``row_count`` NULL cells."""
    cells = zeros(physical, row_count)
    valid = np.zeros(row_count, np.bool_)
    if isinstance(cells, BytesVector):
        return BytesVector(cells.offsets, cells.data, valid)
    return FixedVector(cells.values, valid)


def padded(cells: BytesVector) -> BytesVector:
    """Return a copy of a vector with readable bytes past the last cell: kernels copy short cells in whole vectors, and
    in a small dictionary nearly every cell is close to the end."""
    size = int(cells.offsets[-1])
    data = allocate_zeroed(size + _PADDING_BYTES, np.uint8)
    data[:size] = cells.data[:size]
    return BytesVector(cells.offsets, data)


def materialize(vector: DictionaryVector) -> BytesVector:
    """Return a vector with the same cells without a dictionary."""
    if len(vector.dictionary) == 0:  # every row is NULL: the codes refer to no cell
        return BytesVector(allocate_zeroed(len(vector) + 1, np.int32), allocate(0, np.uint8), vector.valid)
    cells = vector.dictionary
    codes = checked_indices(vector.codes, len(cells))
    offsets, data = gather_bytes(cells.offsets, cells.data, codes, vector.valid)
    return BytesVector(offsets, data, vector.valid)


def concat(vectors: Sequence[Vector]) -> Vector:
    """Return the rows of all ``vectors``, one after the other; at least one vector, all of one column. If it was
    widened in between, the result is as wide as the widest.

    Dictionary vectors that share one dictionary object stay so; any other mix of byte vectors is materialised.
    """
    if len(vectors) == 1:
        return vectors[0]
    valid = _concat_valid(vectors)
    fixed = [vector for vector in vectors if isinstance(vector, FixedVector)]
    if fixed:
        assert len(fixed) == len(vectors), "fixed and byte vectors do not mix"
        return FixedVector(_concat_arrays(_of_one_width([vector.values for vector in fixed])), valid)
    coded = [vector for vector in vectors if isinstance(vector, DictionaryVector)]
    if len(coded) == len(vectors) and len({id(vector.dictionary) for vector in coded}) == 1:
        codes = _concat_arrays([vector.codes for vector in coded])
        return DictionaryVector(codes, coded[0].dictionary, valid)
    cells = [as_bytes(vector) for vector in vectors]
    offsets, data = concat_bytes([(vector.offsets, vector.data) for vector in cells])
    return BytesVector(offsets, data, valid)


def as_bytes(vector: Vector) -> BytesVector:
    """Return a byte vector unchanged and a dictionary vector materialised."""
    assert not isinstance(vector, FixedVector), "a fixed vector has no bytes form"
    return materialize(vector) if isinstance(vector, DictionaryVector) else vector


def patch(base: Vector, positions: np.ndarray, replacement: Vector) -> Vector:
    """Return a vector as ``base`` with the cell at ``positions[i]`` replaced by cell i of ``replacement``, in the width
    of ``base``.

    ``positions`` are int32 or int64, ascending and distinct; the result is a copy. A dictionary vector stays one if the
    replacement shares its dictionary object. Raises IndexError for a position outside ``base``.
    """
    assert len(positions) == len(replacement), "one replacement for each position"
    positions = checked_indices(positions, len(base))
    valid = _patch_valid(base, positions, replacement)
    if isinstance(base, FixedVector):
        assert isinstance(replacement, FixedVector), "a fixed vector is patched by a fixed vector"
        cells = resized(replacement.values, base.values.dtype)
        return FixedVector(_patch_array(base.values, positions, cells), valid)
    if (
        isinstance(base, DictionaryVector)
        and isinstance(replacement, DictionaryVector)
        and base.dictionary is replacement.dictionary
    ):
        codes = _patch_array(base.codes, positions, replacement.codes)
        return DictionaryVector(codes, base.dictionary, valid)
    old, new = as_bytes(base), as_bytes(replacement)
    offsets, data = patch_bytes((old.offsets, old.data), positions, (new.offsets, new.data))
    return BytesVector(offsets, data, valid)


def _valid_nbytes(valid: np.ndarray | None) -> int:
    return 0 if valid is None else valid.nbytes


def _slice_valid(valid: np.ndarray | None, first: int, last: int) -> np.ndarray | None:
    return None if valid is None else valid[first:last]


def _take_valid(valid: np.ndarray | None, indices: np.ndarray) -> np.ndarray | None:
    return None if valid is None else gather_fixed(valid, indices)


def _concat_valid(vectors: Sequence[Vector]) -> np.ndarray | None:
    if all(vector.valid is None for vector in vectors):
        return None
    return np.concatenate([validity(vector) for vector in vectors])


def validity(vector: Vector) -> np.ndarray:
    """Return one bool a row, even for a vector without NULLs."""
    return np.ones(len(vector), np.bool_) if vector.valid is None else vector.valid


def _of_one_width(arrays: list[np.ndarray]) -> list[np.ndarray]:
    widest = max((array.dtype for array in arrays), key=lambda dtype: dtype.itemsize)
    return [resized(array, widest) for array in arrays]


def _concat_arrays(arrays: Sequence[np.ndarray]) -> np.ndarray:
    result = allocate(sum(len(array) for array in arrays), arrays[0].dtype)
    return np.concatenate(arrays, out=result)


def _patch_array(base: np.ndarray, positions: np.ndarray, replacement: np.ndarray) -> np.ndarray:
    result = allocate(len(base), base.dtype)
    result[:] = base
    result[positions] = replacement
    return result


def _patch_valid(base: Vector, positions: np.ndarray, replacement: Vector) -> np.ndarray | None:
    if base.valid is None and replacement.valid is None:
        return None
    valid = validity(base).copy()
    valid[positions] = validity(replacement)
    return valid
