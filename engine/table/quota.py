"""Quota: what a table may hold at most, by live rows and by bytes (``max_rows`` and ``max_bytes``).

A write that would exceed it is refused as a whole, after its rows are decided and before anything is logged. Only what
grows counts: a batch that adds no row passes ``max_rows``, and one that only deletes passes both, so that users can
make room. Writers of batches wait for each other from the check until their rows are in the stores; so they never
exceed ``max_rows`` together. A few rows are admitted without that where the last count leaves enough room.

Rows are known exactly. Bytes are those of the files that tablets consist of, with all history, and what unflushed rows
and changes take in memory; they are counted again after so many written bytes, as flushes and compactions change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ...schemas.errors import StorageFullError
from ...schemas.table.table import TableOptions
from .. import threads
from ..record.change import ChangeKind
from ..tablet.attach import StagedRowSet
from ..tablet.tablet import Tablet
from ..tablet.tablet_change import TabletChange, check_new_rows

_COUNT_BYTES = 4 << 20
"""Bytes are counted again after so many were written."""
_PARTS = 16
"""Or after this part of ``max_bytes``, if that is less."""


class Quota:
    """The quota of one version of a table, for the tablets that are here. Thread safe."""

    def __init__(self, options: TableOptions, tablets: Sequence[Tablet]) -> None:
        self._rows_max = options.max_rows
        self._bytes_max = options.max_bytes
        self._tablets = tablets
        self._applying = threads.Lock()
        """Held by a writer of batches from the check until its rows are in the stores."""
        self._counting = threads.Lock()
        self._rows = self._bytes = 0
        """What was counted last, and all that was admitted since: deletes are not subtracted."""
        self._uncounted: int | None = None
        """Bytes that were admitted since the last count; None: a count is due."""
        self._has_guessed = False
        """Whether rows were admitted since then that may have replaced others."""

    def admits_at_once(self, size_bytes: int, rows: int = 1) -> bool:
        """Admit a few rows of some KB if nothing has to be counted for them; else nothing has happened."""
        with self._counting:
            if self._is_due(size_bytes):
                return False
            if self._excess(rows, size_bytes):
                self._uncounted = None if self._has_guessed else self._uncounted
                return False
            self._has_guessed = True
            self._add(rows, size_bytes)
            return True

    @contextmanager
    def admitted(self, table: str, rows: int, size_bytes: int) -> Iterator[None]:
        """Admit ``rows`` more rows and ``size_bytes`` more; the body applies them. ``table`` is for the error.

        Raises:
            StorageFullError: they exceed the quota.
        """
        with self._applying:
            with self._counting:
                if self._is_due(size_bytes) or self._excess(rows, size_bytes):
                    self._count()
                    if why := self._excess(rows, size_bytes):
                        raise StorageFullError(f"table {table!r} {why}")
                self._add(rows, size_bytes)
            yield

    def _is_due(self, size_bytes: int) -> bool:
        """Whether a count is due."""
        if self._uncounted is None:
            return True
        most = min(_COUNT_BYTES, (self._bytes_max or _COUNT_BYTES * _PARTS) // _PARTS)
        return self._bytes_max is not None and self._uncounted + size_bytes > most

    def _excess(self, rows: int, size_bytes: int) -> str:
        """Return what is exceeded; empty if nothing is."""
        if self._rows_max is not None and rows > 0 and self._rows + rows > self._rows_max:
            return (
                f"has {self._rows:,} rows, and with {rows:,} more it would exceed its quota of {self._rows_max:,} "
                "(max_rows): nothing was applied; delete rows, or raise the table option max_rows"
            )
        if self._bytes_max is not None and size_bytes > 0 and self._bytes + size_bytes > self._bytes_max:
            return (
                f"takes {self._bytes:,} bytes, and with {size_bytes:,} more it would exceed its quota of "
                f"{self._bytes_max:,} (max_bytes): nothing was applied; delete rows, which frees space after their "
                "history expires, or raise the table option max_bytes"
            )
        return ""

    def _add(self, rows: int, size_bytes: int) -> None:
        self._rows += max(rows, 0)
        self._bytes += size_bytes
        self._uncounted = (self._uncounted or 0) + size_bytes

    def _count(self) -> None:
        self._rows = sum(tablet.live_rows for tablet in self._tablets)
        self._bytes = sum(tablet.size_bytes for tablet in self._tablets) if self._bytes_max is not None else 0
        self._uncounted, self._has_guessed = 0, False


def quota_of(options: TableOptions, tablets: Sequence[Tablet]) -> Quota | None:
    """Return the quota that a table's options set; None if they set none."""
    return None if options.max_rows is None and options.max_bytes is None else Quota(options, tablets)


def within(
    quota: Quota | None, table: str, changes: Sequence[TabletChange], staged: Sequence[StagedRowSet] = ()
) -> AbstractContextManager[None]:
    """Admit decided changes and rowsets to a table with this quota, under the write locks of their tablets.

    Entering raises as ``Quota.admitted`` does.

    Raises:
        InvalidArgumentError: they are too many new rows for one commit.
    """
    check_new_rows(changes)
    if quota is None:
        return nullcontext()
    rows, size = sum(len(one.rowset) for one in staged), sum(one.rowset.bytes_on_disk for one in staged)
    for each in changes:
        change = each.change
        if change.kind is ChangeKind.DELETE:
            rows -= change.rows.num_rows
        else:
            rows += change.rows.num_rows if change.kind is ChangeKind.STORE else 0
            size += 0 if each.is_mark else change.rows.nbytes
    return quota.admitted(table, rows, size) if rows > 0 or size > 0 else nullcontext()
