"""The page of users and grants: who may log in, and who may do what with which tables."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from ....schemas.store.grants import Grant, Privilege
from ....schemas.table.names import ALL_TABLES
from .frame import Page, page
from .html import Element, table, tag
from .listing import Column, Listing
from .tables import table_link
from .visit import Visit
from .words import clock

PATH = "/console/users"


@dataclass(frozen=True, slots=True)
class _Entry:
    """All that one user or role may do with one table by its grants."""

    grantee: str
    kind: str
    table: str
    privileges: dict[Privilege, list[str] | None]
    """Each with its columns; None: all."""

    @property
    def told(self) -> str:
        """The privileges in words."""
        return ", ".join(
            str(privilege) if columns is None else f"{privilege} ({', '.join(columns)})"
            for privilege, columns in self.privileges.items()
        )

    @property
    def order(self) -> tuple[str, str, str]:
        """Where it belongs among all."""
        return self.grantee.casefold(), self.kind, self.table


_COLUMNS: list[Column[_Entry]] = [
    Column("User or role", lambda entry: entry.grantee, lambda entry: entry.order),
    Column("Kind", lambda entry: entry.kind, lambda entry: (entry.kind, *entry.order)),
    Column("Table", lambda entry: _table(entry.table), lambda entry: (entry.table, *entry.order)),
    Column("May", lambda entry: entry.told),
]


def users_page(visit: Visit) -> Page:
    """Return the console's page of the grants that the caller may know: its own, and all to an administrator, who also
    sees the logins."""
    listing = Listing(visit, PATH, _COLUMNS)
    entries = [each for each in _entries(visit.store.grants()) if listing.has(each.grantee, each.table, each.told)]
    about = "Only administrators may do what is not granted."
    if not visit.has_login:
        about = "This server has no login: everyone may do everything, whatever is granted."
    elif not visit.administers:
        about += " Below are the grants to you, and the grants on tables that you administer."
    return page(
        "Users and grants",
        *(_logins(visit) if visit.administers and visit.has_login else []),
        tag("h2", "Grants"),
        tag("p", about),
        listing.form("A user, a role or a table"),
        table(listing.titles(), listing.rows(listing.sorted(entries)), len(_COLUMNS), empty="There are none."),
        at=PATH,
    )


def _entries(grants: list[Grant]) -> list[_Entry]:
    found: dict[tuple[str, str, str], _Entry] = {}
    for each in grants:
        name, kind = (each.user, "user") if each.user is not None else (each.role or "", "role")
        entry = found.setdefault((name, kind, each.table), _Entry(name, kind, each.table, {}))
        before = entry.privileges.get(each.privilege, [])
        is_all = before is None or each.columns is None
        entry.privileges[each.privilege] = None if is_all else [*(before or []), *(each.columns or [])]
    return list(found.values())


def _table(name: str) -> Element:
    return tag("em", "all tables") if name == ALL_TABLES else tag("a", name, href=table_link(name))


def _logins(visit: Visit) -> list[Element]:
    """Return who may log in, as far as this server knows: it has the tokens of its file, and no list of others."""
    now = time.time()
    running = Counter(call.user for call, *_ in visit.server.calls.running())
    entries = sorted(visit.server.token_entries(), key=lambda each: (each[0].user.casefold(), each[0].created))
    rows = [
        (
            each.user,
            ", ".join(each.roles),
            "yes" if is_admin else "",
            each.id,
            clock(each.created.timestamp()),
            _expiry(None if each.expires is None else each.expires.timestamp(), now),
            each.note,
            f"{running[each.user]:,}" if running[each.user] else "",
        )
        for each, is_admin in entries
    ]
    known = {each.user for each, _ in entries}
    others = sorted(user for user in running if user and user not in known)
    titles = "User", "Roles", "Administrator", "Token", "Created", "Expires", "Note", "Running requests"
    about = "Users of the token file, one line for each token. Users of JWTs and certificates are not listed."
    return [
        tag("h2", "Users"),
        table(titles, rows, 7, about),
        *([tag("p", f"Other users with running requests: {', '.join(others)}.")] if others else []),
    ]


def _expiry(seconds: float | None, now: float) -> Element | str:
    if seconds is None:
        return "never"
    return tag("span", f"expired {clock(seconds)}", class_="bad") if seconds <= now else clock(seconds)
