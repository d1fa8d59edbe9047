"""The ids that the store assigns to rows of a table whose primary key is not unique.

Such a table has one more key column, the last: `auto_incrementing_id`. An insert does not carry it: each of its rows
gets the next number, so that the whole key is unique. Operations that name an existing row carry it, upserts included.

An id is never assigned twice. The log holds the newest, in the stored rows or beside an attached rowset. When that part
of the log is freed, the manifest takes over (`TableEntry.last_auto_id`). So recovery need not look into files, which
lack rows that were deleted and compacted away.

Ids that an upsert brings count once it is applied: one that is rejected uses up none. An insert gets its ids before it
is locked, so an upsert with the same ids may come in between; `are_free` tells, and it gets others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from ...schemas.rows.operation import Operation
from ...schemas.table.table import TableSchema
from .. import threads
from ..record.change import Attachment, Change, ChangeKind
from ..vectors.vector import FixedVector, Vector
from .checked_batch import CheckedBatch

ID_MAX = (1 << 63) - 1
NO_IDS = np.empty(0, np.int64)


class AutoIncrement:
    """Assigns the ids of new rows of one table. Thread safe."""

    def __init__(self, schema: TableSchema, last: int) -> None:
        """Assign ids above ``last``; none if the key of the schema's table is unique."""
        self._column_id = schema.auto_incrementing.id if schema.auto_incrementing else None
        self._last = last
        self._brought = 0
        """The greatest id that rows brought along since this was made."""
        self._lock = threads.Lock()

    @property
    def last(self) -> int:
        """The newest id that was assigned, or that rows brought along; 0 for none."""
        return self._last

    def number(
        self, checked: CheckedBatch, schema: TableSchema, operation: Operation, brought: np.ndarray = NO_IDS
    ) -> CheckedBatch:
        """Return the rows of an insert with ids, none of which the same commit ``brought`` (ascending, unique); refuse
        rows of an upsert whose ids are none.

        Raises:
            InvalidArgumentError: there are no ids left.
        """
        column, place = schema.auto_incrementing, schema.key_columns - 1
        if column is None:
            return checked
        if operation.base is Operation.INSERT:
            count = checked.rows.num_rows
            first = self._take(count, brought)
            ids = pa.array(np.arange(first, first + count, dtype=np.int64))
            return checked.with_column(place, str(column.id), ids)
        if operation.base is not Operation.UPSERT:
            return checked
        ids = checked.rows.column(place).to_numpy(zero_copy_only=False)
        not_ids = ids < 1
        if not_ids.any():
            message = f"column {column.name!r} counts from 1: the store assigns the ids"
            checked = checked.without(not_ids, "INVALID_ARGUMENT", message)
        return checked

    def first_id(self, checked: CheckedBatch, schema: TableSchema, operation: Operation) -> int | None:
        """Return the least id that ``number`` has given to the rows; None if it has given none."""
        if self._column_id is None or operation.base is not Operation.INSERT or not checked.rows.num_rows:
            return None
        return int(checked.rows.column(schema.key_columns - 1).to_numpy(zero_copy_only=False)[0])

    def are_free(self, first_id: int | None) -> bool:
        """Whether no rows brought along an id from ``first_id`` on since that was given to an insert. The answer holds
        under the write locks of its tablets."""
        return first_id is None or first_id > self._brought

    def learn(self, changes: Iterable[Change], attachments: Iterable[Attachment] = ()) -> None:
        """Skip the ids that upserts bring, once they are logged; under the write locks of their tablets."""
        if self._column_id is not None:
            for change in changes:
                self.restore(change.kind, change.cells)
            for attachment in attachments:
                self.restore_attached(attachment)

    def restore(self, kind: ChangeKind, cells: Mapping[int, Vector]) -> None:
        """Learn the assigned ids from the cells of changes in the log, by column id."""
        ids = cells[self._column_id] if self._column_id is not None and kind is ChangeKind.STORE else None
        if isinstance(ids, FixedVector) and len(ids):
            self.follow(int(ids.values.max()))

    def follow(self, last: int) -> None:
        """Skip ids up to ``last``, which rows have brought along or another server may have assigned."""
        with self._lock:
            self._last = max(self._last, last)
            self._brought = max(self._brought, last)

    def restore_attached(self, attachment: Attachment) -> None:
        """Learn the assigned ids from a rowset that the log attaches."""
        self.follow(attachment.last_auto_id or 0)

    def _take(self, count: int, brought: np.ndarray) -> int:
        """Return the first of ``count`` new ids in succession, the least that are between those ``brought``."""
        with self._lock:
            taken = brought[np.searchsorted(brought, self._last, "right") :].astype(np.uint64)
            edges = np.concatenate([np.array([self._last], np.uint64), taken, np.array([ID_MAX + 1], np.uint64)])
            wide = np.flatnonzero(np.diff(edges) > count)
            if not len(wide):
                raise InvalidArgumentError(
                    f"the last id is {self._last:,}: fewer than {count:,} ids are left; upsert rows with your own ids"
                )
            first = int(edges[wide[0]]) + 1
            self._last = first + count - 1
            return first
