"""In which rows of a page a filter is true.

Every leaf is one pass over a whole vector, by numpy for fixed widths, by Arrow for bytes and 128-bit integers, never
row by row. A dictionary is compared once, and its codes carry the answers to the rows. ``bound.py`` says why one mask
a node, "is it TRUE", is enough for SQL's three truth values.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow.compute as pc

from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector, materialize
from .arrow import array_of, mask_of, scalar_of, text_of
from .bound import INVERSE, And, BoundFilter, Compare, Leaf, LikeMatch, Node, NullTest, OneOf, Op, Or

_NUMPY: dict[Op, np.ufunc] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_ARROW = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_SPARSE = 4
"""A dictionary with that many values a row is not worth comparing whole."""


def select(bound: BoundFilter, vectors: Mapping[int, Vector], row_count: int) -> np.ndarray:
    """Return one bool a row: where ``bound`` is TRUE, neither false nor unknown.

    ``vectors`` holds, by column id, ``row_count`` cells of every column of ``bound.column_ids``. A column is asked for
    when its first leaf is reached, and not at all when the filter is decided before: a mapping that decodes on demand
    saves that work. The mask is the caller's own.
    """
    return _rows(bound.root, vectors, row_count)


def _rows(node: Node, vectors: Mapping[int, Vector], row_count: int) -> np.ndarray:
    if isinstance(node, And):
        return _all(node.parts, vectors, row_count)
    if isinstance(node, Or):
        return _any(node.parts, vectors, row_count)
    vector = vectors[node.column_id]
    assert len(vector) == row_count, "as many cells as rows"
    if isinstance(node, NullTest):
        return _null_test(node, vector)
    found = _by_dictionary(node, vector) if isinstance(vector, DictionaryVector) else _cells(node, vector)
    return found if vector.valid is None else np.logical_and(found, vector.valid, out=found)


def _all(parts: tuple[Node, ...], vectors: Mapping[int, Vector], row_count: int) -> np.ndarray:
    if not parts:
        return np.ones(row_count, np.bool_)
    found = _rows(parts[0], vectors, row_count)
    for part in parts[1:]:
        if not found.any():
            break
        found &= _rows(part, vectors, row_count)
    return found


def _any(parts: tuple[Node, ...], vectors: Mapping[int, Vector], row_count: int) -> np.ndarray:
    if not parts:
        return np.zeros(row_count, np.bool_)
    found = _rows(parts[0], vectors, row_count)
    for part in parts[1:]:
        if found.all():
            break
        found |= _rows(part, vectors, row_count)
    return found


def _null_test(leaf: NullTest, vector: Vector) -> np.ndarray:
    if vector.valid is None:
        return np.full(len(vector), not leaf.is_null, np.bool_)
    return np.logical_not(vector.valid) if leaf.is_null else vector.valid.copy()


def _by_dictionary(leaf: Leaf, vector: DictionaryVector) -> np.ndarray:
    """Return the answers for rows by those for the values of their dictionary."""
    if len(vector.dictionary) > _SPARSE * len(vector):
        return _cells(leaf, materialize(vector))
    answers = _cells(leaf, vector.dictionary)
    matching = np.flatnonzero(answers)
    if len(matching) == 0:
        return np.zeros(len(vector), np.bool_)
    if len(matching) == 1:
        return vector.codes == matching[0]
    return answers.take(vector.codes)


def _cells(leaf: Leaf, vector: FixedVector | BytesVector) -> np.ndarray:
    """Return in which rows the cell, if it is not NULL, satisfies the leaf."""
    return _EVALUATORS[type(leaf)](leaf, vector)


def _compare(leaf: Compare, vector: FixedVector | BytesVector) -> np.ndarray:
    if isinstance(vector, BytesVector) or leaf.physical is PhysicalType.INT128:
        cell = scalar_of(leaf.cell, leaf.physical)
        return mask_of(pc.call_function(_ARROW[leaf.op], [array_of(vector, leaf.physical), cell]))
    if leaf.matches_nan and leaf.op != "<>":  # the opposite is false for a NaN, so its opposite is true
        found = _NUMPY[INVERSE[leaf.op]](vector.values, leaf.cell)
        return np.logical_not(found, out=found)
    return _NUMPY[leaf.op](vector.values, leaf.cell)


def _one_of(leaf: OneOf, vector: FixedVector | BytesVector) -> np.ndarray:
    found = leaf.lookup.find(vector)
    return np.logical_not(found, out=found) if leaf.negated else found


def _like(leaf: LikeMatch, vector: FixedVector | BytesVector) -> np.ndarray:
    assert isinstance(vector, BytesVector), "LIKE is bound to strings only"
    options = pc.MatchSubstringOptions(leaf.matcher.pattern)
    found = mask_of(pc.call_function(leaf.matcher.function, [text_of(vector)], options))
    return np.logical_not(found, out=found) if leaf.negated else found


_EVALUATORS: dict[type, Callable[..., np.ndarray]] = {Compare: _compare, OneOf: _one_of, LikeMatch: _like}
