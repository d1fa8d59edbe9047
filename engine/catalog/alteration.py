"""Alteration: changes the schema, options or name of a table in one step that splits no batch.

 1. The steps are checked against the table. If one is wrong, nothing happens.
 2. Under the write locks of all tablets, so that every batch is wholly before or wholly after, the manifest is
    committed, which is the only commit point, and then the version of the table is replaced.

When columns are added, dropped or widened, the rows in memory are set aside to be flushed, and new rows go to a
MemRowSet with the new columns. So a MemRowSet, like a file, has one set of columns for good. Readers adapt: a column
that a rowset lacks shows its read default, narrower cells are widened, dropped columns are ignored. No data is
rewritten, so the locks are held only while the manifest is written. Running scans keep their version and rowsets.

A table that takes the place of another drops it by the same commit of the manifest, under the write locks of both. So
whoever looks for the name finds the one or the other, whole.

Added ranges become new tablets, whose directories are made first. Tablets of dropped ranges leave the version, and
their files are deleted when nothing refers to them any more. Replay ignores their log records. A split (`splitting`)
is a separate alteration.

Log records name columns by id, and readers adapt those of an earlier schema in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ...schemas.table.altered import TableState
from ...schemas.table.table import TableSchema
from ..manifest.environment import Environment
from ..manifest.manifest import Manifest, TableEntry, TabletEntry
from ..rowset.memrowset import MemRowSet
from ..table.table import Table
from ..table.table_version import TableVersion, write_locks
from ..tablet.directories import make_directories, retire
from ..tablet.tablet import Tablet


@dataclass(frozen=True, slots=True)
class Replaced:
    """A table that an alteration drops, since another table takes its name."""

    table: Table
    until: int | None
    """The end of its recall time, in microseconds since 1970; None: it is dropped for good."""


def put_in_place(
    table: Table, state: TableState, environment: Environment, replaced: Replaced | None = None
) -> list[Tablet]:
    """Install an alteration of ``table``: bring it durably to ``state``, and return the tablets that it loses. One
    caller at a time, in ``without_maintenance``.

    Raises:
        StorageFullError: the disk is full; nothing changed.
        UnavailableError: the manifest cannot be written, or a tablet has no room for a rowset; nothing changed here.
    """
    version = table.version
    environment.latch.check()
    kept, gone = _divided(version, state)
    with (
        _new_tablets(state, kept, environment) as added,
        write_locks((*version.tablets, *(replaced.table.tablets if replaced else ()))),
        _new_memrowsets(kept, state.schema) as successors,
    ):
        last_change = table.settled_change(environment.mvcc)
        environment.manifest.commit(
            lambda manifest: _altered(manifest, table, last_change, state, kept, added, replaced)
        )
        with environment.latch.on_failure("an altered table could not be installed"):
            for tablet, successor in zip(kept, successors, strict=True):
                tablet.schema = state.schema
                if successor is not None:
                    tablet.set_aside(successor)
            if replaced:
                replaced.table.dropped_until = replaced.until or 0
            table.name = state.name
            table.version = TableVersion(state.schema, state.options, (*kept, *added), state.partitions)
    return gone


@contextmanager
def without_maintenance(version: TableVersion, state: TableState) -> Iterator[None]:
    """Wait for the maintenance of all tablets if rows will expire at other times, and let none begin in the body, which
    alters the table: a merge that has begun drops rows that may then live again, and change.

    Under the table's alteration lock, before the catalog's: other tables are created and dropped while it waits.
    """
    with ExitStack() as held:
        if state.schema.ttl != version.schema.ttl:
            for tablet in sorted(version.tablets, key=lambda tablet: tablet.tablet_id):
                held.enter_context(tablet.maintenance_lock)
        yield


def _divided(version: TableVersion, state: TableState) -> tuple[list[Tablet], list[Tablet]]:
    """Return the tablets that stay and those to remove."""
    dropped = {(each.lower, each.upper) for each in state.dropped}
    kept: list[Tablet] = []
    gone: list[Tablet] = []
    for tablet in version.tablets:
        (gone if (tablet.partition.lower, tablet.partition.upper) in dropped else kept).append(tablet)
    return kept, gone


@contextmanager
def _new_tablets(state: TableState, kept: Sequence[Tablet], environment: Environment) -> Iterator[list[Tablet]]:
    """Make the tablets of new ranges; remove their directories if the body fails."""
    there = {(each.lower, each.upper) for each in (tablet.partition for tablet in kept)}
    manifest, budget = environment.manifest, environment.key_index
    here = environment.here
    elsewhere = here.elsewhere(state.name, state.partitions) if here else {}
    added = [
        Tablet(manifest.new_id(), state.schema, budget, partition, elsewhere=elsewhere.get(partition))
        for partition in state.partitions.tablets()
        if (partition.lower, partition.upper) not in there
    ]
    try:
        if added:
            make_directories(environment, added)
        yield added
    except BaseException:
        if not manifest.failed:  # else the manifest on disk may name them
            retire(environment, added, "the tablet was never made")
        raise


def _altered(
    manifest: Manifest,
    table: Table,
    last_change: int,
    state: TableState,
    kept: Sequence[Tablet],
    added: Sequence[Tablet],
    replaced: Replaced | None,
) -> Manifest:
    """Return the manifest with the table in ``state``. Notes what only the log of removed tablets says."""
    numbers = {tablet.tablet_id for tablet in kept}
    new = tuple(
        TabletEntry(id=tablet.tablet_id, partition=tablet.partition, elsewhere=tablet.elsewhere) for tablet in added
    )

    def edited(entry: TableEntry) -> TableEntry:
        update = {
            "name": state.name,
            "schema_": state.schema,
            "options": state.options,
            "partitions": state.partitions,
            "tablets": (*(tablet for tablet in entry.tablets if tablet.id in numbers), *new),
        }
        return entry.model_copy(update=update)

    last_ids = {table.table_id: table.auto_increment.last}
    last_changes = {table.table_id: last_change}
    new_one = manifest.with_altered(table.table_id, edited).with_auto_ids(last_ids).with_last_changes(last_changes)
    return new_one.replaced(replaced.table.table_id, table.table_id, replaced.until) if replaced else new_one


@contextmanager
def _new_memrowsets(tablets: Sequence[Tablet], schema: TableSchema) -> Iterator[list[MemRowSet | None]]:
    """Make a MemRowSet for each tablet whose active one does not fit ``schema``; drop them if the body fails."""
    with ExitStack() as undo:
        made: list[MemRowSet | None] = []
        for tablet in tablets:
            if tablet.version.active.fits(schema.columns):
                made.append(None)
                continue
            successor = tablet.new_memrowset(schema)
            undo.callback(tablet.drop_slot, successor.slot)
            made.append(successor)
        yield made
        undo.pop_all()
