"""JSON files: an object a line, or one array of objects. A wrong cell, or a malformed line, costs only its row.

Arrow reads lines in blocks. A block that Arrow rejects is read again by Python, row by row, which also accepts the
longer forms of cells (``{"base64": ...}``, ``{"float": "nan"}``); arrays are always read so.

A column that no row has is not written. If some rows have it, it is NULL in the others. So a load knows the columns of
the whole file before it reads its first piece: see ``columns_in``.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from ....schemas.table.column import ColumnSchema
from ...convert.leaves import infinities
from ...convert.text_cells import columns_of_text, columns_of_values, reader_of_floats, without
from .lines import Lines
from .pieces import UNSPLIT, BadRow, Piece

ParseFloat = Callable[[str], Any] | None

_BLOCK = 4 * 1024 * 1024
_LINE_MAX = 256 * 1024 * 1024
_ARRAY_ROWS = 16_384
"""Rows of an array that are processed at once."""
_NO_COLUMN = "no row has a column of the table"
_SPACES = re.compile(r"[ \t\r\n]*")
_ESCAPED_KEY = re.compile(rb'\\u[0-9a-fA-F]{4}[^"]*"\s*:')
"""The end of a key with an escaped character; also of text that looks so."""


def json_schema(stream: pa.NativeFile, is_array: bool) -> pa.Schema:
    """Return the columns of a JSON file with the types that the first block suggests: string for cells of several
    types."""
    if is_array:
        return _schema_of(next(_grouped(_elements(stream)), []))
    import pyarrow.json

    block = next(_blocks(stream), b"")
    if not block:
        return pa.schema([])
    try:
        return pyarrow.json.read_json(io.BytesIO(block), read_options=_one_block(block)).schema
    except pa.ArrowInvalid:
        return _schema_of([value for _, value in _parsed(block, 0)])


def _schema_of(values: Sequence[Any]) -> pa.Schema:
    rows = [value for value in values if isinstance(value, dict)]
    return pa.schema([(name, _type_of([row.get(name) for row in rows])) for name in dict.fromkeys(chain(*rows))])


def _type_of(cells: Sequence[Any]) -> pa.DataType:
    kinds = {float if type(cell) is int else type(cell) for cell in cells if cell is not None}
    try:
        return pa.array(cells).type if len(kinds) < 2 else pa.string()
    except (pa.ArrowException, OverflowError):  # numbers beyond 64 bits, lists of several types
        return pa.string()


def columns_in(stream: pa.NativeFile, columns: Mapping[str, ColumnSchema], is_array: bool) -> list[str]:
    """Return which columns of a table the rows of a JSON file have. Reads until it has seen all of the table."""
    left = set(columns)
    by_block = ([(None, each)] for each in _elements(stream)) if is_array else _naming(_blocks(stream), left)
    for _, row in chain.from_iterable(by_block):
        if isinstance(row, dict):
            left.difference_update(row)
        if not left:
            break
    return [name for name in columns if name not in left]


def _naming(blocks: Iterable[bytes], names: set[str]) -> Iterator[Iterable[tuple[int | None, Any]]]:
    """Yield the parsed lines of the blocks that have one of the ``names`` as a key, of rows or inside of cells."""
    for block in blocks:
        if _ESCAPED_KEY.search(block) or any(_is_key(name, block) for name in names):
            yield _parsed(block, 0)


def line_pieces(
    stream: pa.NativeFile,
    columns: Mapping[str, ColumnSchema],
    overlooked: Callable[[str], bool],
    names: Sequence[str] | None,
    as_json: bool,
) -> Iterator[Piece]:
    """Yield the rows of a file of JSON lines, in the same pieces on each read.

    All pieces have the columns ``names``. With None a piece has those of the rows up to its end, and tells which rows
    lack one.
    """
    seen = list(names or ())
    tells_absent = names is None
    parse_float = reader_of_floats(column.logical for column in columns.values())
    row = line = 0
    for block in _blocks(stream):
        new = [name for name in _keys(block, columns) if name not in seen] if tells_absent else []
        try:
            batch = _by_arrow(block, [columns[name] for name in (*seen, *new)], overlooked)
            batch = batch.drop_columns(_nested_alone(block, batch, new))
            if not batch.num_columns:
                raise InvalidArgumentError(_NO_COLUMN)
            seen = batch.schema.names
            absent = _absent_in(block, batch) if tells_absent else {}
            piece = Piece(batch, row, absent=absent, lines=_lines(block, batch.num_rows, row, line))
        except (pa.ArrowException, InvalidArgumentError):
            piece = _by_python(_parsed(block, line, parse_float), columns, overlooked, seen, row, tells_absent, as_json)
        yield piece
        row += piece.rows
        line += block.count(b"\n")


def array_pieces(
    stream: pa.NativeFile,
    columns: Mapping[str, ColumnSchema],
    overlooked: Callable[[str], bool],
    names: Sequence[str] | None,
    as_json: bool,
) -> Iterator[Piece]:
    """Yield the rows of a JSON file that is one array, in the same pieces on each read; ``names`` as for lines."""
    seen = list(names or ())
    tells_absent = names is None
    parse_float = reader_of_floats(column.logical for column in columns.values())
    row = 0
    for values in _grouped(_elements(stream, parse_float)):
        piece = _by_python([(None, value) for value in values], columns, overlooked, seen, row, tells_absent, as_json)
        yield piece
        row += piece.rows


def starts_an_array(stream: pa.NativeFile) -> bool:
    """Return whether a JSON file is one array: whether its first character is an opening bracket."""
    return stream.read(4096).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def _blocks(stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield the file in blocks of whole lines: no JSON value here spans lines."""
    waiting = b""
    start = codecs.BOM_UTF8
    while read := stream.read(_BLOCK):
        waiting = (waiting + read).removeprefix(start)
        start = b""
        end = waiting.rfind(b"\n") + 1
        if end:
            yield waiting[:end]
            waiting = waiting[end:]
        elif len(waiting) > _LINE_MAX:
            raise InvalidArgumentError(f"a line has more than {_LINE_MAX:,} bytes")
    if waiting.strip():
        yield waiting


