"""A table: its columns with their ids, its primary key, its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from functools import cached_property
from typing import Annotated, Any, Literal, TypedDict

import pyarrow as pa
from pydantic import BeforeValidator, Field, PositiveInt, SerializerFunctionWrapHandler, model_serializer

from ..cells.literal import to_json
from ..cells.types import LogicalType
from ..cells.wrapped import bare_type
from ..errors import InvalidArgumentError
from ..limits.limits import Limits
from ..message import Message, new_list
from ..phrases import perhaps
from .column import ColumnDefinition, ColumnOptions, ColumnSchema
from .names import Names, check_column_name, check_table_name, listed
from .partition import HashLevel, Level, RangeLevel
from .ttl import WRITTEN_AT, TimeToLive, ttl_parts, ttl_text

AUTO_INCREMENTING = "auto_incrementing_id"
"""The column that completes the key of a table whose primary key is not unique."""
QUOTAS = ("max_rows", "max_bytes")
"""The options that limit what a table may hold."""
UPKEEP = ("history_max_age_seconds", "maintenance", "row_column", "cell_bytes_max")
"""The options that decide what a table takes of the memory and disk of all: who may maintain it sets them."""
WEEK_SECONDS = 7 * 24 * 3600
"""How long a table keeps its history, and a dropped one its files, without being asked for longer."""
_NUMBER_MAX = (1 << 63) - 1
_MOMENTS = ("timestamp[us]", "date")
_SINCE = frozenset({"row_column", "order_by", "ttl", "cell_bytes_max", "cell_bytes_before"})
"""The parts of a schema that came after version 0.1."""


class TableOptions(Message, frozen=True, extra="forbid"):
    """The options of a table, settable at creation and later."""

    history_max_age_seconds: PositiveInt = WEEK_SECONDS
    """How long overwritten values can be read with ``as_of``."""
    maintenance: Literal["on", "off"] = "on"
    """``off`` leaves every flush to ``maintain``."""
    comment: str = Field(default="", max_length=1024)
    """A description of the table."""
    max_rows: int | None = Field(default=None, ge=1)
    """The quota of live rows; None: none."""
    max_bytes: int | None = Field(default=None, ge=1)
    """The quota of bytes, on disk with all history and in memory; None: none."""
    row_column: bool = False
    """Whether files written from now on have each row once more as a whole, for reads of single rows."""
    order_by: str | None = None
    """The column that orders the changes of each row: a write with a lower value than the row has is ignored. None:
    the last write counts."""
    ttl: Annotated[str | None, BeforeValidator(ttl_text)] = None
    """When rows expire: a time after the moment in one of their columns, ``created + 30d``, or after their last write,
    ``30d``. None: never."""
    cell_bytes_max: int | None = Field(default=None, ge=1)
    """The largest string, binary or json cell outside the key: more than the store's ``limits.cell_bytes``, at most its
    ``limits.nested_cell_bytes``. None: ``limits.cell_bytes``."""

    @property
    def takes_more(self) -> bool:
        """Whether a new table takes more of the memory and disk of all than one without options."""
        is_longer = self.history_max_age_seconds > WEEK_SECONDS or self.cell_bytes_max is not None
        return is_longer or self.maintenance == "off" or self.row_column

    def checked(self) -> TableOptions:
        """Return the options of a new or altered table; those of one that is opened are taken as they are.

        Raises:
            InvalidArgumentError: a number has more than 63 bits, and so none of the metrics and formats that tell it.
        """
        for name, value in self:
            if isinstance(value, int) and value > _NUMBER_MAX:
                raise InvalidArgumentError(f"table option {name!r} may be at most {_NUMBER_MAX:,}")
        return self

    def check_cells(self, limits: Limits) -> None:
        """Check the size of cells that a new or altered table asks for.

        Raises:
            InvalidArgumentError: it is below the store's limit, or above that of nested cells.
        """
        least, most = limits.cell_bytes, limits.nested_cell_bytes
        if self.cell_bytes_max is not None and not least <= self.cell_bytes_max <= most:
            raise InvalidArgumentError(
                f"table option 'cell_bytes_max' may be from {least:,} to {most:,} bytes, not {self.cell_bytes_max:,}: "
                "limits.cell_bytes and limits.nested_cell_bytes of the store set this range"
            )

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what has its default: version 0.1 rejects options that it does not know, and so a store whose
        quotas it would not enforce."""
        return {name: each for name, each in written(self).items() if each is not None and each is not False}


class TableOptionsDict(TypedDict, total=False):
    """The options of a table as keywords of ``Database.create_table``; ``TableOptions`` explains each."""

    history_max_age_seconds: int
    maintenance: Literal["on", "off"]
    comment: str
    max_rows: int | None
    max_bytes: int | None
    row_column: bool
    order_by: str | None
    ttl: str | tuple[str, str] | None
    cell_bytes_max: int | None


