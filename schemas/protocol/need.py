"""Need: the privilege that a verb asks of its caller, and on what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ..store.grants import Privilege


class Scope(Enum):
    """The things on which the caller of a verb needs the privilege."""

    NOTHING = auto()
    """Every caller may call the verb."""
    VISIBLE_TABLE = auto()
    """Any privilege on the table of the request suffices."""
    ANY_COLUMN = auto()
    """Any column of the table of the request."""
    TABLE = auto()
    """The whole table of the request."""
    TABLE_OF_ID = auto()
    """The whole table of the import, the pin or the compaction that the request names."""
    ALL_TABLES = auto()
    CONTENT = auto()
    """The server looks into the request, or leaves out of the answer what the caller may not see."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a verb needs of its caller: a privilege and its scope."""

    scope: Scope
    privilege: Privilege | None = None
    """None if the scope says it all."""


ANYONE = Need(Scope.NOTHING)
SEES_TABLE = Need(Scope.VISIBLE_TABLE)
BY_CONTENT = Need(Scope.CONTENT)


def on_column(privilege: Privilege) -> Need:
    """Return a verb's need of a privilege on any column of a table."""
    return Need(Scope.ANY_COLUMN, privilege)


def on_table(privilege: Privilege) -> Need:
    """Return a verb's need of a privilege on a whole table."""
    return Need(Scope.TABLE, privilege)


def on_table_of_id(privilege: Privilege) -> Need:
    """Return a verb's need of a privilege on the whole table of an import, a pin or a compaction."""
    return Need(Scope.TABLE_OF_ID, privilege)


def on_all_tables(privilege: Privilege) -> Need:
    """Return a verb's need of a privilege on all tables."""
    return Need(Scope.ALL_TABLES, privilege)


ADMINS = on_all_tables(Privilege.ADMIN)
