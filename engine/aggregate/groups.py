"""Which group each row belongs to.

Each column of the key gets codes: a dictionary's own, the distance from the least integer if they are close together,
else those of Arrow's hash table. The codes of several columns combine to one number, like digits; if the numbers become
too many for the rows, they are renumbered. NULL is its own group; all NaNs are one, and so are both zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..vectors.arrow import to_arrow
from ..vectors.vector import DictionaryVector, FixedVector, Vector

DENSE = 4096
"""This many groups are never too many: their slots fit the nearest cache."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of an aggregate as codes (int32) into its distinct ``values``, of which the last may be NULL."""

    codes: np.ndarray
    values: pa.Array


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each row of an aggregate: ``numbers`` (int32) below ``count``; some numbers may have no row."""

    numbers: np.ndarray
    count: int
    _columns: tuple[Coded, ...]
    _meanings: np.ndarray | None
    """The combined codes before they were renumbered."""

    def keys(self, chosen: np.ndarray) -> list[pa.Array]:
        """Return the cells of the key, column by column, of the groups in ``chosen``."""
        left = chosen.astype(np.int64) if self._meanings is None else self._meanings[chosen]
        keys: list[pa.Array] = []
        for column in reversed(self._columns):
            left, codes = np.divmod(left, len(column.values))
            keys.append(column.values.take(pa.array(codes)))
        return keys[::-1]


def group_rows(columns: Sequence[tuple[Vector, pa.DataType]], row_count: int) -> Groups:
    """Group ``row_count`` rows by the cells of ``columns``; without columns, they are one group."""
    coded = tuple(_coded(vector, kind) for vector, kind in columns)
    if not coded:
        return Groups(np.zeros(row_count, np.int32), 1, (), None)
    numbers, count = coded[0].codes, len(coded[0].values)
    is_wide = len(coded) > 1
    if is_wide:
        numbers = numbers.astype(np.int64)
        for column in coded[1:]:
            if count * len(column.values) >= 1 << 62:
                return _numbered_anew(coded)
            numbers = numbers * len(column.values) + column.codes
            count *= len(column.values)
    if count <= max(DENSE, row_count):
        return Groups(numbers.astype(np.int32, copy=False), count, coded, None)
    anew = pa.array(numbers).dictionary_encode()
    meanings = anew.dictionary.to_numpy(zero_copy_only=False).astype(np.int64)
    return Groups(anew.indices.to_numpy(zero_copy_only=False), len(meanings), coded, meanings)


def _numbered_anew(coded: tuple[Coded, ...]) -> Groups:
    """As `group_rows`, if even 62 bits do not hold the combined codes: columns are renumbered one by one."""
    table = np.stack([column.codes for column in coded], axis=1)
    rows, numbers = np.unique(table, axis=0, return_inverse=True)
    columns = tuple(
        Coded(rows[:, place], column.values.take(pa.array(rows[:, place]))) for place, column in enumerate(coded)
    )
    return _Listed(numbers.astype(np.int32).reshape(-1), len(rows), columns, None)


class _Listed(Groups):
    """Groups whose columns have one cell per group."""

    def keys(self, chosen: np.ndarray) -> list[pa.Array]:
        return [column.values.take(pa.array(chosen)) for column in self._columns]


def code_cells(vector: Vector, kind: pa.DataType) -> Coded:
    """Return the cells of an aggregate's column as codes into its distinct values, by Arrow's hash table."""
    if isinstance(vector, FixedVector) and pa.types.is_floating(kind):
        vector = FixedVector(_plain_floats(vector.values), vector.valid)
    encoded = to_arrow(vector, kind).dictionary_encode(null_encoding="encode")
    return Coded(encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary)


def _coded(vector: Vector, kind: pa.DataType) -> Coded:
    if isinstance(vector, DictionaryVector) and len(vector.dictionary) <= max(DENSE, len(vector)):
        return _with_null(vector.codes, vector.valid, to_arrow(vector.dictionary, kind))
    if isinstance(vector, FixedVector) and vector.values.dtype.kind in "iu" and len(vector):
        low, high = int(vector.values.min()), int(vector.values.max())
        if high - low < max(DENSE, len(vector)):
            codes = (vector.values.astype(np.int64) - low).astype(np.int32)
            between = np.arange(low, high + 1, dtype=np.int64).astype(vector.values.dtype)
            return _with_null(codes, vector.valid, to_arrow(FixedVector(between), kind))
    return code_cells(vector, kind)


def _with_null(codes: np.ndarray, valid: np.ndarray | None, values: pa.Array) -> Coded:
    if valid is None or valid.all():
        return Coded(codes, values)
    codes = np.where(valid, codes, len(values)).astype(np.int32)
    return Coded(codes, pa.concat_arrays([values, pa.nulls(1, values.type)]))


def _plain_floats(cells: np.ndarray) -> np.ndarray:
    """Return the cells with one zero and one NaN."""
    plain = cells + 0  # -0.0 + 0 is 0.0
    plain[np.isnan(plain)] = np.nan
    return plain
