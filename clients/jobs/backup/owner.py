"""The owner of a folder of backups: one store, or several servers that share their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel

from ....schemas.errors import InvalidArgumentError
from ....schemas.store.description import TableDescription, TableStore
from ..folder import Folder

OWNER = "store.json"


class Owner(BaseModel, frozen=True):
    """The store, or the servers, that own a folder of backups: the content of ``store.json`` in it."""

    format: Literal[1] = 1
    stores: list[str]
    """The uuids of the stores whose tables are backed up there."""


def check_owner(root: Folder, about: TableDescription, told: Iterable[TableDescription]) -> None:
    """Check that a folder is for the backups of a table's store, and record that it is.

    ``told`` are the tables with backups in the folder: they are checked if there is no ``store.json`` yet.

    Raises:
        InvalidArgumentError: it has backups of another store.
    """
    mine = {each.store_uuid for each in about.stores}
    if not mine:
        return  # a server of version 0.1 does not identify itself; increments are then impossible
    is_told = root.has(OWNER)
    if is_told:
        known = set(root.read_model(OWNER, Owner).stores)
    else:
        known = {each.store_uuid for table in told for each in table.stores}
    if known and not known & mine:
        raise InvalidArgumentError(
            f"{root} contains backups of another store ({_shown(known)}), and table {about.name!r} is in store "
            f"{_shown(mine)}: use another folder, and begin with a full backup. This also applies to a table "
            "that was restored into a new store"
        )
    if not is_told or not mine <= known:
        root.make()
        root.write_model(OWNER, Owner(stores=sorted(known | mine)))


def is_same_table(then: Sequence[TableStore], now: Sequence[TableStore]) -> bool:
    """Return whether two descriptions, such as a backup's and the present one, are of one table: a store knows both by
    the same id."""
    return bool(_ids(then) & _ids(now))


def why_not_continued(last: TableDescription, about: TableDescription) -> str | None:
    """Return why a backup of a table cannot be continued by the changes since the last one, which the stores do not
    have; None if they have them."""
    if last.options.ttl != about.options.ttl:
        return "rows expire at other times than at the last backup"
    then, now = last.stores, about.stores
    if not then:
        return "the last backup does not name its store"
    if not now:
        return "the server does not name its store"
    names = {each.server: each.store_uuid for each in now}
    are_there = _ids(then) <= _ids(now)
    if not are_there or any(names.get(each.server, each.store_uuid) != each.store_uuid for each in then):
        return "servers that share the table were removed or replaced since the last backup"
    return None


def _ids(stores: Iterable[TableStore]) -> set[tuple[str, int]]:
    return {(each.store_uuid, each.table_id) for each in stores}


def _shown(uuids: Iterable[str]) -> str:
    return ", ".join(sorted(each[:8] for each in uuids))
