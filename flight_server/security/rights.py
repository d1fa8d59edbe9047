"""Rights: what one caller may do with each table, by the grants of a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from ...clients.flight.deadline import answered_within
from ...schemas.errors import StoreError
from ...schemas.protocol.request import meaning
from ...schemas.protocol.service import GrantKeeper, StoreService
from ...schemas.store.description import TableDescription
from ...schemas.store.grants import Grant, Privilege
from ...schemas.table.names import ALL_TABLES

Columns = frozenset[str] | None
"""Some columns of a table; None: all, those to come included."""
NONE: Columns = frozenset()
_ALL: dict[Privilege, Columns] = dict.fromkeys(Privilege)
WRITES = frozenset({Privilege.INSERT, Privilege.UPDATE, Privilege.DELETE})
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 1.0
"""How long another process may take to tell grants, if some are known: all requests wait for it."""


class Caller(NamedTuple):
    """A user with the roles that the proof of identity names; users with the same ones have the same rights."""

    user: str
    roles: frozenset[str] = frozenset()
    is_admin: bool = False
    """Whether it may do everything, whatever the store grants."""


@dataclass(frozen=True, slots=True)
class TableRights:
    """What a caller may do with one table. Without any privilege the table is hidden."""

    table: str
    privileges: dict[Privilege, Columns]
    table_id: int | None = None
    """The number of the table; None: the caller has no grants of its own on it, but those on all tables."""
    columns: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the columns that grants name."""

    @property
    def meant(self) -> dict[str, int] | None:
        """What a request with these rights means by the name of the table."""
        return None if self.table_id is None else {self.table: self.table_id}

    def of(self, privilege: Privilege) -> Columns:
        """Return the columns that the privilege covers."""
        return self.privileges.get(privilege, NONE)

    def lacking(self, privilege: Privilege, names: Iterable[str], about: TableDescription) -> list[str]:
        """Return the columns, of these, that the privilege does not cover, sorted. ``about`` tells which columns they
        are: one that got the name of another after the grants were read is not covered."""
        if (covered := self.of(privilege)) is None:
            return []
        others = {each.name for each in about.columns if self.columns.get(each.name, each.id) != each.id}
        return sorted(set(names) - (covered - others))

    def meaning(self, about: TableDescription | None = None) -> meaning:
        """Let names mean, during the body, the table, and the columns of the description by which they were checked."""
        return meaning(self.meant, about and {each.name: each.id for each in about.columns})

    def has(self, privilege: Privilege) -> bool:
        """Whether the privilege covers anything."""
        return privilege in self.privileges


