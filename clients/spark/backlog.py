"""Counts the rows that each commit of a table's backlog changed, so that a micro-batch can end when it is full."""

from __future__ import annotations

import pyarrow as pa

from ...schemas.rows.changes import ChangeSpec
from ...schemas.rows.scan import ScanSpec
from .server import ServerOptions


class Backlog:
    """The commits that a Spark stream has yet to read, with the rows that they changed: counts each commit once, over
    all micro-batches. For one thread."""

    def __init__(self, server: ServerOptions, table: str, where: str | None) -> None:
        self._server = server
        self._table = table
        self._where = where
        self._since = self._until = 0
        self._commits: list[tuple[int, int]] = []
        """(timestamp, changed rows) of the commits with ``_since`` < timestamp <= ``_until``."""

    def end(self, since: int, newest: int, rows_max: int) -> int:
        """Return the timestamp up to which the commits after ``since`` changed at most ``rows_max`` rows: at most
        ``newest``, and at least one commit.

        Raises:
            SnapshotTooOldError: the history does not reach back to ``since``.
        """
        self._count(since, newest)
        rows, end = 0, None
        for timestamp, changed in self._commits:
            if timestamp > newest:
                break
            rows += changed
            if end is not None and rows > rows_max:
                return end
            end = timestamp
        return newest

    def _count(self, since: int, newest: int) -> None:
        if not self._since <= since <= self._until:
            self._commits, self._until = [], since
        self._since = since
        self._commits = [commit for commit in self._commits if commit[0] > since]
        if newest > self._until:
            self._commits += self._counted(self._until, newest)
            self._until = newest

    def _counted(self, since: int, until: int) -> list[tuple[int, int]]:
        feed = ChangeSpec(since=since, until=until, every=True)
        spec = ScanSpec(table=self._table, columns=[], where=self._where, changes=feed)
        batches = [batch.select(["_timestamp"]) for batch in self._server.server().scan(spec).batches]
        if not batches:
            return []
        counts = pa.Table.from_batches(batches).group_by("_timestamp").aggregate([([], "count_all")])
        return sorted(zip(counts["_timestamp"].to_pylist(), counts["count_all"].to_pylist(), strict=True))
