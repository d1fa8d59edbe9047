"""The change feed as a stream: a micro-batch has the changes of the commits between two timestamps.

An offset is ``{"timestamp": T}``: everything up to T was read. 0 comes before everything; the rows that exist then are
read at one snapshot as inserts, since no table keeps its history for ever. With a limit that takes several
micro-batches, whose offsets are ``{"timestamp": T, "below": K}``: of the rows at T, those below the encoded key K were
read (`first_rows`).

The newest offset is the table's last change, not the time: a clock advances without changes, and a query would run
empty batches for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...schemas.cells.timestamp import last_of, microseconds_of
from ...schemas.errors import SnapshotTooOldError, StoreError
from ...schemas.rows.changes import OPS, ChangeSpec
from ...schemas.rows.scan import ScanSpec
from ...schemas.table.names import BEFORE
from ..flight.scan_parts import ScanPart
from ..flight.store import FlightStore
from .backlog import Backlog
from .batch_read import columns_of, source_schema
from .first_rows import FirstRows
from .options import StreamReadOptions
from .part_batches import batches_of
from .plain_errors import plain_errors
from .types import arrow_schema, check_case, conform, projection
from .watched_columns import WatchedColumns

_log = logging.getLogger(__name__)
_START = 0
"""The timestamp before everything."""
_BELOW = "below"
Offset = dict[str, Any]


@dataclass
class StreamPart(InputPartition):
    """One Spark task of a micro-batch that reads changes."""

    part: ScanPart
    inserted_at: int | None
    """For rows that existed at this timestamp, which count as inserted then; None for changes."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table's changes for a Spark stream: plans micro-batches in one process for the whole query; ``read`` runs
    in tasks."""

    def __init__(self, schema: StructType, options: StreamReadOptions) -> None:
        """Take the schema that Spark expects.

        Raises:
            StoreError: the table lacks such columns, or cannot be reached.
        """
        there = source_schema(options)
        self._names = projection(schema, there)
        self._columns = WatchedColumns.of(there, self._names.values())
        self._schema = schema
        self._options = options
        self._backlog = Backlog(options, options.table, options.filter)
        self._first_rows = FirstRows(options)
        self._last: int | None = None

    @plain_errors
    def initialOffset(self) -> Offset:
        """Return where a query without a checkpoint begins."""
        start = self._options.starting_timestamp
        if start == "latest":
            return _offset(self._newest())
        return _offset(_START if start == "earliest" else int(start))

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the present state, whatever is written later."""
        self._last = self._newest()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch; a commit is never divided."""
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        return (
            ReadAllAvailable() if options.max_bytes_per_trigger is None else ReadMaxBytes(options.max_bytes_per_trigger)
        )

    @plain_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch: ``start`` if there is nothing new.

        Raises:
            SnapshotTooOldError: the table's history no longer reaches back to ``start``.
            ConflictError: there is something new, and the table has other columns than when the query began.
        """
        begin = start["timestamp"]
        newest = self._newest() if self._last is None else self._last
        if newest > begin or _is_first(start):
            # Asked after the newest change: none of those that are read was made with other columns.
            self._columns.check(self._options)
        if _is_first(start):
            return self._end_of_first(newest if begin == _START else begin, start.get(_BELOW), limit)
        if newest <= begin or not isinstance(limit, ReadMaxRows | ReadMaxBytes):
            return _offset(max(newest, begin))
        return _offset(self._after_loss(begin, newest, lambda since: self._limited(since, newest, limit), newest))

    @plain_errors
    def reportLatestOffset(self) -> Offset:
        """Return the newest offset, for the query's progress."""
        return _offset(self._newest())

    @plain_errors
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch; none if there is nothing between the offsets.

        Raises:
            SnapshotTooOldError: the table's history no longer reaches back to ``start``.
        """
        begin, until = start["timestamp"], end["timestamp"]
        if start == end or begin > until:
            return []
        if _is_first(start):
            rows = self._scan(as_of=until, key_lower=start.get(_BELOW), key_upper=end.get(_BELOW))
            return [StreamPart(part, until) for part in self._options.server().parts(rows).parts]
        return self._after_loss(begin, until, lambda since: self._changes(since, until), [])

    @plain_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, StreamPart)
        check_case(self._names)
        wanted = arrow_schema(self._schema)
        for batch in batches_of(self._options, partition.part):
            if partition.inserted_at is not None:
                batch = _as_inserts(batch, partition.inserted_at, self._names.values())
            yield conform(batch, wanted, self._names)

    def _newest(self) -> int:
        return self._options.all_servers().last_change(self._options.table)

    def _changes(self, since: int, until: int) -> list[InputPartition]:
        options = self._options
        feed = ChangeSpec(since=since, until=until, before=options.before_values, every=True)
        return [StreamPart(part, None) for part in options.server().parts(self._scan(changes=feed)).parts]

    def _scan(self, **what: Any) -> ScanSpec:
        options = self._options
        return ScanSpec(
            table=options.table,
            columns=columns_of(self._names.values()),
            where=options.filter,
            split_bytes=options.split_size_bytes,
            **what,
        )

    def _end_of_first(self, snapshot: int, below: str | None, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch of the rows that existed at ``snapshot``."""
        if snapshot == _START or not isinstance(limit, ReadMaxRows | ReadMaxBytes):
            return _offset(snapshot)
        rows = self._scan(as_of=snapshot)
        return _offset(snapshot, self._first_rows.end(rows, below, self._rows_of(limit, rows)))

    def _limited(self, since: int, newest: int, limit: ReadLimit) -> int:
        changes = self._scan(changes=ChangeSpec(since=since, until=newest))
        return self._backlog.end(since, newest, self._rows_of(limit, changes))

    def _rows_of(self, limit: ReadLimit, scan: ScanSpec) -> int:
        """Return the maximum number of rows in a micro-batch of a scan."""
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows
        assert isinstance(limit, ReadMaxBytes)
        parts = self._options.server().parts(scan).parts
        rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
        return max(limit.max_bytes * rows // max(size, 1), 1)

    def _after_loss(self, since: int, until: int, plan: Any, nothing: Any) -> Any:
        """Return ``plan(since)``; if that history is gone and may be, plan from the oldest one available."""
        try:
            return plan(since)
        except SnapshotTooOldError as error:
            if self._options.fail_on_data_loss:
                raise SnapshotTooOldError(
                    f"{error.message}: changes after {since} are lost; start again with a new checkpoint, or continue "
                    "without them with failOnDataLoss=false"
                ) from None
        oldest = _oldest(self._options.server(), self._options.table)
        _log.warning("changes of table %s after %d and up to %d are lost", self._options.table, since, oldest)
        return nothing if oldest >= until else plan(oldest)


class FailedReader(StreamReader):
    """The reader of a Spark stream that could not be made: raises why, whatever Spark asks first. A task tries again:
    Spark makes its reader once for all micro-batches, perhaps just when the server is away."""

    def __init__(self, error: StoreError, again: Callable[[], StreamReader]) -> None:
        self._error = error
        self._again = again

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return any: Spark may ask before it listens to errors."""
        return ReadAllAvailable()

    @plain_errors
    def initialOffset(self) -> Offset:
        """Raise the error."""
        raise self._error

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Raise the error."""
        raise self._error

    @plain_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Raise the error."""
        raise self._error

    @plain_errors
    def reportLatestOffset(self) -> Offset:
        """Raise the error."""
        raise self._error

    @plain_errors
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Raise the error."""
        raise self._error

    @plain_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises what there is to say now."""
        yield from self._again().read(partition)


def _offset(timestamp: int, below: str | None = None) -> Offset:
    return {"timestamp": timestamp} | ({} if below is None else {_BELOW: below})


def _is_first(offset: Offset) -> bool:
    """Return whether rows that existed when the stream began follow."""
    return offset["timestamp"] == _START or _BELOW in offset


def _oldest(store: FlightStore, table: str) -> int:
    """Return the oldest timestamp in the table's history that will stay available while tasks read from it."""
    kept = max((tablet.history_floor for tablet in store.table_stats(table).tablets), default=_START)
    age = store.describe_table(table).options.history_max_age_seconds
    spare = min(60.0, age / 10)
    return max(kept, last_of(microseconds_of(store.now()) - int((age - spare) * 1_000_000)))


def _as_inserts(batch: pa.RecordBatch, timestamp: int, names: Iterable[str]) -> pa.RecordBatch:
    """Return rows as inserts, with at least the columns called ``names``."""
    count = batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= {"_op": pa.repeat(OPS[0], count), "_timestamp": pa.repeat(pa.scalar(timestamp, pa.int64()), count)}
    earlier = [name for name in names if name.startswith(BEFORE)]
    before = {name: pa.nulls(count, columns[name.removeprefix(BEFORE)].type) for name in earlier}
    return pa.record_batch(columns | before)
