"""Evaluates a filter on the rows of a page.

Every leaf is one pass over a whole vector, by numpy for fixed widths, by Arrow for bytes and 128-bit integers, never
row by row. A dictionary is compared once, and its codes carry the answers to the rows. ``bound.py`` says why one mask
a node, "is it TRUE", is enough for SQL's three truth values.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ..expression.rows import Rows
from ..expression.tree import ARROW_COMPARISONS
from ..vectors.arrow import to_arrow
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector, materialize
from .arrow import array_of, mask_of, scalar_of, text_of
from .bound import INVERSE, And, BoundFilter, Compare, Leaf, LikeMatch, Node, NullTest, OneOf, Op, Or, Test, has_test

_NUMPY: dict[Op, np.ufunc] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
Answers = dict[tuple[int, int], tuple[BytesVector, np.ndarray]]
"""See ``BoundFilter.answers``."""

_SMALL = 16
_MANY_ROWS = 1 << 16
"""Results for fewer values are not worth keeping, unless they are for many rows: some dictionaries are made for one
chunk only."""

_SPARSE = 4
"""A dictionary with this many values per row is not worth comparing as a whole."""

_ANSWERS_MAX = 64
"""Dictionaries whose results a filter keeps. Each keeps its dictionary in memory, also after its file is gone."""


def select(bound: BoundFilter, vectors: Mapping[int, Vector], row_count: int) -> np.ndarray:
    """Evaluate a filter on the rows of a page; return one bool a row: where ``bound`` is TRUE, neither false nor
    unknown.

    ``vectors`` holds, by column id, ``row_count`` cells of every column of ``bound.column_ids``. A column is read when
    its first leaf is reached, and not at all if the filter is decided before: a mapping that decodes on demand saves
    that work. The caller owns the mask.
    """
    return _rows(bound.root, _Page(vectors, row_count, bound.answers))


@dataclass(frozen=True, slots=True)
class _Page:
    """The rows to evaluate a filter on."""

    vectors: Mapping[int, Vector]
    row_count: int
    answers: Answers

    def at(self, rows: np.ndarray) -> "_Page":
        """Return some of the rows."""
        return _Page(_Taken(self.vectors, rows), len(rows), self.answers)


class _Taken(Mapping[int, Vector]):
    """The cells of some rows, taken when they are first asked for."""

    def __init__(self, vectors: Mapping[int, Vector], rows: np.ndarray) -> None:
        self._vectors, self._rows = vectors, rows
        self._known: dict[int, Vector] = {}

    def __getitem__(self, column_id: int) -> Vector:
        if column_id not in self._known:
            self._known[column_id] = self._vectors[column_id].take(self._rows)
        return self._known[column_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)


def _rows(node: Node, page: _Page) -> np.ndarray:
    if isinstance(node, And):
        return _all(node.parts, page)
    if isinstance(node, Or):
        return _any(node.parts, page)
    if isinstance(node, Test):
        return _test(node, page)
    vector, row_count = page.vectors[node.column_id], page.row_count
    assert len(vector) == row_count, "as many cells as rows"
    if isinstance(node, NullTest):
        return _null_test(node, vector)
    is_coded = isinstance(vector, DictionaryVector)
    found = _by_dictionary(node, vector, page.answers) if is_coded else _cells(node, vector)
    return found if vector.valid is None else np.logical_and(found, vector.valid, out=found)


def _all(parts: tuple[Node, ...], page: _Page) -> np.ndarray:
    if not parts:
        return np.ones(page.row_count, np.bool_)
    found = _rows(parts[0], page)
    for part in parts[1:]:
        if not found.any():
            break
        if has_test(part):  # only where it matters: elsewhere it may not even be computable
            rows = np.flatnonzero(found)
            found[rows] = _rows(part, page.at(rows))
        else:
            found &= _rows(part, page)
    return found


def _any(parts: tuple[Node, ...], page: _Page) -> np.ndarray:
    if not parts:
        return np.zeros(page.row_count, np.bool_)
    found = _rows(parts[0], page)
    for part in parts[1:]:
        if found.all():
            break
        if has_test(part):
            rows = np.flatnonzero(~found)
            found[rows] = _rows(part, page.at(rows))
        else:
            found |= _rows(part, page)
    return found


def _test(node: Test, page: _Page) -> np.ndarray:
    from ..expression.evaluate import truth  # needed by few stores

    columns = {name: (column_id, kind) for column_id, name, kind in node.columns}

    def cells(name: str) -> pa.Array:
        column_id, kind = columns[name]
        return to_arrow(page.vectors[column_id], kind)

    flags = truth(node.expression, Rows(page.row_count, cells))
    flags = pc.invert(flags) if node.negated else flags
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), np.bool_)


def _null_test(leaf: NullTest, vector: Vector) -> np.ndarray:
    if vector.valid is None:
        return np.full(len(vector), not leaf.is_null, np.bool_)
    return np.logical_not(vector.valid) if leaf.is_null else vector.valid.copy()


def _by_dictionary(leaf: Leaf, vector: DictionaryVector, answers: Answers) -> np.ndarray:
    """Return the results for rows from those for the values of their dictionary."""
    found = answers_of_values(leaf, vector.dictionary, len(vector), answers)
    if found is None:
        return _cells(leaf, materialize(vector))
    matching = np.flatnonzero(found)
    if len(matching) == 0:
        return np.zeros(len(vector), np.bool_)
    if len(matching) == 1:
        return vector.codes == matching[0]
    return found.take(vector.codes)


def answers_of_values(leaf: Leaf, dictionary: BytesVector, row_count: int, answers: Answers) -> np.ndarray | None:
    """Evaluate a leaf of a filter on a dictionary; return one bool for each value, computed once for all pages; None if
    its values are too many for ``row_count`` rows."""
    place = (id(leaf), id(dictionary))
    known = answers.get(place)
    if known is None:
        if len(dictionary) > _SPARSE * row_count:
            return None
        known = (dictionary, _cells(leaf, dictionary))
        if len(dictionary) > _SMALL or row_count > _MANY_ROWS:
            if len(answers) >= _ANSWERS_MAX:  # files and deltas come and go, with their dictionaries
                answers.clear()
            answers[place] = known
    return known[1]


def _cells(leaf: Leaf, vector: FixedVector | BytesVector) -> np.ndarray:
    """Return in which rows the cell satisfies the leaf; rows with NULL are undefined."""
    return _EVALUATORS[type(leaf)](leaf, vector)


def _compare(leaf: Compare, vector: FixedVector | BytesVector) -> np.ndarray:
    if isinstance(vector, BytesVector) or leaf.physical is PhysicalType.INT128:
        cell = scalar_of(leaf.cell, leaf.physical)
        return mask_of(pc.call_function(ARROW_COMPARISONS[leaf.op], [array_of(vector, leaf.physical), cell]))
    if leaf.matches_nan and leaf.op != "<>":  # the negated comparison is false for a NaN, so this is true
        found = _NUMPY[INVERSE[leaf.op]](vector.values, leaf.cell)
        return np.logical_not(found, out=found)
    return _NUMPY[leaf.op](vector.values, leaf.cell)


def _one_of(leaf: OneOf, vector: FixedVector | BytesVector) -> np.ndarray:
    found = leaf.lookup.find(vector)
    return np.logical_not(found, out=found) if leaf.negated else found


def _like(leaf: LikeMatch, vector: FixedVector | BytesVector) -> np.ndarray:
    assert isinstance(vector, BytesVector), "LIKE is bound to strings only"
    found = mask_of(leaf.matcher.find(text_of(vector)))
    return np.logical_not(found, out=found) if leaf.negated else found


_EVALUATORS: dict[type, Callable[..., np.ndarray]] = {Compare: _compare, OneOf: _one_of, LikeMatch: _like}
