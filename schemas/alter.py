"""The steps of an alteration: what of a table is to be changed, as one change.

Each step sees the table as the steps before it left it. ``op`` says which step it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PositiveInt

from .column import ColumnDefinition
from .partition import RangeBound, RangeEnds


class _Step(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AddColumn(ColumnDefinition):
    """A new last column; rows that are there show its ``read_default``, else NULL."""

    op: Literal["add_column"] = "add_column"


class DropColumn(_Step):
    """A column goes, with its values; its id is never used again."""

    op: Literal["drop_column"] = "drop_column"
    name: str


class RenameColumn(_Step):
    """A column, of the key or not, gets another name."""

    op: Literal["rename_column"] = "rename_column"
    name: str
    to: str


class SetDefault(_Step):
    """What new rows get where the data has no such column; None takes the default away."""

    op: Literal["set_default"] = "set_default"
    name: str
    write_default: Any = None


class SetEncoding(_Step):
    """How files written from now on encode a column; None is the default of its type."""

    op: Literal["set_encoding"] = "set_encoding"
    name: str
    encoding: str | None = None


class SetCompression(_Step):
    """How files written from now on compress a column; None is no compression."""

    op: Literal["set_compression"] = "set_compression"
    name: str
    compression: str | None = None


class SetBlockRows(_Step):
    """How many rows a page of a column has in files written from now on; None is the default."""

    op: Literal["set_block_rows"] = "set_block_rows"
    name: str
    block_rows: int | None = None


class SetComment(_Step):
    """The comment of a column, or of the table when ``name`` is None."""

    op: Literal["set_comment"] = "set_comment"
    name: str | None = None
    comment: str


class WidenColumn(_Step):
    """A column outside of the key takes a type that holds every value of its own."""

    op: Literal["widen_column"] = "widen_column"
    name: str
    type: str


class DropNotNull(_Step):
    """A column outside of the key may be NULL from now on."""

    op: Literal["drop_not_null"] = "drop_not_null"
    name: str


class SetOption(_Step):
    """A table option gets another value."""

    op: Literal["set_option"] = "set_option"
    option: str
    value: Any


class AddRangePartition(RangeBound):
    """The table gets one more range, empty, with the table's hash levels or its own."""

    op: Literal["add_range_partition"] = "add_range_partition"


class DropRangePartition(RangeEnds):
    """A range of just these ends goes, with all rows in it."""

    op: Literal["drop_range_partition"] = "drop_range_partition"


class SplitPartition(_Step):
    """The range that ``at`` lies in is cut there: a value for each of the leading range columns, or of the leading key
    columns where there are no ranges yet. A change of its own, without other steps."""

    op: Literal["split_partition"] = "split_partition"
    at: list[Any] = Field(min_length=1)


class RenameTable(_Step):
    """The table gets another name."""

    op: Literal["rename"] = "rename"
    to: str


Step = Annotated[
    AddColumn
    | DropColumn
    | RenameColumn
    | SetDefault
    | SetEncoding
    | SetCompression
    | SetBlockRows
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


class Alteration(BaseModel):
    """The body of ``alter_table``: all steps or none, and only if the schema version is ``if_version``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str = Field(validation_alias=AliasChoices("table", "name"))
    steps: list[Step] = Field(min_length=1)
    if_version: PositiveInt | None = None
