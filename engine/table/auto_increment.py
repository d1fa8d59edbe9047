"""The ids that the store assigns to rows of a table whose primary key is not unique.

Such a table has one more key column, the last: `auto_incrementing_id`. An insert does not carry it: each of its rows
gets the next number, so that the whole key is unique. Operations that name an existing row carry it, upserts included.

An id is never assigned twice. The log holds the newest, in the stored rows or beside an attached rowset. When that part
of the log is freed, the manifest takes over (`TableEntry.last_auto_id`). So recovery need not look into files, which
lack rows that were deleted and compacted away.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.operation import Operation
from ...schemas.table import TableSchema
from ..record.change import Attachment, Change, ChangeKind
from .checked_batch import CheckedBatch

ID_MAX = (1 << 63) - 1


class AutoIncrement:
    """The ids of one table. Thread safe."""

    def __init__(self, schema: TableSchema, last: int) -> None:
        """Assign ids above ``last``; none if the key of the schema's table is unique."""
        self._column_id = schema.auto_incrementing.id if schema.auto_incrementing else None
        self._last = last
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The newest id that was assigned, or that rows brought along; 0 for none."""
        return self._last

    def number(self, checked: CheckedBatch, schema: TableSchema, operation: Operation) -> CheckedBatch:
        """Return the rows of an insert with their ids. Ids that an upsert brings are never assigned again.

        Raises:
            InvalidArgumentError: there are no ids left.
        """
        column, place = schema.auto_incrementing, schema.key_columns - 1
        if column is None:
            return checked
        if operation.base is Operation.INSERT:
            count = checked.rows.num_rows
            first = self._take(count)
            ids = pa.array(np.arange(first, first + count, dtype=np.int64))
            return checked.with_column(place, str(column.id), ids)
        if operation.base is not Operation.UPSERT:
            return checked
        ids = checked.rows.column(place).to_numpy(zero_copy_only=False)
        not_ids = ids < 1
        if not_ids.any():
            message = f"column {column.name!r} counts from 1: the store assigns the ids"
            checked = checked.without(not_ids, "INVALID_ARGUMENT", message)
        self._raise_to(int(ids.max(initial=0)))
        return checked

    def restore(self, change: Change) -> None:
        """Learn the assigned ids from a change in the log."""
        if self._column_id is not None and change.kind is ChangeKind.STORE and change.rows.num_rows:
            self._raise_to(pc.max(change.rows.column(str(self._column_id))).as_py())

    def follow(self, last: int) -> None:
        """Skip ids up to ``last``, which another server may have assigned."""
        self._raise_to(last)

    def restore_attached(self, attachment: Attachment) -> None:
        """Learn the assigned ids from a rowset that the log attaches."""
        self._raise_to(attachment.last_auto_id or 0)

    def _take(self, count: int) -> int:
        """Return the first of ``count`` new ids."""
        with self._lock:
            if count > ID_MAX - self._last:
                raise InvalidArgumentError(
                    f"the last id is {self._last:,}: fewer than {count:,} are left; upsert rows with ids of your own"
                )
            self._last += count
            return self._last - count + 1

    def _raise_to(self, known: int) -> None:
        with self._lock:
            self._last = max(self._last, known)
