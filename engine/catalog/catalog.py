"""Catalog: the open tables by name, kept in step with the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ...schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, NotFoundError
from ...schemas.gc_pause import collector_paused
from ...schemas.limits.limits import Limits
from ...schemas.protocol.request import check_meant
from ...schemas.store.description import DroppedTable
from ...schemas.store.grants import no_table
from ...schemas.table.alter import Alteration
from ...schemas.table.altered import TableState, altered
from ...schemas.table.names import check_table_name
from ...schemas.table.partition_schema import PartitionSchema, TabletPartition
from ...schemas.table.table import TableDefinition, TableOptions, TableSchema
from .. import threads
from ..maintenance.op import MaintenanceOp
from ..manifest.environment import Environment
from ..manifest.interrupts import interrupts_later
from ..manifest.manifest import TableEntry, TabletEntry
from ..mvcc.clock import Clock
from ..mvcc.ends import Ends
from ..table.formulas import check_formulas
from ..table.table import Table
from ..table.table_version import TableVersion, write_locks
from ..tablet.directories import make_directories, retire
from ..tablet.open import fetch_ends, open_sound
from ..tablet.tablet import Tablet
from .alteration import Replaced, put_in_place, without_maintenance
from .splitting import split_in_place

KEEP_SECONDS_MAX = 100 * 365 * 86_400
"""The longest time to keep a dropped table."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RemovalOp:
    """Maintenance of the catalog: the deletion of a dropped table whose time to be recalled has expired."""

    name: str
    perform: Callable[[], object]

    def score(self) -> float:
        """Return the score of work that is due: it frees space."""
        return 1.0


