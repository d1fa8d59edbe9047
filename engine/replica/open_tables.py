"""OpenTables: the tables of one manifest, open for reading; what the next manifest leaves as it is stays open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ...schemas.table.table import TableSchema
from ..manifest.manifest import Manifest, TableEntry, TabletEntry
from ..manifest.rowset_entry import RowsetEntry
from ..table.table import Table
from ..table.table_version import TableVersion
from ..tablet.attach import with_logged
from ..tablet.tablet import Tablet


@dataclass(frozen=True, slots=True)
class OpenTables:
    """The tables of one manifest that a replica has open for reading."""

    manifest: Manifest
    """As it was written."""
    tables: Mapping[int, Table]
    by_name: Mapping[str, Table]
    """Without those that were dropped, and can be recalled."""
    tablets: Mapping[int, Tablet]
    entries: Mapping[int, TabletEntry]
    """By tablet id, with the rowsets that the log had attached when it was opened."""
    opened: frozenset[int]
    """The ids of the tablets that were opened for this manifest: they have no rows from the log yet."""


def open_tables(
    manifest: Manifest,
    attached: Iterable[tuple[int, RowsetEntry]],
    former: OpenTables | None,
    open_tablet: Callable[[TabletEntry, TableSchema], Tablet],
) -> OpenTables:
    """Open what ``manifest`` names for a replica, with the rowsets that the log attaches, but for what is as in
    ``former``.

    If it raises what ``open_tablet`` raises, nothing new stays open.
    """
    known = {table.id: table for table in former.manifest.tables} if former else {}
    tables: dict[int, Table] = {}
    found: dict[int, Tablet] = {}
    entries: dict[int, TabletEntry] = {}
    opened: list[Tablet] = []
    try:
        for written, logged in zip(manifest.tables, with_logged(manifest, attached).tables, strict=True):
            before = known.get(written.id)
            same = _unchanged(before, written)
            for entry in logged.tablets:
                if former is not None and entry.id in same:
                    found[entry.id], entries[entry.id] = former.tablets[entry.id], former.entries[entry.id]
                else:
                    found[entry.id], entries[entry.id] = open_tablet(entry, written.schema_), entry
                    opened.append(found[entry.id])
            tablets = tuple(found[entry.id] for entry in written.tablets)
            tables[written.id] = _table(written, tablets, former.tables.get(written.id) if former else None)
    except BaseException:
        for tablet in opened:
            tablet.close()
        raise
    by_name = {table.name: table for table in tables.values() if table.dropped_until is None}
    return OpenTables(manifest, tables, by_name, found, entries, frozenset(tablet.tablet_id for tablet in opened))


def _table(entry: TableEntry, tablets: tuple[Tablet, ...], former: Table | None) -> Table:
    """Return a table; the former one if all is as it was, so that what readers worked out for it lasts."""
    version = TableVersion(entry.schema_, entry.options, tablets, entry.partitions)
    if former is not None and _shown(former, former.version) == _shown(entry, version):
        return former
    table = Table(entry.id, entry.name, version, entry.last_auto_id, entry.dropped_until, entry.last_change)
    if former is not None:
        table.changed(former.last_change)
    return table


def _shown(table: Table | TableEntry, version: TableVersion) -> tuple[object, ...]:
    return table.name, table.dropped_until, version.tablets, version.options, version.partitions


def _unchanged(before: TableEntry | None, now: TableEntry) -> frozenset[int]:
    """Return the ids of the tablets whose rows are in the same files, of the same schema."""
    if before is None or before.schema_ != now.schema_:
        return frozenset()
    known = {tablet.id: _files(tablet) for tablet in before.tablets}
    return frozenset(tablet.id for tablet in now.tablets if known.get(tablet.id) == _files(tablet))


def _files(entry: TabletEntry) -> TabletEntry:
    """Return a tablet's entry without what says how far a replay can be shortened."""
    return entry.model_copy(update={"in_files_lsn": 0})
