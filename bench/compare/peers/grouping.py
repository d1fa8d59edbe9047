"""Groups for stores that only filter: pyarrow adds up what they return."""

from collections.abc import Callable

import pyarrow as pa

from ..workload import Aggregate, Filter

OURS = {"avg": "mean"}


def aggregated(asked: Aggregate, scan: Callable[[list[str], Filter], pa.Table]) -> pa.Table:
    """Read the columns that are needed and add them up on all cores."""
    named = dict.fromkeys([*asked.groups, *(column for column, _ in asked.measures.values() if column != "*")])
    rows = scan(list(named) or [asked.where[0][0]], asked.where)
    measures = [
        ([], "count_all") if column == "*" else (column, OURS.get(call, call))
        for column, call in asked.measures.values()
    ]
    return pa.TableGroupBy(rows, asked.groups).aggregate(measures)
