"""Computes the rows that a statement writes, from the rows of one moment, and again for rows changed since.

An update and a delete scan the rows that ``where`` selects. A restore reads the change feed since its moment: only rows
that a commit touched can differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.literal import literal_json
from ...schemas.cells.moment import python_cell
from ...schemas.cells.timestamp import microseconds_of, parse_moment
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.phrases import perhaps
from ...schemas.protocol.service import ScanStream
from ...schemas.rows.changes import GONE, ChangeSpec
from ...schemas.rows.operation import Operation
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.statement import Statement, StatementKind
from ...schemas.table.names import BEFORE
from ..filter.expiry import Expiry
from ..table.table_version import TableVersion
from ..vectors.arrow import from_arrow
from .rows import distinct, key_ids

ScanRows = Callable[[ScanSpec], ScanStream]
Found = Iterator[tuple[Operation, pa.RecordBatch]]
_NAMED_KEYS = 10_000
"""Up to this many keys are looked up one by one; with more, all changes are read."""


class Work(Protocol):
    """One statement over one version of its table."""

    def at(self, moment: int) -> Found:
        """Yield the rows to write, computed from the rows at a moment."""
        ...

    def again(self, since: int, moment: int, changed: pa.RecordBatch) -> Found:
        """Yield the same for the keys ``changed``, all those touched by commits after ``since`` and up to
        ``moment``."""
        ...


def work_of(statement: Statement, version: TableVersion, scan: ScanRows, limits: Limits, moment: int) -> Work:
    """Return the work of a statement; ``moment`` is the timestamp whose time NOW() is.

    Raises:
        InvalidArgumentError: it sets a column that cannot be set, or uses an invalid expression.
    """
    if statement.kind is StatementKind.RESTORE:
        return _Restore(statement, version, scan, limits)
    return _Change(statement, version, scan, limits, moment)


class _Change:
    """An update or a delete of the rows that ``where`` selects."""

    def __init__(
        self, statement: Statement, version: TableVersion, scan: ScanRows, limits: Limits, moment: int
    ) -> None:
        from .expressions import expressions_of  # loads what few stores need

        schema = version.schema
        self._statement = statement
        self._scan = scan
        self._moment = moment
        self._key = [column.name for column in schema.key]
        for name in statement.set:
            _check_settable(name, version)
        self._set = expressions_of(statement.set, schema, limits, microseconds_of(moment))
        self._targets = {name: schema.by_name[name] for name in self._set}
        needed = set().union(*(each.columns for each in self._set.values()))
        self._columns = [*self._key, *(name for name in schema.by_name if name in needed and name not in self._key)]
        self._written(pa.RecordBatch.from_pylist([], schema.arrow))  # finds expressions that fail for every row

    def at(self, moment: int) -> Found:
        """See Work."""
        for rows in self._scan(self._spec(as_of=moment)).batches:
            yield self._written(rows)

    def again(self, since: int, moment: int, changed: pa.RecordBatch) -> Found:
        """See Work."""
        for rows in self._scan(self._spec(changes=ChangeSpec(since=since, until=moment))).batches:
            yield self._written(rows.filter(pc.invert(pc.is_in(rows["_op"], value_set=pa.array(GONE)))))

    def _spec(self, **moment: Any) -> ScanSpec:
        statement = self._statement
        parts = {"columns": self._columns, "where": statement.where, "here": statement.here, "now": self._moment}
        return ScanSpec(table=statement.table, **parts, **moment)

    def _written(self, rows: pa.RecordBatch) -> tuple[Operation, pa.RecordBatch]:
        keys = rows.select(self._key)
        if not self._set:
            return Operation.DELETE, keys
        from ..expression.evaluate import evaluate
        from ..expression.rows import Rows

        among = Rows.of(rows)
        cells = [evaluate(each, among, self._targets[name].logical) for name, each in self._set.items()]
        names = [*self._key, *self._set]
        return Operation.UPDATE, pa.RecordBatch.from_arrays([*keys.columns, *cells], names=names)


def _check_settable(name: str, version: TableVersion) -> None:
    column = version.schema.by_name.get(name)
    if column is None:
        known = ", ".join(each.name for each in version.schema.values[:20])
        meant = perhaps(name, version.schema.by_name)
        raise InvalidArgumentError(f"there is no column {name!r} to set{meant}; known: {known}")
    if column in version.schema.key:
        raise InvalidArgumentError(
            f"column {name!r} is part of the primary key, which cannot change: insert rows with the new keys and "
            "delete "
            "the old ones, in one transaction"
        )
    if column.immutable:
        raise InvalidArgumentError(f"column {name!r} is immutable: a row keeps the value it was inserted with")


class _Restore:
    """Restore rows to their state at an earlier moment."""

    def __init__(self, statement: Statement, version: TableVersion, scan: ScanRows, limits: Limits) -> None:
        assert statement.as_of is not None, "checked"
        self._statement = statement
        self._version = version
        self._scan = scan
        self._key = [column.name for column in version.schema.key]
        self._values = [column.name for column in version.schema.values]
        self._until = parse_moment(statement.as_of)
        self._keys_max = min(_NAMED_KEYS, limits.in_list_values)

    def at(self, moment: int) -> Found:
        """See Work."""
        if moment > self._until:
            yield from self._since(moment, None)

    def again(self, since: int, moment: int, changed: pa.RecordBatch) -> Found:
        """See Work. Rows that already have their earlier state need nothing."""
        if moment > self._until:
            yield from self._since(moment, changed)

    def _since(self, moment: int, only: pa.RecordBatch | None) -> Found:
        feed = ChangeSpec(since=self._until, until=moment, before=True)
        spec = ScanSpec(table=self._statement.table, changes=feed, here=self._statement.here)
        where, ids = None, None
        if only is not None:
            ids = key_ids(only, self._version)
            if only.num_rows <= self._keys_max:
                values = [literal_json(python_cell(cell)) for cell in only.column(self._key[0]).unique()]
                where = {"op": "in", "column": self._key[0], "values": values}
        for rows in self._scan(spec.model_copy(update={"where": where})).batches:
            mine = rows if ids is None else rows.filter(pc.is_in(key_ids(rows, self._version), value_set=ids))
            yield from self._undone(mine, moment)

    def _undone(self, rows: pa.RecordBatch, moment: int) -> Found:
        inserted, updated = (rows.filter(pc.equal(rows["_op"], op)) for op in ("insert", "update"))
        yield Operation.DELETE, inserted.select(self._key)
        ended = self._before(rows.filter(pc.is_in(rows["_op"], pa.array(GONE))), [*self._key, *self._values])
        yield Operation.UPSERT, self._living(ended, moment)
        yield from self._changed(updated)

    def _living(self, rows: pa.RecordBatch, moment: int) -> pa.RecordBatch:
        """Return the rows that would not have expired at a moment."""
        if (expiry := Expiry.of(self._version.schema)) is None:
            return rows
        cells = from_arrow(rows.column(expiry.column.name), expiry.physical)
        return rows.filter(pa.array(~expiry.are_gone(cells, moment)))

    def _before(self, rows: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
        cells = [rows.column(name if name in self._key else BEFORE + name) for name in names]
        return pa.RecordBatch.from_arrays(cells, names=names)

    def _changed(self, rows: pa.RecordBatch) -> Found:
        """Yield the columns in which any of the rows differ, for the rows that do."""
        before = self._before(rows, [*self._key, *self._values])
        differ = distinct(rows, before, self._values)
        names = [name for name, where in differ.items() if where.any()]
        if not names:
            return
        if fixed := [name for name in names if self._version.schema.by_name[name].immutable]:
            raise InvalidArgumentError(
                f"column {fixed[0]!r} is immutable, but rows were deleted since then, and inserted again with other "
                "values: delete these rows first, then restore"
            )
        chosen = pa.array(np.logical_or.reduce([differ[name] for name in names]))
        yield Operation.UPDATE, before.select([*self._key, *names]).filter(chosen)
