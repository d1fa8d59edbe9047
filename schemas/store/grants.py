"""Grants: who may do what with which tables and columns."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from ..errors import InvalidArgumentError, NotFoundError
from ..message import Message
from ..phrases import perhaps
from ..table.names import ALL_TABLES

TABLE_GRANTS_MAX = 1_000
"""Entries of one table: who administers one must not use up those of all."""
GRANTS_MAX = 10_000
"""Entries of a store, one for each user or role and table: all of them are written with every change of a table."""
TABLE_GRANT_BYTES_MAX = 512 << 10
GRANT_BYTES_MAX = 4 << 20
"""Bytes of these entries, as the manifest has them: an entry names up to all columns of a table three times."""
ADMIN_ROLE = "admin"
"""The role of those who may do everything, without any grant."""
_SHOWN = 20

GranteeName = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class Privilege(StrEnum):
    """What can be granted on a store's tables."""

    READ = "read"
    """Read cells: rows, filters, aggregates, order, changes, history."""
    INSERT = "insert"
    """Write new rows."""
    UPDATE = "update"
    """Change cells of rows. An upsert needs insert, too."""
    DELETE = "delete"
    """Delete rows."""
    ALTER = "alter"
    """Alter and drop the table; on all tables: create, rename and recall tables, too."""
    MAINTAIN = "maintain"
    """Flush and compact the table; on all tables: read the metrics."""
    ADMIN = "admin"
    """All of these, and granting them."""


OF_COLUMNS = (Privilege.READ, Privilege.INSERT, Privilege.UPDATE)
"""The privileges that can be granted on some columns only."""


class Grantee(Message, frozen=True, extra="forbid"):
    """Who can be granted privileges: a user, or all users with a role."""

    user: GranteeName | None = None
    role: GranteeName | None = None

    @property
    def grantee(self) -> str:
        """Who it is, for people."""
        return f"user {self.user!r}" if self.user is not None else f"role {self.role!r}"


class GrantChange(Grantee, frozen=True):
    """The body of ``grant`` and ``revoke``: how the grants of a store change."""

    table: str
    """A table, or ``ALL_TABLES``."""
    privileges: Annotated[list[Privilege], Field(min_length=1)]
    columns: list[str] | None = None
    """On these columns only; None: on all, those to come included."""

    @field_validator("privileges", mode="before")
    @classmethod
    def _one_or_more(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given

    def checked(self) -> GrantChange:
        """Return the change if its parts are consistent. Raises InvalidArgumentError."""
        if (self.user is None) == (self.role is None):
            raise InvalidArgumentError("name either a user or a role")
        if self.columns is None:
            return self
        if not self.columns:
            raise InvalidArgumentError("columns is empty; leave it out for all columns")
        if self.table == ALL_TABLES:
            raise InvalidArgumentError("columns can be given only for one table: give its name")
        if others := [str(each) for each in self.privileges if each not in OF_COLUMNS]:
            raise InvalidArgumentError(f"{', '.join(others)} cannot be granted on columns; {', '.join(OF_COLUMNS)} can")
        return self


class Grant(Grantee, frozen=True):
    """One grant in a store: a privilege that somebody has on a table."""

    table: str
    table_id: int | None = None
    """The table's number on this server; None for all tables."""
    privilege: Privilege
    columns: list[str] | None = None
    """None: on all columns."""
    column_ids: list[int] | None = None
    """The numbers of these columns on this server."""


class GrantList(Message, frozen=True):
    """The grants of a store: the answer of ``grant``, ``revoke`` and ``grants``."""

    grants: list[Grant]


def no_table(name: str, known: Iterable[str]) -> NotFoundError:
    """Return the error of a store for a table that is not there, or that the caller has no grant on: both read the
    same."""
    tables = list(known)
    shown = ", ".join(tables[:_SHOWN]) or "none"
    return NotFoundError(f"there is no table {name!r}{perhaps(name, tables)}; the tables are: {shown}")
