"""Stream: a Spark stream's query over the changes of a table, without Spark: its calls of the real data source.

A query has two processes, each with its connection: the driver's, which plans micro-batches, and the workers', whose
tasks read them, by a reader that Spark makes once. A task that fails is tried again some times; then the query fails,
and is started again from its checkpoint: the offset up to which it has read, and the end of the micro-batch that it was
at. So each change must come once, and those of a micro-batch must lie between its offsets. `Checker` compares them with
the model.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from pyspark.sql.datasource import InputPartition

from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.stream_read import Offset, StreamReader
from nyala.engine import threads
from nyala.schemas.errors import SnapshotTooOldError, StoreError
from tests.simulation.store.checks import ViolationError
from tests.simulation.store.history import History
from tests.simulation.store.plan import Actor, Step

from .flight_world import end_process, in_process
from .member import Member

_ATTEMPTS = 4
"""Of a task, as by default in Spark."""
_START_SECONDS = 3.0
"""A process of Spark may take so long to start."""
_COLUMNS = ("_op", "_timestamp", "k", "v", "n")
Row = Mapping[str, Any]


class Query:
    """A query from one start to its end: what Spark does with the data source."""

    def __init__(self, options: Mapping[str, str], processes: tuple[int, int], random: Random) -> None:
        """Start the driver. Raises StoreError."""
        self._options, self._random = options, random
        self._driver, self._worker = processes
        self._tasks: StreamReader | None = None
        with in_process(self._driver):
            source = NyalaDataSource(dict(options))
            self._schema = source.schema()
            self._reader = source.streamReader(self._schema)

    def begin(self) -> Offset:
        """Return where a query without a checkpoint begins. Raises StoreError."""
        with in_process(self._driver):
            return self._reader.initialOffset()

    def end_after(self, start: Offset) -> Offset:
        """Return the end of the next micro-batch. Raises StoreError."""
        with in_process(self._driver):
            return self._reader.latestOffset(start, self._reader.getDefaultReadLimit())

    def rows(self, start: Offset, end: Offset) -> list[Row]:
        """Return the rows of a micro-batch, as its tasks read them. Raises StoreError: one has failed too often."""
        with in_process(self._driver):
            parts = self._reader.partitions(start, end)
        return [row for part in parts for row in self._task(part)]

    def _task(self, part: InputPartition) -> list[Row]:
        with in_process(self._worker):
            if self._tasks is None:
                threads.sleep(self._random.random() * _START_SECONDS)
                self._tasks = NyalaDataSource(dict(self._options)).streamReader(self._schema)
            for _ in range(_ATTEMPTS - 1):
                with suppress(StoreError):
                    return self._read(self._tasks, part)
            return self._read(self._tasks, part)

    @staticmethod
    def _read(tasks: StreamReader, part: InputPartition) -> list[Row]:
        sent = pickle.loads(pickle.dumps(part))
        return [row for batch in tasks.read(sent) for row in batch.to_pylist()]

    def close(self) -> None:
        """End its processes."""
        end_process(self._driver)
        end_process(self._worker)


class Stream:
    """The actor of a stream: each step is a micro-batch, of the query that runs or of a new one."""

    _processes = count(1)

    def __init__(self, actor: Actor, members: Sequence[Member], history: History, random: Random) -> None:
        self._actor, self._history, self._random = actor, history, random
        self._uri = ",".join(member.location for member in members)
        self._query: Query | None = None
        self._offset: Offset | None = None
        """Up to where it has read."""
        self._end: Offset | None = None
        """Of the micro-batch that it is at."""
        self._since = 0
        """The changes begin after this moment."""
        self._first: list[Row] = []
        """The rows that were there then."""
        self._changes: list[Row] = []

    def run(self) -> None:
        """Do all steps, and write down what was read."""
        for step in self._actor.steps:
            if step.kind == "sleep":
                threads.sleep(step.given[0])
            else:
                self._try(step)
        self._stop()
        if self._offset is not None:
            self._write_down(next(step for step in self._actor.steps if step.kind == "batch"), self._offset)

    def _try(self, step: Step) -> None:
        """Read a micro-batch, if the query does not fail meanwhile."""
        if step.given[2]:
            self._stop()
        try:
            self._batch(step)
        except SnapshotTooOldError as error:
            raise ViolationError(f"{self._actor.name} has lost changes: {error.message}") from error
        except StoreError:
            self._stop()

    def _stop(self) -> None:
        if self._query is not None:
            self._query.close()
        self._query = None

    def _batch(self, step: Step) -> None:
        query = self._query
        if query is None:
            processes = next(self._processes), next(self._processes)
            try:
                query = self._query = Query(self._options(step), processes, self._random)
            finally:
                if self._query is None:
                    end_process(processes[0])
        if self._offset is None:
            self._offset = query.begin()
            self._since = self._offset["timestamp"]
        if self._end is None:
            self._end = query.end_after(self._offset)
        if self._end != self._offset:
            self._keep(query.rows(self._offset, self._end), self._offset, self._end)
        self._offset, self._end = self._end, None

    def _options(self, step: Step) -> dict[str, str]:
        start, limit, _ = step.given
        since = start if start == "earliest" else str(self._history.moments[0])
        options = {"uri": self._uri, "table": step.table, "readChangeFeed": "true", "startingTimestamp": since}
        return options if limit is None else options | {"maxRowsPerTrigger": str(limit)}

    def _keep(self, rows: list[Row], start: Offset, end: Offset) -> None:
        """Keep the rows of a micro-batch. Raises ViolationError: they are not those between its offsets."""
        is_first = start["timestamp"] == 0 or "below" in start
        after = end["timestamp"] - 1 if is_first else start["timestamp"]
        if strange := [row for row in rows if not after < row["_timestamp"] <= end["timestamp"]]:
            raise ViolationError(f"{self._actor.name} got {strange} between {start} and {end}")
        if is_first:
            self._since = end["timestamp"]
        (self._first if is_first else self._changes).extend(rows)

    def _write_down(self, step: Step, offset: Offset) -> None:
        """Write down all rows as two calls that the model answers, too."""
        history = self._history
        if offset["timestamp"] == 0 or "below" in offset:
            return  # some rows of the beginning are missing yet
        if step.given[0] == "earliest":
            call = history.begin(self._actor.name, Step("scan_at", step.table, (False,)))
            call.moment, call.answer = self._since, {row["k"]: (row["v"], row["n"]) for row in self._first}
            history.end(call)
            if len(call.answer) != len(self._first):
                raise ViolationError(f"{self._actor.name} got a row twice: {self._first}")
        call = history.begin(self._actor.name, Step("changes", step.table, (False, True)))
        call.moment, call.until = self._since, offset["timestamp"]
        call.answer = [tuple(row[name] for name in _COLUMNS) for row in self._changes]
        history.end(call)
