"""Grants: kept in the manifest, by the numbers of tables and columns, so that a renamed one keeps them and a new one of
the same name has none. The engine keeps them only; a server enforces them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.request import check_meant
from ...schemas.store.grants import (
    GRANT_BYTES_MAX,
    GRANTS_MAX,
    TABLE_GRANT_BYTES_MAX,
    TABLE_GRANTS_MAX,
    Grant,
    GrantChange,
    Privilege,
    no_table,
)
from ...schemas.table.names import ALL_TABLES
from ...schemas.table.table import TableSchema
from ..commit.row_stamps import RowStamps
from ..manifest.interrupts import interrupts_later
from ..manifest.manifest import GrantEntry, Manifest, ManifestFile, TableEntry
from ..table.table import Table
from .catalog import Catalog

Columns = tuple[int, ...] | None
Change = Callable[[dict[Privilege, Columns], Columns], dict[Privilege, Columns]]
"""Returns what somebody may do with a table, from what it was before and the columns that a change is about."""


class Grants:
    """The grants on a store's tables, by the numbers of tables and columns in its manifest. Thread safe."""

    def __init__(
        self, catalog: Catalog, manifest: ManifestFile, check_now: Callable[[], None], stamps: RowStamps
    ) -> None:
        """``check_now`` raises UnavailableError if another process may have the store, and have changed its grants."""
        self._check_now = check_now
        self._catalog = catalog
        self._manifest = manifest
        self._changes = 0
        self._stamps = stamps

    def version(self) -> tuple[int, int]:
        """Return what differs after each change of what ``listed`` returns. Raises UnavailableError."""
        self._check_now()
        return self._changes, self._catalog.names_version

    def grant(self, change: GrantChange) -> list[Grant]:
        """See ``StoreService.grant``.

        Raises:
            NotFoundError: there is no such table.
            InvalidArgumentError: the change is invalid, there is no such column, or there are too many grants.
            StorageFullError, UnavailableError: nothing changed.
        """

        def more(before: dict[Privilege, Columns], asked: Columns) -> dict[Privilege, Columns]:
            return before | {each: _union(before.get(each, ()), asked) for each in change.privileges}

        return self._changed(change, more)

    def revoke(self, change: GrantChange) -> list[Grant]:
        """See ``StoreService.revoke``.

        Raises:
            NotFoundError: there is no such table.
            InvalidArgumentError: as ``grant``; or columns are named, and all are granted.
            StorageFullError, UnavailableError: nothing changed.
        """

        def fewer(before: dict[Privilege, Columns], asked: Columns) -> dict[Privilege, Columns]:
            left = {each: _without(before.get(each, ()), asked, change, each) for each in change.privileges}
            return {each: columns for each, columns in (before | left).items() if columns != ()}

        return self._changed(change, fewer)

    def listed(self) -> list[Grant]:
        """Return all grants on tables that are in use. Raises UnavailableError."""
        self._check_now()
        return self._of(lambda _: True)

    def _changed(self, change: GrantChange, edit: Change) -> list[Grant]:
        change.checked()

        def edited(manifest: Manifest) -> Manifest:
            # Names are looked up here, for an alteration just before could give them to another table.
            entry = None if change.table == ALL_TABLES else _entry(manifest, change.table)
            table = None if entry is None else entry.id
            if table is not None:
                check_meant(change.table, table)
            whose = change.user, change.role, table
            there = {each.id for each in manifest.tables} | {None}
            old = next((each for each in manifest.grants if _whose(each) == whose), None)
            privileges = edit(old.privileges if old else {}, _columns(change, entry))
            new = GrantEntry(user=change.user, role=change.role, table=table, privileges=privileges)
            others = [each for each in manifest.grants if _whose(each) != whose and each.table in there]
            entries = (*others, new) if privileges else tuple(others)
            _check("a store", entries, manifest.grants, GRANTS_MAX, GRANT_BYTES_MAX)
            if table is not None:
                now, before = ([each for each in some if each.table == table] for some in (entries, manifest.grants))
                _check(f"table {change.table!r}", now, before, TABLE_GRANTS_MAX, TABLE_GRANT_BYTES_MAX)
            return manifest.model_copy(update={"grants": entries})

        with interrupts_later():
            self._manifest.commit(edited)
            self._changes += 1
            self._stamps.store_changes()
        return self._of(lambda each: (each.user, each.role) == (change.user, change.role))

    def _of(self, is_wanted: Callable[[GrantEntry], bool]) -> list[Grant]:
        return listed_grants(filter(is_wanted, self._manifest.current.grants), self._catalog.tables())


