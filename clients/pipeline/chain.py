"""Backups and how they follow each other: a full one, and increments each of which begins where another ended."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from ...schemas.description import TableDescription
from ...schemas.errors import ConflictError, InvalidArgumentError, NotFoundError
from ...schemas.timestamp import datetime_of
from .folder import Folder, Place
from .parts import Part
from .splits import TableSplit, TabletLabel

_BACKUP = re.compile(r"\d{20}-(full|increment)")
"""What the folder of a backup is called; nothing else in a table's folder is looked at, or removed."""
METADATA = "metadata.json"
PLAN = "plan.json"


class Backup(BaseModel):
    """What ``metadata.json`` says, which is written last: a folder without it is no backup."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    kind: Literal["full", "increment"]
    since: int | None
    """Where an increment begins: the ``until`` of the backup before it."""
    until: int
    """The snapshot that a restore of the backup shows."""
    table: TableDescription
    """As it was then: columns with their ids, key, partitions, options."""
    tablets: list[TabletLabel]
    """Its tablets then. One that is not in the backup before has all of its rows in this one."""
    parts: list[Part]
    rows: int
    bytes: int
    table_rows: int | None = None
    """Rows of the table at ``until``, and the sum of their hashes, where they were summed up."""
    checksum: str | None = None

    @property
    def moment(self) -> str:
        """``until`` in words."""
        return f"{datetime_of(self.until).isoformat(timespec='seconds')} ({self.until})"


class BackupPlan(BaseModel):
    """What ``plan.json`` says of a backup that is under way: whoever finds it can go on."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["full", "increment"]
    since: int | None
    until: int
    table: TableDescription
    tablets: list[TabletLabel]
    sums: bool
    splits: list[TableSplit]
    """What each part is to read."""
    rows: int | None
    """How many rows there are, of a full backup."""


class TableBackups:
    """The backups of one table, all in one folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        names = [name for name in folder.folders() if _BACKUP.fullmatch(name)]
        self.unfinished = [name for name in names if not folder.child(name).has(METADATA)]
        self.finished = {
            name: folder.child(name).read_model(METADATA, Backup) for name in names if name not in self.unfinished
        }

    @property
    def last(self) -> Backup | None:
        """The newest backup."""
        return max(self.finished.values(), key=lambda backup: backup.until, default=None)

    def name_of(self, backup: Backup) -> str:
        """Return the name of a backup's folder."""
        return next(name for name, each in self.finished.items() if each is backup)

    def chain(self, at: int | None = None) -> list[tuple[Folder, Backup]]:
        """Return what has to be restored, in order, for the newest backup that ended at ``at`` or before.

        Raises:
            NotFoundError: there is none.
            ConflictError: a backup that it needs is missing.
        """
        reaching = [backup for backup in self.finished.values() if at is None or backup.until <= at]
        if not reaching:
            raise NotFoundError(f"{self.folder} holds no backup{'' if at is None else f' that ended by {at}'}")
        links = [max(reaching, key=lambda backup: backup.until)]
        while links[0].since is not None:
            links.insert(0, self._before(links[0], links[-1]))
        return [(self.folder.child(self.name_of(link)), link) for link in links]

    def _before(self, increment: Backup, wanted: Backup) -> Backup:
        found = [backup for backup in self.finished.values() if backup.until == increment.since]
        if found:
            return min(found, key=lambda backup: backup.kind)  # "full" is before "increment": nothing more is needed
        known = ", ".join(str(until) for until in sorted(backup.until for backup in self.finished.values()))
        raise ConflictError(
            f"the chain of backups up to {wanted.moment} is broken: the increment that ends at {increment.until} "
            f"begins at {increment.since}, and no backup in {self.folder} ends there (they end at {known}). Restore at "
            "an earlier moment, and take a full backup"
        )


def backups_of(root: Folder, about: TableDescription) -> TableBackups:
    """Return the backups of a table, by its id: it may have been renamed since the first.

    Raises:
        InvalidArgumentError: those of that id are of another table.
    """
    mark = f"{about.table_id}-"
    names = [name for name in root.folders() if name.startswith(mark)]
    found = TableBackups(root.child(names[0] if names else mark + quote(about.name, safe="")[:100]))
    last = found.last
    if last and _key(last.table) != _key(about):
        raise InvalidArgumentError(
            f"{found.folder} holds backups of another table with the id {about.table_id}, {last.table.name!r}: "
            "use one place for the backups of one store only"
        )
    return found


def backups_called(root: Folder, table: str) -> TableBackups:
    """Return the backups of the table that was last called ``table``, of several those with the newest one.

    Raises:
        NotFoundError: there are none.
    """
    all_of_them = [TableBackups(root.child(name)) for name in root.folders()]
    called = [each for each in all_of_them if each.last and each.last.table.name == table]
    if not called:
        known = ", ".join(sorted({each.last.table.name for each in all_of_them if each.last})) or "none"
        raise NotFoundError(f"{root} holds no backup of a table called {table!r}; there are backups of: {known}")
    return max(called, key=lambda each: each.last.until if each.last else 0)


def list_backups(place: Place) -> list[Backup]:
    """Return all finished backups in a folder, by table and time."""
    root = Folder.at(place)
    found = [backup for name in root.folders() for backup in TableBackups(root.child(name)).finished.values()]
    return sorted(found, key=lambda backup: (backup.table.table_id, backup.until))


def _key(about: TableDescription) -> list[tuple[int, str]]:
    key = set(about.primary_key)
    return [(column.id, column.type) for column in about.columns if column.name in key]
