"""One column of a table."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from ..cells.encoding import COMPRESSIONS, encodings_for, fitting_encoding, plain_name
from ..cells.literal import from_json
from ..cells.types import LogicalType
from ..errors import InvalidArgumentError
from ..limits.limits import Limits
from ..message import Message

BLOCK_ROWS = tuple(1 << bits for bits in range(10, 17))
"""Allowed numbers of rows in a page."""

EXPRESSION_BYTES_MAX = 4096
"""Of the text of a column's default or merge rule."""

TooLong = Literal["truncate", "error"]
"""What becomes of text that is longer than its varchar column: it is cut to that length, or its row is refused."""
TRUNCATE: TooLong = "truncate"


class ColumnOptions(Message, frozen=True, extra="forbid"):
    """The options of a table's column: how it is stored and filled; every option may be left out.

    ``encoding`` and ``compression`` default by type. ``read_default`` is the value in rows older than the column,
    ``write_default`` the value of a new row if the data has no such column, or ``default_expression`` computes it from
    the row's other columns and ``now()``.
    """

    encoding: str | None = None
    compression: str | None = None
    block_rows: int | None = None
    """Rows of a page, the unit that is read, checked and decompressed: a power of two from 1,024 to 65,536.
    Fewer make reads of single rows cheaper where cells are long or compressed, and scans and files a little larger. By
    default 65,536, or as many as make some 256 KiB where that many would take more than 1.5 MiB."""
    read_default: Any = None
    write_default: Any = None
    comment: str = ""
    immutable: bool = False
    """Only new rows take a value; later writes keep it."""
    type: str | None = None
    """A type that Arrow lacks: ``varchar(n)`` over an Arrow string."""
    too_long: TooLong | None = None
    """Of a varchar: ``truncate``, the default, cuts longer text to its length; ``error`` refuses the row."""
    default_expression: str | None = None
    """SQL text, such as ``now()`` or ``price * amount``; instead of a ``write_default``."""
    merge: str | None = None
    """How ``merge`` combines a value with that of a live row: ``sum``, ``min``, ``max``, ``append``, or an expression
    such as ``views + excluded.views``. None: the new value counts."""


class ColumnDefinition(Message, frozen=True, extra="forbid"):
    """The definition of a column in ``create_table``; the store assigns its id."""

    name: str
    type: str
    nullable: bool = True
    encoding: str | None = None
    compression: str | None = None
    block_rows: int | None = None
    read_default: Any = None
    write_default: Any = None
    comment: str = ""
    immutable: bool = False
    too_long: TooLong | None = None
    default_expression: str | None = None
    merge: str | None = None


