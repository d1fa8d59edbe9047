"""The output of commands: tables on a terminal, tab-separated lines elsewhere, JSON on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import typer

from ...schemas.errors import InvalidArgumentError
from ..api.scan import Scan
from ..convert.cells import python_rows
from ..convert.zoned import zoned
from ..jobs.files.parquet_form import parquet_schema, to_parquet

SHOWN_ROWS = 100
"""How many rows a terminal shows when no limit is given; files and pipes get all."""


WriteRows = Callable[[pa.RecordBatchReader, BinaryIO], int]
"""Writes rows into a binary file; returns their number."""


class RowFormat(StrEnum):
    """The form in which a command writes rows to standard output."""

    TABLE = "table"
    """A table on a terminal; elsewhere a line of column names and tab-separated cells."""
    JSON = "json"
    CSV = "csv"


def print_json(value: Any) -> None:
    """Print the answer of a command as one JSON document."""
    typer.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> None:
    """Print rows under titles, as commands show them; the caption only on a terminal."""
    if not sys.stdout.isatty():
        for row in (titles, *rows):
            typer.echo("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles, header_style="bold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console()
    console.print(table)
    if caption:  # not the table's own caption, which would be as narrow as the table
        console.print(caption, style="dim", highlight=False, markup=False)


def row_format(as_json: bool, as_csv: bool) -> RowFormat:
    """Return the format of rows that a command's options ask for. Raises InvalidArgumentError: they ask for two."""
    if as_json and as_csv:
        raise InvalidArgumentError("give --json or --csv, not both")
    return RowFormat.JSON if as_json else RowFormat.CSV if as_csv else RowFormat.TABLE


def print_rows(scan: Scan | pa.Table, form: RowFormat, is_limited: bool = False, is_continued: bool = False) -> None:
    """Print all rows of a command's scan or table in pieces. A terminal shows the first rows, unless limited, and says
    so.

    ``is_continued``: they follow others, whose titles are printed.
    """
    if form is RowFormat.TABLE and sys.stdout.isatty():
        _show(scan, None if is_limited else SHOWN_ROWS)
        return
    reader = scan.to_reader()  # raises the scan's errors before anything is printed
    sys.stdout.flush()
    if is_continued:
        _CONTINUED[form](reader, sys.stdout.buffer)
    else:
        STREAMS[form](reader, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _show(scan: Scan | pa.Table, rows_max: int | None) -> None:
    reader = scan.to_reader()
    rows = (row for batch in reader for row in python_rows(batch))
    shown = [["NULL" if cell is None else cell for cell in row.values()] for row in islice(rows, rows_max)]
    has_more = next(rows, None) is not None
    caption = f"the first {rows_max} rows; --limit shows more, a pipe or --output FILE gets all" if has_more else ""
    print_table(reader.schema.names, shown, caption)


def write_scan(scan: Scan, path: Path) -> int:
    """Write all rows of a scan to the file that a command names, in the format of its suffix; return their number.

    Raises:
        InvalidArgumentError: the suffix names no format.
    """
    write = WRITERS.get(path.suffix)
    if write is None:
        raise InvalidArgumentError(f"{path.name}: unknown suffix; known: {', '.join(WRITERS)}")
    reader = scan.to_reader()  # raises the scan's errors before the file is touched
    with path.open("wb") as file:
        return write(reader, file)


class _Counted:
    """The batches of a reader, and the number of rows read so far."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            yield batch
            self.rows += batch.num_rows


def _write_parquet(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    import pyarrow.parquet as pq

    schema = parquet_schema(zoned(reader.schema))
    with pq.ParquetWriter(file, schema) as writer:
        return _write_all(reader, lambda batch: writer.write_batch(to_parquet(batch, schema)))


def _write_csv(reader: pa.RecordBatchReader, file: BinaryIO, has_titles: bool = True) -> int:
    import pyarrow.csv as csv

    from .rows import as_text, beyond_as_numbers, with_text

    schema = with_text(reader.schema)
    with csv.CSVWriter(file, schema, write_options=csv.WriteOptions(include_header=has_titles)) as writer:

        def write(batch: pa.RecordBatch) -> None:
            batch = as_text(batch, schema)
            readable = beyond_as_numbers(batch)
            if readable is batch:
                writer.write_batch(batch)
            else:
                csv.write_csv(readable, file, csv.WriteOptions(include_header=False))

        return _write_all(reader, write)


def _write_arrow(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    schema = zoned(reader.schema)
    with pa.ipc.new_file(file, schema) as writer:
        return _write_all(reader, lambda batch: writer.write_batch(batch.cast(schema)))


def _write_json_lines(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    from .rows import json_lines

    counted = _Counted(reader)
    file.writelines(json_lines(counted))
    return counted.rows


def _write_tab_lines(reader: pa.RecordBatchReader, file: BinaryIO, has_titles: bool = True) -> int:
    from .rows import tab_lines

    counted = _Counted(reader)
    if has_titles:
        file.write("\t".join(reader.schema.names).encode() + b"\n")
    file.writelines(tab_lines(counted))
    return counted.rows


def _write_all(reader: pa.RecordBatchReader, write: Any) -> int:
    counted = _Counted(reader)
    for batch in counted:
        write(batch)
    return counted.rows


WRITERS: Mapping[str, WriteRows] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".arrow": _write_arrow,
    ".feather": _write_arrow,
    ".jsonl": _write_json_lines,
    ".ndjson": _write_json_lines,
}
"""What writes rows into a file, by the suffix of its name."""
STREAMS: Mapping[RowFormat, WriteRows] = {
    RowFormat.TABLE: _write_tab_lines,
    RowFormat.JSON: _write_json_lines,
    RowFormat.CSV: _write_csv,
}
"""What writes rows to standard output when it is no terminal."""
_CONTINUED = {
    RowFormat.TABLE: partial(_write_tab_lines, has_titles=False),
    RowFormat.JSON: _write_json_lines,
    RowFormat.CSV: partial(_write_csv, has_titles=False),
}
