"""The filter tree that bounds the rows for which a pushed condition is true, or is false, in SQL's logic.

SQL's logic has three values, and a row is left if the whole is true. So each condition is asked for two trees: one of
the rows where it is true, one of those where it is false. Neither has those where it is unknown. NOT swaps the two, and
no tree needs a third value.

Engines take all NaN for one value that equals itself and is greater than every number, while Nyala's filters compare
by IEEE 754: ``x > 5`` becomes ``NOT x <= 5``, which is true for NaN and unknown for NULL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as types

from ...convert.expression import cell_json
from .parts import AND, NOT, OR, PushedCall, PushedColumn, PushedPart, PushedValue, plain_array

Tree = dict[str, Any]
_DEPTH_MAX = 80
"""Levels of a tree: the store takes some more."""
_NODES_MAX, _VALUES_MAX, _LETTERS_MAX = 4_000, 50_000, 4 << 20
"""Sizes of one filter: the store takes some more."""
_COMPARISONS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_LIKE = {"starts_with": ("", "%"), "ends_with": ("%", ""), "match_substring": ("%", "%"), "match_like": ("", "")}
NOTHING: Tree = {"op": "or", "args": []}
"""Selects no row."""
_INFINITY = {"float": "inf"}
_NAN = {"float": "nan"}


class Bound(NamedTuple):
    """A filter that an SQL engine pushes, as the store evaluates it: a tree that selects all rows for which a condition
    holds; if it is exact, no other rows."""

    tree: Tree | None
    """None: nothing is known, so all rows."""
    is_exact: bool


_NO_BOUND = Bound(None, False)
_NO_ROWS = Bound(NOTHING, True)


def bound_of(part: PushedPart, schema: pa.Schema, wanted: bool = True, depth: int = 0) -> Bound:
    """Return the bound of the rows where a pushed condition is true, or false if that is ``wanted``."""
    if depth > _DEPTH_MAX:
        return _NO_BOUND
    if isinstance(part, PushedValue):
        is_wanted = types.is_boolean(part.scalar.type) and part.scalar.as_py() is wanted
        return Bound({"op": "and", "args": []}, True) if is_wanted else _NO_ROWS
    if isinstance(part, PushedColumn):
        if not types.is_boolean(schema.field(part.name).type):
            return _NO_BOUND
        return Bound({"op": "=", "column": part.name, "value": wanted}, True)
    if part.name == NOT:
        return bound_of(part.args[0], schema, not wanted, depth + 1)
    if part.name in (AND, OR):
        bounds = [bound_of(each, schema, wanted, depth + 1) for each in part.args]
        return _all(bounds) if (part.name == AND) == wanted else _any(bounds)
    if part.name in _COMPARISONS:
        return _comparison(part, schema, wanted)
    test = _TESTS.get(part.name)
    if test is None or not isinstance(part.args[0], PushedColumn):
        return _NO_BOUND
    return test(part, schema.field(part.args[0].name), wanted)


def fits(tree: Tree, beside: Tree | None = None) -> bool:
    """Return whether the store takes a pushed filter as a tree of this size, ``beside`` another."""
    nodes = values = letters = 0
    waiting = [tree] if beside is None else [tree, beside]
    while waiting:
        node = waiting.pop()
        nodes += 1
        waiting.extend(node.get("args", ()))
        waiting.extend([node["arg"]] if "arg" in node else ())
        listed = node.get("values", ())
        values += len(listed)
        letters += sum(len(str(value)) for value in listed) + len(str(node.get("value", "")))
        letters += len(node.get("pattern", ""))
    return nodes <= _NODES_MAX and values <= _VALUES_MAX and letters <= _LETTERS_MAX


def _all(bounds: list[Bound]) -> Bound:
    trees = [bound.tree for bound in bounds if bound.tree is not None]
    return Bound(joined("and", trees), all(bound.is_exact for bound in bounds)) if trees else _NO_BOUND


def _any(bounds: list[Bound]) -> Bound:
    trees = [bound.tree for bound in bounds if bound.tree is not None]
    if len(trees) < len(bounds):
        return _NO_BOUND
    return Bound(joined("or", trees), all(bound.is_exact for bound in bounds))


def joined(op: str, trees: list[Tree]) -> Tree:
    """Return the AND or the OR of the trees of a pushed filter."""
    return trees[0] if len(trees) == 1 else {"op": op, "args": trees}


# Comparisons


def _comparison(part: PushedCall, schema: pa.Schema, wanted: bool) -> Bound:
    left, right = part.args
    op = _COMPARISONS[part.name]
    if isinstance(left, PushedValue):
        left, right, op = right, left, _FLIPPED[op]
    if not (isinstance(left, PushedColumn) and isinstance(right, PushedValue)):
        return _NO_BOUND
    if not right.scalar.is_valid:
        return _NO_ROWS
    name, kind = left.name, schema.field(left.name).type
    op = op if wanted else _OPPOSITE[op]
    if not _fits_type(kind, right.scalar.type) or not _is_cell(kind, right.scalar):
        return _NO_BOUND
    if types.is_boolean(kind) and op not in ("=", "<>"):
        return _NO_BOUND
    if _is_nan(right.scalar):
        return Bound(_beside_nan(op, name), True)
    if types.is_floating(kind) and op in (">", ">="):
        return Bound(_not({"op": _OPPOSITE[op], "column": name, "value": cell_json(right.scalar)}), True)
    return Bound({"op": op, "column": name, "value": cell_json(right.scalar)}, True)


def _beside_nan(op: str, column: str) -> Tree:
    """Return the tree of a comparison with NaN."""
    if op in ("=", ">="):
        return _nan(column)
    if op in ("<>", "<"):
        return _number(column)
    return NOTHING if op == ">" else _valid(column)


def _number(column: str) -> Tree:
    """Match all but NaN and NULL."""
    return {"op": "<=", "column": column, "value": _INFINITY}


def _nan(column: str) -> Tree:
    return _not(_number(column))


def _valid(column: str) -> Tree:
    return {"op": "is_not_null", "column": column}


def _not(tree: Tree) -> Tree:
    return {"op": "not", "arg": tree}


def _is_nan(scalar: pa.Scalar) -> bool:
    return types.is_floating(scalar.type) and scalar.as_py() != scalar.as_py()


def _fits_type(kind: pa.DataType, literal: pa.DataType) -> bool:
    """Return whether the store compares a column with such a literal as engines do."""
    return any(takes(kind) and gives(literal) for takes, gives in _PAIRS)


def _is_number(kind: pa.DataType) -> bool:
    return types.is_integer(kind) or types.is_decimal(kind)


_PAIRS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (_is_number, _is_number),
    (types.is_floating, types.is_floating),
    (types.is_floating, types.is_integer),
    (types.is_boolean, types.is_boolean),
    (types.is_string, types.is_string),
    (types.is_binary, types.is_binary),
    (types.is_date32, types.is_date32),
    (types.is_timestamp, lambda kind: types.is_timestamp(kind) and kind.tz is None),
)


def _is_cell(kind: pa.DataType, scalar: pa.Scalar) -> bool:
    """Return whether a float column can hold a literal as it is: the store would round it."""
    if not types.is_floating(kind):
        return True
    value, (layout, digits) = scalar.as_py(), _FLOATS[kind]
    if isinstance(value, int):
        return abs(value) <= 1 << digits
    if value != value or value in (float("inf"), float("-inf")):
        return True
    try:
        return struct.unpack(layout, struct.pack(layout, value))[0] == value
    except OverflowError:
        return False


_FLOATS = {pa.float16(): ("<e", 11), pa.float32(): ("<f", 24), pa.float64(): ("<d", 53)}
"""The layout of floats, and up to how many binary digits of them whole numbers are all floats."""


# Other tests of a column


def _is_null(part: PushedCall, column: pa.Field, wanted: bool) -> Bound:
    nan_too = bool(part.options["nan_is_null"].as_py()) and types.is_floating(column.type)
    if wanted:
        null = {"op": "is_null", "column": column.name}
        return Bound({"op": "or", "args": [null, _nan(column.name)]} if nan_too else null, True)
    return Bound(_number(column.name) if nan_too else _valid(column.name), True)


def _is_valid(_: PushedCall, column: pa.Field, wanted: bool) -> Bound:
    return Bound(_valid(column.name) if wanted else {"op": "is_null", "column": column.name}, True)


def _is_nan_test(_: PushedCall, column: pa.Field, wanted: bool) -> Bound:
    if not types.is_floating(column.type):
        return _NO_BOUND
    return Bound(_nan(column.name) if wanted else _number(column.name), True)


def _is_in(part: PushedCall, column: pa.Field, wanted: bool) -> Bound:
    """Return the bound of an IN list.

    Engines that hash a list tell -0.0 from 0.0 in it, which they take for one in comparisons. The store takes them for
    one everywhere, so a list of floats with a zero is not exact.
    """
    listed = plain_array(part.options["value_set"].values)
    values = listed.drop_null()
    is_float = types.is_floating(column.type)
    if len(values) > _VALUES_MAX or (len(values) and not _fits_type(column.type, listed.type)):
        return _NO_BOUND
    if is_float and not all(_is_cell(column.type, each) for each in values):
        return _NO_BOUND
    if not wanted and listed.null_count:
        return _NO_ROWS
    cells = _cells_json(values)
    numbers = [each for each in cells if each != _NAN]
    has_nan = len(numbers) < len(cells)
    nonzero = [each for each in numbers if each != 0] if is_float else numbers
    is_exact = len(nonzero) == len(numbers)
    if wanted:
        trees: list[Tree] = [_nan(column.name)] if has_nan else []
        if numbers:
            trees.append({"op": "in", "column": column.name, "values": numbers})
        return Bound(joined("or", trees), is_exact)
    trees = [_number(column.name)] if has_nan else []
    trees.append({"op": "not_in", "column": column.name, "values": nonzero} if nonzero else _valid(column.name))
    return Bound(joined("and", trees), is_exact)


def _cells_json(values: pa.Array) -> list[Any]:
    """Return the values of a list as literals of a filter tree."""
    if types.is_integer(values.type) or types.is_string(values.type):
        return values.to_pylist()
    return [cell_json(each) for each in values]


def _like(part: PushedCall, column: pa.Field, wanted: bool) -> Bound:
    if part.options["ignore_case"].as_py() or not types.is_string(column.type):
        return _NO_BOUND
    pattern = part.options["pattern"].as_py()
    text = pattern.decode(errors="replace") if isinstance(pattern, bytes) else pattern
    if "\ufffd" in text or (part.name == "match_like" and "\\" in text):
        return _NO_BOUND
    if part.name != "match_like":
        text = "".join(f"\\{letter}" if letter in "\\%_" else letter for letter in text)
    if sum(text.count(each) for each in "%_ ") > 500:
        return _NO_BOUND
    before, after = _LIKE[part.name]
    tree = {"op": "like", "column": column.name, "pattern": f"{before}{text}{after}"}
    return Bound(tree if wanted else _not(tree), True)


_TESTS: dict[str, Callable[[PushedCall, pa.Field, bool], Bound]] = {
    "is_null": _is_null,
    "is_valid": _is_valid,
    "is_nan": _is_nan_test,
    "is_in": _is_in,
    **dict.fromkeys(_LIKE, _like),
}
