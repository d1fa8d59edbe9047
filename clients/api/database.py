"""Database: the tables of a store, in this process or behind Arrow Flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
from pydantic import ValidationError

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.errors import AlreadyPresentError, InvalidArgumentError, RowErrors
from ...schemas.protocol.command import built, explain
from ...schemas.protocol.service import StoreService
from ...schemas.rows.write import RowError
from ...schemas.store.checkpoint import Checkpoint, MakeCheckpoint
from ...schemas.store.description import DroppedTable, Health
from ...schemas.store.grants import Grant, GrantChange
from ...schemas.store.metrics import Metrics
from ...schemas.store.moving import MoveProgress
from ...schemas.store.pins import CreatePin, KeptPin
from ...schemas.table.column import ColumnOptions
from ...schemas.table.names import Names, listed
from ...schemas.table.partition import HashLevel, RangeLevel
from ...schemas.table.table import TableDefinition, TableOptions, TableOptionsDict
from ..convert.new_schema import NewSchema, Options, read_new, schema_for
from ..convert.where import Where
from .loading import dropped_unless_loaded, made_to_load
from .pins import pin_id_of
from .queries import sql_engine
from .table import Table
from .transaction import Transaction

if TYPE_CHECKING:
    from ..offline_jobs.direct_scan import DirectScan
    from ..sql.engine import SqlEngine
    from ..sql.result import Result
    from ..sql.session import SqlSession


class Database:
    """The database that a user opens or connects to: the tables of one store. Thread safe. Close it, or use it as a
    context manager."""

    def __init__(self, store: StoreService) -> None:
        self._store = store
        self._sql: SqlEngine | None = None

    def create_table(
        self,
        name: str,
        schema: pa.Schema | None = None,
        primary_key: Names = (),
        partition_by: Sequence[HashLevel | RangeLevel | Mapping[str, Any]] = (),
        column_options: Mapping[str, ColumnOptions | Mapping[str, Any]] | None = None,
        if_not_exists: bool = False,
        unique_key: bool = True,
        data: Any = None,
        **table_options: Unpack[TableOptionsDict],
    ) -> Table:
        """Create a table. With ``data``, also load it in one commit; if that fails, no table is created.

        ``data`` is anything that ``Table.write`` takes, such as the path of a Parquet file. Without a ``schema`` the
        table gets the columns of the data, those of the key first. An Arrow type that tables do not have becomes the
        nearest type that holds all of its values, and ``Table.notes`` lists these columns.

        ``primary_key`` names the leading column of ``schema``, or a list of them in order. ``partition_by`` divides the
        table into tablets, with ``nyala.partition.hash`` and ``nyala.partition.range`` of key columns; without it the
        table is one tablet. ``column_options`` maps column names to ``ColumnOptions``; ``table_options`` are those of
        ``TableOptions``. With ``if_not_exists``, an existing table of that name is returned unchanged, whatever its
        columns, and no data is loaded.

        With ``unique_key=False`` rows may share the values of ``primary_key``: the store adds a last key column
        ``auto_incrementing_id`` and numbers the rows of every insert.

        Raises:
            AlreadyPresentError: a table of that name exists.
            InvalidArgumentError: a name, type, key or option is invalid. The message names all columns whose types no
                table can hold.
            RowErrors: rows of ``data`` were rejected, such as two with the same key.
        """
        key = listed(primary_key)
        if not key:
            raise InvalidArgumentError("primary_key must name at least one column")
        options = {} if column_options is None else column_options
        if not isinstance(options, Mapping):
            raise InvalidArgumentError("column_options must be a dict from column names to their options")
        columns, rows = _columns_and_rows(schema, data, key, options)
        may_be_there = if_not_exists and rows is None
        try:
            definition = TableDefinition.from_arrow(
                name, columns.schema, key, options, may_be_there, table_options, unique_key, partition_by
            )
        except ValidationError as error:
            known = {model.__name__: model.model_fields for model in (TableOptions, ColumnOptions, TableDefinition)}
            what = {"TableOptions": "the table options", "ColumnOptions": "the column options"}.get(
                error.title, "the table"
            )
            raise InvalidArgumentError(explain(error, what, known.get(error.title, ()))) from None
        try:
            made = self._store.create_table(definition) if rows is None else made_to_load(self._store, definition)
        except AlreadyPresentError:
            if not if_not_exists:
                raise
            return Table(
                self._store, self._store.describe_table(name), ["the table already exists: no data was loaded"]
            )
        table = Table(self._store, made, columns.notes)
        if rows is not None:
            with dropped_unless_loaded(self._store, made):
                self._load(table, rows)
        return table

    def _load(self, table: Table, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Load a table that was just made, in one commit."""
        try:
            with self.transaction() as loading:
                loading.insert(table, rows)
        except RowErrors as error:  # of the one part there is: the caller knows of no parts
            plain = [RowError(row=each.row, code=each.code, message=each.message) for each in error.result.errors]
            raise RowErrors(error.result.model_copy(update={"errors": plain})) from None

    def create_table_as(self, definition: TableDefinition) -> Table:
        """Create a table from its whole definition, as in JSON.

        Raises:
            AlreadyPresentError: a table of that name exists.
            InvalidArgumentError: a name, type, key or option is invalid.
        """
        return Table(self._store, self._store.create_table(definition))

    def table(self, name: str) -> Table:
        """Return the table named ``name``.

        Raises:
            NotFoundError: it does not exist.
        """
        return Table(self._store, self._store.describe_table(name))

    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return self._store.tables()

    tables = list_tables

    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """Drop a table and its data. Within ``keep_seconds``, ``recall_table`` can bring it back; its name is free at
        once.

        Raises:
            NotFoundError: no table has that name.
            InvalidArgumentError: ``keep_seconds`` is not an integer from 0 to 100 years.
        """
        self._store.drop_table(name, keep_seconds)

    def recall_table(self, table: str | int, new_name: str | None = None) -> Table:
        """Bring back a table dropped with ``keep_seconds``, by name or id, with all of its rows and history.

        Raises:
            NotFoundError: there is no such table, or its time ran out and it was deleted.
            ConflictError: several dropped tables have that name; the message lists their ids.
            AlreadyPresentError: a table with the name exists: give another ``new_name``.
        """
        return Table(self._store, self._store.recall_table(table, new_name))

    def dropped_tables(self) -> list[DroppedTable]:
        """Return the dropped tables that can be recalled: ``table_id``, ``name``, and ``until``, the time until which
        they are kept at least."""
        return self._store.dropped_tables()

    def sql(
        self,
        text: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a statement in SQL. All tables of a query are read at one snapshot, that of now or of ``as_of``. A change
        is one commit, and is done when this returns.

        ``params`` are the values of ``?`` or ``$1``, in order, or of ``$name``, by name. The rows of a query come as
        the result is read; of a change it has ``changed``, the number of rows. It needs ``nyala[sql]``. See
        docs/sql.md.

        Raises:
            InvalidArgumentError: the statement is invalid, or a value does not fit; or ``nyala[sql]`` is not installed.
            NotFoundError, AlreadyPresentError: a table does not exist, or a table or a key is there already.
            ConflictError: other writers changed the same rows again and again.
            SnapshotTooOldError: a table does not keep its history that long.
            UnavailableError: the query takes longer than ``timeout`` seconds, or more memory than there is.
        """
        return self._engine().query(text, params, as_of, timeout)

    def sql_session(self) -> SqlSession:
        """Return a session of statements, for BEGIN, COMMIT and ROLLBACK. Close it, or use it as a context manager.

        Raises:
            InvalidArgumentError: ``nyala[sql]`` is not installed.
        """
        engine = self._engine()
        from ..sql.session import SqlSession

        return SqlSession(engine)

    def _engine(self) -> SqlEngine:
        if self._sql is None:
            self._sql = sql_engine(self._store)
        return self._sql

    def commits(self, table: str | Table, since: Moment | None = None) -> pa.Table:
        """Return the commits to a table after ``since``, oldest first; without ``since``, all in its history.

        Columns: ``timestamp``; the same as a time, ``at``; ``writer``, the name given to a numbered write, and
        ``transaction``, its id, both NULL if there was none or it is forgotten; the numbers of rows ``inserted``,
        ``updated`` and ``deleted``; ``operation``, such as ``upsert`` or ``update_where``; and ``user``, who was logged
        in, both NULL if that is not known. Commits that changed no row are left out.

        Raises:
            SnapshotTooOldError: ``since`` is older than the history that the table keeps.
            InvalidArgumentError: there are more than a million commits; ask from a later time.
        """
        name = table.name if isinstance(table, Table) else table
        return self._store.commits(name, None if since is None else read_moment(since, "since"))

    def transaction(
        self,
        id: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        if_timestamp: Moment | None = None,
    ) -> Transaction:
        """Return a transaction: writes to any tables that become visible together, at the end of its ``with``.

        Without ``id`` a new one is generated. A transaction whose id was committed before is not applied again. With
        ``app_id`` and ``app_version``, nothing is applied if that application has already committed this version or a
        later one. With ``if_timestamp``, such as the ``as_of`` of the scans that it was made from, it is applied only
        if none of its rows has changed since.

        Raises:
            InvalidArgumentError: a name is empty or too long, or ``app_version`` is negative.
        """
        moment = None if if_timestamp is None else read_moment(if_timestamp, "if_timestamp")
        return Transaction(self._store, id, app_id, app_version, moment)

    def grant(
        self,
        privileges: str | Sequence[str],
        on: str | Table,
        to: str | None = None,
        role: str | None = None,
        columns: Names | None = None,
    ) -> list[Grant]:
        """Grant privileges on a table to the user ``to``, or to all with a ``role``; return all grants of these.

        ``privileges`` are read, insert, update, delete, alter, maintain and admin, which has all of them. ``on`` is a
        table, or "*" for all tables, those to come included. With ``columns``, read, insert and update hold for these
        only. Only servers that ask who calls enforce grants; see docs/security.md.

        Raises:
            NotFoundError: there is no such table.
            InvalidArgumentError: a privilege or column does not exist, or not exactly one of user and role is named.
            PermissionDeniedError: the caller does not administer the table.
        """
        return self._store.grant(_grant_change(privileges, on, to, role, columns))

    def revoke(
        self,
        privileges: str | Sequence[str],
        on: str | Table,
        to: str | None = None,
        role: str | None = None,
        columns: Names | None = None,
    ) -> list[Grant]:
        """Take privileges back, as they were granted; return what the user or role still has.

        What it never had is no error. Scans, sessions and staged writes that need what is gone end.

        Raises:
            InvalidArgumentError: as ``grant``; or ``columns`` are named, and the privilege is granted on all.
            NotFoundError, PermissionDeniedError: as ``grant``.
        """
        return self._store.revoke(_grant_change(privileges, on, to, role, columns))

    def grants(self) -> list[Grant]:
        """Return all grants: to an administrator, those of everybody; to others, their own."""
        return self._store.grants()

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """Move a tablet to the server ``to``, one of several that share the table. Reads and writes continue meanwhile.

        ``tablet`` is its number from ``Table.tablets``; ``server`` names its server if several have a tablet of this
        number. Call it again to resume an interrupted move. ``progress`` is called with the bytes of files copied so
        far and the total. See docs/servers.md.

        Raises:
            InvalidArgumentError: there is no such server, or the tables are not shared by several servers.
            NotFoundError: there is no such table or tablet.
            ConflictError: the tablet was split or dropped meanwhile, or another move of it is in progress.
            UnavailableError: a server cannot be reached, or a transaction has staged rows of the table.
        """
        self._store.move_tablet(table, tablet, to, server, progress)

    def checkpoint(self, directory: str | Path) -> Checkpoint:
        """Copy the store, as it is now, into a directory on its machine; reads and writes continue meanwhile.

        The directory is new or empty, or has an earlier checkpoint of the store: then only what is new is added. Column
        files become hard links where the disk allows it. Open the copy as any store: see docs/backup.md.

        Raises:
            InvalidArgumentError: the path is not absolute, the directory has something else, or several servers or
                processes share the tables.
            UnavailableError: another process uses the directory, or a disk fails.
            StorageFullError: the disk is full; an earlier checkpoint in the directory is as it was.
        """
        return self._store.checkpoint(MakeCheckpoint(directory=str(directory)))

    def create_pin(self, name: str, table: str | Table | None = None, as_of: Moment | None = None) -> KeptPin:
        """Keep a table as of now or ``as_of``, or all tables as of now, until the pin is dropped: a backup that copies
        nothing.

        The files stay as they are, whatever becomes of the table, also when it is dropped, and through restarts. All
        tables can be kept by a store in a bucket. See docs/backup.md.

        Raises:
            AlreadyPresentError: a pin has this name.
            InvalidArgumentError: the name is not made of up to 64 letters, digits and '._-', all tables cannot be kept
                here, or ``as_of`` is given without a table.
            NotFoundError: there is no such table.
            SnapshotTooOldError: ``as_of`` is older than the history that the table keeps.
            UnavailableError: this disk has no hard links, or another process has the store.
        """
        moment = None if as_of is None else read_moment(as_of)
        of = table.name if isinstance(table, Table) else table
        return self._store.create_pin(built(CreatePin, "the pin", name=name, table=of, as_of=moment))

    def pins(self) -> list[KeptPin]:
        """Return the pins that are kept, oldest first: ``name``, ``pin_id``, ``table`` and ``snapshot``."""
        return self._store.pins()

    def drop_pin(self, pin: str | KeptPin) -> None:
        """Drop a kept pin, also by its name or id. Raises NotFoundError: there is none."""
        self._store.drop_pin(pin_id_of(self._store, pin))

    def pinned_scan(
        self,
        pin: str | KeptPin,
        table: str | None = None,
        columns: Names | None = None,
        where: Where = None,
        *,
        directory: Any = None,
        split_bytes: int | None = None,
    ) -> DirectScan:
        """Return a scan of a table as a kept pin has it, whatever became of the table since.

        ``table`` is its name then, and may be left out if the pin has one. The scan reads the files here, outside the
        server, as ``Table.direct_scan`` does, which explains the rest. ``nyala.jobs.restore_pin`` makes a table of it.

        Raises:
            NotFoundError: there is no such pin, or it does not have the table.
            InvalidArgumentError: an argument has the wrong form, or the pin has several tables.
        """
        from ..offline_jobs.direct_scan import pinned_scan  # needs the engine, which clients of a server may lack

        pin_id = pin_id_of(self._store, pin)
        where_to = {"directory": directory, "split_bytes": split_bytes}
        return pinned_scan(self._store, pin_id, table, columns, where, **where_to)

    def now(self) -> int:
        """Return the latest timestamp at which every acknowledged write is visible."""
        return self._store.now()

    def health(self) -> Health:
        """Return whether the store accepts writes: ``status`` is "ok", or ``reason`` says what is wrong."""
        return self._store.health()

    def metrics(self) -> Metrics:
        """Return what the server, or the store in this process, has counted since its start: see docs/metrics.md."""
        return self._store.metrics()

    def close(self) -> None:
        """Close the store or the connection to it. Acknowledged writes are already durable."""
        self._store.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database({self._store!r})"


def _grant_change(
    privileges: str | Sequence[str],
    on: str | Table,
    user: str | None,
    role: str | None,
    columns: Names | None,
) -> GrantChange:
    names = None if columns is None else listed(columns)
    given = {"user": user, "role": role, "columns": names, "table": on.name if isinstance(on, Table) else on}
    return built(GrantChange, "the grant", privileges=privileges, **given).checked()


def _columns_and_rows(
    schema: pa.Schema | None, data: Any, primary_key: Sequence[str], options: Options
) -> tuple[NewSchema, Any]:
    """Return the columns of a new table, and the rows to load, None for none."""
    if isinstance(schema, pa.Schema):
        return schema_for(schema, primary_key, options), data
    if schema is not None:
        raise InvalidArgumentError(
            f"schema must be a pyarrow.Schema, not a {type(schema).__name__}; pass rows as data="
        )
    if data is None:
        raise InvalidArgumentError("a table needs columns: give a schema (a pyarrow.Schema), or data to infer it from")
    return read_new(data, primary_key, options)