class TableDefinition(Message, frozen=True, extra="forbid"):
    """The definition of a table: the body of ``create_table``."""

    name: str
    columns: list[ColumnDefinition]
    primary_key: list[str]
    unique_key: bool = True
    """False: rows may share their key; one more key column, `auto_incrementing_id`, distinguishes them."""
    partition_by: list[Level] = Field(default_factory=new_list)
    if_not_exists: bool = False
    options: TableOptions = TableOptions()

    @classmethod
    def from_arrow(
        cls,
        name: str,
        schema: pa.Schema,
        primary_key: Names,
        column_options: Mapping[str, ColumnOptions | Mapping[str, Any]] | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        unique_key: bool = True,
        partition_by: Sequence[HashLevel | RangeLevel | Mapping[str, Any]] = (),
    ) -> TableDefinition:
        """Return the definition for an Arrow schema and options per column.

        Key columns are NOT NULL whatever the field says.

        Raises:
            InvalidArgumentError: a table cannot hold a type, or there are options for an unknown column.
        """
        chosen = dict(column_options or {})
        if unknown := set(chosen) - set(schema.names):
            raise InvalidArgumentError(
                f"column_options names unknown columns: {', '.join(sorted(unknown))}; the schema has "
                f"{', '.join(schema.names[:20])}"
            )
        key = listed(primary_key)
        if not isinstance(partition_by, Sequence) or any(isinstance(each, str) for each in partition_by):
            raise InvalidArgumentError(
                "partition_by must be a list of levels, as in [nyala.partition.hash('id', buckets=4)]"
            )
        columns = [_definition(field, field.name in key, chosen.get(field.name)) for field in schema]
        return cls(
            name=name,
            columns=columns,
            primary_key=key,
            unique_key=unique_key,
            partition_by=list(partition_by),  # pyright: ignore[reportArgumentType] - dicts are read as levels
            if_not_exists=if_not_exists,
            options=TableOptions.model_validate(dict(options or {})),
        )


def _definition(field: pa.Field, is_key: bool, options: ColumnOptions | Mapping[str, Any] | None) -> ColumnDefinition:
    given = options if isinstance(options, ColumnOptions) else ColumnOptions.model_validate(dict(options or {}))
    return ColumnDefinition(
        name=field.name,
        type=_type_word(field, given.type),
        nullable=field.nullable and not is_key,
        encoding=given.encoding,
        compression=given.compression,
        block_rows=given.block_rows,
        read_default=to_json(given.read_default),
        write_default=to_json(given.write_default),
        comment=given.comment,
        immutable=given.immutable,
        too_long=given.too_long,
        default_expression=given.default_expression,
        merge=given.merge,
    )


def _type_word(field: pa.Field, chosen: str | None) -> str:
    """Return a column's type name; ``chosen`` may only refine the Arrow type, as varchar does."""
    if chosen is None:
        return str(LogicalType.from_arrow(field))
    kind, bare = LogicalType.parse(chosen), bare_type(field.type)
    is_text = pa.types.is_string(bare) or pa.types.is_large_string(bare) or pa.types.is_string_view(bare)
    if not (is_text and kind.is_text) and kind.arrow != field.type:
        raise InvalidArgumentError(f"column {field.name!r} is {field.type} in the schema and {kind} in its options")
    return str(kind)


