"""Rules for the names of tables and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..errors import ConflictError, InvalidArgumentError
from ..limits.limits import Limits

Names: TypeAlias = str | Sequence[str]
"""One name, or a list of names."""
ALL_TABLES = "*"
"""Stands for a table in grants: all tables, those to come included."""
BEFORE = "_before_"
"""Prefix of the columns with previous values in a change feed."""
_OF_FEED = ("_op", "_timestamp")


def is_of_feed(name: str) -> bool:
    """Return whether the change feed has a column of this name, in any case: no column of a table has such a name."""
    lower = name.lower()
    return lower in _OF_FEED or lower.startswith(BEFORE)


def check_same(name: str, table_id: int, meant: int | None) -> None:
    """Check that the table of a name is the one that a request means; None means any.

    Raises:
        ConflictError: it is not.
    """
    if meant not in (None, table_id):
        raise ConflictError(
            f"table {name!r} was renamed or dropped during the request, and another table has its name now: "
            "nothing was applied; send the request again"
        )


def listed(names: Names) -> list[str]:
    """Return names of a table's columns as a list; one name is a list of one."""
    return [names] if isinstance(names, str) else list(names)


def check_identifier(name: object, what: str, limits: Limits) -> str:
    """Return ``name`` if it is valid for a table or column.

    A name is valid UTF-8 without NUL, not empty, not padded by white space, and at most
    ``limits.identifier_bytes`` long. It never becomes a path: directories are numbers.

    Raises:
        InvalidArgumentError: it is not; the message includes ``what`` ("table", "column").
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"a {what} needs a name that is a non-empty string, not {name!r}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"the {what} name {name!r} is not valid UTF-8") from None
    if len(encoded) > limits.identifier_bytes:
        raise InvalidArgumentError(
            f"the {what} name starting {name[:40]!r} has {len(encoded)} bytes; "
            f"at most {limits.identifier_bytes} are allowed"
        )
    if "\0" in name or name != name.strip():
        raise InvalidArgumentError(f"the {what} name {name!r} contains a NUL or starts or ends with white space")
    return name


def check_table_name(name: object, limits: Limits) -> str:
    """Return ``name`` if it is valid for a table: an identifier that does not stand for all tables.

    Raises:
        InvalidArgumentError: it is not; the message names it.
    """
    checked = check_identifier(name, "table", limits)
    if checked == ALL_TABLES:
        raise InvalidArgumentError(f"a table cannot be named {checked!r}: in grants this name means all tables")
    return checked


def check_column_name(name: object, limits: Limits) -> str:
    """Return ``name`` if it is valid for a column: an identifier that no column of the change feed has.

    Raises:
        InvalidArgumentError: it is not; the message names it.
    """
    checked = check_identifier(name, "column", limits)
    if is_of_feed(checked):
        raise InvalidArgumentError(
            f"column {checked!r}: the change feed has columns of this name (_op, _timestamp, _before_...): rename the "
            "column"
        )
    return checked