class Rights:
    """What one caller may do, at one version of the grants. Thread safe."""

    def __init__(self, caller: Caller, grants: Iterable[Grant]) -> None:
        self.everywhere: dict[Privilege, Columns] = {}
        self.tables: dict[str, TableRights] = {}
        """The tables with grants of their own to the caller."""
        self.own: list[Grant] = []
        """The grants to the caller."""
        self._names: dict[int, str] = {}
        self._readable: dict[int, frozenset[int] | None] = {}
        """By the number of a table, those of its columns that may be read; None: all."""
        everywhere: dict[Privilege, Columns] = {}
        if caller.is_admin:
            everywhere |= _ALL
        found: dict[int, dict[Privilege, Columns]] = {}  # two tables may have one name, if it changed meanwhile
        columns: dict[int, dict[str, int]] = {}
        for each in grants:
            if each.table_id is not None:
                self._names[each.table_id] = each.table
                numbered = zip(each.columns or (), each.column_ids or (), strict=False)
                columns.setdefault(each.table_id, {}).update(numbered)
            if each.user == caller.user if each.user is not None else each.role in caller.roles:
                self.own.append(each)
                # Not by the name: a store may have a table "*" from before that was refused.
                _add(everywhere if each.table_id is None else found.setdefault(each.table_id, {}), each)
                if each.table_id is not None and each.privilege in (Privilege.READ, Privilege.ADMIN):
                    before = self._readable.get(each.table_id, frozenset())
                    if before is not None:
                        more = None if each.columns is None else before.union(each.column_ids or ())
                        self._readable[each.table_id] = more
        self.everywhere = _whole(everywhere)
        self.is_admin = Privilege.ADMIN in self.everywhere
        self._everywhere = TableRights(ALL_TABLES, self.everywhere)
        for number, privileges in found.items():
            name, all_ = self._names[number], _whole(privileges | self.everywhere)
            self.tables[name] = TableRights(name, all_, number, columns[number])

    @property
    def may_write(self) -> bool:
        """Whether the caller may write rows of any table."""
        return any(WRITES & each.privileges.keys() for each in (self._everywhere, *self.tables.values()))

    def of(self, table: str) -> TableRights:
        """Return what the caller may do with a table, whether it exists or not."""
        return self.tables.get(table, self._everywhere)

    def meant(self, names: Iterable[str]) -> dict[str, int]:
        """Return what a request with these rights means by the names of tables."""
        return {name: number for each in map(self.of, names) for name, number in (each.meant or {}).items()}

    def readable(self, table_id: int) -> frozenset[int] | None:
        """Return the numbers of the columns of a table that the caller may read, whatever they are called now."""
        return None if Privilege.READ in self.everywhere else self._readable.get(table_id, frozenset())

    def shows(self, grant: Grant) -> bool:
        """Whether the caller may know a grant: its own, and those on tables that it administers."""
        if self.is_admin or grant in self.own:
            return True
        return grant.table_id is not None and self.of(grant.table).has(Privilege.ADMIN)

    def by_id(self, name: str) -> TableRights:
        """Return what the caller may do with the table of an import, a pin or a compaction: their names begin with the
        table's number."""
        number = name.partition("-")[0]
        known = self._names.get(int(number)) if number.isdecimal() and len(number) < 20 else None
        return self._everywhere if known is None else self.of(known)


def _add(privileges: dict[Privilege, Columns], grant: Grant) -> None:
    before = privileges.get(grant.privilege, NONE)
    is_all = before is None or grant.columns is None
    privileges[grant.privilege] = None if is_all else before | frozenset(grant.columns or ())  # type: ignore[operator]


def _whole(privileges: dict[Privilege, Columns]) -> dict[Privilege, Columns]:
    return _ALL if Privilege.ADMIN in privileges else privileges


class GrantBook:
    """The grants of a store, read again when they change. Thread safe.

    A store of another process does not tell that they have: they are read again after each change made here, and after
    a second.
    """

    def __init__(self, store: StoreService) -> None:
        self._store = store
        self._version: Callable[[], object] = store.grants_version if isinstance(store, GrantKeeper) else self._looked
        self._grants: tuple[object, list[Grant]] = (None, [])
        self._number = 0
        self._look_from = 0.0
        self._lock = threading.Lock()

    def version(self) -> object:
        """Return what differs after each change."""
        return self._version()

    def rights(self, caller: Caller, version: object) -> Rights:
        """Return what a caller may do, at ``version`` or later. Raises StoreError: the grants cannot be read."""
        with self._lock:
            if self._grants[0] != version:
                self._grants = version, self._store.grants()
            return Rights(caller, self._grants[1])

    def changed(self) -> None:
        """Read the grants again: a call that may have changed them, or a name, has ended."""
        self._look_from = 0.0

    def _looked(self) -> object:
        if time.monotonic() < self._look_from:
            return self._number
        with self._lock:
            if (now := time.monotonic()) < self._look_from:
                return self._number  # another thread has looked meanwhile
            self._look_from = now + _LOOK_SECONDS
            try:
                with answered_within(_ANSWER_SECONDS) if self._number else nullcontext():
                    found = self._store.grants()
            except StoreError:
                if self._number:
                    self._look_from = time.monotonic() + _LOOK_SECONDS
                    return self._number  # nobody can change them there either
                self._look_from = 0.0
                raise
            if not self._number or found != self._grants[1]:
                self._number += 1
                self._grants = self._number, found
            return self._number
