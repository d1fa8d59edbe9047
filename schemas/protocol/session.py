"""The messages of a session: a DoExchange that stays open, takes small reads and writes, and answers them in order.

Both ways a message is the ``app_metadata`` of a FlightData without a batch. A request has a line of JSON that says what
is asked, a line of JSON with what differs from one such request to the next, and the bytes of an Arrow message. So a
server remembers what it worked out of a first line by its bytes. An answer has a line of JSON, and may have an Arrow
stream. The lines end with a line feed, which JSON itself has none of.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, Literal

import pyarrow as pa
from pydantic_core import from_json
from pydantic_core import to_json as to_json_text

from ..cells.exact import exact_decimal
from ..cells.literal import from_json as cell_of
from ..cells.literal import literal_json, to_json
from ..cells.moment import python_cell
from ..cells.types import LogicalType
from ..errors import InvalidArgumentError
from ..message import Message
from ..rows.scan import ScanSpec
from ..rows.write import WriteCommand
from ..table.column import ColumnSchema


class SessionCommand(Message, frozen=True, extra="forbid"):
    """The command that opens a session: a DoExchange that stays open."""

    session: Literal[1]


class SessionRequest(Message, frozen=True, extra="forbid"):
    """The first line of a request in a session: one of ``get``, ``get_many``, ``scan`` and ``write``."""

    get: str | None = None
    """The table of one row, whose ``key`` is in the second line."""
    get_many: str | None = None
    """The table of some rows, whose keys are the Arrow message."""
    scan: ScanSpec | None = None
    write: WriteCommand | None = None
    """Writes the Arrow message, a record batch; or the ``row`` in the second line, if there are ``columns``."""
    arrow_schema: str | None = None
    """The schema of the Arrow message: an Arrow schema message in Base64."""
    columns: list[str] | None = None
    """The columns of a row to write."""


class SessionDetails(Message, frozen=True, extra="forbid"):
    """The second line of a request in a session; it may be empty."""

    key: list[Any] | None = None
    """The values of the key columns, as filters write them."""
    row: list[Any] | None = None
    """The cells of a row to write, as ``cells_to_json`` makes them."""
    seq: int | None = None
    """The number of a write, for its ``writer``."""
    more: bool = False
    """Another request follows before the client waits for the answer to this one."""
    traceparent: str | None = None
    """The trace that the request belongs to, as in the W3C header of this name."""


def request(first: bytes, second: bytes = b"", rest: bytes = b"") -> bytes:
    """Return the message of a request in a session: two lines, and the rest."""
    return b"%b\n%b\n%b" % (first, second, rest)


def traced(message: bytes, traceparent: str) -> bytes:
    """Return the message of a request in a session with the trace that it belongs to."""
    first, second, rest = parts_of(message)
    details = {**(from_json(second) if second else {}), "traceparent": traceparent}
    return request(first, to_json_text(details), rest)


def parts_of(message: bytes) -> list[bytes]:
    """Return the three parts of a request's message in a session: two lines, and the rest. Missing ones are empty."""
    parts = message.split(b"\n", 2)
    return parts if len(parts) == 3 else [*parts, b"", b""][:3]


def answer_of(message: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Return the parts of an answer's message in a session: its line, parsed and as it came, and the Arrow stream after
    it."""
    line, _, rest = message.partition(b"\n")
    return from_json(line), line, rest


_PLAIN = frozenset({"bool", "int8", "int16", "int32", "int64", "string", "varchar"})
"""The types whose cells are JSON as they are."""


def is_plain(column: ColumnSchema) -> bool:
    """Whether the JSON of a session has the cells of a column as they are."""
    return column.logical.name in _PLAIN


_SAME = frozenset({int, str, bool, type(None)})
_LITERALS = frozenset({float, bytes, dt.date, dt.datetime, decimal.Decimal})


def cells_to_json(cells: Iterable[Any]) -> list[Any] | None:
    """Return the cells of a row to write in a session, Python values, as JSON that says their types: see
    ``literal_json``. None if one has another type than those that columns return."""
    found: list[Any] = []
    for cell in cells:
        kind = type(cell)
        if kind not in _SAME and not (kind is float and isfinite(cell)):
            if kind not in _LITERALS or (kind is dt.datetime and cell.tzinfo is not None):
                return None
            cell = literal_json(cell)
        found.append(cell)
    return found


def cells_from_json(cells: list[Any]) -> list[Any]:
    """Return the cells of a row in a session, as ``cells_to_json`` wrote them, as Python values. Raises
    InvalidArgumentError if it cannot have made it."""
    return [_literal(cell) if type(cell) is dict else cell for cell in cells] if dict in map(type, cells) else cells


def _literal(cell: dict[str, Any]) -> Any:
    try:
        ((name, value),) = cell.items()
        return _FROM_LITERALS[name](value)
    except (ValueError, TypeError, ArithmeticError, KeyError):
        raise InvalidArgumentError(
            f"the row has a cell of an unknown form, {cell!s:.100}: give a plain JSON value, or one of "
            f'{", ".join(_FROM_LITERALS)}, such as {{"date": "2014-01-01"}}'
        ) from None


_FROM_LITERALS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "base64": lambda text: base64.b64decode(text, validate=True),
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "decimal": exact_decimal,
}


def _needs_words(kind: LogicalType) -> bool:
    """Whether pydantic's JSON of cells is not what ``from_json`` reads."""
    return kind.name in ("binary", "month_day_nano_interval") or kind.name.startswith("duration") or kind.is_nested


class RowCells:
    """The cells of one row as a session's JSON, and back, for one version of a table. Thread safe.

    Beside what JSON has, dates and timestamps are ISO text, decimals their digits, floats that JSON lacks
    ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``, and bytes ``{"base64": ...}``. Dates outside the years 1 to 9999 are
    days since 1970, such timestamps microseconds, and durations that Python lacks are their number of units.
    """

    def __init__(self, columns: list[ColumnSchema]) -> None:
        self._bytes = [column.name for column in columns if _needs_words(column.logical)]
        self._floats = [column.name for column in columns if column.logical.name in ("float", "double")]
        others = [column for column in columns if not is_plain(column) and column.name not in self._floats]
        self._readers = {column.name: _reader(column) for column in others}

    def to_json(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row that pydantic's ``to_json`` makes JSON of."""
        return {**row, **{name: to_json(row[name]) for name in self._bytes}} if self._bytes else row

    def to_python(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row from JSON as Python values; changes ``row``."""
        for name in self._floats:
            cell = row[name]
            if type(cell) is not float and cell is not None:
                row[name] = float(cell)
        for name, read in self._readers.items():
            row[name] = read(row[name])
        return row


def _reader(column: ColumnSchema) -> Callable[[Any], Any]:
    kind = column.logical
    if kind.name in ("date", "timestamp[us]"):
        return lambda cell: cell_of(cell, kind) if type(cell) is str else cell
    if str(pa.duration("ns")) in str(kind.arrow):  # pandas has them, where it is installed
        return lambda cell: python_cell(pa.scalar(cell_of(cell, kind), kind.arrow))
    return lambda cell: cell_of(cell, kind)
