"""SqlEngine: runs the SQL queries of one store, by DataFusion, at one snapshot a statement."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, Queue
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, SessionContext

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.errors import InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ...schemas.phrases import perhaps
from ...schemas.protocol.request import check
from ...schemas.protocol.service import ScanStream, StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.description import ScanPlan, TableDescription
from .explaining import explained
from .failures import failure
from .fences import FUNCTIONS, QUERIES_ONLY, Fences, SqlLimits
from .information import described, information, shown
from .leaves import Leaf, LeafReader, LeafTable, Need, needs, reads_only, register
from .result import Result
from .statement import Kind, Statement, TableUse, statement

_PLANS_MAX = 128

Parameters = Sequence[Any] | Mapping[str, Any] | None


class SqlEngine:
    """Runs SQL over the tables of a store: in this process, behind Arrow Flight, or with a caller's grants. Thread
    safe."""

    def __init__(self, store: StoreService, limits: SqlLimits | None = None) -> None:
        self._store = store
        self._limits = limits or SqlLimits()
        self._partitions = self._limits.partitions or len(os.sched_getaffinity(0))
        self._fences = Fences(self._limits, self._partitions)
        self._plans = _Plans()

    def query(
        self, text: str, params: Parameters = None, as_of: Moment | None = None, timeout: float | None = None
    ) -> Result:
        """Run one statement that changes nothing; its rows come as the result is read.

        Raises:
            InvalidArgumentError: the statement, its parameters or the moment is invalid.
            NotFoundError: it names a table that does not exist, or that the caller may not see.
            SnapshotTooOldError: a table does not keep its history that long.
            UnavailableError: it takes longer than ``timeout`` seconds, or more memory than there is.
        """
        query = statement(text)
        if query.kind is Kind.SHOW:
            return _whole(shown(self._store, query.tree))
        if query.kind is Kind.DESCRIBE:
            return _whole(described(self._described(query.tree.this.name)))
        if query.kind in (Kind.CHANGE, Kind.TRANSACTION):
            raise InvalidArgumentError(
                "only queries run by SQL: change rows with Table.insert, update_where, delete_where and transactions"
            )
        return _Running(self, query, params, as_of, _Deadline(timeout)).result()

    def _described(self, name: str) -> TableDescription:
        try:
            return self._store.describe_table(name)
        except NotFoundError:
            names = self._store.tables()
            exact = next((each for each in names if each.lower() == name.lower()), None)
            hint = f': write "{exact}", with its quotes' if exact else perhaps(name, names)
            raise NotFoundError(f"there is no table {name!r}{hint}") from None


class _QueryPlan:
    """What a query needs of its tables, as DataFusion planned it once."""

    def __init__(self, wanted: dict[str, Need]) -> None:
        self.wanted = wanted
        self.is_checked = False
        """Whether the query, planned over its rows, read no column besides."""


class _Plans:
    """The plans of recent queries without parameters, as long as their tables are not altered. Thread safe."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Any, _QueryPlan] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: Any) -> _QueryPlan | None:
        """Return the plan of a query; None if there is none."""
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
            return plan

    def keep(self, key: Any, plan: _QueryPlan) -> None:
        """Keep a plan for the next time."""
        with self._lock:
            self._plans[key] = plan
            if len(self._plans) > _PLANS_MAX:
                self._plans.popitem(last=False)


class _Deadline:
    """When a statement must have ended."""

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise InvalidArgumentError(f"timeout must be above 0 seconds, not {seconds!r}")
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """The seconds that are left."""
        return None if self._end is None else self._end - time.monotonic()

    def check(self) -> None:
        """Raise UnavailableError if the statement has taken too long, or its caller is gone."""
        check()
        if (left := self.left) is not None and left <= 0:
            raise self.passed()

    def passed(self) -> UnavailableError:
        """Return the error of a statement that takes too long."""
        return UnavailableError(f"the statement takes longer than its timeout of {self.seconds:g} s")