class ColumnSchema(Message, frozen=True, extra="forbid"):
    """A column of a table. ``id`` is stable and never reused; the name can change."""

    id: int = Field(ge=1)
    name: str
    type: str
    nullable: bool
    encoding: str
    compression: str
    block_rows: int | None = None
    """Rows in a page of files written from now on; None, which is not stored: 65,536."""
    read_default: Any = None
    write_default: Any = None
    comment: str = ""
    immutable: bool = False
    """Only new rows take a value; later writes keep it."""
    too_long: TooLong = TRUNCATE
    """Of a varchar; the default is not stored."""
    default_expression: str | None = None
    """What computes the value of a new row if the data has no such column."""
    merge: str | None = None
    """How a merge combines a value with that of a live row; None: the new value counts."""

    def __hash__(self) -> int:
        return hash((self.id, self.name, self.type))  # a default may be a dict, which is not hashable

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what has its default: version 0.1 rejects fields that it does not know."""
        parts = written(self)
        if self.block_rows is None:
            parts.pop("block_rows", None)
        if self.too_long == TRUNCATE:
            parts.pop("too_long", None)
        for name in ("default_expression", "merge"):
            if parts[name] is None:
                del parts[name]
        return parts

    @property
    def has_default(self) -> bool:
        """Whether a new row has a value without one in the data."""
        return self.write_default is not None or self.default_expression is not None

    @field_validator("type")
    @classmethod
    def _known_type(cls, word: str) -> str:
        return str(LogicalType.parse(word))

    @field_validator("encoding")
    @classmethod
    def _fitting(cls, encoding: str, info: ValidationInfo) -> str:
        """Widening once kept an encoding that the wider type lacks, so that nothing could be written: such a column
        is stored as its type is by default."""
        kind = info.data.get("type")
        return encoding if kind is None else fitting_encoding(encoding, _logical(kind))

    @property
    def logical(self) -> LogicalType:
        """The column's type."""
        return _logical(self.type)

    @property
    def field(self) -> pa.Field:
        """The Arrow field of its cells in requests and results."""
        return _field(self.type, self.name, self.nullable)

    @classmethod
    def from_definition(cls, column_id: int, definition: ColumnDefinition) -> ColumnSchema:
        """Return the column that ``definition`` describes, with the defaults of its type filled in.

        Raises:
            InvalidArgumentError: the type is unknown, the encoding does not fit it, or a default has another type.
        """
        kind = LogicalType.parse(definition.type)
        for what in ("read_default", "write_default"):
            from_json(getattr(definition, what), kind, f"the {what} of column {definition.name!r}:")
        if definition.write_default is not None and definition.default_expression is not None:
            raise InvalidArgumentError(
                f"column {definition.name!r} has a write_default and a default_expression: leave one out"
            )
        if definition.immutable and definition.merge is not None:
            raise InvalidArgumentError(f"column {definition.name!r} is immutable: a merge could not change it")
        return cls(
            id=column_id,
            name=definition.name,
            type=str(kind),
            nullable=definition.nullable,
            encoding=_encoding(definition, kind),
            compression=_compression(definition),
            block_rows=_block_rows(definition),
            read_default=definition.read_default,
            write_default=definition.write_default,
            comment=_comment(definition),
            immutable=definition.immutable,
            too_long=_too_long(definition, kind),
            default_expression=_expression(definition, "default_expression"),
            merge=_expression(definition, "merge"),
        )

    def check_default(self, what: str, value: Any, limits: Limits) -> None:
        """Check that a default is a valid cell.

        Raises:
            InvalidArgumentError: it is too long for the column or the store.
        """
        kind = self.logical
        cell = from_json(value, kind, f"the {what} of column {self.name!r}:")
        if not isinstance(cell, str | bytes):
            return
        if kind.name == "varchar" and len(cell) > kind.length:
            raise InvalidArgumentError(f"the {what} of column {self.name!r} has more than {kind.length} characters")
        if len(cell.encode() if isinstance(cell, str) else cell) > limits.cell_bytes:
            raise InvalidArgumentError(f"the {what} of column {self.name!r} has more than {limits.cell_bytes:,} bytes")


def _encoding(definition: ColumnDefinition, kind: LogicalType) -> str:
    fitting = encodings_for(kind)
    chosen = plain_name(definition.encoding) if definition.encoding else fitting[0]
    if chosen not in fitting:
        raise InvalidArgumentError(
            f"column {definition.name!r} of the type {kind} cannot be encoded as {definition.encoding!r}; "
            f"possible encodings: {', '.join(fitting)}"
        )
    return chosen


def _compression(definition: ColumnDefinition) -> str:
    chosen = definition.compression or "none"
    if chosen not in COMPRESSIONS:
        raise InvalidArgumentError(
            f"column {definition.name!r}: unknown compression {chosen!r}; known: {', '.join(COMPRESSIONS)}"
        )
    return chosen


def _block_rows(definition: ColumnDefinition) -> int | None:
    rows = definition.block_rows
    if rows is not None and rows not in BLOCK_ROWS:
        raise InvalidArgumentError(
            f"column {definition.name!r}: block_rows must be a power of two from {BLOCK_ROWS[0]:,} to "
            f"{BLOCK_ROWS[-1]:,}, "
            f"not {rows:,}"
        )
    return rows


def _too_long(definition: ColumnDefinition, kind: LogicalType) -> TooLong:
    chosen = definition.too_long or TRUNCATE
    if chosen != TRUNCATE and kind.name != "varchar":
        raise InvalidArgumentError(
            f"column {definition.name!r} is {kind}, which has no length: too_long is an option of varchar(n)"
        )
    return chosen


def _expression(definition: ColumnDefinition, what: str) -> str | None:
    text = getattr(definition, what)
    if text is not None and len(text.encode()) > EXPRESSION_BYTES_MAX:
        raise InvalidArgumentError(
            f"the {what} of column {definition.name!r} has more than {EXPRESSION_BYTES_MAX:,} bytes"
        )
    return text


def _comment(definition: ColumnDefinition) -> str:
    if len(definition.comment.encode()) > 256:
        raise InvalidArgumentError(f"the comment of column {definition.name!r} has more than 256 bytes")
    return definition.comment


@lru_cache(4096)
def _logical(word: str) -> LogicalType:
    return LogicalType.parse(word)


@lru_cache(4096)
def _field(word: str, name: str, nullable: bool) -> pa.Field:
    return LogicalType.parse(word).field(name, nullable)
