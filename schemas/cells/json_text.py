"""JSON text (RFC 8259): its check, and the value at a path of it.

A path is SQL's, as in DuckDB and SQLite: ``$.name."a name"[0][-1]``; text without ``$`` is one key, a number one item,
as in PostgreSQL. This is the definition, text by text; the engine's kernels do the same for many, and where there is an
engine, `values_at` uses them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any, NoReturn

import pyarrow as pa

from ..errors import InvalidArgumentError

DEPTH_MAX = 512
"""Objects and arrays inside of each other, at most."""
STEPS_MAX = 100
"""Of a path."""
Steps = tuple[str | int, ...]
"""The keys of objects and the numbers of items, counted from 0 or, below it, from the end, down to a value."""

_BLANKS = " \t\n\r"
_STEP = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^."\[\]\s*]+))|\[(-?[0-9]{1,9})\]')
_HALF = re.compile("[\ud800-\udfff]")


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)  # NaN, Infinity


def _ignored(_: Any) -> None:
    return None


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    parse_constant=_no_number, parse_int=_ignored, parse_float=_ignored
).scan_once  # pyright: ignore[reportAttributeAccessIssue]


def is_json(text: str) -> bool:
    """Whether a text is JSON, with at most DEPTH_MAX objects and arrays inside of each other."""
    try:
        _, end = _scan(text, _after_blanks(text, 0))
    except (ValueError, StopIteration, RecursionError):
        return False
    return _after_blanks(text, end) == len(text) and not _is_deep(text)


def path_of(path: str | int) -> Steps:
    """Return the steps of a path into the JSON text of a cell.

    Raises:
        InvalidArgumentError: it is not one.
    """
    if isinstance(path, int) and not isinstance(path, bool):
        if abs(path) >= 10**9:
            raise InvalidArgumentError(f"the JSON path {path} is out of range: an item has at most nine digits")
        return (path,)
    if not isinstance(path, str):
        raise InvalidArgumentError("a JSON path must be a text in quotes, or the whole number of an item")
    if not path.startswith("$"):
        return (path,)
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise InvalidArgumentError(
                f"the JSON path {path[:100]!r} cannot be read from its character {at + 1} on: write it as $.name, "
                '$."a name" or $[0]; wildcards are not supported'
            )
        quoted, name, number = match.groups()
        steps.append(int(number) if number else name if name else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    if len(steps) > STEPS_MAX:
        raise InvalidArgumentError(f"the JSON path has {len(steps):,} steps; at most {STEPS_MAX} are allowed")
    return tuple(steps)


def value_at(text: str, steps: Steps) -> str | None:
    """Return the JSON of the value at a path as it stands in ``text``, which is JSON; None if there is none. Of a key
    that is there twice the last value counts."""
    place = _after_blanks(text, 0)
    for step in steps:
        following = _member(text, place, step) if isinstance(step, str) else _item(text, place, step)
        if following is None:
            return None
        place = following
    return text[place : _scan(text, place)[1]]


def text_at(text: str, steps: Steps) -> str | None:
    """Return the value at a path as text: the characters of a string, the JSON of others, None of a null. Half of a
    surrogate pair is a replacement character."""
    value = value_at(text, steps)
    if value is None or value == "null":
        return None
    return _HALF.sub("\ufffd", scanstring(value, 1, True)[0]) if value[0] == '"' else value


Reader = Callable[[pa.Array, Steps, bool], pa.Array]


def values_at(texts: pa.Array, steps: Steps, is_text: bool) -> pa.Array:
    """Return the values at a path of JSON texts: their JSON, or with ``is_text`` their text.

    Raises:
        InvalidArgumentError: a text is not JSON.
    """
    return _reader[0](texts, steps, is_text)


def read_by(reader: Reader) -> None:
    """Let ``values_at`` use a quicker reader of JSON text from now on."""
    _reader[0] = reader


def _one_by_one(texts: pa.Array, steps: Steps, is_text: bool) -> pa.Array:
    read, values = text_at if is_text else value_at, []
    for text in texts.to_pylist():
        if text is not None and not is_json(text):
            raise InvalidArgumentError(not_json_message(text))
        values.append(None if text is None else read(text, steps))
    return pa.array(values, pa.string())


_reader: list[Reader] = [_one_by_one]


def not_json_message(text: str) -> str:
    """Return the error for the text of a cell that is not JSON."""
    return f"{text[:100]!r} is not JSON, but -> and ->> need JSON"


def _after_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in _BLANKS:
        place += 1
    return place


def _member(text: str, place: int, key: str) -> int | None:
    """Return where the value of a key of an object begins."""
    if text[place] != "{":
        return None
    place, there = _after_blanks(text, place + 1), None
    while text[place] != "}":
        name, place = scanstring(text, place + 1, True)
        place = _after_blanks(text, _after_blanks(text, place) + 1)
        if _HALF.sub("\ufffd", name) == key:
            there = place
        place = _after_blanks(text, _scan(text, place)[1])
        if text[place] == ",":
            place = _after_blanks(text, place + 1)
    return there


def _item(text: str, place: int, number: int) -> int | None:
    """Return where an item of an array begins."""
    if text[place] != "[":
        return None
    place, places = _after_blanks(text, place + 1), []
    while text[place] != "]":
        places.append(place)
        if len(places) == number + 1:
            return place
        place = _after_blanks(text, _scan(text, place)[1])
        if text[place] == ",":
            place = _after_blanks(text, place + 1)
    return places[number] if -len(places) <= number < 0 else None


def _is_deep(text: str) -> bool:
    """Whether more than DEPTH_MAX brackets of a JSON text are open at once."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|([\[{])|[\]}]', text):
        if match[0][0] != '"':
            depth += 1 if match[1] else -1
        if depth > DEPTH_MAX:
            return True
    return False