class _Running:
    """One statement that runs."""

    def __init__(
        self, engine: SqlEngine, query: Statement, params: Parameters, as_of: Moment | None, deadline: _Deadline
    ) -> None:
        self._engine = engine
        self._query = query
        self._deadline = deadline
        self._values = query.bound(params)
        self._store = _Noting(engine._store, self._note)
        self._noted: StoreError | None = None
        self._snapshot = self._read_at(as_of)
        self._tables = {use.name: table for use in query.uses if (table := self._table(use)) is not None}

    def result(self) -> Result:
        """Read the tables, and return the rows that DataFusion makes of them."""
        engine, plan = self._engine, self._plan()
        reads = plan.wanted
        reader = LeafReader(engine._store, engine._limits.leaf_bytes, self._deadline.check)
        if self._query.kind is Kind.EXPLAIN and not self._query.analyze:
            lines = self._failing(lambda: str(self._planning.execution_plan().display_indent()))
            return _whole(explained(self._store, self._tables, reads, None, lines))
        leaves = reader.read(self._tables, reads)
        frame = self._failing(lambda: self._planned(plan, leaves))
        if self._query.kind is Kind.EXPLAIN:
            rows = sum(batch.num_rows for batch in self._batches(frame))
            lines = str(frame.execution_plan().display_indent())
            return _whole(explained(self._store, self._tables, reads, leaves, lines, rows))
        schema = plain_schema(self._failing(frame.schema))
        return Result(schema, self._in_time(_plain(self._batches(frame), schema)), self._snapshot)

    def _plan(self) -> _QueryPlan:
        versions = [
            (name, table.description.table_id, table.description.schema_version) for name, table in self._tables.items()
        ]
        may_keep = self._query.kind is Kind.QUERY and not self._values and not self._query.information
        key = (self._query.text, *versions) if may_keep else None
        if key is not None and (plan := self._engine._plans.of(key)) is not None:
            return plan
        plan = _QueryPlan(self._failing(lambda: needs(self._session(), self._tables, self._frame_in)))
        if key is not None:
            self._engine._plans.keep(key, plan)
        return plan

    def _session(self) -> SessionContext:
        self._session_now = session = self._engine._fences.session()
        for name, batch in information(self._engine._store, self._query.information).items():
            register_information(session, name, batch)
        return session

    def _frame_in(self) -> DataFrame:
        session = self._session_now
        if self._values:
            self._planning = session.sql(self._query.text, options=QUERIES_ONLY, param_values=self._values)
        else:
            self._planning = session.sql_with_options(self._query.text, QUERIES_ONLY)
        return self._planning

    def _planned(self, plan: _QueryPlan, leaves: dict[str, Leaf]) -> DataFrame:
        """Plan the query over the rows that were read."""
        session = self._session()
        for name, table in self._tables.items():
            register(session, self._store, name, table, leaves.get(name), self._engine._partitions)
        frame = self._frame_in()
        if plan.is_checked or reads_only(frame, leaves):
            plan.is_checked = True
            return frame
        for leaf in leaves.values():  # the plan differs from the first one: let the tables stream
            leaf.batches = None
        return self._planned(plan, leaves)

    def _batches(self, frame: DataFrame) -> Iterator[pa.RecordBatch]:
        stream = iter(frame.execute_stream())
        while (batch := self._failing(lambda: next(stream, None))) is not None:
            self._deadline.check()
            yield batch.to_pyarrow()

    def _in_time(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches if self._deadline.seconds is None else _within(self._deadline, batches)

    def _read_at(self, as_of: Moment | None) -> int | None:
        if as_of is not None:
            return read_moment(as_of)
        return self._engine._store.now() if self._query.uses else None

    def _table(self, use: TableUse) -> LeafTable | None:
        try:
            description = self._engine._described(use.table)
        except NotFoundError:
            if use.table in self._query.shadows:
                return None
            raise
        moments, now = use.moments, self._snapshot
        assert now is not None, "a query that reads a table has a snapshot"
        if moments is None:
            return LeafTable(description, now)
        first = moments.since(self._values)
        if not moments.changes:
            return LeafTable(description, first)
        last = moments.until(self._values)
        return LeafTable(description, now if last is None else last, first)

    def _note(self, error: StoreError) -> None:
        self._noted = self._noted or error

    def _failing(self, work: Callable[[], Any]) -> Any:
        """Do a part of the work. Raises what the store raised meanwhile, or DataFusion's error in plain words."""
        try:
            return work()
        except StoreError:
            raise
        except Exception as error:
            if self._noted is not None:
                raise self._noted from None
            columns = [name for table in self._tables.values() for name in table.schema.names]
            raise failure(error, columns, FUNCTIONS, self._engine._limits.memory_bytes) from None


class _Noting:
    """A store whose errors are noted, since DataFusion makes text of them."""

    def __init__(self, store: StoreService, note: Callable[[StoreError], None]) -> None:
        self._store = store
        self._note = note

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        return self._noting(lambda: self._store.plan(spec))

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        stream = self._noting(lambda: self._store.scan(spec))
        return replace(stream, batches=self._batches(stream))

    def _batches(self, stream: ScanStream) -> Iterator[pa.RecordBatch]:
        try:
            yield from stream.batches
        except StoreError as error:
            self._note(error)
            raise
        finally:
            stream.close()

    def _noting(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except StoreError as error:
            self._note(error)
            raise


def _within(deadline: _Deadline, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches until a deadline. What makes them goes on in a thread of its own: nothing ends a join."""
    queue: Queue[pa.RecordBatch | BaseException | None] = Queue(1)
    is_left = threading.Event()

    def make() -> None:
        try:
            for batch in batches:
                queue.put(batch)
                if is_left.is_set():
                    return
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    threading.Thread(target=make, name="nyala-sql", daemon=True).start()
    try:
        while True:
            try:
                batch = queue.get(timeout=max(deadline.left or 0.0, 0.0))
            except Empty:
                raise deadline.passed() from None
            if batch is None:
                return
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        is_left.set()
        with suppress(Empty):
            queue.get_nowait()  # a full queue would hold the thread for ever


def _whole(table: pa.Table) -> Result:
    return Result(table.schema, iter(table.to_batches()), None)


def register_information(session: SessionContext, name: str, batch: pa.RecordBatch) -> None:
    """Give a session a table of ``information_schema``."""
    from datafusion.catalog import Schema, Table

    catalog = session.catalog("nyala")
    if "information_schema" not in catalog.schema_names():
        catalog.register_schema("information_schema", Schema.memory_schema())
    catalog.schema("information_schema").register_table(name, Table(session.from_arrow(batch)))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without views, which older readers of Arrow do not know."""
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    return kind


def _plain(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [
            column.cast(kind) if column.type != kind else column
            for column, kind in zip(batch.columns, schema.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch
