"""The commits of a table, from its change feed and what is remembered of their writers, transactions and authors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.service import ScanStream
from ....schemas.rows.changes import BY_COMMITS, ChangeSpec
from ....schemas.rows.commits import COMMITS_MAX, COUNTS, commits_table, since_of
from ....schemas.rows.scan import ScanSpec
from ....schemas.rows.writer_name import login_of, shown
from ...commit.commit_authors import TRANSACTION, Authored
from ...commit.numbered_writes import NumberedWrites
from ...commit.transaction_memory import TransactionMemory
from ...filter.expiry import Expiry
from ...table.table import Table
from ...vectors.arrow import from_arrow
from .snapshots import Snapshots

_MARGIN_MICROSECONDS = 1_000_000
"""Leeway at the oldest end of history, which ages during the request."""


class _Counts:
    """Rows per commit, for one kind of change."""

    def __init__(self) -> None:
        self.timestamps = np.empty(0, np.int64)
        self.rows = np.empty(0, np.int64)

    def add(self, timestamps: np.ndarray) -> None:
        found, rows = np.unique(timestamps, return_counts=True)
        self.timestamps, places = np.unique(np.concatenate([self.timestamps, found]), return_inverse=True)
        self.rows = np.bincount(places, np.concatenate([self.rows, rows])).astype(np.int64)

    def at(self, timestamps: np.ndarray) -> list[int]:
        """Return the rows of each of ``timestamps``, which include all counted ones."""
        rows = np.zeros(len(timestamps), np.int64)
        rows[np.searchsorted(timestamps, self.timestamps)] = self.rows
        return rows.tolist()


def commits(
    table: Table,
    since: int | str | None,
    snapshots: Snapshots,
    scan: Callable[[Table, ScanSpec], ScanStream],
    writers: NumberedWrites,
    transaction_memory: TransactionMemory,
    authored: Callable[[], Authored],
) -> pa.Table:
    """Return the commits to a table after a moment; see ``StoreService.commits``.

    Raises:
        InvalidArgumentError: there are too many for one answer, or the moment is invalid.
        SnapshotTooOldError: the moment is before the history that the table keeps.
    """
    margin = min(_MARGIN_MICROSECONDS, table.options.history_max_age_seconds * 100_000) << 12
    now = snapshots.now(0)
    oldest = min(snapshots.ancient_history_mark(table) + margin, now)
    feed = ChangeSpec(since=since_of(since, oldest), until=max(now, since_of(since, oldest)), every=True)
    counts = {op: _Counts() for op in BY_COMMITS}
    expiry = Expiry.of(table.schema)
    columns = [expiry.column.name] if expiry else []
    for batch in scan(table, ScanSpec(table=table.name, columns=columns, changes=feed, here=True)).batches:
        ops = _done(batch, expiry) if expiry else batch["_op"]
        for op, counted in counts.items():
            counted.add(batch["_timestamp"].filter(pc.equal(ops, op)).to_numpy())
        if sum(len(counted.timestamps) for counted in counts.values()) > len(BY_COMMITS) * COMMITS_MAX:
            raise _too_many(table)
    found = np.unique(np.concatenate([counted.timestamps for counted in counts.values()]))
    if len(found) > COMMITS_MAX:
        raise _too_many(table)
    names, transactions = writers.by_timestamp(table.table_id), transaction_memory.by_timestamp()
    timestamps = found.tolist()
    writer = [names.get(timestamp) for timestamp in timestamps]
    transaction = [transactions.get(timestamp) for timestamp in timestamps]
    # The log has the names of writers and transactions, and so tells some of what the authors lack after a crash.
    origins = [
        origin or ("" if name is None else TRANSACTION, login_of(writer_name or ""), table.table_id)
        for origin, name, writer_name in zip(authored().at(found, table.table_id), transaction, writer, strict=True)
    ]
    return commits_table(
        {
            "timestamp": timestamps,
            "writer": [None if name is None else shown(name) for name in writer],
            "transaction": transaction,
            "operation": [operation or None for operation, _, _ in origins],
            "user": [user or None for _, user, _ in origins],
            **{name: counts[op].at(found) for name, op in zip(COUNTS, BY_COMMITS, strict=True)},
        }
    )


def _done(batch: pa.RecordBatch, expiry: Expiry) -> pa.Array:
    """Return the operations of changes. Rows that expired before the moment which they had were updated by a commit."""
    ends = expiry.ends(from_arrow(batch[expiry.column.name], expiry.physical))
    is_update = pa.array(
        (ends != batch["_timestamp"].to_numpy()) & (batch["_op"].to_numpy(zero_copy_only=False) == "expire")
    )
    return pc.if_else(is_update, "update", batch["_op"])


def _too_many(table: Table) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"table {table.name!r} has more than {COMMITS_MAX:,} commits since then: give a later time"
    )
