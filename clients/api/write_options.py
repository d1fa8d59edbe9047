"""The options that the write methods of ``Table`` take beside the data, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, TypedDict

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.command import built
from ...schemas.rows.operation import Operation
from ...schemas.rows.write import WRITER_LENGTH_MAX, CommitMode, Durability, WriteCommand

OnError = Literal["raise", "return"]


class StatementHow(TypedDict, total=False):
    """The keywords by which a user says how a statement is committed; ``Table.write`` explains each option."""

    durability: str | Durability | None
    writer: str | None
    seq: int | None


class WriteHow(StatementHow, total=False):
    """The keywords by which a user says how rows are written; ``Table.write`` explains each option."""

    atomic: bool
    on_error: OnError
    if_timestamp: Moment | None


def checked_writer(writer: str | None, seq: int | None) -> str | None:
    """Return the ``writer`` that a user gives to a write. Raises InvalidArgumentError if it and ``seq`` do not go
    together."""
    if (writer is None) != (seq is None):
        raise InvalidArgumentError("writer and seq must be given together")
    if not isinstance(writer, str | None) or not isinstance(seq, int | None):
        raise InvalidArgumentError(f"writer must be a name and seq an integer, not {writer!r} and {seq!r}")
    if writer is not None and not 1 <= len(writer) <= WRITER_LENGTH_MAX:
        raise InvalidArgumentError(f"a writer's name must have 1 to {WRITER_LENGTH_MAX} characters, not {len(writer)}")
    return writer


def word(words: type[StrEnum], chosen: object, what: str) -> Any:
    """Return the member of ``words`` that a user's write option ``chosen`` names. Raises InvalidArgumentError, which
    lists all, if none."""
    try:
        return words(chosen)
    except ValueError:
        raise InvalidArgumentError(f"unknown {what} {chosen!r}; known: {', '.join(words)}") from None


def command_of(
    table: str,
    op: object,
    atomic: bool,
    durability: object,
    commit: object,
    writer: str | None,
    seq: int | None,
    if_timestamp: Moment | None,
    rules: Mapping[str, str] | None = None,
) -> WriteCommand:
    """Return the command for the arguments of a user's ``Table.write``. Raises InvalidArgumentError if an argument is
    wrong."""
    if writer is seq is if_timestamp is rules is None:
        try:
            return _plain_command(table, op, atomic, durability, commit)
        except TypeError:  # one that is not hashable, and wrong
            pass
    return _command(table, op, atomic, durability, commit, checked_writer(writer, seq), if_timestamp, rules)


def _command(
    table: str,
    op: object,
    atomic: bool,
    durability: object,
    commit: object,
    writer: str | None = None,
    if_timestamp: Moment | None = None,
    rules: Mapping[str, str] | None = None,
) -> WriteCommand:
    return built(
        WriteCommand,
        "the write",
        table=table,
        op=word(Operation, op, "operation"),
        atomic=atomic,
        durability=None if durability is None else word(Durability, durability, "durability"),
        commit=word(CommitMode, commit, "commit mode"),
        writer=writer,
        if_timestamp=None if if_timestamp is None else read_moment(if_timestamp, "if_timestamp"),
        rules=rules if rules is None or not isinstance(rules, Mapping) else dict(rules),
    )


_plain_command = lru_cache(maxsize=256, typed=True)(_command)
"""Most writes have no number and no condition: their commands are remembered."""
