"""The verbs of grants, and what a server needs to check them."""

from __future__ import annotations

from typing import Protocol

from ..rows.transaction import StagedParts, StagedShape, TransactionAbort
from ..store.grants import Grant, GrantChange, GrantList, Privilege
from .need import BY_CONTENT, on_table
from .verb import ANSWER, verb


class GrantVerbs(Protocol):
    """The verbs of grants: a part of ``Verbs``."""

    @verb(GrantChange, GrantList, member="grants", needs=on_table(Privilege.ADMIN))
    def grant(self, change: GrantChange) -> list[Grant]:
        """Grant privileges, durably, to a user or a role: on a table, on some of its columns, or on all tables ("*").
        Return all grants of this user or role. Granting them again changes nothing."""
        return ANSWER

    @verb(GrantChange, GrantList, member="grants", needs=on_table(Privilege.ADMIN))
    def revoke(self, change: GrantChange) -> list[Grant]:
        """Take privileges back, durably; return what this user or role still has. Does nothing if it has none."""
        return ANSWER

    @verb(None, GrantList, member="grants", is_read=True, needs=BY_CONTENT)
    def grants(self) -> list[Grant]:
        """Return all grants: to an administrator, those of everybody; to others, their own."""
        return ANSWER

    @verb(TransactionAbort, StagedParts, member="parts", is_read=True, needs=BY_CONTENT)
    def staged_parts(self, transaction: str) -> list[StagedShape]:
        """Return what is staged for a transaction: each part's table, with its operations and their columns."""
        return ANSWER
