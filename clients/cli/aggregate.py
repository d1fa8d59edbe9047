"""``nyala aggregate``: measures of rows, which the store computes."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from ...schemas.errors import InvalidArgumentError
from .options import AsOf, CsvRows, JsonRows, WhereText, moment, names
from .target import Data, Name, ReadOnly, StoreName, Url, database

_MEASURE = re.compile(r"\s*(count|sum|min|max|avg)\s*\(\s*(.+?)\s*\)\s*", re.IGNORECASE)

Measures = Annotated[
    list[str],
    typer.Argument(metavar="MEASURE...", help="count, count(column), sum(column), min, max or avg; name=sum(column)."),
]


def aggregate(
    context: typer.Context,
    name: Name,
    measures: Measures,
    group_by: Annotated[
        str | None, typer.Option(help="Comma-separated columns: one row for each group.", show_default="one row")
    ] = None,
    where: WhereText = None,
    as_of: AsOf = None,
    url: Url = None,
    data: Data = None,
    store: StoreName = None,
    read_only: ReadOnly = False,
    json_output: JsonRows = False,
    csv_output: CsvRows = False,
) -> None:
    """Print measures of a table's rows, as a whole or for each group, sorted by the groups.

    nyala aggregate homes count "mean=avg(price)" --group-by city
    """
    from .output import print_rows, row_format

    form = row_format(json_output, csv_output)
    groups = names(group_by) if group_by else []
    with database(context, url, data, store, read_only=read_only) as db:
        scan = db.table(name).scan(where=where, as_of=moment(as_of))
        result = scan.aggregate(_measures(measures), groups)
    if groups:
        result = result.sort_by([(column, "ascending") for column in groups])
    print_rows(result, form)


def _measures(texts: list[str]) -> dict[str, tuple[str, str]]:
    parsed: dict[str, tuple[str, str]] = {}
    for text in texts:
        before, equals, after = text.partition("=")
        label, measure = (before.strip(), after.strip()) if equals else (text.strip(), text.strip())
        if label in parsed:
            raise InvalidArgumentError(f"{label!r} is given twice; give each measure a different name, as in n=count")
        parsed[label] = _measure(measure)
    return parsed


def _measure(text: str) -> tuple[str, str]:
    if text.lower() == "count":
        return "*", "count"
    match = _MEASURE.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(
            f"{text!r} is not a measure: give count for all rows, or count, sum, min, max or avg with a column, as in "
            "sum(price)"
        )
    return match[2], match[1].lower()
