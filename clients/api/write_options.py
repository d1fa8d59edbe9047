"""How a write is made: what the verbs of ``Table`` take beside the data, and how words of it are checked."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Any, Literal, TypedDict

from ...schemas.errors import InvalidArgumentError
from ...schemas.write import WRITER_LENGTH_MAX, Durability

OnError = Literal["raise", "return"]


class StatementHow(TypedDict, total=False):
    """How a commit is made; ``Table.write`` says what each part means."""

    durability: str | Durability | None
    writer: str | None
    seq: int | None


class WriteHow(StatementHow, total=False):
    """How rows are written; ``Table.write`` says what each part means."""

    atomic: bool
    on_error: OnError
    if_timestamp: int | str | dt.datetime | None


def checked_writer(writer: str | None, seq: int | None) -> str | None:
    """Return ``writer`` if it goes with ``seq``. Raises InvalidArgumentError where it does not."""
    if (writer is None) != (seq is None):
        raise InvalidArgumentError("writer and seq go together: a number means something only to its writer")
    if not isinstance(writer, str | None) or not isinstance(seq, int | None):
        raise InvalidArgumentError(f"writer is a name and seq a whole number, not {writer!r} and {seq!r}")
    if writer is not None and not 1 <= len(writer) <= WRITER_LENGTH_MAX:
        raise InvalidArgumentError(f"the name of a writer has 1 to {WRITER_LENGTH_MAX} characters, not {len(writer)}")
    return writer


def word(words: type[StrEnum], chosen: object, what: str) -> Any:
    """Return one of ``words``. Raises InvalidArgumentError, naming all, for another."""
    try:
        return words(chosen)
    except ValueError:
        raise InvalidArgumentError(f"no {what} is called {chosen!r}; there are {', '.join(words)}") from None
