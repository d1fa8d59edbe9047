"""The cells of deltas, and their application to a column without copying it where possible.

A dictionary column stays one: the new cells get codes of its dictionary, which is extended by missing values. The codes
are computed once per dictionary and kept.
"""

from __future__ import annotations

import numpy as np

from ..codecs.dictionary import DictionaryBuilder
from ..vectors.memory.memory import address_of
from ..vectors.physical import resized as resized_cells
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector, as_bytes, padded

_CODINGS_KEPT = 4

Coding = tuple[BytesVector, np.ndarray, int]
"""A dictionary, the code (int32) of each cell in it, and the address of the codes."""


class DeltaCells:
    """The cells of some deltas, by place; immutable. Thread safe."""

    __slots__ = ("_bytes", "_codings", "_resized", "address", "values")

    def __init__(self, values: Vector) -> None:
        self.values = values
        self.address = address_of(values.values) if isinstance(values, FixedVector) else 0
        """Address of the first cell, if cells have a fixed width."""
        self._bytes: BytesVector | None = None
        self._resized: DeltaCells | None = None
        self._codings: tuple[tuple[BytesVector, Coding | None], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the cells."""
        return self.values.nbytes

    @property
    def bytes(self) -> BytesVector:
        """The cells without a dictionary, if they are byte strings."""
        if self._bytes is None:
            self._bytes = as_bytes(self.values)
        return self._bytes

    def of(self, dtype: np.dtype) -> DeltaCells:
        """Return the cells in another width: that of a column widened since, or of one read as it was before."""
        values, resized = self.values, self._resized
        assert isinstance(values, FixedVector), "a fixed vector is patched by a fixed vector"
        if values.values.dtype == dtype:
            return self
        if resized is None or resized.values.values.dtype != dtype:  # pyright: ignore[reportAttributeAccessIssue]
            resized = self._resized = DeltaCells(FixedVector(resized_cells(values.values, dtype), values.valid))
        return resized

    def coded(self, dictionary: BytesVector) -> Coding | None:
        """Return the cells as codes of ``dictionary`` or an extension of it; None if that gets too large."""
        for known, coding in self._codings:
            if known is dictionary:
                return coding
        coding = _coded(self.values, dictionary)
        self._codings = (*self._codings, (dictionary, coding))[-_CODINGS_KEPT:]
        return coding


def _coded(values: Vector, dictionary: BytesVector) -> Coding | None:
    builder = DictionaryBuilder()
    known = builder.add(dictionary)
    if known is None or len(builder) != len(dictionary):
        return None
    assert not isinstance(values, FixedVector), "byte strings"
    new = builder.add(values.dictionary if isinstance(values, DictionaryVector) else values)
    if new is None:
        return None
    if isinstance(values, DictionaryVector):
        new = new[values.codes] if len(new) else np.zeros(len(values), np.int32)
    whole = dictionary if len(builder) == len(dictionary) else padded(builder.dictionary())
    return whole, new, address_of(new)