def _lines(block: bytes, rows: int, first_row: int, line: int) -> Lines:
    """Return the lines of the rows of a block, before which there are ``line`` lines."""
    if rows == block.count(b"\n") + (not block.endswith(b"\n")):
        return Lines(first_row, line + 1)
    numbers = [number for number, text in enumerate(block.split(b"\n"), line + 1) if text.strip()]
    return Lines(first_row, line + 1, each=pa.array(numbers, pa.int64()))


def _keys(block: bytes, columns: Mapping[str, ColumnSchema]) -> Iterator[str]:
    """Return the columns that are keys in a block, of rows or inside of cells; within text, quotes follow a
    backslash."""
    return (name for name in columns if _is_key(name, block))


def _nested_alone(block: bytes, batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """Return which keys of a block are keys inside of cells alone: no row has such a column."""
    empty = [name for name in names if batch.column(name).null_count == batch.num_rows]
    if not empty or _is_flat(block, batch):
        return []
    there = set(chain.from_iterable(row for _, row in _parsed(block, 0)))
    return [name for name in empty if name not in there]


def _is_flat(block: bytes, batch: pa.RecordBatch) -> bool:
    """Whether no cell of a block's rows is an object."""
    return block.count(b"{") == batch.num_rows


def _is_key(name: str, block: bytes) -> bool:
    return _quoted(name) in block and re.search(_key_pattern(name), block) is not None  # the first is fast


def _key_pattern(name: str) -> bytes:
    return rb"(?<!\\)" + re.escape(_quoted(name)) + rb"\s*:"


def _quoted(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode()


def _absent_in(block: bytes, batch: pa.RecordBatch) -> dict[str, pa.BooleanArray]:
    """Return the columns that some rows of a block lack, and which do: Arrow makes NULL of these, as of ``null``."""
    names = [name for name in batch.schema.names if batch.column(name).null_count]
    if _is_flat(block, batch) and all(len(re.findall(_key_pattern(name), block)) == batch.num_rows for name in names):
        return {}
    return _absent([value for _, value in _parsed(block, 0)], names)


def _absent(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, pa.BooleanArray]:
    by_name = {name: [name not in row for row in rows] for name in names}
    return {name: pa.array(absent) for name, absent in by_name.items() if any(absent)}


def _by_arrow(block: bytes, columns: Sequence[ColumnSchema], overlooked: Callable[[str], bool]) -> pa.RecordBatch:
    """Return a block's rows; raise if Arrow finds an error or lacks a form for it."""
    import pyarrow.json

    schema = pa.schema([column.field.with_nullable(True) for column in columns])
    # Read dates and times as text: Arrow's JSON reader has no dates, and takes numbers for times. Bytes are UTF-8 text.
    if not columns:
        raise InvalidArgumentError(_NO_COLUMN)
    asked = [each.with_type(pa.string()) if _is_text(each.type) else each for each in schema]
    parsing = pyarrow.json.ParseOptions(explicit_schema=pa.schema(asked))
    table = pyarrow.json.read_json(io.BytesIO(block), read_options=_one_block(block), parse_options=parsing)
    if unknown := [name for name in table.schema.names if name not in schema.names and not overlooked(name)]:
        raise InvalidArgumentError(f"there is no column {unknown[0]!r}")
    if more := [each.name for each in asked if table.schema.field(each.name).type != each.type]:
        raise InvalidArgumentError(f"cells of {more[0]!r} have a field that the column lacks")
    batch = table.select(schema.names).combine_chunks().to_batches()[0]
    if any(map(infinities, batch.columns)):
        raise InvalidArgumentError("a number is too large")
    dates = [column for column, field in zip(columns, schema, strict=True) if _is_text(field.type)]
    made, wrong = columns_of_text([batch.column(column.name) for column in dates], dates)
    if wrong:
        raise InvalidArgumentError(next(iter(wrong.values())))
    by_name = {column.name: values for column, values in zip(dates, made, strict=True)}
    return pa.RecordBatch.from_arrays([by_name.get(name, batch.column(name)) for name in schema.names], schema=schema)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_time(kind)


def _one_block(block: bytes) -> Any:
    import pyarrow.json

    return pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(block) + 1, 1024))


