"""What commands print: tables on a terminal, tab-separated lines elsewhere, JSON where it was asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import typer

from ...schemas.errors import InvalidArgumentError
from ...schemas.literal import to_json
from ..cells import python_rows
from ..scan import Scan

SHOWN_ROWS = 100
"""How many rows of a scan are shown as a table; files and JSON have all."""


def print_json(value: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> None:
    """Print rows under titles; the caption only on a terminal."""
    if not sys.stdout.isatty():
        for row in (titles, *rows):
            typer.echo("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles, caption=caption or None, header_style="bold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def print_scan(scan: Scan) -> None:
    """Print the first rows of a scan as a table."""
    reader = scan.to_reader()
    rows = list(islice(_rows(reader), SHOWN_ROWS + 1))
    more = f"the first {SHOWN_ROWS} rows; --json or --output gives all" if len(rows) > SHOWN_ROWS else ""
    shown = [["NULL" if cell is None else cell for cell in row.values()] for row in rows[:SHOWN_ROWS]]
    print_table(reader.schema.names, shown, more)


def print_json_lines(scan: Scan) -> None:
    """Print every row as a JSON object on a line of its own."""
    for row in _rows(scan.to_reader()):
        typer.echo(_json_row(row))


def write_scan(scan: Scan, path: Path) -> int:
    """Write all rows to a file, in the format that its suffix names; return how many.

    Raises:
        InvalidArgumentError: for a suffix that names none.
    """
    write = _WRITERS.get(path.suffix)
    if write is None:
        raise InvalidArgumentError(f"{path.name}: the suffix names no format; there are {', '.join(_WRITERS)}")
    with path.open("wb") as file:
        return write(scan.to_reader(), file)


def _rows(reader: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    for batch in reader:
        yield from python_rows(batch)


def _json_row(row: dict[str, Any]) -> str:
    return json.dumps({name: to_json(value) for name, value in row.items()})


def _write_parquet(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, reader.schema) as writer:
        return _write_all(reader, writer.write_batch)


def _write_csv(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    import pyarrow.csv as csv

    with csv.CSVWriter(file, reader.schema) as writer:
        return _write_all(reader, writer.write_batch)


def _write_arrow(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    with pa.ipc.new_file(file, reader.schema) as writer:
        return _write_all(reader, writer.write_batch)


def _write_json_lines(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    count = 0
    for count, row in enumerate(_rows(reader), 1):  # noqa: B007
        file.write(_json_row(row).encode() + b"\n")
    return count


def _write_all(reader: pa.RecordBatchReader, write: Any) -> int:
    rows = 0
    for batch in reader:
        write(batch)
        rows += batch.num_rows
    return rows


_WRITERS = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".arrow": _write_arrow,
    ".feather": _write_arrow,
    ".jsonl": _write_json_lines,
    ".ndjson": _write_json_lines,
}
