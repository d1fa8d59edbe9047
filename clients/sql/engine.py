"""SqlEngine: runs the SQL queries of one store, by DataFusion, at one snapshot a statement."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from datafusion import DataFrame, SessionContext
from sqlglot import exp

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from ...schemas.phrases import perhaps
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from .answers import answer_schema, plain, plain_schema
from .change.changes import Changes
from .change.conflicts import TURNS, Turns
from .change.many import of_all_rows
from .change.parameters import with_values
from .deadline import Deadline, within
from .exact_moments import exact_moments
from .exact_numbers import exact_numbers
from .exact_parts import exact_parts
from .explaining import explained
from .failures import failure
from .fences import QUERIES_ONLY, Fences, SqlLimits
from .functions import FUNCTIONS
from .information import described, information, shown
from .integers import integer_columns
from .leaves.planning import Leaf, LeafTable, needs, plan_lines, reads_only, register, register_rows, unread
from .leaves.reader import LeafReader
from .merged_columns import merged_columns
from .moment_texts import moment_texts
from .noting import NotingStore
from .order_names import with_order_names, with_repeated_stars
from .overflow import checked
from .parameters import parameter_types
from .plans import QueryPlan, QueryPlans
from .result import Result, changed
from .statement import Kind, Statement, TableUse, parsed, statement
from .text.exact_lists import exact_lists
from .text.exact_spans import exact_spans
from .text.list_names import with_named_lists
from .text.names import quoted
from .text.pages import with_whole_pages
from .text.right_joins import REDUCTION
from .text.same_names import OwnNames, refuses_same_names, with_own_names
from .text.written import WrittenSql
from .whole_numbers import whole_numbers

_LIST_SHARE = 16
"""A list that runs before its query may have this part of the memory for tables."""
_AT_ONCE_BYTES = 64 << 10
"""An answer with more bytes is not kept when a statement is only described."""

Parameters = Sequence[Any] | Mapping[str, Any] | None


class SqlEngine:
    """Runs SQL over the tables of a store: in this process, behind Arrow Flight, or with a caller's grants. Thread
    safe."""

    def __init__(self, store: StoreService, limits: SqlLimits | None = None, turns: Turns = TURNS) -> None:
        """``turns`` are those of all that change the tables of the store by SQL."""
        self._turns = turns
        self.store = self._store = store
        """What statements read and change."""
        self._limits = limits or SqlLimits()
        self._partitions = self._limits.partitions or len(os.sched_getaffinity(0))
        self._fences = Fences(self._limits, self._partitions)
        self._plans = QueryPlans()

    def query(
        self, text: str, params: Parameters = None, as_of: Moment | None = None, timeout: float | None = None
    ) -> Result:
        """Run one statement. The rows of a query come as the result is read; a change is one commit, which is done.

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
        if query.kind is Kind.TRANSACTION:
            raise InvalidArgumentError(
                f"{text.split()[0].upper()} needs a session: open one by Database.sql_session(), or use the "
                "transactions of your driver"
            )
        values, deadline = query.bound(params), Deadline(timeout)
        if query.kind is Kind.CHANGE:
            if as_of is not None:
                raise InvalidArgumentError(
                    "a statement that changes rows takes no as_of: it always changes the rows of now"
                )
            return changed(self._changes(deadline).run(with_values(query.tree, values)))
        if query.kind is Kind.QUERY and query.one_table is not None:
            at = None if as_of is None else read_moment(as_of)
            planned = query.one_table.planned(self._described(query.one_table.table), values, at)
            if planned is not None and (result := planned.run(self._store, deadline.check)) is not None:
                return result
        return _Running(self, query, values, as_of, deadline).result()

    def insert_all(self, text: str, parameters: pa.Table) -> Result | None:
        """Run an INSERT of VALUES for all rows of its parameters, as one statement. None: the statement is another
        one. Raises as ``query``."""
        insert = of_all_rows(statement(text).tree, parameters)
        if insert is None:
            return None
        tree, tables = insert
        return changed(self._changes(Deadline(None), tables).run(tree))

    def _changes(self, deadline: Deadline, tables: Mapping[str, pa.Table] | None = None) -> Changes:
        def read(query: exp.Query, moment: int, more: Mapping[str, pa.Table]) -> pa.Table:
            return self.read(query, moment, {**(tables or {}), **more}, deadline)

        return Changes(self._store, read, self._turns)

    def read(
        self, query: exp.Query, moment: int, tables: Mapping[str, pa.Table], deadline: Deadline | None = None
    ) -> pa.Table:
        """Return the rows of a query within a statement, as of a moment. ``tables`` are in memory, and it may name
        them. Raises as ``query``."""
        text = query.sql(dialect=WrittenSql)
        return _Running(self, parsed(text), {}, moment, deadline or Deadline(None), tables).result().to_arrow()

    def describe(self, text: str, params: Parameters = None) -> Description:
        """Return what a statement would answer, without running it; its parameters need not be given. Raises as
        ``query``."""
        query = statement(text)
        tables = [self._described(name) for name in _names(query)]
        parameters = parameter_types(query.text, query.parameters, [_schema(table) for table in tables])
        if query.kind in (Kind.CHANGE, Kind.TRANSACTION):
            return Description(None, parameters)
        if query.kind is not Kind.QUERY:
            return Description(self.query(text).schema, parameters)
        if query.one_table is not None:
            planned = query.one_table.planned(self._described(query.one_table.table), None, None)
            if planned is not None:
                return Description(planned.schema, parameters)
        if query.kind is Kind.QUERY and not (query.uses or query.information or query.parameters):
            return self._described_at_once(text, parameters)
        values = query.bound(params) if params else {}
        schema = _Running(self, query, values, None, Deadline(None)).schema()
        return Description(schema, parameters, bool(query.parameters))

    def _described_at_once(self, text: str, parameters: pa.Schema) -> Description:
        """Run a query that reads no table: that takes no longer than to plan it."""
        with self.query(text) as result:
            return Description(result.schema, parameters, rows=_fitting(result, _AT_ONCE_BYTES))

    def _described(self, name: str) -> TableDescription:
        try:
            return self._store.describe_table(name)
        except NotFoundError:
            names = self._store.tables()
            exact = next((each for each in names if each.lower() == name.lower()), None)
            hint = f': write "{exact}", with its quotes' if exact else perhaps(name, names)
            raise NotFoundError(f"there is no table {name!r}{hint}") from None


