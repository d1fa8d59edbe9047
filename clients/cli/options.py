"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...schemas.cells.timestamp import read_moment
from ...schemas.errors import InvalidArgumentError

Runs = Annotated[str, typer.Option("--executor", envvar="NYALA_EXECUTOR", help="local (threads) or spark.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of concurrent tasks.", show_default="from the CPU count")
]
AsOf = Annotated[
    str | None, typer.Option(help="A timestamp, ISO time with zone, or an age such as 2h.", show_default="now")
]
Columns = Annotated[str | None, typer.Option(help="Comma-separated column names.", show_default="all")]
WhereText = Annotated[str | None, typer.Option("--where", help="An SQL condition.")]
Limit = Annotated[int | None, typer.Option(min=0, help="Maximum number of rows.")]
Output = Annotated[Path | None, typer.Option(help="Write to a file: .parquet .csv .arrow .jsonl")]
AsJson = Annotated[bool, typer.Option("--as-json", help="Keep lists and objects as text of JSON.")]
JsonRows = Annotated[bool, typer.Option("--json", help="Print all rows as JSON lines.")]
CsvRows = Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")]


def names(text: str) -> list[str]:
    """Return the names in a command's option that is a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def moment(text: str | None) -> int | None:
    """Return the timestamp of a moment given on the command line; ``2h`` means two hours ago."""
    if not text:
        return None
    return read_moment(int(text) if text.isdigit() else text, "the time")


def pair(text: str, mark: str, form: str) -> tuple[str, str]:
    """Return the texts of a command's option before and after the first ``mark``.

    Raises:
        InvalidArgumentError: one of them is missing; the message shows the ``form``.
    """
    left, found, right = text.partition(mark)
    if not (left and found and right):
        raise InvalidArgumentError(f"{text!r} is not of the form {form}")
    return left, right
