"""Chains of backups: a full one, and increments that each start where the previous one ended."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import BaseModel, Field, model_validator

from ....schemas.cells.timestamp import datetime_of
from ....schemas.errors import ConflictError, CorruptionError, InvalidArgumentError, NotFoundError
from ....schemas.store.description import TableDescription
from ..folder import Folder, Place
from ..splits import TableSplit, TabletLabel
from .owner import check_owner, is_same_table
from .parts import DataFile
from .tablet_sums import total_of
from .verification import Checksum, TabletChecksum

_BACKUP = re.compile(r"\d{20}-(full|increment)")
"""The name of a backup's folder; nothing else in a table's folder is read or removed."""
_TABLE = re.compile(r"\d+-.*")
"""The name of the folder of a table's backups."""
METADATA = "metadata.json"
PLAN = "plan.json"


Moment = Annotated[int, Field(ge=0, lt=1 << 63)]


def moment_text(timestamp: int) -> str:
    """Return the time of a backup as text: a timestamp in UTC, and as the number that it is."""
    return f"{datetime_of(timestamp).isoformat(timespec='seconds')} ({timestamp})"


class _Span(BaseModel, frozen=True):
    """The time range and table of a backup."""

    kind: Literal["full", "increment"]
    since: Moment | None
    """The start of an increment: the ``until`` of the previous backup."""
    until: Moment
    """The snapshot that a restore of the backup shows."""
    table: TableDescription
    """The table at ``until``: columns with their ids, key, partitions, options."""
    tablets: list[TabletLabel]
    """Its tablets at ``until``. One that the previous backup lacks has all of its rows in this one."""

    @model_validator(mode="after")
    def _check_span(self) -> Self:
        if (self.kind == "full") != (self.since is None):
            raise ValueError("an increment must have `since`, and a full backup must not")
        if self.since is not None and self.since >= self.until:
            raise ValueError(f"the start {self.since} of the backup is not before its end {self.until}")
        return self


class Backup(_Span, frozen=True):
    """A backup of a table: the content of ``metadata.json``, which is written last: a folder without it is not a
    backup."""

    format: Literal[1] = 1
    parts: list[DataFile]
    rows: int
    bytes: int
    table_rows: int | None = None
    """Rows of the table at ``until``, and the sum of their hashes, if computed."""
    checksum: Checksum | None = None
    sums: list[TabletChecksum] | None = None
    """The same for each tablet; the next increment starts from these sums."""
    seal: str | None = None
    """The SHA-256 of everything else; metadata of version 0.1 has none."""

    @model_validator(mode="before")
    @classmethod
    def _check_seal(cls, given: Any) -> Any:
        seal = given.get("seal") if isinstance(given, dict) else None
        if seal is not None and seal != _seal_of(given):
            raise ValueError("it was edited or damaged: its SHA-256 does not match its content")
        return given

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if len({part.file for part in self.parts}) < len(self.parts):
            raise ValueError("it lists the same file for two parts")
        if (self.rows, self.bytes) != (sum(each.rows for each in self.parts), sum(each.bytes for each in self.parts)):
            raise ValueError(f"its parts do not add up to {self.rows:,} rows and {self.bytes:,} bytes")
        if strange := {part.tablet for part in self.parts} - set(self.tablets):
            raise ValueError(f"it has parts of tablets that the table does not have: {', '.join(map(str, strange))}")
        if self.kind == "full" and any(part.kind != "rows" for part in self.parts):
            raise ValueError("this full backup has a part of an increment")
        if self.sums is not None and total_of(self.sums) != (self.table_rows, self.checksum):
            raise ValueError("the checksums of its tablets do not add up to the table's checksum")
        return self

    def sealed(self) -> Backup:
        """Return a copy with its seal."""
        return self.model_copy(update={"seal": _seal_of(self.model_dump(mode="json"))})

    @property
    def moment(self) -> str:
        """``until`` as text."""
        return moment_text(self.until)


class BackupPlan(_Span, frozen=True):
    """The plan of a backup that has begun: the content of ``plan.json``, from which another run resumes it."""

    sums: bool
    splits: list[TableSplit]
    """What each part reads."""
    rows: int | None
    """Number of rows, for a full backup."""
    why_full: str | None = None


