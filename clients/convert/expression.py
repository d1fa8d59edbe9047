"""A ``pyarrow.compute.Expression`` as a filter tree.

pyarrow cannot walk an expression; it can only serialize one. Of its two serialized forms this reads the one used for
pickling: a record batch of one row whose columns are the literals and options, and whose metadata is the tree::

    and(x > 5, s in [...])     call and_kleene, call greater, field_ref x, literal 0, end greater,
                               call is_in, field_ref s, options 1, end is_in, end and_kleene

The other, Substrait, is bound to one schema, with the casts that Arrow would make, and cannot express most of them:
``int32 > 2.5``, ``int8 > 300``, ``float = 0.1`` and ``match_like`` fail. Here every literal arrives with its original
type and value.

The semantics are pyarrow's: ``is_in`` is never unknown, so ``~field.isin([1])`` is true for NULL, while SQL's ``NOT
IN`` is not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ...schemas.cells.literal import literal_json
from ...schemas.cells.moment import date_of, moment_of, moment_text
from ...schemas.errors import InvalidArgumentError

Tree = dict[str, Any]
_COMPARISONS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INFINITY = {"float": "inf"}
_OTHER_NAMES = {
    "and": "& (and_kleene)",
    "or": "| (or_kleene)",
    "match_substring_regex": "match_like",
    "utf8_lower": "SQL text, as in \"lower(city) = 'oslo'\"",
    "utf8_upper": "SQL text, as in \"upper(city) = 'OSLO'\"",
}


class _Field(str):
    """A column."""


class _Literal:
    """One value."""

    def __init__(self, scalar: pa.Scalar) -> None:
        self.scalar = scalar


_Part = _Field | _Literal | Tree


def tree_of(expression: Any) -> Tree:
    """Convert a user's ``pyarrow.compute.Expression`` to the filter tree of a scan.

    Raises:
        InvalidArgumentError: a filter cannot have a function or reference of it; the message names that.
    """
    return _Reader(*words_of(expression)).read()


def words_of(expression: Any) -> tuple[pa.RecordBatch, list[tuple[str, str]]]:
    """Return what a user's filter, a ``pyarrow.compute.Expression``, is made of: the batch with its literals and
    options, and the words of its tree, each with its kind.

    Raises:
        InvalidArgumentError: it names a column by its position.
    """
    try:
        written = expression.__reduce__()[1][0]
    except pa.ArrowNotImplementedError:
        raise _refusal("name a column, as in pc.field('price'), instead of giving its position") from None
    batch = pa.ipc.open_file(written).get_batch(0)
    return batch, _metadata(batch.schema)


def options_of(batch: pa.RecordBatch, column: int) -> dict[str, Any]:
    """Return the options of a call in a user's ``pyarrow.compute.Expression`` as scalars by name. The target of a cast
    is a type, not a value."""
    struct = batch.column(column)
    return {field.name: struct.field(field.name)[0] for field in struct.type}


class _Reader:
    """Reads the tree with its own stack: expressions may be nested thousands deep."""

    def __init__(self, batch: pa.RecordBatch, words: list[tuple[str, str]]) -> None:
        self._batch = batch
        self._words = words

    def read(self) -> Tree:
        open_calls: list[list[_Part]] = [[]]
        options: dict[str, Any] = {}
        for kind, text in self._words:
            if kind == "call":
                open_calls.append([])
            elif kind == "field_ref":
                open_calls[-1].append(_Field(text))
            elif kind == "literal":
                open_calls[-1].append(_Literal(self._batch.column(int(text))[0]))
            elif kind == "options":
                options = options_of(self._batch, int(text))
            elif kind == "end":
                arguments = open_calls.pop()
                open_calls[-1].append(_called(text, arguments, options))
                options = {}
            else:
                raise _refusal("a table has no nested columns" if "nested" in kind else f"it has a {kind}")
        return _condition(open_calls[0][0])


def _called(name: str, arguments: list[_Part], options: dict[str, Any]) -> _Part:
    if name in _COMPARISONS:
        return _comparison(_COMPARISONS[name], *arguments)
    function = _FUNCTIONS.get(name)
    if function is None:
        instead = f"; write {_OTHER_NAMES[name]}" if name in _OTHER_NAMES else ""
        raise _refusal(f"the function {name!r} is not supported{instead}")
    return function(arguments, options)


def _comparison(op: str, left: _Part, right: _Part) -> Tree:
    if isinstance(left, _Literal) and isinstance(right, _Field):
        left, right, op = right, left, _FLIPPED[op]
    if not isinstance(left, _Field):
        raise _refusal("one side of a comparison must be a column; SQL text may have any expression")
    if not isinstance(right, _Literal):
        raise _refusal(f"column {str(left)!r} can be compared only with a literal; SQL text may compare any values")
    value = right.scalar
    if not value.is_valid:
        test = "is_valid()" if op == "<>" else "is_null()"
        raise _refusal(f"a comparison with NULL is never true; write pc.field({str(left)!r}).{test}")
    return {"op": op, "column": str(left), "value": cell_json(value)}


def _junction(op: str) -> Callable[[list[_Part], dict[str, Any]], Tree]:
    def build(arguments: list[_Part], _: dict[str, Any]) -> Tree:
        first, *rest = (_condition(part) for part in arguments)
        if first["op"] == op:  # a & b & c & ... nests to the left: flatten it
            first["args"].extend(rest)
            return first
        return {"op": op, "args": [first, *rest]}

    return build


def _not(arguments: list[_Part], _: dict[str, Any]) -> Tree:
    return {"op": "not", "arg": _condition(arguments[0])}


def _is_null(arguments: list[_Part], options: dict[str, Any]) -> Tree:
    column = _column(arguments[0], "is_null")
    null = {"op": "is_null", "column": column}
    return _any(null, _nan(column)) if options["nan_is_null"].as_py() else null


def _is_valid(arguments: list[_Part], _: dict[str, Any]) -> Tree:
    return {"op": "is_not_null", "column": _column(arguments[0], "is_valid")}


def _is_nan(arguments: list[_Part], _: dict[str, Any]) -> Tree:
    return _nan(_column(arguments[0], "is_nan"))


def _nan(column: str) -> Tree:
    """Match NaN: the only float that is not <= infinity; NULL stays unknown."""
    return {"op": "not", "arg": {"op": "<=", "column": column, "value": _INFINITY}}


def _is_in(arguments: list[_Part], options: dict[str, Any]) -> Tree:
    column = _column(arguments[0], "is_in")
    listed = options["value_set"].values
    nulls, matching = listed.null_count, options["null_matching_behavior"].as_py()
    values = [cell_json(value) for value in listed.drop_null()]
    numbers = [value for value in values if value != {"float": "nan"}]
    found: Tree = {"op": "in", "column": column, "values": numbers}
    if len(numbers) < len(values):
        found = _any(found, _nan(column))
    if matching == _INCONCLUSIVE and nulls:
        raise _refusal("is_in with a NULL among the values and null_matching_behavior 'inconclusive' is not supported")
    if matching in (_EMIT_NULL, _INCONCLUSIVE):
        return found
    if matching == _MATCH and nulls:
        return _any({"op": "is_null", "column": column}, {"op": "and", "args": [_valid(column), found]})
    return {"op": "and", "args": [_valid(column), found]}


_MATCH, _EMIT_NULL, _INCONCLUSIVE = 0, 2, 3
"""What ``is_in`` makes of NULL. 1, skip, equals 0 if the list has no NULL."""


def _like(before: str, after: str, escape: bool = True) -> Callable[[list[_Part], dict[str, Any]], Tree]:
    def build(arguments: list[_Part], options: dict[str, Any]) -> Tree:
        if options["ignore_case"].as_py():
            raise _refusal("ignore_case=True is not supported")
        pattern = options["pattern"].as_py()
        text = pattern.decode() if isinstance(pattern, bytes) else pattern
        if escape:
            text = "".join(f"\\{character}" if character in "\\%_" else character for character in text)
        return {"op": "like", "column": _column(arguments[0], "a match"), "pattern": f"{before}{text}{after}"}

    return build


def _cast(arguments: list[_Part], options: dict[str, Any]) -> _Literal:
    (argument,) = arguments
    if not isinstance(argument, _Literal):
        raise _refusal("a column cannot be cast; compare it with a literal of its own type")
    try:
        return _Literal(argument.scalar.cast(options["to_type"].type))
    except (pa.ArrowException, ValueError) as error:
        raise _refusal(f"a literal cannot be cast: {error}") from None


_FUNCTIONS: dict[str, Callable[[list[_Part], dict[str, Any]], _Part]] = {
    "and_kleene": _junction("and"),
    "or_kleene": _junction("or"),
    "invert": _not,
    "is_null": _is_null,
    "is_valid": _is_valid,
    "is_nan": _is_nan,
    "is_in": _is_in,
    "starts_with": _like("", "%"),
    "ends_with": _like("%", ""),
    "match_substring": _like("%", "%"),
    "match_like": _like("", "", escape=False),
    "cast": _cast,
}


def _condition(part: _Part) -> Tree:
    """Return a boolean as a tree: a bool column by itself, or a constant."""
    if isinstance(part, _Field):
        return {"op": "=", "column": str(part), "value": True}
    if isinstance(part, _Literal):
        value = part.scalar.as_py()
        if not isinstance(value, bool):
            raise _refusal("a literal alone is not a condition")
        return {"op": "and" if value else "or", "args": []}
    return part


def _column(part: _Part, what: str) -> str:
    if not isinstance(part, _Field):
        raise _refusal(f"{what} needs a column")
    return str(part)


def _valid(column: str) -> Tree:
    return {"op": "is_not_null", "column": column}


def _any(*args: Tree) -> Tree:
    return {"op": "or", "args": list(args)}


def cell_json(value: pa.Scalar) -> Any:
    """Return a value in a user's ``pyarrow.compute.Expression`` as a literal of a filter tree."""
    if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
        # Finer than any datetime: the microseconds as text, and three more digits.
        coarse, finer = divmod(value.value, 1_000)
        moment = pa.scalar(coarse, pa.timestamp("us")).as_py()
        return {"timestamp": f"{moment.isoformat(timespec='microseconds')}{finer:03}"}
    if pa.types.is_timestamp(value.type):
        return {"timestamp": moment_text(moment_of(value.value * _MICROSECONDS[value.type.unit]))}
    if pa.types.is_date32(value.type):
        return {"date": moment_text(date_of(value.value))}
    return literal_json(value if value.type == pa.time64("ns") else value.as_py())


_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _refusal(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the filter expression cannot be used: {why}")


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return a schema's metadata with repeated keys, which ``Schema.metadata`` loses. The Arrow C data interface lays
    it out as a count, then each text after its length, all int32."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = schema.__arrow_c_schema__()
    fields = ctypes.cast(get_pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    place = fields[2]  # after format and name
    assert place is not None, "a written expression has metadata"
    texts: list[str] = []
    for _ in range(2 * ctypes.c_int32.from_address(place).value):
        length = ctypes.c_int32.from_address(place + 4).value
        texts.append(ctypes.string_at(place + 8, length).decode())
        place += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))
