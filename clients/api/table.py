"""Table: writing and reading rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.errors import InvalidArgumentError, RowErrors, StoreError
from ...schemas.protocol.command import built
from ...schemas.protocol.keys import key_values
from ...schemas.protocol.service import StoreService
from ...schemas.rows.changes import ChangeSpec
from ...schemas.rows.operation import Operation
from ...schemas.rows.order import OrderTerm, order_terms
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.statement import StatementKind
from ...schemas.rows.write import CommitMode, Durability, WriteCommand, WriteResult, combine
from ...schemas.store.compaction import CompactionSummary
from ...schemas.store.description import TableDescription, TabletPlace
from ...schemas.table.alter import Alteration
from ...schemas.table.names import Names
from ..convert.data import WriteData
from ..convert.where import Where, where_json
from ..flight.sent_again import kept, numbered
from . import key_reads
from .alter import TableAlteration
from .few_rows import write_few
from .lazy_table import LazyTable
from .progress import LoadProgress
from .scan import Scan, check_ordered, column_names
from .statements import execute, expression_text
from .write_options import OnError, StatementHow, WriteHow, command_of

if TYPE_CHECKING:
    from ..offline_jobs.direct_scan import DirectScan


class Table(LazyTable):
    """The table object of users: it writes, reads and alters one table. Thread safe. ``schema``, ``primary_key`` and
    ``name`` are as of its look-up, or as of the last ``alter`` through this object."""

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
        """The columns, as a scan of all of them returns them."""
        return pa.schema([column.field for column in self._description.columns])

    @property
    def primary_key(self) -> list[str]:
        """The names of the key columns, in order."""
        return list(self._description.primary_key)

    def describe(self) -> dict[str, Any]:
        """Return columns with ids, types, encodings and defaults, the key, the options and the schema version."""
        return self._store.describe_table(self.name).model_dump(mode="json")

    def alter(self) -> TableAlteration:
        """Return an alteration that collects steps; its ``apply`` makes them one change, while scans and writes
        continue."""
        return TableAlteration(self.name, self._altered)

    def _altered(self, alteration: Alteration) -> TableDescription:
        self._description = self._store.alter_table(alteration)
        return self._description

    def stats(self) -> dict[str, Any]:
        """Return live rows, bytes on disk and in memory, rowsets and delta files, by tablet and by column."""
        return self._store.table_stats(self.name).model_dump(mode="json")

    def last_change(self) -> int:
        """Return the timestamp of the last commit that changed rows, or 0. ``changes`` since then returns nothing.

        Unlike ``Database.now``, it does not advance without writes.
        """
        return self._store.last_change(self.name)

    def tablets(self) -> list[TabletPlace]:
        """Return the table's tablets: ``tablet`` (a number), ``partition``, and ``server`` if several servers share the
        table: see docs/servers.md."""
        return self._store.tablets(self.name).tablets

    def maintain(self, op: str) -> dict[str, Any]:
        """Run one maintenance operation now and return what it did. The result of a read at any snapshot does not
        change.

        ``flush`` writes the rows in memory to disk, ``flush_deltas`` the changes of rows on disk; ``minor_compact``
        merges the files of changes, ``major_compact`` applies changes to the changed columns, ``compact`` merges all
        rowsets; ``gc`` drops history older than the table keeps.

        Raises:
            InvalidArgumentError: ``op`` is unknown.
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
        """Merge rowsets as ``maintain("compact")`` does, but here or in other processes, outside the server.

        The server flushes the table and hands out the rowsets worth merging; ``executor`` runs a task for each group of
        them, as in ``bulk_import``, and the server installs each result when its task ends. Writers and readers
        continue, and no read at a snapshot changes. ``directory`` is the store's directory as this process and the
        executor see it; an embedded store knows it. Run it again to merge what is left. A run that was killed blocks
        others for ``ttl_seconds``, unless ``replace`` ends it. See docs/bulk.md.

        Raises:
            ConflictError: rowsets of a tablet are already being merged outside.
            NotFoundError: there is no such tablet.
            InvalidArgumentError: the directory is not the store's.
        """
        from ..offline_jobs.bulk_compact import bulk_compact  # needs the engine, which clients of a server may lack

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
        if_timestamp: Moment | None = None,
        rules: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Apply one of the operations to every row of ``data``, and return when all is durable.

        ``data`` is a pandas or polars DataFrame, a pyarrow Table, RecordBatch or RecordBatchReader, anything with
        ``__arrow_c_stream__``, a dict of columns, a list of dicts, a ``pyarrow.dataset``, or the path of a Parquet or
        Arrow file. Columns match by name and are cast if no value changes. Large data is split into several commits;
        they are larger if new rows come in key order. With ``atomic`` all is one commit, which a failing row rejects.

        ``commit="stream"`` also makes all data one commit: readers, and the store after a crash, see all of it or
        nothing. A rejected row does not stop the others. One commit has at most 256 MiB by default.

        A write with a ``writer`` (a name of your own, for this table) and a ``seq`` (from 0, never reused by that
        writer) can safely be sent again, by this process or a later one: if it was already applied, the first answer is
        returned and nothing is applied. It is one commit. The store keeps the answers to the newest 64 numbers of each
        writer.

        With ``if_timestamp``, a row is touched only if it has not changed since that time, such as the ``as_of`` of the
        scan that read it; otherwise it is rejected with CONFLICT, or ignored by the ``_ignore`` forms.

        Rejected rows do not stop the others. They are raised as ``RowErrors``, whose ``result`` describes the whole
        write; with ``on_error="return"`` they are in the result's ``errors``.

        Raises:
            RowErrors: some rows were rejected.
            InvalidArgumentError: the data does not fit the table.
            StoreError: nothing of the failing batch was applied; a note says how many rows before it were.
        """
        if on_error not in ("raise", "return"):
            raise InvalidArgumentError(f"on_error must be 'raise' or 'return', not {on_error!r}")
        command = command_of(self.name, op, atomic, durability, commit, writer, seq, if_timestamp, rules)
        if seq is None:
            result = self._write_all(command, data)
        else:
            result = numbered(self._store, command, kept(data), seq, self._write_all, self._description)
        if result.error_count and on_error == "raise":
            raise RowErrors(result)
        return result

    def _prepared(self, data: Any, command: WriteCommand, whole: bool) -> WriteData:
        """Return the data as the table takes it. If it does not fit, try again with the table's current schema."""
        known = self._description
        key = known.primary_key if command.op.base in (Operation.INSERT, Operation.UPSERT) else ()
        try:
            return WriteData(data, known.columns, whole, key)
        except InvalidArgumentError:
            self._description = self._store.describe_table(self.name)
            if self._description.schema_version == known.schema_version:
                raise
        return WriteData(data, self._description.columns, whole, key)

    def _write_all(self, command: WriteCommand, data: Any, seq: int | None = None) -> WriteResult:
        if few := write_few(self._store, command, data, self._description.columns, seq):
            return few
        batches = self._prepared(data, command, whole=command.atomic or seq is not None)
        if seq is not None:
            return next((self._store.write(command, whole, seq) for whole in batches), None) or self._nothing()
        results: list[WriteResult] = []
        rows = 0
        try:
            with LoadProgress(f"{command.op} {self.name}", batches.row_count) as progress:
                for result in self._store.write_all(command, batches):
                    results.append(result.shifted(rows))
                    rows += result.rows
                    progress.advance(result.rows)
        except StoreError as error:
            if rows:
                error.add_note(f"the first {rows:,} rows were processed before this error")
            raise
        return combine(results) if results else self._nothing()

    def _nothing(self) -> WriteResult:
        return WriteResult(timestamp=self._store.now(), rows=0, applied=0)

    def insert(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Add rows. A row whose key exists is rejected with ALREADY_PRESENT. See ``write``."""
        return self.write(data, Operation.INSERT, **how)

    def insert_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Add the rows whose keys do not exist; count the others as ignored. See ``write``."""
        return self.write(data, Operation.INSERT_IGNORE, **how)

    def upsert(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Add rows; in existing rows, change the columns that ``data`` has. See ``write``."""
        return self.write(data, Operation.UPSERT, **how)

    def upsert_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Like ``upsert``, but ignore rows that would be rejected because of the row they meet. See ``write``."""
        return self.write(data, Operation.UPSERT_IGNORE, **how)

    def merge(self, data: Any, rules: Mapping[str, str] | None = None, **how: Unpack[WriteHow]) -> WriteResult:
        """Add rows; combine values with those of existing rows by the rule of their column: ``"sum"``, ``"min"``,
        ``"max"``, ``"append"``, or SQL such as ``"views + excluded.views"``. None: the rules of the table's columns
        (``ColumnOptions.merge``). Columns without one are replaced, as by ``upsert``. See docs/computed.md."""
        return self.write(data, Operation.MERGE, rules=rules, **how)

    def update(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Change rows. A row whose key does not exist is rejected with NOT_FOUND. See ``write``."""
        return self.write(data, Operation.UPDATE, **how)

    def update_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Change the rows whose keys exist; count the others as ignored. See ``write``."""
        return self.write(data, Operation.UPDATE_IGNORE, **how)

    def delete(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Delete rows by key. A key that does not exist is rejected with NOT_FOUND. See ``write``."""
        return self.write(data, Operation.DELETE, **how)

    def delete_ignore(self, data: Any, **how: Unpack[WriteHow]) -> WriteResult:
        """Delete the rows whose keys exist; count the others as ignored. See ``write``."""
        return self.write(data, Operation.DELETE_IGNORE, **how)

    def update_where(self, set: Mapping[str, Any], where: Where = None, **how: Unpack[StatementHow]) -> WriteResult:
        """Update the rows that match ``where``, in one commit.

        ``set`` maps columns to SQL expressions over the row's values before the update, as in ``{"price": "price *
        1.1", "city": "upper(city)"}``; put text in single quotes. Values that are not strings are used as they are. The
        statement sees all commits before its own: it reads rows again that others change meanwhile. docs/statements.md
        lists the expressions.

        Raises:
            InvalidArgumentError: a column does not exist, is part of the key or immutable; an expression cannot be
                computed or does not fit its column; or the rows are too many for one commit.
            RowErrors: a row was rejected, such as for a NULL in a NOT NULL column. Nothing is applied.
        """
        if not isinstance(set, Mapping):
            raise InvalidArgumentError(f"set must be a dict, as in {{'price': 'price * 1.1'}}, not {set!r:.100}")
        texts = {name: expression_text(value, name) for name, value in dict(set).items()}
        return execute(self._store, self.name, StatementKind.UPDATE, how, set=texts, where=where_json(where))

    def delete_where(self, where: Where, **how: Unpack[StatementHow]) -> WriteResult:
        """Delete the rows that match ``where``, in one commit, like ``update_where``. None is rejected."""
        if where is None:
            raise InvalidArgumentError("delete_where needs a condition; to delete all rows, pass where='true'")
        return execute(self._store, self.name, StatementKind.DELETE, how, where=where_json(where))

    def restore(self, as_of: Moment, **how: Unpack[StatementHow]) -> WriteResult:
        """Restore the table to an earlier state, in one commit that changes only the rows that differ.

        A scan then returns what ``scan(as_of=as_of)`` returns, with the current columns. A second ``restore`` can undo
        the first.

        Raises:
            SnapshotTooOldError: the time is older than the history that the table keeps.
            InvalidArgumentError: the rows that differ are too many for one commit.
        """
        return execute(self._store, self.name, StatementKind.RESTORE, how, as_of=read_moment(as_of))

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

        ``source`` is a Parquet file, a directory of Parquet files, a list of files, or data in a form that ``write``
        takes. The rows do not pass through the store: ``directory`` is its directory as this process sees it (an
        embedded store knows it, and one in a bucket tells its URL), ``executor`` runs the tasks: "local" (threads of
        this process), "spark", an executor of jobs or one of ``concurrent.futures``. ``scratch`` is a directory for the
        data between the two stages, by default in the store's.

        With the ``mode`` "insert_only" every key must be new; with "upsert" existing rows are changed. The import is
        applied as a whole or not at all. See docs/bulk.md.

        Raises:
            AlreadyPresentError: a key occurs twice, or is in the table and ``mode`` does not allow that.
            InvalidArgumentError: the data does not fit the table, or the directory is not the store's.
            ConflictError: the table was altered meanwhile.
        """
        from ..offline_jobs.bulk_import import bulk_import  # needs the engine, which clients of a server may lack

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
        columns: Names | None = None,
        where: Where = None,
        as_of: Moment | None = None,
        ordered: bool = False,
        limit: int | None = None,
        order_by: str | Sequence[str | OrderTerm] | None = None,
        offset: int = 0,
        max_staleness: float | None = None,
    ) -> Scan:
        """Return a scan, which reads when it is consumed.

        ``columns`` None means all. ``where`` is SQL text, a ``pyarrow.compute.Expression``, pyarrow's list of tuples,
        or a filter tree. ``as_of`` shows the table at an earlier time: a timestamp, an aware datetime or ISO text; None
        means the time when reading starts. ``ordered`` sorts by the primary key.

        ``order_by`` sorts by any columns, as in "price DESC NULLS FIRST, id" or a list of such terms; NULLs come last,
        and ties are sorted by the primary key. The store sorts in memory; with a ``limit`` it holds only the rows
        within it. ``offset`` skips this many rows first, in one of these orders.

        ``max_staleness`` lets a replica answer, if it has every write that was acknowledged more than so many seconds
        before: see docs/failover.md. A store without replicas answers as ever.

        Raises:
            InvalidArgumentError: an argument has the wrong form. Errors that depend on the table (an unknown column,
                invalid SQL) are raised when the scan is consumed.
        """
        check_ordered(ordered)
        spec = built(
            ScanSpec,
            "the scan",
            table=self.name,
            columns=column_names(columns),
            where=where_json(where),
            as_of=None if as_of is None else read_moment(as_of),
            ordered=ordered,
            limit=limit,
            order_by=order_terms(order_by),
            offset=offset,
            max_staleness=max_staleness,
        )
        return Scan(self._store, spec.checked())

    def direct_scan(
        self,
        columns: Names | None = None,
        where: Where = None,
        as_of: Moment | None = None,
        *,
        directory: Any = None,
        split_bytes: int | None = None,
        ttl_seconds: int = 3600,
    ) -> DirectScan:
        """Return a scan (``DirectScan``) that reads the table's files here, outside the server; close it.

        The server flushes the table's memory and keeps the files for ``ttl_seconds``, which ``renew`` starts again.
        ``directory`` is the store's directory as this process sees it; an embedded store knows it, and one in a bucket
        tells its URL. Any process that sees the files can read the scan's ``splits``, one for each tablet or of about
        ``split_bytes``. The rows are those of ``scan`` at the same snapshot. See docs/bulk.md.

        Raises:
            NotFoundError: the files are gone: the time expired, or the server was restarted.
            InvalidArgumentError: an argument has the wrong form.
        """
        from ..offline_jobs.direct_scan import direct_scan  # needs the engine, which clients of a server may lack

        moment = None if as_of is None else read_moment(as_of)
        how = {"directory": directory, "split_bytes": split_bytes, "ttl_seconds": ttl_seconds}
        return direct_scan(self._store, self.name, columns, where, moment, **how)

    def changes(
        self,
        since: Moment,
        until: Moment | None = None,
        columns: Names | None = None,
        where: Where = None,
        before: bool = False,
        every: bool = False,
        ordered: bool = False,
        limit: int | None = None,
    ) -> Scan:
        """Return the changes of all commits with ``since`` < timestamp <= ``until``: see docs/changes.md.

        The columns are ``_op`` ("insert", "update", "delete", "expire"), ``_timestamp`` (of the last commit in the
        change, or the end of the row) and the table's, or those in ``columns``: the values after it, or the last. With
        ``before`` also ``_before_<column>``, NULL for an insert. ``where`` does not filter by the earlier values.

        Each changed key has one row: the net change from ``since`` to ``until``. A key inserted and deleted in the
        range has none. With ``every`` there is one row for each key and commit, those of one key in timestamp order.
        ``ordered`` sorts by the primary key, then by ``_timestamp``; ``limit`` is the largest number of rows.

        Times are timestamps, aware datetimes or ISO text; ``until`` None means now, fixed by this call. Pass this
        scan's ``snapshot`` as the ``since`` of the next call to chain calls without gap or overlap.

        Raises:
            InvalidArgumentError: an argument has the wrong form. Errors that depend on the table, and
                ``SnapshotTooOldError`` for times older than its history, are raised when the scan is consumed.
        """
        start = read_moment(since, "since")
        feed = ChangeSpec(
            since=start,
            until=max(self._store.now(), start) if until is None else read_moment(until, "until"),
            before=before,
            every=every,
        )
        parts = {"columns": column_names(columns), "where": where_json(where), "changes": feed, "ordered": ordered}
        parts["limit"] = limit
        spec = built(ScanSpec, "the scan", table=self.name, **parts)
        return Scan(self._store, spec.checked())

    def get(self, key: Any) -> dict[str, Any] | None:
        """Return the live row with a primary key, or None.

        ``key`` is a dict of the key columns or a tuple of their values in order; for a key of one column, the value
        alone is enough. A timestamp outside the years 1 to 9999, for which Python has no datetime, is given as
        microseconds since 1970, in the key and in the row.

        Raises:
            InvalidArgumentError: the key is incomplete, or a value does not fit its column.
        """
        return self._store.get_row(self._description, key_values(key, self._description))

    def get_many(self, keys: Any) -> pa.Table:
        """Return the live rows with the given primary keys as one table, in the order of ``keys``; absent keys are left
        out.

        ``keys`` is a list of keys as ``get`` takes them, an Arrow array of bare ones, or data with the key columns in
        a form that ``write`` takes. For answers that may not fit into memory there is ``get_batches``.
        """
        return key_reads.rows_of(self._store, self._description, keys)

    def get_batches(self, keys: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``get_many`` in batches of some MB, as they are read; some may be empty. Keys in a list, or
        in one record batch, are read at one snapshot. Closing the iterator ends the read.

        Raises:
            UnavailableError: the table was altered, or the server stopped, after the first batch: read again.
        """
        return key_reads.batches_of(self._store, self._description, keys)

    def count(self, where: Where = None) -> int:
        """Return the number of rows that match ``where``."""
        return self.scan(where=where).count()

    def head(self, n: int = 5) -> pa.Table:
        """Return the first ``n`` rows in primary-key order."""
        return self.scan(ordered=True, limit=n).to_arrow()

    def __repr__(self) -> str:
        return "\n  ".join([f"Table({self.name!r})", *self.notes])
