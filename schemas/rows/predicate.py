"""A filter as a tree, into which every other form (SQL text, tuples) is translated.

    {"op": "and", "args": [{"op": "=", "column": "dest", "value": "LAX"}, {"op": "is_null", "column": "arr_delay"}]}

NULL never matches a comparison: the logic has three values, and a row is selected if the whole is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from ..cells.literal import literal_json
from ..errors import InvalidArgumentError
from ..limits.limits import Limits
from ..message import Message

CONDITIONS_TEXT_MAX = 128 * 1024
"""Characters of all conditions of a tree that are SQL text."""
ComparisonOp = Literal["=", "<>", "<", "<=", ">", ">="]


class Comparison(Message, frozen=True, extra="forbid"):
    """In the filter of a request: ``column op value``; the value is JSON as in ``literal_json``, never NULL."""

    op: ComparisonOp
    column: str
    value: Any


class InList(Message, frozen=True, extra="forbid"):
    """In the filter of a request: ``column IN (values)`` or ``NOT IN``, without NULL among the values."""

    op: Literal["in", "not_in"]
    column: str
    values: list[Any]


class Between(Message, frozen=True, extra="forbid"):
    """In the filter of a request: ``column BETWEEN lower AND upper``, both included."""

    op: Literal["between"]
    column: str
    lower: Any
    upper: Any


class Like(Message, frozen=True, extra="forbid"):
    """In the filter of a request: ``column LIKE pattern``: ``%`` matches any characters, ``_`` one."""

    op: Literal["like"]
    column: str
    pattern: str


class NullTest(Message, frozen=True, extra="forbid"):
    """In the filter of a request: ``column IS NULL`` or ``IS NOT NULL``."""

    op: Literal["is_null", "is_not_null"]
    column: str


class Condition(Message, frozen=True, extra="forbid"):
    """In the filter of a request: any condition as SQL text, such as ``price > cost * 2``: see docs/filters.md."""

    op: Literal["sql"]
    text: str


class Not(Message, frozen=True, extra="forbid"):
    """In the filter of a request: ``NOT arg``."""

    op: Literal["not"]
    arg: Predicate


class Junction(Message, frozen=True, extra="forbid"):
    """In the filter of a request: ``arg AND arg ...`` or ``arg OR arg ...``; an empty AND is true, an empty OR
    false."""

    op: Literal["and", "or"]
    args: list[Predicate]


Predicate = Annotated[
    Comparison | InList | Between | Like | NullTest | Condition | Not | Junction, Field(discriminator="op")
]


@cache
def _adapter() -> TypeAdapter[Predicate]:
    return TypeAdapter(Predicate)


def parse_tree(tree: Any, limits: Limits) -> Predicate:
    """Read the filter of a request from JSON.

    Raises:
        InvalidArgumentError: a part is invalid, or a limit is exceeded; the message says which.
    """
    _check_raw_size(tree, limits)
    try:
        predicate = _adapter().validate_python(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the filter"
        raise InvalidArgumentError(f"the filter tree is invalid at {where}: {first['msg']}") from None
    except RecursionError:
        raise InvalidArgumentError("the filter tree is nested too deeply") from None
    return check_size(predicate, limits)


def _check_raw_size(tree: Any, limits: Limits) -> None:
    """Check the size of a tree before it becomes objects, at 2 us each."""
    waiting, nodes = [tree], 0
    while waiting:
        node = waiting.pop()
        nodes += 1
        if isinstance(node, dict):
            parts = node.get("args")
            waiting.extend(parts if isinstance(parts, list) else [])
            waiting.extend([node["arg"]] if "arg" in node else [])
        if nodes + len(waiting) > limits.predicate_nodes:
            raise InvalidArgumentError(f"the filter has more than {limits.predicate_nodes:,} parts")


def check_size(predicate: Predicate, limits: Limits) -> Predicate:
    """Return ``predicate``, the filter of a request, if its nodes and values are within the limits."""
    values = letters = 0
    for nodes, node in enumerate(walk(predicate), start=1):
        if isinstance(node, InList):
            if len(node.values) > limits.in_list_values:
                raise InvalidArgumentError(
                    f"IN on column {node.column!r} lists {len(node.values):,} values; "
                    f"at most {limits.in_list_values:,} are allowed"
                )
            values += len(node.values)
            if values > limits.predicate_values:
                raise InvalidArgumentError(f"the filter lists more than {limits.predicate_values:,} values")
        if isinstance(node, Condition):
            letters += len(node.text)
            if letters > CONDITIONS_TEXT_MAX:
                raise InvalidArgumentError(
                    f"the filter tree has more than {CONDITIONS_TEXT_MAX:,} characters of SQL text in its parts"
                )
        if nodes > limits.predicate_nodes:
            raise InvalidArgumentError(f"the filter has more than {limits.predicate_nodes:,} parts")
    return predicate


def operands(junction: Junction) -> Iterator[Predicate]:
    """Yield the operands of a junction in a request's filter in order, with those of nested ANDs in the place of the
    ANDs, at any depth."""
    waiting: list[Predicate] = list(reversed(junction.args))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Junction) and node.op == junction.op:
            waiting.extend(reversed(node.args))
        else:
            yield node


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Yield every node of the filter of a request, without recursion."""
    waiting: list[Predicate] = [predicate]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Junction):
            waiting.extend(node.args)
        elif isinstance(node, Not):
            waiting.append(node.arg)


_TUPLE_OPS = {
    "=": "=",
    "==": "=",
    "!=": "<>",
    "<>": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


def from_tuples(filters: list[Any]) -> Predicate:
    """Read the filter of a request from the list form of ``pyarrow.parquet``: a list of tuples is AND, a list of lists
    OR over ANDs.

    Raises:
        InvalidArgumentError: it has another form.
    """
    if filters and all(isinstance(part, list) for part in filters):
        return Junction(op="or", args=[from_tuples(part) for part in filters])
    return Junction(op="and", args=[_from_tuple(part) for part in filters])


def _from_tuple(part: Any) -> Predicate:
    if not (isinstance(part, tuple | list) and len(part) == 3 and isinstance(part[0], str)):
        raise InvalidArgumentError(f"a filter must be (column, op, value), not {part!r}")
    column, op, value = part
    if op in ("in", "not in"):
        return InList(op="in" if op == "in" else "not_in", column=column, values=_listed(op, value))
    if op not in _TUPLE_OPS:
        raise InvalidArgumentError(f"unknown filter operator {op!r}; known: {', '.join(_TUPLE_OPS)}, in, not in")
    if value is None:
        return NullTest(op="is_null" if _TUPLE_OPS[op] == "=" else "is_not_null", column=column)
    return Comparison(op=_TUPLE_OPS[op], column=column, value=literal_json(value))  # pyright: ignore[reportArgumentType]


def _listed(op: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidArgumentError(f"{op!r} needs a list of values, not {values!r}")
    return [literal_json(value) for value in values]
