"""CSV and TSV files: Arrow parses them as text, which is then cast, so that a wrong cell costs only its row.

This takes as long as letting the parser convert, which rejects the whole file at its first wrong cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.csv as csv

from ....schemas import compute as pc
from ....schemas.table.column import ColumnSchema
from ...convert.text_cells import columns_of_text, without
from .file_format import ReadOptions
from .lines import Lines
from .pieces import UNSPLIT, BadRow, Piece

_BLOCK = 4 * 1024 * 1024
_SAMPLE = 16 * 1024 * 1024
"""Bytes from which types are inferred."""


def csv_schema(stream: pa.NativeFile, options: ReadOptions) -> pa.Schema:
    """Return the columns of a CSV file with the types that the first 16 MiB suggest."""
    convert = csv.ConvertOptions(**_nulls(options))
    with _opened(stream, options, convert, lambda _: "skip", _SAMPLE) as reader:
        return reader.schema


def csv_names(stream: pa.NativeFile, options: ReadOptions) -> list[str]:
    """Return the names of the columns of a CSV file."""
    with _opened(stream, options, csv.ConvertOptions(), lambda _: "skip") as reader:
        return reader.schema.names


def csv_pieces(stream: pa.NativeFile, options: ReadOptions, columns: Sequence[ColumnSchema]) -> Iterator[Piece]:
    """Yield the rows of a CSV file, in the same pieces on each read; ``columns`` are the target columns."""
    text = {column.name: pa.string() for column in columns}
    convert = csv.ConvertOptions(column_types=text, include_columns=list(text), **_nulls(options))
    maker = _PieceMaker(options, columns)
    with _opened(stream, options, convert, maker.refuse) as reader:
        for batch in reader:
            yield maker.piece(batch)
    if rest := maker.rest():
        yield rest


class _PieceMaker:
    """Turns blocks of text into pieces, and tracks the line number of each row.

    Lines with too few or too many cells are not in a block. The parser reports them before it, or blocks ahead of it.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[ColumnSchema]) -> None:
        self._columns = columns
        self._schema = pa.schema([column.field.with_nullable(True) for column in columns])
        self._heading = options.skip_lines + (1 if options.header else 0)
        self._refused: dict[int, csv.InvalidRow] = {}
        self._row = 0
        self._newlines = 0
        """Line ends within the cells so far."""

    def refuse(self, row: csv.InvalidRow) -> str:
        """Record a malformed line; called by the parser."""
        self._refused[(row.number or 1) - 1 - self._heading] = row
        return "skip"

    def piece(self, batch: pa.RecordBatch) -> Piece:
        """Return the rows of a block, with the refused lines before its last row."""
        arrays, wrong = columns_of_text(batch.columns, self._columns)
        first, end = self._row, self._row + batch.num_rows
        refused = []
        for row in sorted(self._refused):
            if row >= end:
                break
            refused.append(row)
            end += 1
        lines = self._lines(batch, refused)
        bad = self._bad(batch, wrong, refused, lines) if wrong or refused else []
        self._row = end
        self._newlines += lines.line_ends_of_all
        return Piece(without(arrays, self._schema, wrong), first, bad, lines=lines)

    def rest(self) -> Piece | None:
        """Return the refused lines after the last row, or None."""
        if not self._refused:
            return None
        text = pa.RecordBatch.from_arrays([pa.array([], pa.string()) for _ in self._columns], self._schema.names)
        none, _ = columns_of_text(text.columns, self._columns)
        refused = sorted(self._refused)
        bad = self._bad(text, {}, refused, self._lines(text, refused))
        return Piece(without(none, self._schema, {}), self._row, bad)

    def _lines(self, batch: pa.RecordBatch, refused: Sequence[int]) -> Lines:
        """Return the lines of a block's rows, and of those that were refused before its last one."""
        folded = [(row, (self._refused[row].text or "").count("\n")) for row in refused]
        return Lines(
            self._row,
            self._heading + self._row + 1 + self._newlines,
            unsplit=refused,
            folded=[each for each in folded if each[1]],
            line_ends=_newlines_by_row(batch),
        )

    def _bad(self, batch: pa.RecordBatch, wrong: dict[int, str], refused: Sequence[int], lines: Lines) -> list[BadRow]:
        """Return a block's bad rows by position; ``wrong`` counts within the batch, ``refused`` in the file."""
        places = _places(self._row, batch.num_rows, refused)
        found: dict[int, tuple[str, dict[str, str | None]]] = {}
        for position, why in wrong.items():
            cells = {name: batch.column(name)[position].as_py() for name in batch.schema.names}
            found[places[position]] = why, cells
        for row in refused:
            line = self._refused.pop(row)
            found[row] = f"{line.actual_columns} cells, not {line.expected_columns}", {UNSPLIT: line.text or ""}
        return [BadRow(row, lines.line(row), *found[row]) for row in sorted(found)]


def _places(first: int, count: int, refused: Sequence[int]) -> list[int]:
    """Return the file positions of ``count`` rows, from ``first`` on, skipping ``refused``."""
    taken = set(refused)
    return [row for row in range(first, first + count + len(refused)) if row not in taken][:count]


def _newlines(values: pa.Array) -> int:
    """Return the number of line ends within cells."""
    text = values.buffers()[2] if len(values) else None
    return text.to_pybytes().count(b"\n") if text else 0


def _newlines_by_row(batch: pa.RecordBatch) -> pa.Array | None:
    """Return the number of line ends within the cells of each row; None if there are none."""
    found: pa.Array | None = None
    for values in batch.columns:
        if _newlines(values):
            counts = pc.fill_null(pc.count_substring(values, "\n"), 0)
            found = counts if found is None else pc.add(found, counts)
    return found


def _nulls(options: ReadOptions) -> dict[str, object]:
    """An empty cell is NULL, an empty quoted cell is empty text."""
    return {
        "null_values": list(options.null_words),
        "strings_can_be_null": True,
        "quoted_strings_can_be_null": False,
    }


def _opened(
    stream: pa.NativeFile,
    options: ReadOptions,
    convert: csv.ConvertOptions,
    refuse: Callable[[csv.InvalidRow], str],
    block: int = _BLOCK,
) -> csv.CSVStreamingReader:
    names = list(options.columns)
    reading = csv.ReadOptions(
        use_threads=False,
        block_size=block,
        skip_rows=options.skip_lines + (1 if names and options.header else 0),
        column_names=names or None,
        autogenerate_column_names=not (names or options.header),
        encoding=options.charset,
    )
    parsing = csv.ParseOptions(
        delimiter=options.delimiter or ",",
        quote_char=options.quote or False,
        double_quote=bool(options.quote),
        newlines_in_values=bool(options.quote),
        invalid_row_handler=refuse,
    )
    return csv.open_csv(stream, read_options=reading, parse_options=parsing, convert_options=convert)
