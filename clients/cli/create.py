"""``nyala table create``: a table from columns in words, the columns of a file, or another table's description."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.cells.types import LogicalType, holder, key_type, nearest_word
from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from ...schemas.protocol.command import built
from ...schemas.table.column import ColumnDefinition
from ...schemas.table.table import TableDefinition, TableOptions
from .options import AsJson, names, pair
from .target import Name, Target, takes_target

if TYPE_CHECKING:
    import pyarrow as pa

Key = Annotated[list[str] | None, typer.Option(help="The primary key: comma-separated column names; may be repeated.")]
ColumnTexts = Annotated[
    list[str] | None,
    typer.Option("--column", help='name:type, name:type! (NOT NULL), or "name type not null ..."; repeatable.'),
]
Schema = Annotated[str | None, typer.Option(help='"id int64, city string, ..."; or @FILE to read it from a file.')]
Like = Annotated[Path | None, typer.Option(help="Infer the columns from this Parquet, Arrow, CSV or JSON file.")]
Hash = Annotated[
    list[str] | None, typer.Option("--hash", help="Hash partitions, columns:buckets, as in carrier:4; repeatable.")
]
Range = Annotated[str | None, typer.Option("--range", help="Range partitions: comma-separated key columns.")]
Splits = Annotated[list[str] | None, typer.Option("--split", help="A value that splits the ranges; repeatable.")]
Bounds = Annotated[list[str] | None, typer.Option("--bound", help="lower..upper of a range; repeatable.")]
Encodings = Annotated[list[str] | None, typer.Option("--encoding", help="column=encoding; repeatable.")]
Compressions = Annotated[list[str] | None, typer.Option("--compression", help="column=lz4 or column=zstd; repeatable.")]
Defaults = Annotated[
    list[str] | None, typer.Option("--default", help="column=value: default for new rows; repeatable.")
]
DefaultExpressions = Annotated[
    list[str] | None,
    typer.Option("--default-expression", help="column=SQL, as in seen=now(): computes the default; repeatable."),
]
Merges = Annotated[
    list[str] | None,
    typer.Option("--merge", help="column=sum, min, max, append or SQL: how merges combine values; repeatable."),
]
Comments = Annotated[
    list[str] | None, typer.Option("--comment", help="column=text, or text for the table; repeatable.")
]
Options = Annotated[list[str] | None, typer.Option("--option", help="name=value: a table option; repeatable.")]
UniqueKey = Annotated[bool, typer.Option("--unique-key/--no-unique-key", help="Whether keys are unique.")]
IfNotExists = Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the table exists.")]


@takes_target()
def create(
    target: Target,
    name: Name,
    key: Key = None,
    column: ColumnTexts = None,
    schema: Schema = None,
    like: Like = None,
    hash_levels: Hash = None,
    range_columns: Range = None,
    splits: Splits = None,
    bounds: Bounds = None,
    encoding: Encodings = None,
    compression: Compressions = None,
    default: Defaults = None,
    default_expression: DefaultExpressions = None,
    merge: Merges = None,
    comment: Comments = None,
    option: Options = None,
    as_json: AsJson = False,
    unique_key: UniqueKey = True,
    if_not_exists: IfNotExists = False,
) -> None:
    """Create a table.

    nyala create homes --key id --column id:int64 --column city:string --column "price decimal(10,2) default 0"

    nyala create homes --schema "id int64 primary key, city string encoding dictionary" --hash id:4

    nyala create homes --key id --like homes.csv --range id --split 1000000
    """
    columns, named_key = _columns(column or [], schema, like, as_json)
    chosen = names(",".join(key)) if key else named_key
    set_parts(columns, "encoding", encoding or [])
    set_parts(columns, "compression", compression or [])
    set_parts(columns, "write_default", default or [])
    set_parts(columns, "default_expression", default_expression or [])
    set_parts(columns, "merge", merge or [])
    table_comment = set_parts(columns, "comment", comment or [])
    options = dict(pair(each, "=", "--option name=value") for each in option or [])
    definition = table_definition(
        name,
        columns,
        chosen,
        unique_key=unique_key,
        if_not_exists=if_not_exists,
        partition_by=_levels(columns, hash_levels or [], range_columns, splits or [], bounds or []),
        options=built(TableOptions, "--option", **options, **({"comment": table_comment} if table_comment else {})),
    )
    with target.database(create=True) as db:
        about = db.create_table_as(definition).describe()
    if not target.prints_json(about):
        typer.echo(f"created {name} with {counted(len(about['columns']), 'column')}")


def table_definition(
    name: str, columns: dict[str, ColumnDefinition], key: Sequence[str], **more: Any
) -> TableDefinition:
    """Return the definition of a table by the options of ``nyala create``; the key columns come first and are NOT NULL.

    Raises:
        InvalidArgumentError: there is no key, or it names no column.
    """
    if not key:
        raise InvalidArgumentError("give the primary key, as in --key id")
    if unknown := [column for column in key if column not in columns]:
        known = f"the columns are {', '.join(columns)}" if columns else "give columns, as in --column id:int64"
        raise InvalidArgumentError(f"the key names column {unknown[0]!r}, which does not exist; {known}")
    ordered = [_of_key(columns[column]) for column in key]
    ordered += [column for column in columns.values() if column.name not in key]
    return TableDefinition(name=name, columns=ordered, primary_key=list(key), **more)


def _of_key(column: ColumnDefinition) -> ColumnDefinition:
    kind = key_type(LogicalType.parse(column.type))
    return column.model_copy(update={"nullable": False, "type": str(kind)})


def columns_like(schema: pa.Schema) -> dict[str, ColumnDefinition]:
    """Return the columns of a table that a command creates for a file: each with its own type, or the nearest that
    holds all of its cells.

    Raises:
        InvalidArgumentError: two columns have the same name, or no type holds the cells of some columns; the message
            names all of these.
    """
    import pyarrow as pa

    by_name: dict[str, ColumnDefinition] = {}
    misfits: list[str] = []
    for field in schema:
        # Text is for a column without a cell; decimals may have fewer digits than their type.
        is_open = pa.types.is_null(field.type) or pa.types.is_decimal(field.type)
        if is_open or holder(field.type):
            _add(by_name, ColumnDefinition(name=field.name, type=nearest_word(field.type), nullable=True))
        else:
            misfits.append(f"column {field.name!r} is {field.type}")
    if misfits:
        is_nested = any(pa.types.is_nested(field.type) for field in schema)
        advice = "add --as-json to keep lists and objects as text of JSON" if is_nested else "convert them in the file"
        raise InvalidArgumentError(
            f"a table cannot hold these columns: {'; '.join(misfits)}: {advice}, or leave them out"
        )
    return by_name


def _columns(
    texts: Sequence[str], schema: str | None, like: Path | None, as_json: bool
) -> tuple[dict[str, ColumnDefinition], list[str]]:
    """Return the columns that the options define, and the key columns that they name."""
    from .schema_text import parse_column, parse_schema

    found: dict[str, ColumnDefinition] = {}
    key: list[str] = []
    if like is not None:
        from ..jobs.files.file_format import ReadOptions
        from ..jobs.files.input_files import input_files

        found = columns_like(input_files(like, ReadOptions(as_json=as_json))[0].schema())
    if schema is not None:
        said = parse_schema(Path(schema[1:]).read_text() if schema.startswith("@") else schema)
        key = said.key
        for column in said.columns:
            _add(found, column)
    given: set[str] = set()
    for column in map(parse_column, texts):
        if column.name in given or (schema is not None and column.name in found):
            raise InvalidArgumentError(f"two columns are named {column.name!r}")
        given.add(column.name)
        found[column.name] = column  # replaces the file's column
    return found, key


def _add(found: dict[str, ColumnDefinition], column: ColumnDefinition) -> None:
    if column.name in found:
        raise InvalidArgumentError(f"two columns are named {column.name!r}")
    found[column.name] = column


def set_parts(columns: dict[str, ColumnDefinition], part: str, texts: Sequence[str]) -> str:
    """Set one attribute of columns from the texts ``column=value`` of a command's option; return the text without a
    column (a table comment)."""
    whole = ""
    for text in texts:
        name, found, value = text.partition("=")
        if part == "comment" and (not found or name not in columns):
            whole = text
            continue
        if not (found and name):
            raise InvalidArgumentError(f"{text!r} is not of the form column=value")
        if name not in columns:
            raise InvalidArgumentError(f"there is no column {name!r} among {', '.join(columns)}")
        column = columns[name]
        cell = default_of(name, value, column.type) if part == "write_default" else value
        columns[name] = column.model_copy(update={part: cell})
    return whole


def default_of(column: str, text: str, kind: str) -> Any:
    """Return the default of a column in a command's option, as ``value_of`` does. Raises InvalidArgumentError, which
    names the column."""
    try:
        return value_of(text, kind)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"the default of column {column!r}: {error.message}") from None


def value_of(text: str, kind: str) -> Any:
    """Return the JSON of the value that a text on the command line means in a column of this type."""
    from ...schemas.cells.literal import to_json
    from ..convert.text_cells import cell_of_text

    return to_json(cell_of_text(text, LogicalType.parse(kind)))


def row_of(text: str, kinds: Sequence[str]) -> list[Any] | None:
    """Return the comma-separated values of the leading columns in a command's option; None, which means no bound, for
    an empty text."""
    if not text.strip():
        return None
    words = text.split(",") if len(kinds) > 1 else [text]
    if len(words) > len(kinds):
        raise InvalidArgumentError(f"{text!r} has {len(words)} values, but there are {len(kinds)} range columns")
    return [value_of(word.strip(), kind) for word, kind in zip(words, kinds, strict=False)]


def ends_of(text: str, kinds: Sequence[str]) -> tuple[list[Any] | None, list[Any] | None]:
    """Return the two ends of a range that a command's option gives as ``lower..upper``; a missing end means no
    bound."""
    lower, found, upper = text.partition("..")
    if not found:
        raise InvalidArgumentError(f"{text!r} is not of the form lower..upper; leave out an end for no bound")
    return row_of(lower, kinds), row_of(upper, kinds)


def _levels(
    columns: dict[str, ColumnDefinition],
    hashes: Sequence[str],
    range_columns: str | None,
    splits: Sequence[str],
    bounds: Sequence[str],
) -> list[Any]:
    """Return the partition levels as JSON."""
    levels: list[Any] = []
    for text in hashes:
        given, count, seed = [*text.split(":"), "", ""][:3]
        if not (given and count.isdigit() and (seed.isdigit() or not seed)):
            raise InvalidArgumentError(f"--hash {text!r} is not of the form columns:buckets, as in carrier:4")
        levels.append({"hash": names(given), "buckets": int(count), "seed": int(seed or 0)})
    if range_columns is None:
        if splits or bounds:
            raise InvalidArgumentError("--split and --bound need --range, which names the columns")
        return levels
    chosen = names(range_columns)
    if unknown := [name for name in chosen if name not in columns]:
        raise InvalidArgumentError(f"--range: there is no column {unknown[0]!r}")
    kinds = [columns[name].type for name in chosen]
    ends = [ends_of(bound, kinds) for bound in bounds]
    levels.append(
        {
            "range": chosen,
            "bounds": [{"lower": lower, "upper": upper} for lower, upper in ends],
            "splits": [row_of(split, kinds) for split in splits],
        }
    )
    return levels
