"""Writes the rows of one tablet from a chain of backups into a new table."""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.errors import CorruptionError, InvalidArgumentError, NotFoundError
from ....schemas.store.description import TableDescription
from ....schemas.table.table import QUOTAS
from ...api.database import Database
from ..definition import create_like
from ..folder import Folder
from ..link import StoreLink
from ..splits import TabletLabel, label_of
from .chain import Backup, TableBackups, key_columns
from .owner import is_same_table
from .restore_job import RestoreTask


def backups_of_table(root: Folder, about: TableDescription) -> TableBackups:
    """Return the backups of a table, whatever its name was then; changes nothing.

    Raises:
        NotFoundError: there are none.
        CorruptionError: the metadata of backups that may belong to the table is damaged.
        InvalidArgumentError: it had another key then.
    """
    damaged: list[CorruptionError] = []
    for name in root.folders():
        if not name.partition("-")[0].isdecimal():
            continue
        try:
            found = TableBackups(root.child(name))
        except CorruptionError as error:
            damaged.append(error)
            continue
        if found.last and is_same_table(found.last.table.stores, about.stores):
            if key_columns(found.last.table) != key_columns(about):
                raise InvalidArgumentError(
                    f"{found.folder} is a backup of table {about.name!r} with another primary key"
                )
            return found
    if damaged:
        raise damaged[0]
    raise NotFoundError(f"{root} has no backup of table {about.name!r} of this store")


def write_tablet(
    db: Database, name: str, chain: Sequence[tuple[Folder, Backup]], about: TableDescription, tablets: Sequence[int]
) -> int:
    """Create the table ``name`` with the columns of ``about``, and write a tablet's rows of the last backup in a chain
    to it. ``tablets`` are the numbers that the tablet has had. Return the number of rows and changes written.

    If the backup has none of these tablets, write all rows of the table. The table is not partitioned.

    Raises:
        CorruptionError: a file is missing, or not as it was written.
    """
    link = StoreLink.to(db)
    unlimited = about.options.model_copy(update=dict.fromkeys(QUOTAS))
    made = create_like(link.service, about.model_copy(update={"options": unlimited}), name, "", partition_by=[])
    into = about.model_copy(update={"name": made.name})  # column ids identify the columns
    wanted = _labels(chain[-1][1], about, tablets)
    rows = 0
    for folder, backup in chain:
        for part in backup.parts:
            if part.tablet in wanted:
                rows += RestoreTask(backup.table, link, into, folder, part).write()
    return rows


def _labels(backup: Backup, about: TableDescription, tablets: Sequence[int]) -> set[TabletLabel]:
    """Return which tablets of a backup may hold rows of the tablet."""
    mine = {each.store_uuid for each in about.stores}
    servers = [each.server for each in backup.table.stores if each.store_uuid in mine] or [None]
    there = set(backup.tablets)
    for number in tablets:  # its current number first; the backup may also have a tablet that it was split from
        if found := {label_of(server, number) for server in servers} & there:
            return found
    return there
