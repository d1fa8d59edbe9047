"""Statements: one commit that changes the rows which a condition selects, by expressions over their own cells."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from .errors import InvalidArgumentError
from .write import SEQ_MAX, WRITER_LENGTH_MAX, Durability


class StatementKind(StrEnum):
    """What a statement does to the rows."""

    UPDATE = "update"
    """Set columns of the rows that ``where`` selects."""
    DELETE = "delete"
    """Delete the rows that ``where`` selects."""
    RESTORE = "restore"
    """Bring the table back to what it was at ``as_of``, touching only the rows that differ."""


class Statement(BaseModel):
    """The body of ``execute``. All of it is one commit, worked out from the rows as they are just before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    kind: StatementKind
    set: dict[str, str] = Field(default_factory=dict)
    """For an update: an SQL expression for each column that it sets."""
    where: str | dict[str, Any] | None = None
    """As in a scan; None selects all rows."""
    as_of: int | str | None = None
    """For a restore: the moment."""
    durability: Durability | None = None
    writer: str | None = Field(default=None, min_length=1, max_length=WRITER_LENGTH_MAX)
    seq: NonNegativeInt | None = Field(default=None, le=SEQ_MAX)
    """With ``writer``: a statement that was executed before is answered again, not executed."""
    here: bool = False
    """The rows of the tablets that this server has, and no others."""

    def checked(self) -> Statement:
        """Return the statement if its parts make sense together.

        Raises:
            InvalidArgumentError: naming the part that does not.
        """
        if (self.writer is None) != (self.seq is None):
            raise InvalidArgumentError("writer and seq must be given together")
        if bool(self.set) != (self.kind is StatementKind.UPDATE):
            raise InvalidArgumentError(
                "an update needs set, as in set={'price': 'price * 1.1'}; other statements do not take it"
            )
        if (self.as_of is not None) != (self.kind is StatementKind.RESTORE):
            raise InvalidArgumentError("a restore needs as_of; other statements do not take it")
        if self.where is not None and self.kind is StatementKind.RESTORE:
            raise InvalidArgumentError("a restore covers the whole table: it cannot be combined with where")
        return self