class Description(NamedTuple):
    """What an SQL statement would answer."""

    schema: pa.Schema | None
    """The columns of its rows; None: it changes rows or tables."""
    parameters: pa.Schema
    """A field for each parameter."""
    varies: bool = False
    """Whether the types of the columns may depend on those of parameters."""
    rows: list[pa.RecordBatch] | None = None
    """The answer, if the statement reads no table and it has few rows."""


def _schema(table: TableDescription) -> pa.Schema:
    return pa.schema([column.field for column in table.columns])


def _names(query: Statement) -> list[str]:
    """Return the tables that a statement with parameters names."""
    if not query.parameters:
        return []
    if query.uses:
        return [use.table for use in query.uses if use.table not in query.shadows]
    target = query.tree.find(exp.Table)
    return [target.name] if target is not None else []


class _Running:
    """One statement that runs."""

    def __init__(
        self,
        engine: SqlEngine,
        query: Statement,
        values: Mapping[str, pa.Scalar],
        as_of: Moment | None,
        deadline: Deadline,
        more: Mapping[str, pa.Table] | None = None,
    ) -> None:
        self._engine = engine
        self._query = query
        self._text = query.text
        self._named = OwnNames(query.text)
        self._schema: pa.Schema | None = None
        """Names and types of the answer; None: it is not planned yet."""
        self._deadline = deadline
        self._values = values
        """Of its parameters, by name. A statement that is only described has none."""
        self._store = NotingStore(engine._store)
        self._more = more or {}
        """Tables in memory."""
        self._snapshot = self._read_at(as_of)
        self._tables = {use.name: table for use in query.uses if (table := self._table(use)) is not None}

    def result(self) -> Result:
        """Read the tables, and return the rows that DataFusion makes of them."""
        if not self._tables and self._query.kind is Kind.QUERY:
            self._running_session()
            return self._streamed(self._failing(self._frame_checked)[0], {})
        if (later := self._after_lists()) is not None:
            return later.result()
        engine, plan = self._engine, self._plan()
        reads = plan.wanted
        may_go_on = "recursive" not in self._query.text.lower()  # its tables are read again and again
        reader = LeafReader(self._store, engine._limits.leaf_bytes, self._deadline.check, may_go_on, self._more)
        if self._query.kind is Kind.EXPLAIN and not self._query.analyze:
            lines = self._alone() or self._failing(lambda: plan_lines(self._planning))
            return _whole(explained(self._store, self._tables, reads, None, lines))
        leaves = reader.read(self._tables, reads)
        frame = self._failing(lambda: self._planned(plan, leaves))
        if self._query.kind is Kind.EXPLAIN:
            rows = sum(batch.num_rows for batch in self._batches(frame, leaves))
            lines = str(frame.execution_plan().display_indent())
            return _whole(explained(self._store, self._tables, reads, leaves, lines, rows))
        return self._streamed(frame, leaves)

    def _after_lists(self) -> _Running | None:
        """Run the lists of the query that come first; return the query with their rows in memory. None: there are no
        lists, or they have too many rows, or refer to rows of the query."""
        query, first = self._query, self._query.first
        if first is None or not (query.kind is Kind.QUERY or query.analyze):
            return None
        rows: dict[str, pa.Table] = {}
        for name, text in first.lists:
            try:
                with _Running(
                    self._engine, parsed(text), {}, self._snapshot, self._deadline, self._more
                ).result() as given:
                    batches = _fitting(given, self._engine._limits.leaf_bytes // _LIST_SHARE)
            except (InvalidArgumentError, NotFoundError):  # it refers to rows of the query, or that has its mistake
                return None
            if batches is None:
                return None
            rows[name] = pa.Table.from_batches(batches, given.schema)
        after = replace(parsed(first.text), kind=query.kind, analyze=query.analyze, first=None)
        return _Running(self._engine, after, {}, self._snapshot, self._deadline, {**self._more, **rows})

    def _streamed(self, frame: DataFrame, leaves: Mapping[str, Leaf]) -> Result:
        assert self._schema is not None, "a query that runs is planned"
        schema = plain_schema(self._schema)
        return Result(schema, self._in_time(plain(self._batches(frame, leaves), schema)), self._snapshot)

    def _alone(self) -> str:
        """Return the plan of a query that the store answers alone; empty if it does not."""
        one = self._query.one_table
        (table,) = self._tables.values() if one is not None else (None,)
        if one is None or table is None or one.planned(table.description, self._values, None) is None:
            return ""
        return "an aggregate in the store" if one.measures else "a scan of the store"

    def schema(self) -> pa.Schema:
        """Return the schema of the rows, without reading any."""

        def planned() -> pa.Schema:
            session = self._session()
            for name, table in self._tables.items():
                session.register_dataset(quoted(name), unread(table))
            try:
                self._frame_checked()
            except Exception:  # a parameter without a type, or a mistake, which the query has as well
                return self._named.shown(self._frame_in().schema())
            return self._schema

        return plain_schema(self._failing(planned))

    def _plan(self) -> QueryPlan:
        versions = [
            (name, table.description.table_id, table.description.schema_version) for name, table in self._tables.items()
        ]
        query = self._query
        may_keep = query.kind is Kind.QUERY and query.is_steady
        may_keep = may_keep and not (self._values or query.information or self._more)
        key = (self._query.text, *versions) if may_keep else None
        if key is not None and (plan := self._engine._plans.of(key)) is not None:
            self._text, self._schema = plan.text, plan.schema
            return plan
        by_table = self._failing(lambda: needs(self._session(), self._tables, self._frame_checked))
        plan = QueryPlan(by_table, self._text, self._schema)
        if key is not None:
            self._engine._plans.keep(key, plan)
        return plan

    def _session(self) -> SessionContext:
        self._session_now = session = self._engine._fences.session()
        for name, batch in information(self._engine._store, self._query.information).items():
            register_information(session, name, batch)
        for use in self._query.uses:
            if (rows := self._more.get(use.table)) is not None:
                register_rows(session, use.name, rows)
        return session

    def _running_session(self) -> SessionContext:
        """Return a new session in which the query is to run, so that DataFusion makes no RIGHT JOIN of a FULL JOIN."""
        session = self._session()
        if "full" in self._text.lower():
            session.remove_optimizer_rule(REDUCTION)
        return session

    def _frame_checked(self) -> tuple[DataFrame, Any]:
        """Plan the query, so that it keeps to NULL in lists and to numbers beside decimals, and its computations of
        integers do not wrap around. Return it with its optimized plan."""
        tables = {**{name: table.schema for name, table in self._tables.items()}, **self._memory()}
        self._text = merged_columns(self._text, tables)
        if self._query.has_lists:
            self._text = exact_lists(self._text, tables)
        self._text = exact_spans(with_named_lists(with_whole_pages(self._text)), tables)
        if self._query.has_order_names:
            self._named = with_order_names(self._text, tables)
            self._text = self._named.text
        named = frame = self._frame_named(tables)
        typed = frame = self._frame_of(self._exact(tables), frame)
        if self._query.computes:
            integers = frozenset(name for name, value in self._values.items() if pa.types.is_integer(value.type))
            columns = tuple((name, integer_columns(schema)) for name, schema in tables.items())
            frame = self._frame_of(checked(self._text, columns, integers), frame)
        plan = frame.optimized_logical_plan()
        self._schema = self._named.shown(answer_schema(self._session_now, named, typed, frame, plan))
        return frame, plan

    def _frame_named(self, tables: Mapping[str, pa.Schema]) -> DataFrame:
        """Return the plan of the text. Columns that share a name get others, and what DataFusion takes for different
        types is cast before."""
        try:
            return self._frame_in()
        except Exception as error:
            named = self._named
            if refuses_same_names(error):
                named = with_repeated_stars(self._text, tables, self._named.names)
                if named.text == self._text:
                    columns = {name for schema in tables.values() for name in schema.names}
                    named = with_own_names(self._text, columns, self._named.names)
            text = self._exact(tables) if named is self._named else named.text
            if text == self._text:
                raise
            self._named, self._text = named, text
            return self._frame_named(tables)

    def _exact(self, tables: Mapping[str, pa.Schema]) -> str:
        """Return the text with casts where DataFusion has other types than PostgreSQL."""
        text = exact_moments(exact_numbers(self._text, tables, self._values), tables, self._values)
        text = exact_parts(moment_texts(text, tables, self._values), tables, self._values)
        return whole_numbers(text, tables, self._values)

    def _frame_of(self, text: str, frame: DataFrame) -> DataFrame:
        """Return the plan of an edited text; ``frame`` is that of the text before."""
        if text == self._text:
            return frame
        self._text = text
        return self._frame_in()

    def _memory(self) -> dict[str, pa.Schema]:
        return {use.name: self._more[use.table].schema for use in self._query.uses if use.table in self._more}

    def _frame_in(self) -> DataFrame:
        session = self._session_now
        if self._values:
            self._planning = session.sql(self._text, options=QUERIES_ONLY, param_values=dict(self._values))
        else:
            self._planning = session.sql_with_options(self._text, QUERIES_ONLY)
        return self._planning

    def _planned(self, plan: QueryPlan, leaves: dict[str, Leaf]) -> DataFrame:
        """Plan the query over the rows that were read."""
        session = self._running_session()
        for name, table in self._tables.items():
            register(session, self._store, name, table, leaves.get(name), self._engine._partitions)
        frame = self._frame_in()
        if plan.is_checked or reads_only(frame, leaves):
            plan.is_checked = True
            return frame
        for leaf in leaves.values():  # the plan differs from the first one: let the tables stream
            leaf.close()
            leaf.batches = leaf.begun = None
        return self._planned(plan, leaves)

    def _batches(self, frame: DataFrame, leaves: Mapping[str, Leaf]) -> Iterator[pa.RecordBatch]:
        try:
            stream = self._failing(lambda: iter(frame.execute_stream()))
            while (batch := self._failing(lambda: next(stream, None))) is not None:
                self._deadline.check()
                yield batch.to_pyarrow()
        finally:
            for leaf in leaves.values():
                leaf.close()

    def _in_time(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._deadline.seconds is None and threading.current_thread() is not threading.main_thread():
            return batches
        return within(self._deadline, batches)

    def _read_at(self, as_of: Moment | None) -> int | None:
        if as_of is not None:
            return read_moment(as_of)
        return self._engine._store.now() if self._query.uses else None

    def _table(self, use: TableUse) -> LeafTable | None:
        if use.table in self._more:
            return None
        try:
            description = self._engine._described(use.table)
        except NotFoundError:
            if use.table in self._query.shadows:
                return None
            raise
        moments, now = use.moments, self._snapshot
        assert now is not None, "a query that reads a table has a snapshot"
        if moments is None or (self._query.parameters and not self._values):
            return LeafTable(description, now, None if moments is None or not moments.changes else now)
        first = moments.since(self._values)
        if not moments.changes:
            return LeafTable(description, first)
        last = moments.until(self._values)
        return LeafTable(description, now if last is None else last, first)

    def _failing(self, work: Callable[[], Any]) -> Any:
        """Do a part of the work. Raises what the store raised meanwhile, or DataFusion's error in plain words."""
        try:
            return work()
        except StoreError:
            raise
        except Exception as error:
            if self._store.first_error is not None:
                raise self._store.first_error from None
            columns = [name for table in self._tables.values() for name in table.schema.names]
            raise failure(error, columns, FUNCTIONS, self._engine._limits.memory_bytes) from None


def _whole(table: pa.Table) -> Result:
    return Result(table.schema, iter(table.to_batches()), None)


def register_information(session: SessionContext, name: str, batch: pa.RecordBatch) -> None:
    """Give a session of DataFusion a table of ``information_schema``."""
    from datafusion.catalog import Schema, Table

    catalog = session.catalog("nyala")
    if "information_schema" not in catalog.schema_names():
        catalog.register_schema("information_schema", Schema.memory_schema())
    catalog.schema("information_schema").register_table(name, Table(session.from_arrow(batch)))


def _fitting(result: Result, bytes_max: int) -> list[pa.RecordBatch] | None:
    """Return the rows of a result; None if they have more bytes."""
    rows: list[pa.RecordBatch] = []
    left = bytes_max
    for batch in result:
        rows.append(batch)
        left -= batch.nbytes
        if left < 0:
            return None
    return rows
