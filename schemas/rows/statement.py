"""Statements: one commit that changes the rows selected by a condition, with expressions over their cells."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, NonNegativeInt

from ..errors import InvalidArgumentError
from ..message import Message, new_dict
from .write import SEQ_MAX, WRITER_LENGTH_MAX, Durability, WriteResult

SET_TEXT_MAX = 128 * 1024
"""Characters of all expressions of an update together."""
_KEY = "; it has the key "


class StatementKind(StrEnum):
    """In the request of a statement: its kind, its effect on the rows."""

    UPDATE = "update"
    """Set columns of the rows that ``where`` selects."""
    DELETE = "delete"
    """Delete the rows that ``where`` selects."""
    RESTORE = "restore"
    """Restore the table to its state at ``as_of``, changing only the rows that differ."""


class Statement(Message, frozen=True, extra="forbid"):
    """The body of ``execute``, a statement: one commit, computed from the rows just before it."""

    table: str
    kind: StatementKind
    set: dict[str, str] = Field(default_factory=new_dict)
    """For an update: an SQL expression for each column to set."""
    where: str | dict[str, Any] | None = None
    """As in a scan; None selects all rows."""
    as_of: int | str | None = None
    """For a restore: the moment to restore."""
    durability: Durability | None = None
    writer: str | None = Field(default=None, min_length=1, max_length=WRITER_LENGTH_MAX)
    seq: NonNegativeInt | None = Field(default=None, le=SEQ_MAX)
    """With ``writer``: a statement executed before gets its first answer again and is not executed."""
    here: bool = False
    """Change only rows in tablets that this server has."""
    table_id: int | None = None
    """The table that is meant: refuse with CONFLICT if another one has its name by now. None: whichever has it."""

    def checked(self) -> Statement:
        """Return the statement if its parts are consistent.

        Raises:
            InvalidArgumentError: they are not; the message names the part.
        """
        if (self.writer is None) != (self.seq is None):
            raise InvalidArgumentError("writer and seq must be given together")
        self._check_set()
        if bool(self.set) != (self.kind is StatementKind.UPDATE):
            raise InvalidArgumentError(
                "the argument `set` is required for an update, as in set={'price': 'price * 1.1'}, and not allowed in "
                "other statements"
            )
        if (self.as_of is not None) != (self.kind is StatementKind.RESTORE):
            raise InvalidArgumentError("a restore needs as_of, and only a restore can have as_of")
        if self.where is not None and self.kind is StatementKind.RESTORE:
            raise InvalidArgumentError("a restore covers the whole table: it cannot be combined with where")
        return self

    def _check_set(self) -> None:
        letters = sum(len(name) + len(text) for name, text in self.set.items())
        if letters > SET_TEXT_MAX:
            raise InvalidArgumentError(
                f"set has {letters:,} characters; at most {SET_TEXT_MAX:,} are allowed, in all expressions together"
            )


def with_key(message: str, key: str) -> str:
    """Return the message of a row's error in the answer to a write with the key of the row, by which people find it."""
    return f"{message}{_KEY}{key}"


def without_keys(done: WriteResult) -> WriteResult:
    """Return the answer to a write without the keys of rows in its errors."""
    errors = [each.model_copy(update={"message": each.message.partition(_KEY)[0]}) for each in done.errors]
    return done.model_copy(update={"errors": errors})
