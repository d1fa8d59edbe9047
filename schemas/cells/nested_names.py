"""Names of nested types, taken apart and put together: ``list<T>``, ``struct<name: T, ...>``, ``map<K, V>``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from ..errors import InvalidArgumentError

_OUTER = re.compile(r"(list|array|large_list|fixed_size_list|struct|map)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_SUFFIX = re.compile(r"(.*)\[\s*(\d{0,9})\s*\]", re.DOTALL)
"""As in DuckDB and PostgreSQL: ``int64[]``, and ``int64[3]`` for lists of one length."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^\s:"<>,()]+))\s*(?::|\s)\s*(.*)', re.DOTALL)
_OPENING, _CLOSING = "<([", ">)]"


class NestedName(NamedTuple):
    """The parts of a nested type's name."""

    name: str
    length: int
    """Of lists of one length; else 0."""
    parts: list[tuple[str, str]]
    """Name and type of each field of a struct, of the items of a list, or of the keys and values of a map."""


def nested_name(text: str) -> NestedName | None:
    """Return the parts of the name of a nested type; None if it is no such name.

    Raises:
        InvalidArgumentError: it begins like one, but its parts make none.
    """
    text = text.strip()
    if match := _SUFFIX.fullmatch(text):
        bare, length = match[1].strip(), match[2]
        if length and (outer := _OUTER.fullmatch(bare)) and outer[1].lower() == "fixed_size_list":
            return NestedName("fixed_size_list", int(length), _parts_of("fixed_size_list", outer[2], text))
        name = "fixed_size_list" if length else "list"
        return NestedName(name, int(length or 0), [("item", bare)]) if bare else None
    if not (outer := _OUTER.fullmatch(text)):
        return None
    name = outer[1].lower()
    if name == "fixed_size_list":
        _wrong(text)
    return NestedName("list" if name == "array" else name, 0, _parts_of(name, outer[2], text))


def _parts_of(name: str, inner: str, text: str) -> list[tuple[str, str]]:
    pieces = _split(inner, text)
    if name == "struct":
        return [_field(piece, text) for piece in pieces]
    if name == "map":
        if len(pieces) != 2:
            _wrong(text)
        return [("key", pieces[0].strip()), ("value", pieces[1].strip())]
    if len(pieces) != 1:
        _wrong(text)
    item = pieces[0].strip()
    if (named := _FIELD.fullmatch(item)) and ":" in item.partition("<")[0]:  # as Arrow has it: list<item: int64>
        item = named[3].strip()
    return [("item", item)]


def _field(piece: str, text: str) -> tuple[str, str]:
    match = _FIELD.fullmatch(piece)
    if not match or not match[3].strip():
        _wrong(text)
    return (match[2] if match[1] is None else match[1].replace('""', '"')), match[3].strip()


def _split(inner: str, text: str) -> list[str]:
    """Return the pieces between the commas that are outside of all brackets and quotes."""
    pieces, depth, first, is_quoted = [], 0, 0, False
    for place, letter in enumerate(inner):
        if letter == '"':
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
            if depth < 0:
                _wrong(text)
        elif letter == "," and depth == 0:
            pieces.append(inner[first:place])
            first = place + 1
    if depth or is_quoted:
        _wrong(text)
    return [*pieces, inner[first:]]


def _wrong(text: str) -> NoReturn:
    raise InvalidArgumentError(
        f"{text[:200]!r} is not a column type: nested types are list<T>, large_list<T>, fixed_size_list<T>[n], "
        "struct<name: T, ...> and map<K, V>"
    )


def struct_text(fields: Iterable[tuple[str, object]]) -> str:
    """Return the name of a struct with fields of these names and types."""
    return f"struct<{', '.join(f'{_quoted(name)}: {kind}' for name, kind in fields)}>"


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
