"""Target: the table of an import, made from its plan; building files for it needs no store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ....schemas.cells.moment import python_cell
from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.operation import Operation
from ....schemas.store.bulk import ImportPlan
from ....schemas.table.table import TableOptions
from ...table.checked_batch import CheckedBatch, check_batch
from ...table.computing import computing_of
from ...table.routed_batch import filled, keyed, without_range
from ...table.table_version import TableVersion, grouped
from ...table.tablet_change import whole_rows
from ...tablet.tablet import Tablet


@dataclass(frozen=True)
class Target:
    """The table of an import: its plan and what follows from it."""

    plan: ImportPlan

    @cached_property
    def version(self) -> TableVersion:
        """The version of the table, with empty tablets."""
        schema = self.plan.schema_
        tablets = (
            Tablet(each.id, schema, partition=each.partition, elsewhere=each.elsewhere) for each in self.plan.tablets
        )
        return TableVersion(schema, TableOptions(), tuple(tablets), self.plan.partitions)

    def by_tablet(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Check a batch as a write does and yield its rows by tablet id: whole rows, columns named by id, and how many
        of their cells were cut to the length of their column.

        Raises:
            InvalidArgumentError: the batch or one of its rows is invalid; the text names the first.
            WrongServerError: another server has the tablet of a row.
        """
        version, limits = self.version, self.plan.limits
        checked = check_batch(batch, version.schema, Operation.INSERT, limits)
        checked = filled(version, checked, Operation.INSERT, self.plan.began)
        if lacking := version.schema.required_columns(set(checked.column_ids)):
            names = ", ".join(repr(column.name) for column in lacking)
            raise InvalidArgumentError(f"the data lacks columns that are not nullable and have no default: {names}")
        checked, _ = keyed(version, checked, Operation.INSERT, limits)
        numbers, missing = version.covers(checked.rows)
        if missing is not None:
            checked = without_range(version, checked, missing)
        _check_no_refusals(checked)
        version.check_here(numbers)
        computing = computing_of(version, Operation.INSERT, None, checked.column_ids, self.plan.began, limits)
        rows = _decoded(whole_rows(version, checked.rows, checked.rows, computing))
        cuts = np.zeros(rows.num_rows, np.int16) if checked.cuts is None else checked.cuts
        if numbers is None:
            yield version.tablets[0].tablet_id, rows, int(cuts.sum())
            return
        order, groups = grouped(numbers)
        rows = rows if len(groups) == 1 else rows.take(pa.array(order))
        for number, first, last in groups:
            yield version.tablets[number].tablet_id, rows.slice(first, last - first), int(cuts[order[first:last]].sum())


def key_of(version: TableVersion, rows: pa.Table | pa.RecordBatch, row: int) -> dict[str, Any]:
    """Return the key columns of an imported row by name; ``rows`` has columns named by id."""
    return {column.name: python_cell(rows.column(str(column.id))[row]) for column in version.schema.key}


def _decoded(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without dictionaries, which a stream would carry separately."""
    arrays = [cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells for cells in rows.columns]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _check_no_refusals(checked: CheckedBatch) -> None:
    refusals = checked.refusals
    if refusals.by_row is None:
        return
    rows = np.flatnonzero(refusals.by_row)
    code, message = refusals.reasons[int(refusals.by_row[rows[0]]) - 1]
    raise InvalidArgumentError(f"{len(rows):,} rows cannot be imported: row {int(rows[0])}: {code}: {message}")
