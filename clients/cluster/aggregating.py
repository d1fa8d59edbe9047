"""Aggregates over several servers: each server computes its own, and the client combines them.

A mean is computed from sums and counts, which the servers are asked for instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import comparable_type
from ...schemas.rows.aggregate import AggregateFunction

Measures = Mapping[str, tuple[str, str]]
_SUM, _COUNT = "_sum of ", "_count of "
_MERGED_BY = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}


def partial_measures(measures: Measures) -> dict[str, tuple[str, str]]:
    """Return the measures to ask each server for, from which the client combines those of an aggregate."""
    asked: dict[str, tuple[str, str]] = {}
    for name, (column, function) in measures.items():
        if function == AggregateFunction.AVG:
            asked[_SUM + name] = (column, AggregateFunction.SUM.value)
            asked[_COUNT + name] = (column, AggregateFunction.COUNT.value)
        else:
            asked[name] = (column, function)
    return asked


def merged(partials: Sequence[pa.Table], measures: Measures, group_by: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Combine the answers of all servers to the ``partial_measures`` of an aggregate into one of ``schema``."""
    together = pa.concat_tables(partials).combine_chunks()  # aligns buffers that came from the network
    for place, field in enumerate(together.schema):
        if field.name not in group_by and (kind := comparable_type(field.type)) != field.type:
            together = together.set_column(place, field.name, together[place].cast(kind))
    asked = partial_measures(measures)
    kinds = [(name, _MERGED_BY[function]) for name, (_, function) in asked.items()]
    columns = _combined(together, kinds, group_by)
    arrays = [
        _mean(columns[_SUM + field.name], columns[_COUNT + field.name])
        if _SUM + field.name in columns
        else columns[field.name]
        for field in schema
    ]
    cast = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
    return pa.table(cast, schema=schema)


def _combined(
    together: pa.Table, kinds: Sequence[tuple[str, str]], group_by: Sequence[str]
) -> dict[str, pa.ChunkedArray]:
    """Return the groups, and the partial measures combined by these functions of Arrow.

    Arrow names its results after the columns, which have numbers here: else a group could have the name of a result.
    """
    names = [*group_by, *(name for name, _ in kinds)]
    numbered = together.select(names).rename_columns([str(place) for place in range(len(names))])
    groups, first = [str(place) for place in range(len(group_by))], len(group_by)
    asked = [(str(place), kind) for place, (_, kind) in enumerate(kinds, start=first)]
    found = numbered.group_by(groups, use_threads=False).aggregate(asked)
    measures = {name: found[f"{place}_{kind}"] for place, (name, kind) in enumerate(kinds, start=first)}
    return measures | {name: found[place] for name, place in zip(group_by, groups, strict=True)}


def _mean(total: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(total.cast(pa.float64()), count.cast(pa.float64()))
