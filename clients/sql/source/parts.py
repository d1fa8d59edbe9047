"""A pushed ``pyarrow.compute.Expression`` as a tree of parts, which Python can walk.

Trees may be nested thousands deep: what walks them keeps its own stack, or stops at a depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from ...convert.expression import options_of, words_of

AND, OR, NOT = "and_kleene", "or_kleene", "invert"
FIELD = "struct_field"
"""The field of a struct, by the names in the option ``indices``."""


@dataclass(frozen=True, slots=True)
class PushedColumn:
    """A column that a pushed filter names."""

    name: str


@dataclass(frozen=True, slots=True)
class PushedValue:
    """A literal of a pushed filter."""

    scalar: pa.Scalar


@dataclass(frozen=True, slots=True)
class PushedCall:
    """A call in a pushed filter: a function of Arrow by name, its arguments, and its options as scalars."""

    name: str
    args: list[PushedPart]
    options: dict[str, Any] = field(default_factory=dict)


PushedPart: TypeAlias = PushedColumn | PushedValue | PushedCall
UNKNOWN = PushedCall("an unknown condition", [])
"""A condition that cannot be told. It bounds no rows, and cannot be evaluated."""


def part_of(expression: Any) -> PushedPart:
    """Return a pushed filter as parts. DataFusion also sends bare values: true, false, and None.

    Raises:
        InvalidArgumentError: it names a column by its position.
    """
    if expression is None or isinstance(expression, bool):
        return PushedValue(pa.scalar(expression, pa.bool_()))
    if isinstance(expression, pa.Scalar):
        return PushedValue(plain_scalar(expression))
    batch, words = words_of(expression)
    open_calls: list[list[PushedPart]] = [[]]
    options: dict[str, Any] = {}
    words_left = iter(words)
    for kind, text in words_left:
        if kind == "call":
            open_calls.append([])
        elif kind == "nested_field_ref":  # of so many names
            column, *fields = (name for _, name in islice(words_left, int(text)))
            open_calls[-1].append(PushedCall(FIELD, [PushedColumn(column)], {"indices": fields}))
        elif kind == "field_ref":
            open_calls[-1].append(PushedColumn(text))
        elif kind == "literal":
            open_calls[-1].append(PushedValue(plain_scalar(batch.column(int(text))[0])))
        elif kind == "options":
            options = options_of(batch, int(text))
        elif kind == "end":
            arguments = open_calls.pop()
            open_calls[-1].append(call(text, arguments, options))
            options = {}
        else:
            raise InvalidArgumentError(f"the filter has a {kind}, which is not supported: name the column")
    return open_calls[0][0]


def call(name: str, arguments: Iterable[PushedPart], options: dict[str, Any] | None = None) -> PushedPart:
    """Return the call of a function in a pushed filter. An AND inside an AND becomes one, and so does an OR."""
    name = {"and": AND, "or": OR}.get(name, name)
    if name not in (AND, OR):
        single = PushedCall(name, list(arguments), options or {})
        return _cast_now(single) if name == "cast" else single
    flat: list[PushedPart] = []
    for part in arguments:
        if not (isinstance(part, PushedCall) and part.name == name):
            flat.append(part)
        elif flat:
            flat.extend(part.args)
        else:
            flat = part.args  # chains nest to the left: copied, each would be copied once a link
    return PushedCall(name, flat)


def _cast_now(cast: PushedCall) -> PushedPart:
    """Return the literal that the cast of a literal means."""
    value = cast.args[0]
    if isinstance(value, PushedValue):
        with suppress(pa.ArrowException, ValueError):
            return PushedValue(plain_scalar(value.scalar.cast(cast.options["to_type"].type)))
    return cast


def conjuncts(part: PushedPart) -> list[PushedPart]:
    """Return the conditions of a pushed filter that must all be true."""
    return part.args if isinstance(part, PushedCall) and part.name == AND else [part]


def columns_of(parts: Iterable[PushedPart]) -> Iterator[str]:
    """Yield the columns of pushed conditions, some more than once."""
    waiting = list(parts)
    while waiting:
        part = waiting.pop()
        if isinstance(part, PushedColumn):
            yield part.name
        elif isinstance(part, PushedCall):
            waiting.extend(part.args)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a table's columns for the type of a pushed literal that differs only in the layout of its
    cells."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def plain_scalar(scalar: pa.Scalar) -> pa.Scalar:
    """Return a pushed literal with the layout of a table's cells."""
    kind = plain_type(scalar.type)
    if kind == scalar.type or pa.types.is_list(kind):
        return scalar
    return pa.scalar(scalar.as_py(), kind)


def plain_array(values: pa.Array) -> pa.Array:
    """Return the values of a list in a pushed filter with the layout of a table's cells."""
    kind = plain_type(values.type)
    if kind == values.type:
        return values
    return pa.array(values.to_pylist(), kind)
