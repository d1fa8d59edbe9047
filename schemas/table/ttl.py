"""The lifetime of the rows of a table: how the option ``ttl`` is written, and what it says.

It counts from the moment in a column of the data, ``created + 30d``, or, without one, ``30d``, from the last write of a
row. That moment is in a column, too: ``written_at``, which the store fills in where a write does not bring it.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from ..cells.timestamp import LONGEST_SECONDS, SPAN, UNITS
from ..errors import InvalidArgumentError
from ..message import Message

WRITTEN_AT = "written_at"
"""The column with the moment of the last write, if the lifetime counts from it."""
_BETWEEN = " + "
_TEXT = re.compile(r"(.*\S)\s*\+\s*(\S.*)")
_EXAMPLE = "write '30d', which counts from the last write of a row, or 'created + 30d', from the moment in a column"


class TimeToLive(Message, frozen=True, extra="forbid"):
    """When a row of a table expires: a time after the moment in one of its columns. NULL: never."""

    column: int
    """The id of the column."""
    microseconds: int = Field(ge=0)
    is_filled: bool = False
    """Whether the store fills the column in where a write does not bring it."""


def ttl_text(value: Any) -> Any:
    """Return the option ``ttl`` as one text, ``30d`` or ``created + 30d``, if it is such a text, or the two parts of
    one.

    Raises:
        ValueError: it is another text, or another list.
    """
    if value is None or not isinstance(value, str | list | tuple):
        return value
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        column, span = (match[1], match[2]) if match else ("", value)
    elif len(value) == 2 and all(isinstance(part, str) and part for part in value):
        column, span = value
    else:
        raise ValueError(f"ttl {value!r} is not a column and a time: {_EXAMPLE}")
    if not (match := SPAN.fullmatch(span.strip())):
        raise ValueError(f"ttl cannot be read: {span!r} is not a time such as 90s, 15m, 12h, 30d or 4w; {_EXAMPLE}")
    if int(match[1]) * UNITS[match[2]] > LONGEST_SECONDS:
        raise ValueError(f"ttl may be at most {LONGEST_SECONDS // UNITS['d']:,} days, not {span}")
    return f"{column}{_BETWEEN}{match[1]}{match[2]}" if column else f"{match[1]}{match[2]}"


def ttl_parts(text: str) -> tuple[str | None, int]:
    """Return the column and the microseconds of a text from ``ttl_text``; None: the last write counts."""
    column, _, span = text.rpartition(_BETWEEN)
    match = SPAN.fullmatch(span)
    if match is None:
        raise InvalidArgumentError(f"ttl {text!r} cannot be read: {_EXAMPLE}")
    return column or None, int(match[1]) * UNITS[match[2]] * 1_000_000


def renamed(text: str, column: str) -> str:
    """Return a text from ``ttl_text`` with another column; one that counts from the last write names none."""
    before, _, span = text.rpartition(_BETWEEN)
    return f"{column}{_BETWEEN}{span}" if before else text
