"""Rows as text, a column at a time: JSON lines and tab-separated lines, in pieces of bounded size.

Arrow's kernels turn cells into text, so that a million rows take about a second. Values that JSON has no form for are
written as in `schemas/cells/literal.py`: ISO text for dates and timestamps, digits in quotes for decimals, ``{"base64":
...}`` for bytes, ``{"float": "nan"}``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.literal import to_json
from ...schemas.cells.moment import DAY_MICROSECONDS, FIRST_MICROSECOND, LAST_MICROSECOND

PIECE_ROWS = 32_768
"""Rows converted to text at a time."""

_CONTROL = "[\\x00-\\x1f]"
_PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1}
"""Microseconds of a unit of timestamps. Nanoseconds cannot leave the years 1677 to 2262."""
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def json_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the rows that a command prints as JSON objects, one a line, in UTF-8."""
    for piece in _pieces(batches):
        names = [json.dumps(name, ensure_ascii=False) for name in piece.schema.names]
        starts = [f"{'{' if number == 0 else ', '}{name}: " for number, name in enumerate(names)]
        cells = [pc.fill_null(_json_text(column), "null") for column in piece.columns]
        if not cells:
            yield b"{}\n" * piece.num_rows
            continue
        parts = [part for start, cell in zip(starts, cells, strict=True) for part in (pa.scalar(start), cell)]
        yield _lines(parts, "}\n")


def tab_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the rows that a command prints as tab-separated cells, one row a line; tabs, line ends and backslashes in
    it are escaped as in C."""
    for piece in _pieces(batches):
        cells = [pc.fill_null(_tab_text(column), "NULL") for column in piece.columns]
        parts = [part for cell in cells for part in (pa.scalar("\t"), cell)][1:]
        yield _lines(parts, "\n") if parts else b"\n" * piece.num_rows


def cell_texts(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return each column of a batch that a command prints as text, as in tab-separated lines."""
    return [_tab_text(column) for column in batch.columns]


def nested_text(cells: pa.Array) -> pa.Array:
    """Return lists and structs that a command prints, as text of JSON."""
    texts = [None if cell is None else json.dumps(to_json(cell), ensure_ascii=False) for cell in cells.to_pylist()]
    return pa.array(texts, pa.string())


def beyond_as_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that a command can print: with text in the place of those columns that have moments outside the
    years 1 to 9999, which Arrow writes in no form of use: these as numbers. The same batch if there are none."""
    for place, column in enumerate(batch.columns):
        text = _moment_or(column, lambda cells: cells)
        if text is not column:
            batch = batch.set_column(place, batch.schema.names[place], text)
    return batch


def _is_json(kind: pa.DataType) -> bool:
    """Whether cells are written as JSON in text: lists, structs and maps, and intervals as a list of their numbers."""
    return pa.types.is_nested(kind) or pa.types.is_interval(kind)


def with_text(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows that a command prints, with text in place of what only JSON holds."""
    return pa.schema([field.with_type(pa.string()) if _is_json(field.type) else field for field in schema])


def as_text(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch that a command prints in the schema that ``with_text`` returned for it."""
    arrays = [nested_text(cells) if _is_json(cells.type) else cells for cells in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for first in range(0, batch.num_rows, PIECE_ROWS):
            yield batch.slice(first, PIECE_ROWS)


def _lines(parts: list[pa.Scalar | pa.Array], end: str) -> bytes:
    """Return the bytes of all lines, which are contiguous in the memory of the joined text."""
    large = [part.cast(pa.large_string()) for part in (*parts, pa.scalar(end))]
    joined = pc.binary_join_element_wise(*large, pa.scalar("", pa.large_string()))
    (_, _, text) = joined.buffers()
    return text.to_pybytes() if text else b""


def _json_text(cells: pa.Array) -> pa.Array:
    kind = cells.type
    is_ = pa.types
    if is_.is_integer(kind) or is_.is_boolean(kind):
        return cells.cast(pa.string())
    if is_.is_floating(kind):
        return _json_float(cells)
    if is_.is_string(kind):
        return _json_string(cells)
    if is_.is_binary(kind):
        return _each(cells, lambda cell: json.dumps({"base64": base64.b64encode(cell).decode()}))
    if is_.is_null(kind):
        return pa.nulls(len(cells), pa.string())
    if is_.is_duration(kind):
        return cells.cast(pa.int64()).cast(pa.string())
    if _is_json(kind):
        return nested_text(cells)
    return _moment_or(cells, lambda given: _quoted(_plain_text(given)))


def _json_string(cells: pa.Array) -> pa.Array:
    text = pc.replace_substring(cells, "\\", "\\\\")
    text = pc.replace_substring(text, '"', '\\"')
    odd = pc.match_substring_regex(text, _CONTROL)
    text = _quoted(text)
    if pc.any(odd).as_py():
        whole = _each(cells, lambda cell: json.dumps(cell, ensure_ascii=False))
        return pc.if_else(odd, whole, text)
    return text


def _json_float(cells: pa.Array) -> pa.Array:
    text = _plain_text(cells)
    finite = pc.is_finite(cells)
    if not pc.all(finite).as_py():
        return pc.if_else(finite, text, pc.binary_join_element_wise('{"float": "', text, '"}', ""))
    return text


def _tab_text(cells: pa.Array) -> pa.Array:
    if _is_json(cells.type):
        return _tab_text(nested_text(cells))
    if pa.types.is_binary(cells.type):
        return _each(cells, lambda cell: "0x" + cell.hex())
    if not pa.types.is_string(cells.type):
        return _moment_or(cells, _plain_text)
    for mark, word in {"\\": "\\\\", **_SHORT}.items():
        cells = pc.replace_substring(cells, mark, word)
    return cells


def _plain_text(cells: pa.Array) -> pa.Array:
    """Return the cells of a type other than string and binary as text: moments in ISO form, floats with a point."""
    kind = cells.type
    text = cells.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return pc.replace_substring_regex(pc.replace_substring(text, " ", "T"), r"\.0+$", "")
    if pa.types.is_floating(kind):
        whole = pc.match_substring_regex(text, "^-?[0-9]+$")
        return pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    return text


def _moment_or(cells: pa.Array, write: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the text of cells; dates and timestamps outside the years 1 to 9999, where Python's dates and common ISO
    readers end, as numbers since 1970."""
    if pa.types.is_date32(cells.type):
        numbers, unit = cells.cast(pa.int32()).cast(pa.int64()), DAY_MICROSECONDS
    elif pa.types.is_timestamp(cells.type) and cells.type.unit in _PER_UNIT:
        numbers, unit = cells.cast(pa.int64()), _PER_UNIT[cells.type.unit]
    else:
        return write(cells)
    first, last = FIRST_MICROSECOND // unit, LAST_MICROSECOND // unit
    inside = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    if pc.all(inside).as_py() is not False:
        return write(cells)
    known = pc.if_else(inside, cells, pa.scalar(None, cells.type))
    return pc.if_else(inside, write(known).cast(pa.string()), numbers.cast(pa.string()))


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _each(cells: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    """Return the text of cells that Arrow has no kernel for, each distinct value once."""
    unique = cells.dictionary_encode()
    words = [None if cell is None else write(cell) for cell in unique.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(unique.indices)
