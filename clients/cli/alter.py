"""``nyala table alter``: applies all given steps, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.errors import InvalidArgumentError
from .create import default_of, ends_of, row_of
from .options import pair
from .schema_text import parse_column, too_long_of
from .target import Name, Target, takes_target

if TYPE_CHECKING:
    from ..api.alter import TableAlteration

Texts = list[str] | None
Drop = Annotated[Texts, typer.Option("--drop", help="Drop this column and its values; repeatable.")]
Rename = Annotated[Texts, typer.Option("--rename", help="Rename a column: old=new; repeatable.")]
Widen = Annotated[Texts, typer.Option("--widen", help="Widen a column's type: column=type; repeatable.")]
Nullable = Annotated[Texts, typer.Option("--drop-not-null", help="Make this column nullable; repeatable.")]
Add = Annotated[
    Texts, typer.Option("--add", help='name:type, or "name type not null default 0 ..."; a new column; repeatable.')
]
SetDefault = Annotated[
    Texts, typer.Option("--set-default", help="column=value: default for new rows; column= removes it.")
]
SetDefaultExpression = Annotated[
    Texts,
    typer.Option("--set-default-expression", help="column=SQL: computes the default; column= removes the default."),
]
SetMerge = Annotated[
    Texts, typer.Option("--set-merge", help="column=sum, min, max, append or SQL; column= replaces values again.")
]
SetEncoding = Annotated[Texts, typer.Option("--set-encoding", help="column=encoding; column= restores the default.")]
SetCompression = Annotated[Texts, typer.Option("--set-compression", help="column=lz4; column= removes compression.")]
SetTooLong = Annotated[
    Texts,
    typer.Option("--set-too-long", help="column=error: a varchar rejects longer text; column= truncates it again."),
]
SetComment = Annotated[Texts, typer.Option("--set-comment", help="column=text; =text sets the table's comment.")]
SetOption = Annotated[
    Texts, typer.Option("--set-option", help="name=value: a table option; name= restores its default; repeatable.")
]
AddRange = Annotated[Texts, typer.Option("--add-range", help="lower..upper: add a range; repeatable.")]
DropRange = Annotated[Texts, typer.Option("--drop-range", help="lower..upper: drop a range and its rows.")]
Split = Annotated[
    str | None, typer.Option("--split", help="Split a range at this value; cannot be combined with other steps.")
]
RenameTo = Annotated[str | None, typer.Option("--rename-to", help="The table's new name.")]
IfVersion = Annotated[int | None, typer.Option(help="Apply only if this is the table's schema version.")]


@takes_target()
def alter(
    target: Target,
    name: Name,
    drop_columns: Drop = None,
    rename: Rename = None,
    widen: Widen = None,
    drop_not_null: Nullable = None,
    add: Add = None,
    set_default: SetDefault = None,
    set_default_expression: SetDefaultExpression = None,
    set_merge: SetMerge = None,
    set_encoding: SetEncoding = None,
    set_compression: SetCompression = None,
    set_too_long: SetTooLong = None,
    set_comment: SetComment = None,
    set_option: SetOption = None,
    drop_range: DropRange = None,
    add_range: AddRange = None,
    split: Split = None,
    rename_to: RenameTo = None,
    if_version: IfVersion = None,
) -> None:
    """Alter a table: all steps or none, in the order of the options below (first drop, then rename, and so on).

    nyala alter homes --drop town --rename dest=to --add "price decimal(10,2) not null default 0"

    nyala alter homes --set-default city=Oslo --set-option history_max_age_seconds=86400
    """
    with target.database() as db:
        table = db.table(name)
        steps = _Steps(table.alter(), table.describe())
        steps.each(drop_columns, steps.change.drop_column)
        steps.pairs(rename, "=", "--rename old=new", steps.rename)
        steps.each(widen, steps.widen)
        steps.each(drop_not_null, steps.change.drop_not_null)
        steps.each(add, steps.add)
        steps.values(set_default, "--set-default column=value", steps.set_default)
        steps.values(set_default_expression, "--set-default-expression column=SQL", steps.set_default_expression)
        steps.values(set_merge, "--set-merge column=rule", steps.change.set_merge)
        steps.values(set_encoding, "--set-encoding column=encoding", steps.change.set_encoding)
        steps.values(set_compression, "--set-compression column=compression", steps.change.set_compression)
        steps.values(set_too_long, "--set-too-long column=error", steps.set_too_long)
        steps.values(set_comment, "--set-comment column=text", steps.set_comment)
        steps.values(set_option, "--set-option name=value", steps.set_option)
        steps.each(drop_range, steps.drop_range)
        steps.each(add_range, steps.add_range)
        steps.each([split] if split else None, steps.split)
        steps.each([rename_to] if rename_to else None, steps.change.rename)
        if not steps.count:
            raise InvalidArgumentError("give at least one step, such as --add name:type; --help lists them")
        about = steps.change.apply(if_version)
    if not target.prints_json(about):
        typer.echo(f"altered {name}: schema version {about['schema_version']}, {len(about['columns'])} columns")


class _Steps:
    """Parses the texts of options by the types of the table's columns, as the previous steps left them."""

    def __init__(self, change: TableAlteration, about: dict[str, Any]) -> None:
        self.change = change
        self.count = 0
        self._about = about
        self._kinds: dict[str, str] = {column["name"]: column["type"] for column in about["columns"]}

    def each(self, texts: Texts, step: Callable[[str], object]) -> None:
        """Take a step for each text."""
        for text in texts or []:
            step(text)
            self.count += 1

    def pairs(self, texts: Texts, mark: str, form: str, step: Callable[[str, str], object]) -> None:
        """Take a step for the texts before and after a mark."""
        self.each(texts, lambda text: step(*pair(text, mark, form)))

    def values(self, texts: Texts, form: str, step: Callable[[str, str | None], object]) -> None:
        """Take a step for a name and its new value; None for an empty value."""

        def take(text: str) -> None:
            name, found, value = text.partition("=")
            if not found:
                raise InvalidArgumentError(f"{text!r} is not of the form {form}")
            step(name, value or None)

        self.each(texts, take)

    def rename(self, old: str, new: str) -> None:
        self.change.rename_column(old, new)
        if old in self._kinds:
            self._kinds[new] = self._kinds.pop(old)

    def widen(self, text: str) -> None:
        """Widen a column: ``column=type``, or ``column:type`` as in ``--add``."""
        mark = ":" if ":" in text else "="
        self.change.widen_column(*pair(text, mark, "--widen column=type"))

    def add(self, text: str) -> None:
        """Add a column. Existing rows show its default too, unless the text has a ``read default``.

        Raises:
            InvalidArgumentError: the text is invalid, or existing rows would have nothing in the column.
        """
        column = parse_column(text)
        if not column.nullable and column.write_default is None and column.read_default is None:
            raise InvalidArgumentError(
                f"column {column.name!r} is NOT NULL: give it a default for existing and new rows, as in "
                f'--add "{column.name} {column.type} not null default V", or a read default for existing rows only'
            )
        read_default = column.write_default if column.read_default is None else column.read_default
        self.change.add_column(**{**column.model_dump(), "read_default": read_default})
        self._kinds[column.name] = column.type

    def set_default(self, name: str, text: str | None) -> None:
        if name not in self._kinds:
            raise InvalidArgumentError(f"there is no column {name!r}; known: {', '.join(self._kinds)}")
        self.change.set_default(name, None if text is None else default_of(name, text, self._kinds[name]))

    def set_default_expression(self, name: str, text: str | None) -> None:
        self.change.set_default(name, expression=text)

    def set_option(self, option: str, text: str | None) -> None:
        self.change.set_option(option, int(text) if text and text.isdigit() else text)

    def set_too_long(self, name: str, text: str | None) -> None:
        self.change.set_too_long(name, too_long_of(text) if text else None)

    def set_comment(self, name: str, text: str | None) -> None:
        self.change.set_comment(name or None, text or "")

    def add_range(self, text: str) -> None:
        self.change.add_range_partition(*ends_of(text, self._range_kinds()))

    def drop_range(self, text: str) -> None:
        self.change.drop_range_partition(*ends_of(text, self._range_kinds()))

    def split(self, text: str) -> None:
        self.change.split_partition(row_of(text, self._range_kinds() or self._of(self._about["primary_key"])))

    def _range_kinds(self) -> list[str]:
        return [kind for level in self._about["partitions"] for kind in self._of(level.get("range", []))]

    def _of(self, names: Sequence[str]) -> list[str]:
        types = {column["name"]: column["type"] for column in self._about["columns"]}
        return [types[name] for name in names]