def _parsed(block: bytes, line: int, parse_float: ParseFloat = None) -> Iterator[tuple[int | None, Any]]:
    """Yield each line's number and parsed value; its bytes if it is not JSON."""
    for number, text in enumerate(block.split(b"\n"), line + 1):
        if text.strip():
            try:
                yield number, json.loads(text, parse_float=parse_float)
            except ValueError:
                yield number, text


def _by_python(
    values: Iterable[tuple[int | None, Any]],
    columns: Mapping[str, ColumnSchema],
    overlooked: Callable[[str], bool],
    seen: list[str],
    first_row: int,
    tells_absent: bool,
    as_json: bool,
) -> Piece:
    """Return rows read one by one; add new columns to ``seen``."""
    good: list[tuple[int, int | None, dict[str, Any]]] = []
    bad: list[BadRow] = []
    numbers: list[int | None] = []
    for row, (line, value) in enumerate(values, first_row):
        numbers.append(line)
        if not isinstance(value, dict):
            what = "no JSON" if isinstance(value, bytes) else "not a JSON object"
            text = value.decode(errors="replace") if isinstance(value, bytes) else json.dumps(value)
            bad.append(BadRow(row, line, f"it is {what}", {UNSPLIT: text}))
        elif unknown := [name for name in value if name not in columns and not overlooked(name)]:
            known = ", ".join(list(columns)[:20])
            where = f"row {row}" if line is None else f"line {line}"
            raise InvalidArgumentError(f"{where}: the table has no column {min(unknown)!r}; it has {known}")
        elif not value.keys() & columns.keys():
            bad.append(BadRow(row, line, "it has none of the columns of the table", value))
        else:
            seen += [name for name in value if name in columns and name not in seen]
            good.append((row, line, value))
    chosen = [columns[name] for name in seen]
    arrays, wrong = columns_of_values([[value.get(name) for _, _, value in good] for name in seen], chosen, as_json)
    for position, why in wrong.items():
        row, line, value = good[position]
        bad.append(BadRow(row, line, why, value))
    schema = pa.schema([column.field.with_nullable(True) for column in chosen])
    kept = [value for position, (_, _, value) in enumerate(good) if position not in wrong] if tells_absent else []
    bad.sort(key=lambda each: each.row)
    lines = None if None in numbers else Lines(first_row, 0, each=pa.array(numbers, pa.int64()))
    return Piece(without(arrays, schema, wrong), first_row, bad, _absent(kept, seen), lines)


def _elements(stream: pa.NativeFile, parse_float: ParseFloat = None) -> Iterator[Any]:
    """Yield the elements of an array, holding one element and one block at a time."""
    source = _Text(stream, parse_float)
    if source.mark() != "[":
        raise source.broken()
    source.at += 1
    if source.mark() == "]":
        return
    while True:
        source.mark()
        yield source.value()
        mark = source.mark()
        source.at += 1
        if mark == "]":
            return
        if mark != ",":
            raise source.broken()


class _Text:
    """A file as text, of which a window is held; ``at`` is the position in it."""

    def __init__(self, stream: pa.NativeFile, parse_float: ParseFloat) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder(parse_float=parse_float)
        self._text = ""
        self.at = 0

    def mark(self) -> str:
        """Move to the next character that is not a space, and return it."""
        while True:
            self.at = _SPACES.match(self._text, self.at).end()  # pyright: ignore[reportOptionalMemberAccess]
            if self.at < len(self._text):
                return self._text[self.at]
            if not self._more():
                raise InvalidArgumentError("the JSON array does not end")

    def value(self) -> Any:
        """Return the JSON value that begins here, and move past it."""
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self.at)
            except ValueError:
                value, end = None, -1
            if 0 <= end < len(self._text):
                self.at = end
                return value
            if len(self._text) - self.at > _LINE_MAX or not self._more():
                raise self.broken()

    def broken(self) -> InvalidArgumentError:
        """Return the error for a malformed array at this position."""
        return InvalidArgumentError(f"the JSON array is malformed at {self._text[self.at : self.at + 20]!r}")

    def _more(self) -> bool:
        read = self._stream.read(_BLOCK)
        self._text, self.at = self._text[self.at :] + self._decoder.decode(read, final=not read), 0
        return bool(read)


def _grouped(values: Iterator[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
    for value in values:
        group.append(value)
        if len(group) == _ARRAY_ROWS:
            yield group
            group = []
    if group:
        yield group
