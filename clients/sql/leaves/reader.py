"""Reads the tables of a query into memory, side by side: small ones first, and large ones where other tables restrict
them.

All are read to a first limit. A table that has more waits. If the tables that ended leave few keys for it, it is read
anew, where it has these keys (`reductions`); else all that wait are read to the next limit. A table that does not fit
into the memory for leaves streams, beginning with what was read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock

import pyarrow as pa

from ....schemas.errors import UnavailableError
from ....schemas.protocol.request import carried
from ..source.reading import ScanService
from .planning import Leaf, LeafTable, Need
from .reductions import Reductions
from .table_read import RowsInMemory, TableRead

_AT_ONCE = 4
"""Tables that are read at the same time; each scan has threads of its own."""
_FIRST_SHARE, _TIMES = 16, 4
"""The first limit is this part of the memory for leaves, each further one so many times the one before."""
_LARGE_SHARE = 0.375
"""A table that takes less than this part of the memory for leaves is read sooner than compared with keys."""
_FILTERED = 3
"""A filter of which no more is known leaves this part of the rows (Selinger and others, "Access Path Selection in a
Relational Database Management System", 1979)."""


class LeafReader:
    """Reads the leaves of one query into memory: its tables."""

    def __init__(
        self,
        store: ScanService,
        leaf_bytes: int,
        check: Callable[[], None],
        may_go_on: bool,
        rows: Mapping[str, pa.Table],
    ) -> None:
        """``check`` raises if the query is not wanted any more. With ``may_go_on`` the query reads each of its places
        once, so that a table may stream from where its read has come to. ``rows`` are further tables of the query."""
        self._store = store
        self._leaf_bytes = self._left = leaf_bytes
        self._lock = Lock()
        self._check = check
        self._may_go_on = may_go_on
        self._rows = [RowsInMemory(name, table) for name, table in rows.items()]

    def read(self, tables: Mapping[str, LeafTable], wanted: Mapping[str, Need]) -> dict[str, Leaf]:
        """Read what a query needs, but for tables with too many bytes. A table that it reads twice by one filter is
        read once. Raises UnavailableError if changes have too many bytes."""
        reads = _shared(tables, wanted)
        try:
            self._read_all(reads)
        except BaseException:
            for read in reads:
                read.close()
            raise
        return dict(each for read in reads for each in read.leaves(wanted))

    def _read_all(self, reads: Sequence[TableRead]) -> None:
        if len(reads) < 2 and not (reads and self._rows):
            for read in reads:
                self._go_on(read, None)
            return
        reductions = Reductions(reads, self._rows, self._is_large)
        limit: int | None = self._leaf_bytes // _FIRST_SHARE
        waiting: Sequence[TableRead] = reads
        with ThreadPoolExecutor(min(len(reads), _AT_ONCE), "nyala-sql") as pool:
            run = carried(self._go_on)
            while waiting:
                running = [pool.submit(copy_context().run, run, read, limit) for read in waiting]
                for future in running:
                    future.result()
                waiting = [read for read in waiting if not (read.is_whole or read.streams)]
                sizes = {read: read.nbytes for read in waiting}
                restricted = reductions.restrict(waiting)
                self._give_back(sum(sizes[read] for read in restricted))
                if limit is not None and not restricted:
                    limit = limit * _TIMES if limit * _TIMES < self._leaf_bytes else None

    def _is_large(self, read: TableRead) -> bool:
        """Whether a table takes much memory, as far as is known."""
        if not read.rows:
            return False
        rows = sum(split.rows for split in self._store.plan(read.spec).splits)
        rows = rows if read.where is None else rows // _FILTERED
        return rows * read.nbytes // read.rows >= self._leaf_bytes * _LARGE_SHARE

    def _go_on(self, read: TableRead, limit: int | None) -> None:
        """Read a table to its end, to a limit of bytes, or as far as there is memory."""
        while limit is None or read.nbytes < limit:
            self._check()
            batch = read.next(self._store)
            if batch is None:
                read.close()
                read.is_whole = True
                return
            if not batch.num_rows:
                continue
            read.keep(batch)
            if not self._take(batch.nbytes):
                self._stream(read)
                return

    def _stream(self, read: TableRead) -> None:
        if read.table.since is not None:
            raise UnavailableError(
                f"the changes of table {read.table.description.name!r} have more than the {self._leaf_bytes:,} "
                "bytes of sql_leaf_bytes: read a shorter time, or raise the limit"
            )
        read.streams = True
        if not (self._may_go_on and read.may_go_on):
            read.close()
            self._give_back(read.nbytes)
            read.forget()

    def _take(self, size: int) -> bool:
        with self._lock:
            self._left -= size
            return self._left >= 0

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


def _shared(tables: Mapping[str, LeafTable], wanted: Mapping[str, Need]) -> list[TableRead]:
    """Return the reads of a query: one for all places that read a table as of one time by one filter."""
    reads: list[TableRead] = []
    for name, need in wanted.items():
        table, where = tables[name], need.where
        read = next((each for each in reads if each.table == table and each.where == where), None)
        if read is None:
            read = TableRead(table, where)
            reads.append(read)
        read.also_for(name, need)
    return reads
