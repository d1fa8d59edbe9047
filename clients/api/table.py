"""Table: writing and reading rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from ...schemas.alter import Alteration
from ...schemas.changes import ChangeSpec
from ...schemas.command import built
from ...schemas.compaction import CompactionSummary
from ...schemas.description import TableDescription, TabletPlace
from ...schemas.errors import InvalidArgumentError, RowErrors, StoreError
from ...schemas.operation import Operation
from ...schemas.order import OrderTerm, order_terms
from ...schemas.scan import ScanSpec
from ...schemas.service import StoreService
from ...schemas.statement import StatementKind
from ...schemas.timestamp import parse_moment
from ...schemas.write import CommitMode, Durability, WriteCommand, WriteResult, combine
from ..convert.cells import python_cell
from ..convert.data import WriteData
from ..convert.keys import key_of, keys_of
from ..convert.where import Where, where_json
from ..flight.sent_again import kept, numbered
from .alter import TableAlteration
from .progress import LoadProgress
from .scan import Scan, check_ordered, column_names
from .statements import execute, expression_text
from .write_options import OnError, StatementHow, WriteHow, checked_writer, word

if TYPE_CHECKING:
    from ..offload.direct_scan import DirectScan


class Table:
    """One table. Thread safe. ``schema``, ``primary_key`` and ``name`` are those of the moment it was looked up, or of
    the last ``alter`` through it."""

    def __init__(self, store: StoreService, description: TableDescription, notes: Sequence[str] = ()) -> None:
        self._store = store
        self._description = description
        self.notes = list(notes)
        """What the table's maker should know, a sentence each: ``create_table`` says here which columns have another
        type than the Arrow schema or the data that it was given."""

    @property
    def name(self) -> str:
        """The table's name."""
        return self._description.name

    @property
    def schema(self) -> pa.Schema:
        """The columns, as a scan of all of them gives them."""
        return pa.schema([column.field for column in self._description.columns])

    @property
    def primary_key(self) -> list[str]:
        """The names of the key columns, in order."""
        return list(self._description.primary_key)

    def describe(self) -> dict[str, Any]:
        """Return columns with ids, types, encodings and defaults, the key, the options and the schema version."""
        return self._store.describe_table(self.name).model_dump(mode="json")

    def alter(self) -> TableAlteration:
        """Return an alteration to add steps to; its ``apply`` makes them one change, while scans and writes go on."""
        return TableAlteration(self.name, self._altered)

    def _altered(self, alteration: Alteration) -> TableDescription:
        self._description = self._store.alter_table(alteration)
        return self._description

    def stats(self) -> dict[str, Any]:
        """Return live rows, bytes on disk and in memory, rowsets and delta files, by tablet and by column."""
        return self._store.table_stats(self.name).model_dump(mode="json")

    def last_change(self) -> int:
        """Return the timestamp of the last commit that changed rows, 0 if there is none: ``changes`` since it are none.

        It stays while nobody writes, unlike ``Database.now``.
        """
        return self._store.last_change(self.name)

    def tablets(self) -> list[TabletPlace]:
        """Return the table's tablets: ``tablet`` (a number), ``partition``, and the ``server`` that has it, where
        several share the table: see docs/servers.md."""
        return self._store.tablets(self.name).tablets

    def maintain(self, op: str) -> dict[str, Any]:
        """Do one kind of maintenance now and return what was done; nothing that a reader sees at a snapshot changes.

        ``flush`` writes the rows in memory to disk and ``flush_deltas`` the changes of rows on disk; ``minor_compact``
        merges the files of changes, ``major_compact`` brings the changed columns up to date, ``compact`` merges all
        rowsets; ``gc`` drops the history that is older than the table keeps.

        Raises:
            InvalidArgumentError: for another ``op``.
        """
        return self._store.maintain(self.name, op)

    def bulk_compact(
        self,
        *,
        directory: Any = None,
        executor: Any = None,
        workers: int | None = None,
        tablets: Sequence[int] | None = None,
        replace: bool = False,
        ttl_seconds: int = 900,
        show: Literal["auto", "lines", "off"] = "off",
    ) -> CompactionSummary:
        """Merge rowsets as ``maintain("compact")`` does, here or in other processes, past the server.

        The server flushes the table and hands out the rowsets that are worth merging; ``executor`` runs a task for each
        group of them, as in ``bulk_import``, and each is put in place when it has ended. Writers and readers go on, and
        nothing that a reader sees at a snapshot changes. ``directory`` is the store's directory as this process and the
        executor see it; of an embedded store that is known. Run again, it does what is left to be done. What a process
        that was killed has begun stands in the way for ``ttl_seconds``, unless ``replace`` ends it. See docs/bulk.md.

        Raises:
            ConflictError: rowsets of a tablet are being merged outside already.
            NotFoundError: there is no such tablet.
            InvalidArgumentError: the directory is not the store's.
        """
        from ..offload.bulk_compact import bulk_compact  # needs the engine, which clients of a server may lack

        return bulk_compact(
            self._store,
            self.name,
            tablets=tablets,
            replace=replace,
            directory=directory,
            executor=executor,
            workers=workers,
            ttl_seconds=ttl_seconds,
            show=show,
        )

    # Writing

    def write(
        self,
        data: Any,
        op: str | Operation = Operation.UPSERT,
        *,
        atomic: bool = False,
        on_error: OnError = "raise",
        durability: str | Durability | None = None,
        commit: str | CommitMode = CommitMode.BATCH,
        writer: str | None = None,
        seq: int | None = None,
        if_timestamp: int | str | dt.datetime | None = None,
    ) -> WriteResult:
        """Apply one of the eight operations to every row of ``data``, and return when all is durable.

        ``data`` is a pandas or polars DataFrame, a pyarrow Table, RecordBatch or RecordBatchReader, anything with
        ``__arrow_c_stream__``, a dict of columns or a list of dicts. Columns are found by name and cast where that
        loses nothing. Large data is cut into several commits, each visible at once, larger ones where new rows come in
        the order of their keys; with ``atomic`` all of it is one commit, which any failing row refuses whole.

        ``commit="stream"`` makes one commit of all the data too: other readers and a crash find all of it or nothing,
        but a row that is refused does not stop the others. One commit has at most 256 MiB by default.

        A write with a ``writer`` (a name of your own, for this table) and a ``seq`` (from 0, never used twice by that
        writer) may be sent again, by this process or a later one: if it was applied, the first answer comes again and
        nothing is applied. It is one commit. The store keeps the answers to the newest 64 numbers of each writer.

        With ``if_timestamp`` a row is only touched if it has not changed since that moment, such as the ``as_of`` of
        the scan that it was read with; else it is refused with CONFLICT, or ignored by the ``_ignore`` forms.

        Rows that are refused do not stop their neighbours. They are raised as ``RowErrors``, whose ``result`` says what
        became of the others, or with ``on_error="return"`` stand in the result's ``errors``.

        Raises:
            RowErrors: some rows were refused.
            InvalidArgumentError: the data does not fit the table.
            StoreError: nothing of the batch in question was applied; a note says how many rows before it were.
        """
        if on_error not in ("raise", "return"):
            raise InvalidArgumentError(f"on_error is 'raise' or 'return', not {on_error!r}")
        command = built(
            WriteCommand,
            "the write",
            table=self.name,
            op=word(Operation, op, "operation"),
            atomic=atomic,
            durability=None if durability is None else word(Durability, durability, "durability"),
            commit=word(CommitMode, commit, "commit mode"),
            writer=checked_writer(writer, seq),
            if_timestamp=None if if_timestamp is None else parse_moment(if_timestamp, "if_timestamp"),
        )
        if seq is None:
            result = self._write_all(command, self._prepared(data, command, whole=atomic))
        else:
            batch = numbered(self._store, command, kept(data), seq, self._prepared, self._description)
            result = self._nothing() if batch is None else batch
        if result.error_count and on_error == "raise":
            raise RowErrors(result)
        return result

    def _prepared(self, data: Any, command: WriteCommand, whole: bool) -> WriteData:
        """Return the data as the table takes it; if it does not fit, as the table may be by now."""
        known = self._description
        key = known.primary_key if command.op.base in (Operation.INSERT, Operation.UPSERT) else ()
        try:
            return WriteData(data, known.columns, whole, key)
        except InvalidArgumentError:
            self._description = self._store.describe_table(self.name)
            if self._description.schema_version == known.schema_version:
                raise
        return WriteData(data, self._description.columns, whole, key)

    def _write_all(self, command: WriteCommand, data: WriteData) -> WriteResult:
        results: list[WriteResult] = []
        rows = 0
        try:
            with LoadProgress(f"{command.op} {self.name}", data.row_count) as progress:
                for result in self._store.write_all(command, data):
                    results.append(result.shifted(rows))
                    rows += result.rows
                    progress.advance(result.rows)
        except StoreError as error:
            if rows:
                error.add_note(f"the first {rows:,} rows were processed before that")
            raise
        return combine(results) if results else self._nothing()

    def _nothing(self) -> WriteResult:
        return WriteResult(timestamp=self._store.now(), rows=0, applied=0)

    def insert(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Add rows; one whose key is there already is refused with ALREADY_PRESENT. See ``write``."""
        return self.write(data, Operation.INSERT, **how)

    def insert_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Add the rows whose keys are not there yet, count the others as ignored. See ``write``."""
        return self.write(data, Operation.INSERT_IGNORE, **how)

    def upsert(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Add rows, or change in those that are there the columns that ``data`` has. See ``write``."""
        return self.write(data, Operation.UPSERT, **how)

    def upsert_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Like ``upsert``, but rows that would be refused for the state they meet are ignored. See ``write``."""
        return self.write(data, Operation.UPSERT_IGNORE, **how)

    def update(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Change rows; one whose key is not there is refused with NOT_FOUND. See ``write``."""
        return self.write(data, Operation.UPDATE, **how)

    def update_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Change the rows whose keys are there, count the others as ignored. See ``write``."""
        return self.write(data, Operation.UPDATE_IGNORE, **how)

    def delete(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Delete rows by key; one whose key is not there is refused with NOT_FOUND. See ``write``."""
        return self.write(data, Operation.DELETE, **how)

    def delete_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Delete the rows whose keys are there, count the others as ignored. See ``write``."""
        return self.write(data, Operation.DELETE_IGNORE, **how)

    def update_where(self, set: Mapping[str, Any], where: Where = None, **how: Unpack[StatementHow]) -> WriteResult:
        """Set columns of the rows that ``where`` selects, all of them in one commit.

        ``set`` maps columns to SQL expressions over the row's cells as they were, as in ``{"price": "price * 1.1",
        "city": "upper(city)"}``; text stands in single quotes. Values that are no strings stand for themselves. The
        statement sees all commits before its own: rows that others change meanwhile are read again. docs/statements.md
        has the expressions.

        Raises:
            InvalidArgumentError: a column is not there, is of the key or immutable, or an expression cannot be worked
                out or does not fit its column; or the rows are too many for one commit.
            RowErrors: a row was refused, such as for a NULL where none may be. Nothing is applied.
        """
        if not isinstance(set, Mapping):
            raise InvalidArgumentError(f"set is a dict, as in {{'price': 'price * 1.1'}}, not {set!r:.100}")
        texts = {name: expression_text(value, name) for name, value in dict(set).items()}
        return execute(self._store, self.name, StatementKind.UPDATE, how, set=texts, where=where_json(where))

    def delete_where(self, where: Where, **how: Unpack[StatementHow]) -> WriteResult:
        """Delete the rows that ``where`` selects, all of them in one commit; as ``update_where``. None is refused."""
        if where is None:
            raise InvalidArgumentError("delete_where needs a condition; to delete all rows say where='true'")
        return execute(self._store, self.name, StatementKind.DELETE, how, where=where_json(where))

    def restore(self, as_of: int | str | dt.datetime, **how: Unpack[StatementHow]) -> WriteResult:
        """Bring the table back to what it was at a moment, in one commit that changes only the rows that differ.

        A scan then has what ``scan(as_of=as_of)`` shows, in the columns of now. ``restore`` undoes a restore, too.

        Raises:
            SnapshotTooOldError: the moment lies before the history that the table keeps.
            InvalidArgumentError: the rows that differ are too many for one commit.
        """
        return execute(self._store, self.name, StatementKind.RESTORE, how, as_of=parse_moment(as_of))

    def bulk_import(
        self,
        source: Any,
        *,
        directory: Any = None,
        executor: Any = None,
        scratch: Any = None,
        mode: str = "insert_only",
        ttl_seconds: int = 24 * 3600,
    ) -> WriteResult:
        """Load data by building the table's files here or in other processes, and attach them as one commit.

        ``source`` is a Parquet file, a directory of such, a list of files, or data in a form that ``write`` takes. The
        rows do not pass through the store: ``directory`` is its directory as this process sees it (of an embedded store
        that is known), ``executor`` runs the tasks: "local", threads of this process, "spark", an executor of jobs or
        one of ``concurrent.futures``. ``scratch`` is a directory for what lies between the two stages, by default in
        the store's.

        With the ``mode`` "insert_only" every key must be new, with "upsert" rows that are there are changed. Nothing is
        applied where a row cannot be: a whole import is applied, or nothing of it. See docs/bulk.md.

        Raises:
            AlreadyPresentError: a key occurs twice, or is in the table and ``mode`` does not allow that.
            InvalidArgumentError: the data does not fit the table, or the directory is not the store's.
            ConflictError: the table was altered meanwhile.
        """
        from ..offload.bulk_import import bulk_import  # needs the engine, which clients of a server may lack

        return bulk_import(
            self._store,
            self.name,
            source,
            directory=directory,
            executor=executor,
            scratch=scratch,
            mode=mode,
            ttl_seconds=ttl_seconds,
        )

    # Reading

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where = None,
        as_of: int | str | dt.datetime | None = None,
        ordered: bool = False,
        limit: int | None = None,
        order_by: str | Sequence[str | OrderTerm] | None = None,
        offset: int = 0,
    ) -> Scan:
        """Return a scan, which reads when it is consumed.

        ``columns`` None means all. ``where`` is SQL text, a ``pyarrow.compute.Expression``, pyarrow's list of tuples,
        or a filter tree. ``as_of`` shows the table as it was: a timestamp, an aware datetime or ISO text; None means
        the moment when reading starts. ``ordered`` gives the order of the primary key.

        ``order_by`` gives the order of any columns, as in "price DESC NULLS FIRST, id" or a list of such terms; NULLs
        come last, and ties in the order of the primary key. The store sorts in memory, with a ``limit`` only the rows
        that are within it. ``offset`` passes over so many rows first.

        Raises:
            InvalidArgumentError: for an argument of the wrong form. What depends on the table (a column that is not
                there, SQL that is wrong) is raised when the scan is consumed.
        """
        check_ordered(ordered)
        spec = built(
            ScanSpec,
            "the scan",
            table=self.name,
            columns=column_names(columns),
            where=where_json(where),
            as_of=None if as_of is None else parse_moment(as_of),
            ordered=ordered,
            limit=limit,
            order_by=order_terms(order_by),
            offset=offset,
        )
        return Scan(self._store, spec.checked())

    def direct_scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where = None,
        as_of: int | str | dt.datetime | None = None,
        *,
        directory: Any = None,
        split_bytes: int | None = None,
        ttl_seconds: int = 3600,
    ) -> DirectScan:
        """Return a scan (``DirectScan``) that reads the table's files here, past the server; close it.

        The server flushes what it has in memory and keeps the files for ``ttl_seconds``, which ``renew`` begins anew.
        ``directory`` is the store's directory as this process sees it; of an embedded store that is known. The scan's
        ``splits``, one for each tablet or of about ``split_bytes``, can be read by any process that sees it too. The
        rows are those of ``scan`` at the same snapshot. See docs/bulk.md.

        Raises:
            NotFoundError: the files are gone: their time is over, or the server was restarted.
            InvalidArgumentError: for an argument of the wrong form.
        """
        from ..offload.direct_scan import direct_scan  # needs the engine, which clients of a server may lack

        moment = None if as_of is None else parse_moment(as_of)
        return direct_scan(
            self._store,
            self.name,
            columns,
            where,
            moment,
            directory=directory,
            split_bytes=split_bytes,
            ttl_seconds=ttl_seconds,
        )

    def changes(
        self,
        since: int | str | dt.datetime,
        until: int | str | dt.datetime | None = None,
        columns: Sequence[str] | None = None,
        where: Where = None,
        before: bool = False,
        every: bool = False,
        ordered: bool = False,
    ) -> Scan:
        """Return what the commits with ``since`` < timestamp <= ``until`` changed: see docs/changes.md.

        The columns are ``_op`` ("insert", "update" or "delete"), ``_timestamp`` (that of the last commit in the change)
        and the table's, or those of ``columns``: the values after the change, for a delete those that it deleted. With
        ``before`` also ``_before_<column>``, NULL for an insert. ``where`` filters by the values after the change, for
        a delete by those that it deleted.

        Each key that changed has one row, the net change from ``since`` to ``until``; one that was born and died in the
        range has none. With ``every`` there is one row for each key and commit, those of one key in the order of their
        timestamps. ``ordered`` gives the order of the primary key, then of ``_timestamp``.

        Moments are timestamps, aware datetimes or ISO text; ``until`` None means now, which is fixed by this call. This
        scan's ``snapshot`` is the ``since`` of the next call: so calls chain, without a gap or an overlap.

        Raises:
            InvalidArgumentError: for an argument of the wrong form. What depends on the table, and
                ``SnapshotTooOldError`` for moments older than the history it keeps, is raised when the scan is
                consumed.
        """
        start = parse_moment(since, "since")
        feed = ChangeSpec(
            since=start,
            until=max(self._store.now(), start) if until is None else parse_moment(until, "until"),
            before=before,
            every=every,
        )
        parts = {"columns": column_names(columns), "where": where_json(where), "changes": feed, "ordered": ordered}
        spec = built(ScanSpec, "the scan", table=self.name, **parts)
        return Scan(self._store, spec.checked())

    def get(self, key: Any) -> dict[str, Any] | None:
        """Return the live row with a primary key, None when there is none.

        ``key`` is a dict of the key columns or a tuple of their values in order; a key of one column may be given as
        its value. A timestamp outside the years 1 to 9999, which Python has no datetime for, is its microseconds since
        1970, in the key as in the row.

        Raises:
            InvalidArgumentError: it is not the whole key, or a value does not fit its column.
        """
        found = self._store.get(self.name, key_of(key, self._description))
        return {name: python_cell(found[name][0]) for name in found.schema.names} if found.num_rows else None

    def get_many(self, keys: Any) -> pa.Table:
        """Return the live rows of primary keys as one table, in the order of ``keys``; absent ones are left out.

        ``keys`` is a list of keys as ``get`` takes them, or data with the key columns in a form that ``write`` takes.
        """
        found = [self._store.get(self.name, batch) for batch in keys_of(keys, self._description)]
        return pa.concat_tables(found) if found else self.schema.empty_table()

    def count(self, where: Where = None) -> int:
        """Return how many rows there are that ``where`` selects."""
        return self.scan(where=where).count()

    def head(self, n: int = 5) -> pa.Table:
        """Return the first ``n`` rows in the order of the primary key."""
        return self.scan(ordered=True, limit=n).to_arrow()

    def __repr__(self) -> str:
        return "\n  ".join([f"Table({self.name!r})", *self.notes])
