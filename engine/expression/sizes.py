"""Sizes: what keeps the values of an expression from taking much memory.

A few nested functions make gigabytes of one letter, and a literal is repeated for each row. Where the values of a batch
are too large, fewer rows are evaluated at once: so only what is too large for a single row is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits

BYTES_MAX = 4 * 1024 * 1024
"""Of all values that are kept at once while some rows are evaluated."""
RESULT_BYTES_MAX = Limits().batch_bytes
"""Of the results for one batch of rows."""


class TooLargeError(InvalidArgumentError):
    """Values of an expression would take too much memory for so many rows."""


def check_size(size: int) -> None:
    """Raise TooLargeError if values of an expression, of so many bytes, are too large."""
    if size > BYTES_MAX:
        raise TooLargeError(
            f"the expression would make {size:,} bytes of values for one row; at most {BYTES_MAX:,} are allowed: use "
            "shorter texts"
        )


def check_result(size: int) -> None:
    """Raise InvalidArgumentError if the results of expressions, of so many bytes, are more than one commit may have."""
    if size > RESULT_BYTES_MAX:
        raise InvalidArgumentError(
            f"the expression would make more than {RESULT_BYTES_MAX:,} bytes of values for one batch of rows: use "
            "shorter texts"
        )


def bytes_of(value: pa.Array | pa.ChunkedArray | pa.Scalar, rows: int) -> int:
    """Return about how many bytes a value of an expression takes for ``rows`` rows."""
    if not isinstance(value, pa.Scalar):
        return value.nbytes
    is_sized = value.is_valid and (pa.types.is_string(value.type) or pa.types.is_binary(value.type))
    return value.as_buffer().size * rows if is_sized else 0  # pyright: ignore[reportAttributeAccessIssue]


def rows_of(values: Sequence[pa.Array | pa.ChunkedArray | pa.Scalar]) -> int:
    """Return for how many rows there are values of an expression; 1 if all are the same for each row."""
    return max((len(value) for value in values if not isinstance(value, pa.Scalar)), default=1)


def check_joined(values: Sequence[pa.Array | pa.ChunkedArray | pa.Scalar]) -> None:
    """Raise TooLargeError if a function in an expression may return a value that is too large of these values: all of
    them joined, or one of them for each row."""
    rows = rows_of(values)
    check_size(sum(bytes_of(value, rows) for value in values))


def check_filled(values: Sequence[pa.Array | pa.ChunkedArray | pa.Scalar]) -> None:
    """Raise TooLargeError if a value of an expression, with its NULLs filled from the others, is too large."""
    first, *others = values
    empty = rows_of(values) if isinstance(first, pa.Scalar) else first.null_count
    check_size(bytes_of(first, rows_of(values)) + sum(bytes_of(each, empty) for each in others))


def check_replaced(text: pa.Array | pa.ChunkedArray | pa.Scalar, old: str, new: str) -> None:
    """Raise TooLargeError if text is too large in which an expression replaces ``old`` by ``new``."""
    growth = len(new.encode()) - len(old.encode())
    if growth > 0:
        count = pc.sum(pc.count_substring(spread_one(text), pattern=old)).as_py() or 0
        check_size(bytes_of(text, 1) + count * growth)


def spread_one(value: pa.Array | pa.ChunkedArray | pa.Scalar) -> pa.Array | pa.ChunkedArray:
    """Return the value of an expression as an array; one that is the same for each row, once."""
    return pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