class TableSchema(Message, frozen=True, extra="forbid", ignored_types=(cached_property,)):
    """The schema of a table at one version: its columns and its key; immutable.

    ``columns`` begin with the primary key, in key order. Ids come from ``next_column_id`` and are never reused. Without
    ``unique_key``, the store fills in the last key column.
    """

    version: int = 1
    columns: tuple[ColumnSchema, ...]
    key_columns: int = Field(ge=1)
    unique_key: bool = True
    next_column_id: int
    row_column: bool = False
    """Whether files have each row as a whole, too: the option of the table."""
    order_by: int | None = None
    """The id of the column that orders the changes of each row: the option of the table."""
    ttl: TimeToLive | None = None
    """When rows expire: the option of the table."""
    cell_bytes_max: int | None = None
    """The largest string, binary or json cell outside the key: the option of the table."""
    cell_bytes_before: int | None = None
    """The greatest value that the option has had, if it is lower now: stored cells may be as long."""

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what has its default: version 0.1 rejects fields that it does not know."""
        return {name: each for name, each in written(self).items() if name not in _SINCE or each}

    @classmethod
    def create(cls, definition: TableDefinition, limits: Limits) -> TableSchema:
        """Assign ids to the columns of a new table.

        Raises:
            InvalidArgumentError: the definition breaks a rule of names, types or keys, or a limit.
        """
        _check_columns(definition, limits)
        _check_primary_key(definition)
        definition.options.check_cells(limits)
        definitions = [*definition.columns, *_filled_in(definition)]
        key_columns = len(definition.primary_key)
        if not definition.unique_key:
            definitions.insert(key_columns, ColumnDefinition(name=AUTO_INCREMENTING, type="int64", nullable=False))
            key_columns += 1
        columns = tuple(
            ColumnSchema.from_definition(column_id, column) for column_id, column in enumerate(definitions, start=1)
        )
        for column in columns:
            column.check_default("read_default", column.read_default, limits)
            column.check_default("write_default", column.write_default, limits)
            if column.id <= key_columns and (column.default_expression or column.merge):
                raise InvalidArgumentError(
                    f"column {column.name!r} is part of the primary key: it has no default_expression, and no merge"
                )
        schema = cls(
            columns=columns,
            key_columns=key_columns,
            unique_key=definition.unique_key,
            next_column_id=len(columns) + 1,
        )
        return schema.model_copy(update=schema.of_options(definition.options))

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of a scan of all columns."""
        return pa.schema([column.field for column in self.columns])

    @cached_property
    def by_name(self) -> dict[str, ColumnSchema]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def by_id(self) -> dict[int, ColumnSchema]:
        """The columns by id."""
        return {column.id: column for column in self.columns}

    @cached_property
    def key(self) -> tuple[ColumnSchema, ...]:
        """The columns of the primary key, in order."""
        return self.columns[: self.key_columns]

    @property
    def auto_incrementing(self) -> ColumnSchema | None:
        """The key column that the store fills in for new rows; None if the key is unique."""
        return None if self.unique_key else self.key[-1]

    @property
    def filled(self) -> ColumnSchema | None:
        """The column of the moment of the last write, which the store fills in; None: there is none."""
        return self.by_id[self.ttl.column] if self.ttl and self.ttl.is_filled else None

    @cached_property
    def reads_clock(self) -> bool:
        """Whether a write needs to know the moment: rows expire, or cells are computed."""
        return self.ttl is not None or any(column.default_expression or column.merge for column in self.columns)

    @property
    def ordering(self) -> ColumnSchema | None:
        """The column that orders the changes of each row; None: the last write counts."""
        return None if self.order_by is None else self.by_id[self.order_by]

    def of_options(self, options: TableOptions) -> dict[str, Any]:
        """Return the parts of the schema that options of the table decide.

        Raises:
            InvalidArgumentError: an option names a column that there is not, or that does not fit.
        """
        return {
            "row_column": options.row_column,
            "order_by": self._ordered_by(options.order_by),
            "ttl": self._expiring(options.ttl, options.order_by),
            "cell_bytes_max": options.cell_bytes_max,
            "cell_bytes_before": self._cell_bytes_before(options.cell_bytes_max),
        }

    def cell_bytes(self, column: ColumnSchema, limits: Limits) -> int:
        """Return how many bytes a new cell of a column may have, if its type has no fixed size."""
        if column.logical.is_nested:
            return limits.nested_cell_bytes
        if self.cell_bytes_max is None or column in self.key:
            return limits.cell_bytes
        return max(limits.cell_bytes, min(self.cell_bytes_max, limits.nested_cell_bytes))

    def stored_cell_bytes(self, column: ColumnSchema, limits: Limits) -> int:
        """Return how many bytes a stored cell of a column may have: the option may have been greater."""
        most = self.cell_bytes(column, limits)
        if column.logical.is_nested or column in self.key:
            return most
        return max(most, self.cell_bytes_max or 0, self.cell_bytes_before or 0)

    def _cell_bytes_before(self, now: int | None) -> int | None:
        before = max(self.cell_bytes_max or 0, self.cell_bytes_before or 0)
        return before if before > (now or 0) else None

    def _expiring(self, text: str | None, order_by: str | None) -> TimeToLive | None:
        if text is None:
            return None
        name, microseconds = ttl_parts(text)
        if name is None and order_by == WRITTEN_AT:
            raise InvalidArgumentError(
                f"with ttl {text!r} the store fills {WRITTEN_AT!r}, but order_by needs that column in each write: name "
                f"it in ttl, as in '{WRITTEN_AT} + {text}'"
            )
        if name is None and WRITTEN_AT not in self.by_name:
            raise InvalidArgumentError(
                f"ttl {text!r} counts from the last write of a row, in the column {WRITTEN_AT!r}: first add it as a "
                "timestamp, with a read_default from which existing rows count"
            )
        column = self.column(name or WRITTEN_AT)
        if name is None and (column.type != _MOMENTS[0] or not column.nullable or column.immutable):
            raise InvalidArgumentError(
                f"ttl {text!r} counts from the last write of a row: its column {WRITTEN_AT!r} must be a timestamp, "
                "nullable, not immutable, and not part of the key"
            )
        if column.logical.name not in _MOMENTS:
            raise InvalidArgumentError(
                f"ttl cannot count from {name!r}, which has the type {column.type}: use a timestamp or a date"
            )
        return TimeToLive(column=column.id, microseconds=microseconds, is_filled=name is None)

    def _ordered_by(self, name: str | None) -> int | None:
        """Return the id of the column that the table option ``order_by`` names; None for None.

        Raises:
            InvalidArgumentError: there is no such column, or its values cannot order changes.
        """
        if name is None:
            return None
        column = self.column(name)
        if not self.unique_key:
            raise InvalidArgumentError("order_by needs a unique key, but the store numbers the rows of this table")
        if column in self.key:
            raise InvalidArgumentError(f"order_by cannot be {name!r}: a column of the key is the same in all changes")
        if column.immutable:
            raise InvalidArgumentError(f"order_by cannot be {name!r}: an immutable column is the same in all changes")
        if not column.logical.may_be_key:
            raise InvalidArgumentError(
                f"order_by cannot be {name!r}, which has the type {column.type}; integers, decimals, text, bytes, "
                "dates and timestamps have an order"
            )
        return column.id

    @property
    def has_dropped(self) -> bool:
        """Whether a column was ever dropped, so that files may still contain its values."""
        return len(self.columns) < self.next_column_id - 1

    @cached_property
    def values(self) -> tuple[ColumnSchema, ...]:
        """The columns outside the primary key."""
        return self.columns[self.key_columns :]

    def required_columns(self, present: Set[int]) -> list[ColumnSchema]:
        """Return the columns that a new row needs and that neither ``present`` (ids) nor a default supplies."""
        return [
            column
            for column in self.values
            if column.id not in present and not column.nullable and not column.has_default
        ]

    def has_all(self, names: Collection[str]) -> bool:
        """Return whether a list of names consists of columns of the table, and is no longer than their list."""
        return len(names) <= len(self.columns) and all(name in self.by_name for name in names)

    def column(self, name: str) -> ColumnSchema:
        """Return the column named ``name``.

        Raises:
            InvalidArgumentError: there is no such column; the message lists the columns.
        """
        if found := self.by_name.get(name):
            return found
        known = ", ".join(list(self.by_name)[:20])
        raise InvalidArgumentError(f"there is no column {name!r}{perhaps(name, self.by_name)}; the columns are {known}")


