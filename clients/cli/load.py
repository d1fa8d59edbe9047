"""``nyala table load``, also ``nyala load`` and ``nyala job load``: loads files into a table."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.errors import InvalidArgumentError, NotFoundError
from ...schemas.phrases import counted
from ...schemas.table.table import AUTO_INCREMENTING
from .job_options import JobOptions
from .options import AsJson, names
from .run import FINDINGS
from .target import Name, takes_target

if TYPE_CHECKING:
    from ...schemas.table.column import ColumnDefinition
    from ...schemas.table.table import TableDefinition
    from ..api.database import Database
    from ..jobs.files.file_format import ReadOptions
    from ..jobs.files.input_files import InputFile
    from ..jobs.files.load_job import LoadResult

ERRORS_SHOWN = 10

Files = Annotated[list[str], typer.Argument(help="Files, folders and URIs; - reads standard input (needs --format).")]
Op = Annotated[str, typer.Option(help="insert, upsert, update or delete, optionally with _ignore; or merge.")]
Atomic = Annotated[bool, typer.Option("--atomic", help="Load all files in one commit; any rejected row rejects it.")]
Create = Annotated[bool, typer.Option("--create", help="Create the table from the first file if it does not exist.")]
Key = Annotated[
    list[str] | None, typer.Option(help="With --create: the primary key, comma-separated columns; may be repeated.")
]
Format = Annotated[
    str | None, typer.Option(help="csv, tsv, json, jsonl, parquet or arrow.", show_default="by the suffix")
]
Delimiter = Annotated[str | None, typer.Option(help="The CSV delimiter.", show_default="a comma")]
Quote = Annotated[str, typer.Option(help="The CSV quote character; empty for none.")]
Header = Annotated[bool, typer.Option("--header/--no-header", help="Whether the first CSV line names the columns.")]
ColumnNames = Annotated[str | None, typer.Option(help="Comma-separated names that replace the CSV header's.")]
SkipLines = Annotated[int, typer.Option(min=0, help="Skip this many lines before the CSV header.")]
Nulls = Annotated[
    list[str] | None, typer.Option("--null", help="The CSV text for NULL; repeatable; replaces the defaults.")
]
Charset = Annotated[str, typer.Option(help="The CSV character set, such as latin-1.")]
RejectFile = Annotated[Path | None, typer.Option("--rejects", help="Write rejected rows to this .csv or .jsonl file.")]
Run = Annotated[str, typer.Option(help="A name of this run; a new name loads unchanged files again.")]
_DELIMITERS = re.compile(r"[;|\t]")
Again = Annotated[bool, typer.Option("--again", help="Load the files even if an earlier run loaded them.")]


@takes_target()
def load(
    job: JobOptions,
    name: Name,
    files: Files,
    op: Op = "upsert",
    atomic: Atomic = False,
    create: Create = False,
    key: Key = None,
    format: Format = None,
    delimiter: Delimiter = None,
    quote: Quote = '"',
    header: Header = True,
    columns: ColumnNames = None,
    skip_lines: SkipLines = 0,
    null: Nulls = None,
    charset: Charset = "utf-8",
    as_json: AsJson = False,
    rejects: RejectFile = None,
    run: Run = "",
    again: Again = False,
) -> None:
    """Load files into a table. A second run skips rows already loaded. Exit with 1 if any row is rejected.

    nyala load homes homes.csv --create --key id

    zcat homes.tsv.gz | nyala load homes - --format tsv --rejects refused.csv
    """
    from ..jobs.files.load_job import load as load_files

    if again and run:
        raise InvalidArgumentError("give --run or --again, not both")
    words = {} if null is None else {"null_words": tuple(null)}
    options = read_options(
        format=format,
        delimiter=delimiter,
        quote=quote,
        header=header,
        columns=tuple(names(columns or "")),
        skip_lines=skip_lines,
        charset=charset,
        as_json=as_json,
        **words,
    )
    with ExitStack() as opened:
        found = opened.enter_context(inputs(files, options))
        definition = _definition(name, key, found) if create else None
        db = opened.enter_context(_database(job, definition))
        about = _create(db, name, definition) if definition else _known(db, name)
        _check_key(db, name, key)
        if about and not job.json_output:
            typer.echo(about)
        started = time.monotonic()
        made = load_files(
            db,
            name,
            found,
            op=op,
            atomic=atomic,
            run=uuid.uuid4().hex if again else run,
            rejects=rejects,
            **job.running,
        )
    if not job.prints_json(made):
        _report(made, rejects, time.monotonic() - started)
    if made.error_count:
        raise typer.Exit(FINDINGS)


def read_options(**parts: Any) -> ReadOptions:
    r"""Return how files are read, by the options of ``nyala load``; ``\t`` means a tab."""
    from ..jobs.files.file_format import ReadOptions

    if parts["delimiter"] == "\\t":
        parts["delimiter"] = "\t"
    return ReadOptions(**parts)


@contextmanager
def inputs(places: Sequence[str], options: ReadOptions) -> Iterator[list[InputFile]]:
    """Give the files that ``nyala load`` names. Input that can be read only once is first copied to a file (in
    ``TMPDIR``).

    Raises:
        NotFoundError: a file does not exist.
        InvalidArgumentError: a file has an unknown format.
    """
    from ..jobs.files.input_files import input_files

    with tempfile.TemporaryDirectory(prefix="nyala-load-") as scratch:
        found: list[InputFile] = []
        for number, place in enumerate(places):
            if place != "-" and not _is_pipe(place):
                found += input_files(place, options)
                continue
            if options.format is None:
                raise InvalidArgumentError(f"{place}: unknown suffix; give --format")
            copy = Path(scratch) / str(number)
            with sys.stdin.buffer if place == "-" else open(place, "rb") as source, copy.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            shown = "standard input" if place == "-" else place
            found += [replace(file, name=shown) for file in input_files(copy, options)]
        yield found


def _is_pipe(place: str) -> bool:
    try:
        return not stat.S_ISREG(mode := os.stat(place).st_mode) and not stat.S_ISDIR(mode)
    except (OSError, ValueError):
        return False


def _known(db: Database, name: str) -> str:
    """Return "" if the table exists. Raises NotFoundError, which says how to create it."""
    try:
        db.table(name)
    except NotFoundError as error:
        raise NotFoundError(f"{error.message}; to create it from the file, add --create --key COLUMNS") from None
    return ""


def _definition(name: str, key: list[str] | None, files: Sequence[InputFile]) -> TableDefinition | InvalidArgumentError:
    """Return a table with the columns of the first file; what is wrong with it, if it cannot be made."""
    from .create import table_definition

    try:
        if not key:
            raise InvalidArgumentError(f"there is no table {name!r} yet: give its primary key, as in --key id")
        chosen = names(",".join(key))
        return table_definition(name, _columns_of(files[0], chosen), chosen)
    except InvalidArgumentError as error:
        return error


def _database(job: JobOptions, definition: TableDefinition | InvalidArgumentError | None) -> Database:
    """Open the database; make a new store only for a table that can be made."""
    if not isinstance(definition, InvalidArgumentError):
        return job.database(create=definition is not None)
    try:
        return job.database()
    except NotFoundError:
        raise definition from None


def _create(db: Database, name: str, definition: TableDefinition | InvalidArgumentError) -> str:
    """Create the table unless it exists; return a message about it, or ""."""
    if name in db.tables():
        return ""
    if isinstance(definition, InvalidArgumentError):
        raise definition
    made = db.create_table_as(definition)
    columns = ", ".join(f"{column['name']} {column['type']}" for column in made.describe()["columns"])
    return f"created {name}: {columns}; key {', '.join(made.primary_key)}"


def _check_key(db: Database, name: str, key: list[str] | None) -> None:
    """Check that a table has the key that is given, if one is. Raises InvalidArgumentError if it has another."""
    if not key:
        return
    whole = db.table(name).primary_key
    known = [column for column in whole if column != AUTO_INCREMENTING]
    if names(",".join(key)) not in (known, whole):
        raise InvalidArgumentError(
            f"table {name} has the key {', '.join(known)}: leave --key out, or load into another table"
        )


def _columns_of(file: InputFile, key: Sequence[str]) -> dict[str, ColumnDefinition]:
    from .create import columns_like

    schema = file.schema()
    (only, *others) = schema.names or [""]
    is_cut = file.format != "csv" or others or only in key
    if not is_cut and (mark := _DELIMITERS.search(only)):
        said = f"try --delimiter {mark[0]!r}"
        raise InvalidArgumentError(f"{file} has only one column, {only!r}: {said}")
    try:
        return columns_like(schema)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{file}: {error.message}") from None


def _report(made: LoadResult, rejects: Path | None, seconds: float) -> None:
    from ..executors.progress import cut_note

    for error in made.errors[:ERRORS_SHOWN]:
        typer.secho(f"{error.place}: {error.code}: {error.message}", fg=typer.colors.RED, err=True)
    if made.error_count > ERRORS_SHOWN:
        typer.secho(f"and {made.error_count - ERRORS_SHOWN:,} more", fg=typer.colors.RED, err=True)
    replaced = f" ({made.replaced:,} replaced another row)" if made.replaced else ""
    parts = f"{made.applied:,} applied{replaced}, {made.ignored:,} ignored, {made.error_count:,} rejected"
    if made.stale:
        parts += f", {made.stale:,} stale"
    if made.rejected:
        parts += f" ({made.rejected:,} written to {rejects})"
    if made.skipped:
        parts += f", {made.skipped:,} skipped: loaded by an earlier run (--again loads them again)"
    rate = made.rows / max(seconds, 1e-9)
    parts += cut_note(made.truncated)
    loaded = f"{counted(made.rows, 'row')} of {counted(made.files, 'file')}"
    typer.echo(f"{loaded} in {seconds:.1f} s ({rate:,.0f} a second): {parts}")