class Catalog:
    """The tables of a store by name, and dropped tables that can be recalled. Thread safe.

    A table that is set aside has no name here, and is otherwise like any other: its rows in memory are flushed, the log
    is replayed into it, its history ages.
    """

    def __init__(self, environment: Environment, limits: Limits) -> None:
        self._environment = environment
        self._limits = limits
        self._tables: dict[str, Table] = {}
        """Read without the lock, so only by calls that are atomic in the interpreter."""
        self._dropped: dict[int, Table] = {}
        """By id. Read like ``_tables``. A table on its way is in both for a moment, never in neither."""
        self._ends = Ends()
        """Of dropped tables, by id."""
        self._lock = threads.Lock()
        self.names_version = 0
        """Grows whenever a table or column gets, changes or loses its name."""

    def load(self) -> None:
        """Open every table of the manifest; tablets with damaged files go into quarantine."""
        environment = self._environment
        tables = environment.manifest.current.tables
        with collector_paused():
            fetch_ends(environment.fs, (tablet for entry in tables for tablet in entry.tablets))
            for entry in tables:
                self._load(entry)

    def _load(self, entry: TableEntry) -> None:
        environment = self._environment
        tablets = tuple(open_sound(tablet, entry.schema_, environment, environment.damage) for tablet in entry.tablets)
        version = TableVersion(entry.schema_, entry.options, tablets, entry.partitions)
        table = Table(entry.id, entry.name, version, entry.last_auto_id, entry.dropped_until, entry.last_change)
        if entry.dropped_until is None:
            self._tables[entry.name] = table
        else:
            self._dropped[entry.id] = table

    def create(self, definition: TableDefinition) -> Table:
        """Create a table; with ``if_not_exists`` return an existing one.

        Raises:
            AlreadyPresentError: a table has that name.
            InvalidArgumentError: the definition breaks a rule.
        """
        schema, options = TableSchema.create(definition, self._limits), definition.options.checked()
        check_formulas(schema)
        partitions = PartitionSchema.create(definition.partition_by, schema, self._limits)
        with self._lock, interrupts_later():
            if found := self._tables.get(definition.name):
                if definition.if_not_exists:
                    return found
                raise AlreadyPresentError(
                    f"table {definition.name!r} already exists: use it, drop it, or choose another name"
                )
            self._check_room(1, partitions.tablet_count)
            here = self._environment.here
            elsewhere = here.elsewhere(definition.name, partitions) if here else {}
            table = self._make(definition.name, schema, options, partitions, elsewhere)
            self._tables[table.name] = table
            self.names_version += 1
            return table

    def adopt(
        self, name: str, schema: TableSchema, options: TableOptions, partitions: PartitionSchema, server: str
    ) -> Table:
        """Return a table. If it is not here, create it as ``server`` has it, without any tablets of its own.

        Raises:
            StorageFullError, UnavailableError: it could not be created.
        """
        check_table_name(name, self._limits)
        with self._lock, interrupts_later():
            if found := self._tables.get(name):
                return found
            elsewhere = dict.fromkeys(partitions.tablets(), server)
            table = self._tables[name] = self._make(name, schema, options, partitions, elsewhere)
            self.names_version += 1
            return table

    def alter(self, alteration: Alteration, now: int, removed: Callable[[int], object]) -> Table:
        """Change a table by all steps, or by none, and return it.

        If it takes the place of another, that can be recalled for some time after ``now``, in microseconds since 1970,
        or ``removed`` is called with its id.

        Raises:
            NotFoundError: there is no such table, or a step names a missing column.
            ConflictError: the schema version is not ``if_version``, or the table to replace has its name no more.
            AlreadyPresentError: a table has the new name.
            InvalidArgumentError: a step breaks a rule.
            StorageFullError, UnavailableError: the manifest could not be written.
        """
        while True:
            table = self.table(alteration.table)
            with table.alteration_lock:
                if self._tables.get(alteration.table) is not table:
                    continue  # it was renamed or dropped during another alteration
                state = self._altered(table, alteration)
                with without_maintenance(table.version, state), self._lock:
                    if self._tables.get(alteration.table) is not table:
                        continue  # it was dropped just now
                    self._check_room(0, state.partitions.tablet_count - len(table.tablets))
                    replaced = self._replaced(table, state, now)
                    with interrupts_later():
                        gone = [] if state.split else self._put_in_place(table, state, replaced)
                if state.split:  # takes long for a large tablet; other tables can be created and dropped meanwhile
                    split_in_place(table, state, state.split, self._environment)
            retire(self._environment, gone, "the range of the tablet was dropped")
            if replaced and replaced.until is None:
                self._retire(replaced.table)
                removed(replaced.table.table_id)
            return table

    def _altered(self, table: Table, alteration: Alteration) -> TableState:
        """Return what a table becomes. Under its alteration lock."""
        version, wanted = table.version, alteration.if_version
        if wanted is not None and wanted != version.schema.version:
            raise ConflictError(
                f"table {table.name!r} has the schema version {version.schema.version}, not {wanted}: it was "
                "altered meanwhile; read its description again"
            )
        before = TableState(table.name, version.schema, version.options, version.partitions)
        state = altered(before, alteration.steps, self._limits)
        check_formulas(state.schema)
        return state

    def _replaced(self, table: Table, state: TableState, now: int) -> Replaced | None:
        """Return the table whose place a renamed one takes; None if there is none. Under the lock."""
        found, step = self._tables.get(state.name), state.renamed
        if step is None or step.replaces is None:
            if found not in (None, table):
                raise AlreadyPresentError(f"table {state.name!r} already exists")
            return None
        if found is None or found is table or found.table_id != step.replaces:
            raise ConflictError(
                f"table {state.name!r}, which {table.name!r} is to replace, does not have the id {step.replaces}: "
                "it was renamed, dropped or replaced meanwhile; read its description again"
            )
        seconds = _checked_seconds(step.keep_seconds)
        return Replaced(found, now + seconds * 1_000_000 if seconds else None)

    def _check_room(self, tables: int, tablets: int) -> None:
        """Check that the store may have so many more tables and tablets. Raises InvalidArgumentError if not."""
        known, limits = self.tables(), self._limits
        if tables > 0 and len(known) + tables > limits.tables:
            raise InvalidArgumentError(
                f"the store has {len(known):,} tables, including dropped tables that can be recalled, and at "
                f"most {limits.tables:,} are allowed (limits: tables): drop a table with keep_seconds=0"
            )
        count = sum(len(table.tablets) for table in known)
        if tablets > 0 and count + tablets > limits.store_tablets:
            raise InvalidArgumentError(
                f"the tables of the store have {count:,} tablets, and {tablets:,} more would exceed the limit "
                f"of {limits.store_tablets:,} (limits: store_tablets): use fewer buckets or ranges"
            )

    def _put_in_place(self, table: Table, state: TableState, replaced: Replaced | None) -> list[Tablet]:
        """Bring the table to ``state``, and return the removed tablets. Under the lock."""
        old_name = table.name
        gone = put_in_place(table, state, self._environment, replaced)
        if replaced and replaced.until is not None:
            self._dropped[replaced.table.table_id] = replaced.table
        self._tables[state.name] = table
        self.names_version += 1
        if state.name != old_name:
            del self._tables[old_name]
        for each in (table, *((replaced.table,) if replaced else ())):
            each.redefined()
        return gone

    def drop(self, name: str) -> Table:
        """Take a table out of the catalog and the manifest, delete its files, and return it.

        Running scans keep what they hold open. Concurrent writes commit before the drop or are rejected.
        """
        with self._lock:
            table = self.table(name)
            with write_locks(table.tablets), interrupts_later():
                self._environment.manifest.commit(lambda manifest: manifest.without_table(table.table_id))
                table.dropped_until = 0
                del self._tables[name]
                self.names_version += 1
                table.redefined()
        self._retire(table)
        return table

    def _retire(self, table: Table) -> None:
        retire(self._environment, table.tablets, "the table was dropped")
        table.version.forget_plans()

    def set_aside(self, name: str, keep_seconds: int, now: int) -> None:
        """Drop a table that can be recalled for ``keep_seconds`` after ``now``, in microseconds since 1970.

        Raises:
            NotFoundError: there is no such table.
            InvalidArgumentError: ``keep_seconds`` is out of range.
            StorageFullError, UnavailableError: the manifest could not be written.
        """
        until = now + _checked_seconds(keep_seconds) * 1_000_000
        with self._lock:
            table = self.table(name)
            with write_locks(table.tablets), interrupts_later():
                self._commit(table, name, until)
                self._dropped[table.table_id] = table
                del self._tables[name]
                self.names_version += 1
                table.redefined()

    def recall(self, name_or_id: str | int, new_name: str | None) -> Table:
        """Bring back a table that was set aside, under ``new_name`` if given, and return it.

        Raises:
            NotFoundError: no such table can be recalled.
            ConflictError: several tables of that name can be recalled.
            AlreadyPresentError: a table has the name that it would get.
            StorageFullError, UnavailableError: the manifest could not be written.
        """
        with self._lock:
            table = self._recallable(name_or_id)
            name = check_table_name(table.name if new_name is None else new_name, self._limits)
            if name in self._tables:
                raise AlreadyPresentError(
                    f"table {name!r} already exists: recall the dropped table, with the id "
                    f"{table.table_id}, under a new name (new_name)"
                )
            with write_locks(table.tablets), interrupts_later():
                self._commit(table, name, None)
                self._tables[name] = table
                self.names_version += 1
                del self._dropped[table.table_id]
                table.redefined()
        return table

    def dropped(self) -> list[DroppedTable]:
        """Return the tables that can be recalled, by name and id."""
        return listed_dropped(list(self._dropped.values()))

    def removals(self, clock: Clock, removed: Callable[[int], object]) -> list[MaintenanceOp]:
        """Return the deletions that are due; ``removed`` is called with the id of each removed table."""

        def operation(table: Table) -> RemovalOp:
            def remove() -> None:
                if self._remove(table, clock):
                    removed(table.table_id)

            return RemovalOp(f"remove the dropped table {table.table_id}", remove)

        return [operation(table) for table in list(self._dropped.values()) if self._is_over(table, clock)]

    def _is_over(self, table: Table, clock: Clock) -> bool:
        """Whether a table's time to be recalled has expired."""
        until = table.dropped_until
        return until is not None and self._ends.is_over(table.table_id, until, clock)

    def _remove(self, table: Table, clock: Clock) -> bool:
        """Delete a table whose time has expired; return False if it was recalled meanwhile."""
        with self._lock, interrupts_later():
            if table.table_id not in self._dropped or not self._is_over(table, clock):
                return False
            self._environment.manifest.commit(lambda manifest: manifest.without_table(table.table_id))
            del self._dropped[table.table_id]
            self._ends.forget(table.table_id)
        self._retire(table)
        return True

    def _commit(self, table: Table, name: str, dropped_until: int | None) -> None:
        """Set a table's name and the end of its recall time, first durably, then in memory. Under all its locks."""
        update = {"name": name, "dropped_until": dropped_until}
        self._environment.manifest.commit(
            lambda manifest: manifest.with_altered(table.table_id, lambda entry: entry.model_copy(update=update))
        )
        table.name, table.dropped_until = name, dropped_until

    def _recallable(self, name_or_id: str | int) -> Table:
        """Return the one recallable table with this name or id."""
        found = [table for table in self._dropped.values() if name_or_id in (table.name, table.table_id)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(str(table.table_id) for table in found)
            raise ConflictError(
                f"{len(found)} dropped tables have the name {name_or_id!r}: recall one by its id: {ids}"
            )
        known = ", ".join(f"{table.name!r} (id {table.table_id})" for table in list(self._dropped.values())[:20])
        raise NotFoundError(f"no dropped table {name_or_id!r} can be recalled; known: {known or 'none'}")

    def table(self, name: str) -> Table:
        """Return a table. Raises NotFoundError with the names of all tables, and ConflictError if the request means
        another table by the name."""
        if found := self._tables.get(name):
            check_meant(name, found.table_id)
            return found
        raise no_table(name, self.names())

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(self._tables)

    def tables(self) -> list[Table]:
        """Return all tables, including those set aside."""
        # Named tables are listed twice, to catch one that is recalled between the two looks.
        found = (*self._tables.values(), *self._dropped.values(), *self._tables.values())
        return list({table.table_id: table for table in found}.values())

    def tablets(self) -> list[Tablet]:
        return [tablet for table in self.tables() for tablet in table.tablets]

    def maintained_tablets(self) -> list[Tablet]:
        """Return the tablets that this store's maintenance flushes."""
        return [tablet for table in self.tables() if table.is_maintained for tablet in table.tablets]

    def _make(
        self,
        name: str,
        schema: TableSchema,
        options: TableOptions,
        partitions: PartitionSchema,
        elsewhere: Mapping[TabletPartition, str | None],
    ) -> Table:
        manifest = self._environment.manifest
        table_id = manifest.new_id()
        budget = self._environment.key_index
        tablets = tuple(
            Tablet(manifest.new_id(), schema, budget, partition, elsewhere=elsewhere.get(partition))
            for partition in partitions.tablets()
        )
        make_directories(self._environment, tablets)
        entry = TableEntry(
            id=table_id,
            name=name,
            schema_=schema,
            options=options,
            partitions=partitions,
            tablets=tuple(
                TabletEntry(id=tablet.tablet_id, partition=tablet.partition, elsewhere=tablet.elsewhere)
                for tablet in tablets
            ),
        )
        manifest.commit(lambda current: current.with_table(entry))
        return Table(table_id, name, TableVersion(schema, options, tablets, partitions))


def _checked_seconds(keep_seconds: int) -> int:
    if isinstance(keep_seconds, int) and 0 <= keep_seconds <= KEEP_SECONDS_MAX:
        return keep_seconds
    raise InvalidArgumentError(f"keep_seconds must be an integer from 0 to {KEEP_SECONDS_MAX:,}, not {keep_seconds!r}")


def listed_dropped(tables: Iterable[Table]) -> list[DroppedTable]:
    """Return those of the tables that are dropped and can be recalled, by name and id."""
    described = [(table, table.dropped_until) for table in tables]
    found = [
        DroppedTable(table_id=table.table_id, name=table.name, until=_EPOCH + timedelta(microseconds=until))
        for table, until in described
        if until is not None
    ]
    return sorted(found, key=lambda table: (table.name, table.table_id))
