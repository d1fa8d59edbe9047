"""Catalog: the open tables by name, kept in step with the manifest."""

from __future__ import annotations

import threading

from ..schemas.alter import Alteration
from ..schemas.altered import TableState, altered
from ..schemas.errors import AlreadyPresentError, ConflictError, NotFoundError
from ..schemas.limits import Limits
from ..schemas.partition_schema import PartitionSchema
from ..schemas.table import TableDefinition, TableSchema
from .alteration import put_in_place
from .layout import Layout
from .splitting import split_in_place
from .table import Table
from .tablet.directories import make_directories, retire
from .tablet.environment import Environment
from .tablet.manifest import TableEntry, TabletEntry
from .tablet.open import open_tablet
from .tablet.tablet import Tablet


class Catalog:
    """All tables of a store. Thread safe."""

    def __init__(self, environment: Environment, limits: Limits) -> None:
        self._environment = environment
        self._limits = limits
        self._tables: dict[str, Table] = {}
        """Read without the lock, hence only by calls that the interpreter lets no other thread into."""
        self._lock = threading.Lock()

    def load(self) -> None:
        """Open every table of the manifest. Raises CorruptionError when a file is not what was written."""
        for entry in self._environment.manifest.current.tables:
            tablets = tuple(open_tablet(tablet, entry.schema_, self._environment) for tablet in entry.tablets)
            layout = Layout(entry.schema_, entry.options, tablets, entry.partitions)
            self._tables[entry.name] = Table(entry.id, entry.name, layout, entry.last_auto_id)

    def create(self, definition: TableDefinition) -> Table:
        """Create a table; with ``if_not_exists`` return the one there is.

        Raises:
            AlreadyPresentError: there is a table of that name.
            InvalidArgumentError: the definition breaks a rule.
        """
        schema = TableSchema.create(definition, self._limits)
        partitions = PartitionSchema.create(definition.partition_by, schema, self._limits)
        with self._lock:
            if found := self._tables.get(definition.name):
                if definition.if_not_exists:
                    return found
                raise AlreadyPresentError(f"there is a table {definition.name!r} already")
            table = self._make(definition, schema, partitions)
            self._tables[table.name] = table
            return table

    def alter(self, alteration: Alteration) -> Table:
        """Change a table by all steps, or by none, and return it.

        Raises:
            NotFoundError: there is no such table, or a step names a column that is not there.
            ConflictError: the schema version is not ``if_version``.
            AlreadyPresentError: there is a table of the new name.
            InvalidArgumentError: a step breaks a rule.
            StorageFullError, UnavailableError: the manifest could not be written.
        """
        with self._lock:
            table = self.table(alteration.table)
            layout, wanted = table.layout, alteration.if_version
            if wanted is not None and wanted != layout.schema.version:
                raise ConflictError(
                    f"table {table.name!r} has the schema version {layout.schema.version}, not {wanted}: "
                    "it was altered meanwhile; look at it again"
                )
            old_name = table.name
            before = TableState(old_name, layout.schema, layout.options, layout.partitions)
            state = altered(before, alteration.steps, self._limits)
            if state.name != old_name and state.name in self._tables:
                raise AlreadyPresentError(f"there is a table {state.name!r} already")
            if state.split:
                gone = []
                split_in_place(table, state, state.split, self._environment)
            else:
                gone = put_in_place(table, state, self._environment)
            self._tables[state.name] = table
            if state.name != old_name:
                del self._tables[old_name]
        retire(self._environment, gone, "the range of the tablet was dropped")
        return table

    def drop(self, name: str) -> Table:
        """Take a table out of the catalog and the manifest, delete its files, and return it.

        Scans that run keep reading what they hold open.
        """
        with self._lock:
            table = self.table(name)
            self._environment.manifest.commit(lambda manifest: manifest.without_table(table.table_id))
            del self._tables[name]
        retire(self._environment, table.tablets, "the table was dropped")
        return table

    def table(self, name: str) -> Table:
        """Return a table. Raises NotFoundError naming the tables there are."""
        if found := self._tables.get(name):
            return found
        known = ", ".join(self.names()[:20]) or "none"
        raise NotFoundError(f"there is no table {name!r}; the tables are: {known}")

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(self._tables)

    def tables(self) -> list[Table]:
        """Return all tables."""
        return list(self._tables.values())

    def tablets(self) -> list[Tablet]:
        """Return the tablets of all tables."""
        return [tablet for table in self.tables() for tablet in table.tablets]

    def _make(self, definition: TableDefinition, schema: TableSchema, partitions: PartitionSchema) -> Table:
        manifest = self._environment.manifest
        table_id = manifest.new_id()
        budget = self._environment.key_index
        tablets = tuple(Tablet(manifest.new_id(), schema, budget, partition) for partition in partitions.tablets())
        make_directories(self._environment, tablets)
        entry = TableEntry(
            id=table_id,
            name=definition.name,
            schema_=schema,
            options=definition.options,
            partitions=partitions,
            tablets=tuple(TabletEntry(id=tablet.tablet_id, partition=tablet.partition) for tablet in tablets),
        )
        manifest.commit(lambda current: current.with_table(entry))
        return Table(table_id, definition.name, Layout(schema, definition.options, tablets, partitions))