def listed_grants(entries: Iterable[GrantEntry], tables: Iterable[Table]) -> list[Grant]:
    """Return the grants on tables that are in use, of all there are, by the present names of tables and columns."""
    in_use: dict[int | None, Table] = {table.table_id: table for table in tables if table.dropped_until is None}
    names: dict[int | None, tuple[str, dict[int, str]]] = {None: (ALL_TABLES, {})}
    """The names of a table and its columns are read once: all its grants have those of one moment."""
    found: list[Grant] = []
    for entry in entries:
        if entry.table not in names:
            if (table := in_use.get(entry.table)) is None:
                continue
            names[entry.table] = table.name, {column.id: column.name for column in table.version.schema.columns}
        name, by_id = names[entry.table]
        for privilege in sorted(entry.privileges, key=list(Privilege).index):
            ids = entry.privileges[privilege]
            there = None if ids is None else [each for each in ids if each in by_id]
            if there == []:
                continue  # all of them were dropped
            found.append(
                Grant(
                    user=entry.user,
                    role=entry.role,
                    table=name,
                    table_id=entry.table,
                    privilege=privilege,
                    columns=None if there is None else [by_id[each] for each in there],
                    column_ids=there,
                )
            )
    return sorted(found, key=lambda each: (each.role or "", each.user or "", each.table))


def _check(what: str, entries: Sequence[GrantEntry], before: Sequence[GrantEntry], most: int, bytes_max: int) -> None:
    """Raise InvalidArgumentError if there are too many entries, or bytes of them, unless there were as many before."""
    if len(entries) > max(most, len(before)):
        raise InvalidArgumentError(f"{what} can have at most {most:,} grants: grant to roles, not to each user")
    if (size := _bytes(entries)) > bytes_max and size > _bytes(before):
        raise InvalidArgumentError(
            f"the grants of {what} can have at most {bytes_max:,} bytes: grant to roles, and on whole tables, not on "
            "each column"
        )


def _bytes(entries: Sequence[GrantEntry]) -> int:
    return sum(len(each.model_dump_json()) for each in entries)


def _whose(entry: GrantEntry) -> tuple[str | None, str | None, int | None]:
    return entry.user, entry.role, entry.table


def _entry(manifest: Manifest, name: str) -> TableEntry:
    in_use = {each.name: each for each in manifest.tables if each.dropped_until is None}
    if entry := in_use.get(name):
        return entry
    raise no_table(name, sorted(in_use))


def _columns(change: GrantChange, table: TableEntry | None) -> Columns:
    if change.columns is None or table is None:
        return None
    return tuple(sorted({_column_id(name, change.table, table.schema_) for name in change.columns}))


def _column_id(name: str, table: str, schema: TableSchema) -> int:
    if column := schema.by_name.get(name):
        return column.id
    raise InvalidArgumentError(f"table {table!r} has no column {name!r}; it has {', '.join(schema.by_name)}")


def _union(before: Columns, more: Columns) -> Columns:
    return None if before is None or more is None else tuple(sorted({*before, *more}))


def _without(before: Columns, gone: Columns, change: GrantChange, privilege: Privilege) -> Columns:
    if gone is None:
        return ()
    if before is None:
        raise InvalidArgumentError(
            f"{change.grantee} has {privilege} on all columns of {change.table!r}: revoke it on the whole "
            "table, then grant it on the columns to keep"
        )
    return tuple(each for each in before if each not in gone)