def _seal_of(said: dict[str, Any]) -> str:
    rest = {name: value for name, value in said.items() if name != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class TableBackups:
    """The backups of one table, all in one folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        names = [name for name in folder.folders() if _BACKUP.fullmatch(name)]
        self.unfinished = [name for name in names if not folder.child(name).has(METADATA)]
        self.finished = {name: _read(folder.child(name), name) for name in names if name not in self.unfinished}

    @property
    def mark(self) -> str:
        """How its name begins: with the table's id and ``-``."""
        return self.folder.path.rpartition("/")[2].partition("-")[0] + "-"

    def newest_by(self, at: int | None) -> int:
        """Return the ``until`` of the newest backup that ended by ``at``; -1 if none did."""
        return max((each.until for each in self.finished.values() if at is None or each.until <= at), default=-1)

    @property
    def last(self) -> Backup | None:
        """The newest backup."""
        return max(self.finished.values(), key=lambda backup: backup.until, default=None)

    def chain(self, at: int | None = None) -> list[tuple[Folder, Backup]]:
        """Return the backups to restore, in order, for the newest backup that ended by ``at``.

        Raises:
            NotFoundError: there is none.
            ConflictError: a backup in the chain is missing.
        """
        reaching = [backup for backup in self.finished.values() if at is None or backup.until <= at]
        if not reaching:
            first = min(self.finished.values(), key=lambda backup: backup.until, default=None)
            by = "" if at is None else f" that ended by {moment_text(at)}"
            there = f"; the first one ended at {first.moment}" if first else ""
            raise NotFoundError(f"{self.folder} has no backup{by}{there}")
        links = [max(reaching, key=lambda backup: backup.until)]
        while links[0].since is not None:
            links.insert(0, self._before(links[0], links[-1]))
        return [(self.folder.child(name_of(link)), link) for link in links]

    def _before(self, increment: Backup, wanted: Backup) -> Backup:
        found = [backup for backup in self.finished.values() if backup.until == increment.since]
        if found:
            return min(found, key=lambda backup: backup.kind)  # "full" sorts before "increment", and needs no other
        known = ", ".join(str(until) for until in sorted(backup.until for backup in self.finished.values()))
        raise ConflictError(
            f"the chain of backups up to {wanted.moment} is broken: the increment that ends at {increment.until} "
            f"begins at {increment.since}, but no backup in {self.folder} ends at that time (the backups end at "
            f"{known}). Restore an earlier moment, and take a full backup"
        )


def _read(folder: Folder, name: str) -> Backup:
    """Return the backup in the folder ``name``.

    Raises:
        CorruptionError: the metadata is damaged, or of another backup.
    """
    found = folder.read_model(METADATA, Backup)
    if name != name_of(found):
        raise CorruptionError(f"{folder}/{METADATA}", 0, f"it describes the backup {name_of(found)}, not {name}")
    return found


def name_of(span: _Span) -> str:
    """Return the folder name of a backup."""
    return f"{span.until:020d}-{span.kind}"


def backups_of(root: Folder, about: TableDescription) -> TableBackups:
    """Return the backups of a table by its ids: it may have been renamed, or moved to other servers.

    Raises:
        InvalidArgumentError: the folder has the backups of another store or table.
    """
    names = [name for name in root.folders() if _TABLE.fullmatch(name)]
    marks = tuple(f"{table_id}-" for table_id in {about.table_id, *(each.table_id for each in about.stores)})
    found = [TableBackups(root.child(name)) for name in names if name.startswith(marks)]
    others = (TableBackups(root.child(name)).last for name in names if not name.startswith(marks))
    told = (last.table for last in (*(each.last for each in found), *others) if last)
    check_owner(root, about, told)
    mine = [each for each in found if each.last and is_same_table(each.last.table.stores, about.stores)]
    unsaid = [
        each for each in found if each.mark == f"{about.table_id}-" and not (each.last and each.last.table.stores)
    ]
    name = f"{about.table_id}-{_quoted(about.name)}"
    chosen = (mine or unsaid or [TableBackups(root.child(name))])[0]
    is_other = not mine and not unsaid and about.stores
    if chosen.last and (is_other or key_columns(chosen.last.table) != key_columns(about)):
        raise InvalidArgumentError(
            f"{chosen.folder} holds backups of another table, {chosen.last.table.name!r}, which also has the id "
            f"{about.table_id}: use a separate place for the backups of each store"
        )
    return chosen


def backups_called(root: Folder, table: str, at: int | None = None) -> TableBackups:
    """Return the backups of the table once named ``table``; of several, those with the newest backup that ended by
    ``at``.

    Raises:
        NotFoundError: there are none.
        CorruptionError: the metadata of backups that may belong to the table is damaged.
    """
    all_of_them: list[TableBackups] = []
    damaged: list[CorruptionError] = []
    for name in root.folders():
        if not _TABLE.fullmatch(name):
            continue
        try:
            all_of_them.append(TableBackups(root.child(name)))
        except CorruptionError as error:
            if name.partition("-")[2] == _quoted(table):
                raise
            damaged.append(error)  # belongs to another table, unless that was renamed
    called = [each for each in all_of_them if each.last and each.last.table.name == table]
    if not called and damaged:
        raise damaged[0]
    if not called:
        known = ", ".join(sorted({each.last.table.name for each in all_of_them if each.last})) or "none"
        raise NotFoundError(f"{root} has no backup of a table named {table!r}; there are backups of: {known}")
    return max(called, key=lambda each: (each.newest_by(at), each.newest_by(None)))


def chain_of(place: Place, table: str, at: int | None = None) -> list[tuple[Folder, Backup]]:
    """Return the backups from which a table is restored. Raises as ``backups_called`` and ``TableBackups.chain``."""
    return backups_called(Folder.at(place), table, at).chain(at)


def list_backups(place: Place) -> list[Backup]:
    """Return all finished backups in a folder, by table and time.

    Raises:
        NotFoundError: there is no such folder; object stores have none without a file in it.
        CorruptionError: the metadata of a backup is damaged.
    """
    root = Folder.at(place)
    if not root.exists:
        raise NotFoundError(f"there is no folder {root}")
    names = [name for name in root.folders() if _TABLE.fullmatch(name)]
    found = [backup for name in names for backup in TableBackups(root.child(name)).finished.values()]
    return sorted(found, key=lambda backup: (backup.table.table_id, backup.until))


def _quoted(name: str) -> str:
    """Return a table's name in the form that folder names use."""
    return quote(name, safe="")[:100]


def key_columns(about: TableDescription) -> list[tuple[int, str]]:
    """Return ids and types of the key's columns: by them backups know a table again under another name."""
    key = set(about.primary_key)
    return [(column.id, column.type) for column in about.columns if column.name in key]
