"""Rows on a terminal: the first of them, as a table that fits."""

from __future__ import annotations

import re
from itertools import islice

import pyarrow as pa

from ....schemas.phrases import counted
from ..output import SHOWN_ROWS
from ..rows import cell_texts

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""What would move the cursor or colour the terminal; a line end does not."""
_NARROWEST = 12
"""A column gets this much of a line, or what its longest cell needs."""
_FRAME = 3


def show_rows(reader: pa.RecordBatchReader) -> str:
    """Show the first rows of a statement on the screen of ``nyala sql``, with as many columns as fit; return in words
    how many that were."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    rows = (row for batch in reader for row in _rows(batch))
    first = list(islice(rows, SHOWN_ROWS))
    has_more = next(rows, None) is not None
    schema = reader.schema
    fitting = _fitting(schema.names, first, console.width)
    table = Table(header_style="bold")
    for field in list(schema)[:fitting]:
        justify = "right" if _is_number(field.type) else "left"
        table.add_column(Text(_clean(field.name)), justify=justify, overflow="fold")
    for row in first:
        table.add_row(*(Text("NULL", "dim") if cell is None else Text(cell) for cell in row[:fitting]))
    console.print(table)
    rest = "; --output FILE or \\o FILE gets all" if has_more or fitting < len(schema) else ""
    columns = f", {fitting} of {len(schema)} columns" if fitting < len(schema) else ""
    return f"{'the first ' if has_more else ''}{counted(len(first), 'row')}{columns}{rest}"


def say(text: str) -> None:
    """Show a remark below the rows that ``nyala sql`` shows."""
    from rich.console import Console

    Console().print(f"({text})", style="dim", highlight=False, markup=False)


def _rows(batch: pa.RecordBatch) -> list[tuple[str | None, ...]]:
    if not batch.num_columns:
        return [()] * batch.num_rows
    columns = [
        [None if cell is None else _clean(cell) for cell in texts.to_pylist()]
        for texts in (
            column if pa.types.is_string(column.type) else text
            for column, text in zip(batch.columns, cell_texts(batch), strict=True)
        )
    ]
    return list(zip(*columns, strict=True))


def _clean(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _fitting(titles: list[str], rows: list[tuple[str | None, ...]], width: int) -> int:
    """Return how many columns fit on a line, at least one."""
    taken = 1
    for place, title in enumerate(titles):
        longest = max(len(title), *(len(row[place] or "NULL") for row in rows)) if rows else len(title)
        taken += min(longest, _NARROWEST) + _FRAME
        if taken > width:
            return max(place, 1)
    return len(titles)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
