"""The steps of an alteration, which are applied together.

Each step sees the table as the previous steps left it. ``op`` names the step.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, PositiveInt

from ..message import Message
from .column import ColumnDefinition, TooLong
from .partition import RangeBound, RangeEnds


class AddColumn(ColumnDefinition, frozen=True):
    """Add a last column; existing rows show its ``read_default``, else NULL."""

    op: Literal["add_column"] = "add_column"


class DropColumn(Message, frozen=True, extra="forbid"):
    """Drop a column and its values; its id is never reused."""

    op: Literal["drop_column"] = "drop_column"
    name: str


class RenameColumn(Message, frozen=True, extra="forbid"):
    """Rename a column, of the key or not."""

    op: Literal["rename_column"] = "rename_column"
    name: str
    to: str


class SetDefault(Message, frozen=True, extra="forbid"):
    """Set the value of new rows if the data has no such column, or the expression that computes it; without either, the
    default is removed."""

    op: Literal["set_default"] = "set_default"
    name: str
    write_default: Any = None
    default_expression: str | None = None


class SetMerge(Message, frozen=True, extra="forbid"):
    """Set how a merge combines a value with that of a live row, from now on; None: the new value counts."""

    op: Literal["set_merge"] = "set_merge"
    name: str
    merge: str | None = None


class SetEncoding(Message, frozen=True, extra="forbid"):
    """Set how files written from now on encode a column; None means its type's default."""

    op: Literal["set_encoding"] = "set_encoding"
    name: str
    encoding: str | None = None


class SetCompression(Message, frozen=True, extra="forbid"):
    """Set how files written from now on compress a column; None means no compression."""

    op: Literal["set_compression"] = "set_compression"
    name: str
    compression: str | None = None


class SetBlockRows(Message, frozen=True, extra="forbid"):
    """Set the rows in a page of a column for files written from now on; None means the default."""

    op: Literal["set_block_rows"] = "set_block_rows"
    name: str
    block_rows: int | None = None


class SetTooLong(Message, frozen=True, extra="forbid"):
    """Set what becomes of text that is longer than a varchar column, from now on; None means the default."""

    op: Literal["set_too_long"] = "set_too_long"
    name: str
    too_long: TooLong | None = None


class SetComment(Message, frozen=True, extra="forbid"):
    """Set the comment of a column, or of the table if ``name`` is None."""

    op: Literal["set_comment"] = "set_comment"
    name: str | None = None
    comment: str


class WidenColumn(Message, frozen=True, extra="forbid"):
    """Change a column outside the key to a type that holds every value of its own."""

    op: Literal["widen_column"] = "widen_column"
    name: str
    type: str


class DropNotNull(Message, frozen=True, extra="forbid"):
    """Allow NULL in a column outside the key from now on."""

    op: Literal["drop_not_null"] = "drop_not_null"
    name: str


class SetOption(Message, frozen=True, extra="forbid"):
    """Set a table option."""

    op: Literal["set_option"] = "set_option"
    option: str
    value: Any = None
    """None: its default."""


class AddRangePartition(RangeBound, frozen=True):
    """Add an empty range to the table, with the table's hash levels or its own."""

    op: Literal["add_range_partition"] = "add_range_partition"


class DropRangePartition(RangeEnds, frozen=True):
    """Drop the range with exactly these ends and all its rows."""

    op: Literal["drop_range_partition"] = "drop_range_partition"


class SplitPartition(Message, frozen=True, extra="forbid"):
    """Split the range that contains ``at``: a value for each of the leading range columns, or of the leading key
    columns of a table without ranges. Cannot be combined with other steps."""

    op: Literal["split_partition"] = "split_partition"
    at: list[Any] = Field(min_length=1)


class RenameTable(Message, frozen=True, extra="forbid"):
    """A step that renames the table. With ``replaces`` it takes the place of the table of that id, which has the new
    name."""

    op: Literal["rename"] = "rename"
    to: str
    replaces: PositiveInt | None = None
    """The other table is dropped in the same step. Grants on it go over, those on columns by their names."""
    keep_seconds: int = 0
    """How long the other table can be recalled."""


Step = Annotated[
    AddColumn
    | DropColumn
    | RenameColumn
    | SetDefault
    | SetMerge
    | SetEncoding
    | SetCompression
    | SetBlockRows
    | SetTooLong
    | SetComment
    | WidenColumn
    | DropNotNull
    | SetOption
    | AddRangePartition
    | DropRangePartition
    | SplitPartition
    | RenameTable,
    Field(discriminator="op"),
]


class Alteration(Message, frozen=True, extra="forbid"):
    """The body of ``alter_table``: all steps or none, and only if the schema version is ``if_version``."""

    table: str = Field(validation_alias=AliasChoices("table", "name"))
    steps: list[Step] = Field(min_length=1)
    if_version: PositiveInt | None = None