def _filled_in(definition: TableDefinition) -> list[ColumnDefinition]:
    """Return the columns that the options of a new table add to it."""
    ttl, names = definition.options.ttl, {column.name for column in definition.columns}
    if ttl is None or ttl_parts(ttl)[0] is not None or WRITTEN_AT in names:
        return []
    return [ColumnDefinition(name=WRITTEN_AT, type="timestamp[us]")]


def _check_columns(definition: TableDefinition, limits: Limits) -> None:
    check_table_name(definition.name, limits)
    count = len(definition.columns) + (not definition.unique_key) + len(_filled_in(definition))
    if count > limits.columns:
        raise InvalidArgumentError(
            f"table {definition.name!r} has {count} columns; at most {limits.columns} are allowed"
        )
    seen: set[str] = set()
    for column in definition.columns:
        check_column_name(column.name, limits)
        if column.name == AUTO_INCREMENTING and not definition.unique_key:
            raise InvalidArgumentError(
                f"the store adds the column {AUTO_INCREMENTING!r} itself: remove it from the schema"
            )
        if column.name in seen:
            raise InvalidArgumentError(f"two columns are named {column.name!r}")
        seen.add(column.name)


def _check_primary_key(definition: TableDefinition) -> None:
    key = definition.primary_key
    if not key:
        raise InvalidArgumentError(f"table {definition.name!r} needs a primary key of at least one column")
    leading = [column.name for column in definition.columns[: len(key)]]
    if leading != key:
        raise InvalidArgumentError(
            f"the primary key {key} must be the leading columns in order, but the table starts with {leading}"
        )
    for column in definition.columns[: len(key)]:
        if column.nullable:
            raise InvalidArgumentError(f"key column {column.name!r} must not be nullable")
        if not LogicalType.parse(column.type).may_be_key:
            raise InvalidArgumentError(
                f"key column {column.name!r} cannot be a key: it has the type {column.type}; "
                "a key may have integers, decimals, text, bytes, dates and timestamps"
            )
