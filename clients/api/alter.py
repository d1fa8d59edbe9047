"""TableAlteration: the steps of one change of a table, collected and applied together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import pyarrow as pa
from pydantic import ValidationError

from ...schemas.cells.literal import to_json
from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from ...schemas.protocol.command import explain
from ...schemas.store.description import TableDescription
from ...schemas.table import alter
from ...schemas.table.column import TooLong
from ...schemas.table.partition import HashLevel, range_bound


class TableAlteration:
    """Collects the steps by which a user alters a table. ``apply`` makes them one change: all of them, or none. Each
    step sees the table as the previous steps left it::

        flights.alter().add_column("delay", "int16").rename_column("dest", "to").apply()

    Nothing is sent before ``apply``.
    """

    def __init__(self, table: str, send: Callable[[alter.Alteration], TableDescription]) -> None:
        self._table = table
        self._send = send
        self._steps: list[alter.Step] = []

    def add_column(
        self,
        name: str,
        type: str | pa.DataType,
        nullable: bool = True,
        read_default: Any = None,
        write_default: Any = None,
        *,
        encoding: str | None = None,
        compression: str | None = None,
        block_rows: int | None = None,
        comment: str = "",
        immutable: bool = False,
        too_long: TooLong | None = None,
        default_expression: str | None = None,
        merge: str | None = None,
    ) -> Self:
        """Add a last column. Existing rows show ``read_default``, or NULL without one; a column that is not
        ``nullable`` needs one. New rows get ``write_default``, or the value of ``default_expression``, if the data has
        no such column."""
        return self._add(
            alter.AddColumn,
            name=name,
            type=_word(name, type),
            nullable=nullable,
            read_default=to_json(read_default),
            write_default=to_json(write_default),
            encoding=encoding,
            compression=compression,
            block_rows=block_rows,
            comment=comment,
            immutable=immutable,
            too_long=too_long,
            default_expression=default_expression,
            merge=merge,
        )

    def drop_column(self, name: str) -> Self:
        """Drop a column and its values for good: a new column of that name does not bring them back."""
        return self._add(alter.DropColumn, name=name)

    def rename_column(self, name: str, new_name: str) -> Self:
        """Rename a column. It may be part of the key."""
        return self._add(alter.RenameColumn, name=name, to=new_name)

    def set_default(self, name: str, write_default: Any = None, *, expression: str | None = None) -> Self:
        """Set the value that new rows get if the data has no such column, or the SQL ``expression`` that computes it
        from the row's other columns and ``now()``. Without either, the default is removed."""
        default = to_json(write_default)
        return self._add(alter.SetDefault, name=name, write_default=default, default_expression=expression)

    def set_merge(self, name: str, merge: str | None) -> Self:
        """Set how ``Table.merge`` combines a value with that of an existing row: see ``ColumnOptions.merge``. None: the
        new value replaces it."""
        return self._add(alter.SetMerge, name=name, merge=merge)

    def set_encoding(self, name: str, encoding: str | None) -> Self:
        """Set how files written from now on encode a column. None restores the default of its type."""
        return self._add(alter.SetEncoding, name=name, encoding=encoding)

    def set_compression(self, name: str, compression: str | None) -> Self:
        """Set how files written from now on compress a column. None means no compression."""
        return self._add(alter.SetCompression, name=name, compression=compression)

    def set_block_rows(self, name: str, block_rows: int | None) -> Self:
        """Set the number of rows in a page of a column, for files written from now on. None means 65,536."""
        return self._add(alter.SetBlockRows, name=name, block_rows=block_rows)

    def set_too_long(self, name: str, too_long: TooLong | None) -> Self:
        """Set what becomes of text that is longer than a varchar column, from now on: ``truncate`` cuts it, ``error``
        refuses its row. None means ``truncate``."""
        return self._add(alter.SetTooLong, name=name, too_long=too_long)

    def set_comment(self, name: str | None, comment: str) -> Self:
        """Set the comment of a column, or of the table if the name is None."""
        return self._add(alter.SetComment, name=name, comment=comment)

    def widen_column(self, name: str, type: str | pa.DataType) -> Self:
        """Widen the type of a column outside the key: int8 to int16 to int32 to int64, float to double, a decimal to
        more digits before the point, a varchar to more characters or to string."""
        return self._add(alter.WidenColumn, name=name, type=_word(name, type))

    def drop_not_null(self, name: str) -> Self:
        """Allow NULL in a column outside the key from now on."""
        return self._add(alter.DropNotNull, name=name)

    def set_option(self, option: str, value: Any) -> Self:
        """Set a table option, such as ``history_max_age_seconds``; None restores its default."""
        return self._add(alter.SetOption, option=option, value=value)

    def add_range_partition(
        self,
        lower: Any,
        upper: Any,
        *,
        lower_inclusive: bool = True,
        upper_inclusive: bool = False,
        hash: Sequence[HashLevel] | None = None,
    ) -> Self:
        """Add an empty range to a table that is partitioned by range. ``hash`` gives the range its own hash levels
        instead of the table's. Write the ends as in ``nyala.partition.range``: a tuple for several columns, None for no
        bound."""
        ends = _ends(lower, upper, lower_inclusive, upper_inclusive)
        return self._add(alter.AddRangePartition, **ends, hash=None if hash is None else list(hash))

    def drop_range_partition(
        self, lower: Any, upper: Any, *, lower_inclusive: bool = True, upper_inclusive: bool = False
    ) -> Self:
        """Drop the range with exactly these ends and all of its rows, for good."""
        return self._add(alter.DropRangePartition, **_ends(lower, upper, lower_inclusive, upper_inclusive))

    def split_partition(self, at: Any) -> Self:
        """Split the range that contains ``at`` there. ``at`` is a value or a tuple of values of the range columns, or
        of the leading key columns of a table without ranges. Rows stay where they are on disk, except in files with
        rows of both sides. This step cannot be combined with others."""
        return self._add(alter.SplitPartition, at=range_bound((at, None)).lower)

    def rename(self, new_name: str, replaces: int | None = None, keep_seconds: int = 0) -> Self:
        """Rename the table. With ``replaces`` it takes the place of the table with the new name, in one step: whoever
        looks for the name finds the one or the other. ``replaces`` is the ``table_id`` of that table, so that none is
        replaced that came meanwhile. It is dropped, and can be recalled for ``keep_seconds``. Grants on it go over to
        this one, those on columns by their names. Where several servers share the tables this is refused."""
        return self._add(alter.RenameTable, to=new_name, replaces=replaces, keep_seconds=keep_seconds)

    def apply(self, if_version: int | None = None) -> dict[str, Any]:
        """Apply all steps as one change and return what ``describe`` returns then.

        With ``if_version``, apply only if that is the table's ``schema_version``, so that no concurrent change is
        overlooked.

        Raises:
            ConflictError: the table has another schema version.
            InvalidArgumentError: a step breaks a rule, or there are no steps. Nothing changed.
            NotFoundError: the table or a column does not exist.
            AlreadyPresentError: a table with the new name exists.
        """
        if not self._steps:
            raise InvalidArgumentError("an alteration needs at least one step")
        alteration = alter.Alteration.model_validate(
            {"table": self._table, "steps": self._steps, "if_version": if_version}
        )
        return self._send(alteration).model_dump(mode="json")

    def __repr__(self) -> str:
        return f"TableAlteration({self._table!r}: {counted(len(self._steps), 'step')}, made by apply())"

    def _add(self, step: Callable[..., alter.Step], **parts: Any) -> Self:
        try:
            self._steps.append(step(**parts))
        except ValidationError as error:
            raise InvalidArgumentError(explain(error, "the step")) from None
        return self


def _ends(lower: Any, upper: Any, lower_inclusive: bool, upper_inclusive: bool) -> dict[str, Any]:
    bound = range_bound((lower, upper))
    return {
        "lower": bound.lower,
        "upper": bound.upper,
        "lower_inclusive": lower_inclusive,
        "upper_inclusive": upper_inclusive,
    }


def _word(name: str, kind: str | pa.DataType) -> str:
    """Return the word of a type that is given as one, or as Arrow's."""
    if not isinstance(kind, str | pa.DataType):
        raise InvalidArgumentError(
            f"the type of column {name!r} must be a word such as 'int64' or an Arrow type, not {kind!r}"
        )
    return kind if isinstance(kind, str) else str(LogicalType.from_arrow(pa.field(name, kind)))
