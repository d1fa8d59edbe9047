"""Messages of a topic, and what a format reads from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from .....schemas.errors import InvalidArgumentError
from .....schemas.store.description import TableDescription
from ...source import SourceColumn

Part = TypeVar("Part")
NOT_READABLE = (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError, RecursionError, EOFError)
"""What the readers of bytes raise for bytes that they cannot read."""


@dataclass(frozen=True)
class Messages:
    """Messages of one topic: those of each partition in order. Others name a message by its number in here."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    partitions: Sequence[int]
    offsets: Sequence[int]
    times: Sequence[int]
    """When they were written, in milliseconds since 1970; negative if Kafka does not know."""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Shape:
    """The columns of a table that the schema of a topic's messages describes."""

    columns: Sequence[SourceColumn]
    key: Sequence[str] | None
    """Those of the key, if the messages have a schema for their keys."""


@dataclass(frozen=True)
class Decoded:
    """What a format has read from messages: what they make of a table, in the order of their numbers."""

    rows: pa.RecordBatch
    numbers: np.ndarray
    """The message of each row."""
    is_delete: np.ndarray
    """Rows of which only the key counts: it is deleted."""
    rejects: dict[int, str] = field(default_factory=dict)
    """The messages that cannot be applied, and why."""
    absent: dict[str, np.ndarray] = field(default_factory=dict)
    """For columns that some rows lack, which rows: these cells keep their values."""
    truncates: bool = False
    """Whether all rows of the table are deleted first."""

    @staticmethod
    def of(
        rows: pa.RecordBatch,
        numbers: np.ndarray,
        rejects: dict[int, str] | None = None,
    ) -> Decoded:
        """Return rows that are all written."""
        return Decoded(rows, numbers, np.zeros(rows.num_rows, np.bool_), rejects or {})

    def slice(self, at: int) -> Decoded:
        """Return one row."""
        part = slice(at, at + 1)
        return Decoded(self.rows.slice(at, 1), self.numbers[part], self.is_delete[part])


class TargetColumns(Protocol):
    """The table that a topic is applied to, as the format of its messages sees it."""

    @property
    def about(self) -> TableDescription:
        """The table now. Raises NotFoundError: it is not there."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether there is such a table."""
        ...

    @property
    def partitions(self) -> int:
        """How many partitions the topic has now, as Kafka says. Raises UnavailableError: it does not answer."""
        ...

    def fit(self, shape: Shape) -> None:
        """Create the table if it is not there, and add the columns that it lacks.

        Raises:
            SourceChangedError: it cannot follow; nothing was changed.
        """


class Format(ABC):
    """Reads the messages of one topic. One thread uses it."""

    @abstractmethod
    def decode(self, messages: Messages, table: TargetColumns) -> list[Decoded]:
        """Return what messages make of a table, in parts whose order counts.

        Raises:
            NotFoundError: there is no table, and the messages do not describe one.
            UnavailableError: the registry of schemas cannot be reached now.
        """


def in_halves(attempt: Callable[[int, int], Part], first: int, end: int, wrong: dict[int, str]) -> list[Part]:
    """Return what an attempt reads from the messages ``first`` to ``end``: if it fails, from both halves, down to
    single messages, whose errors go to ``wrong``."""
    if first >= end:
        return []
    try:
        return [attempt(first, end)]
    except (*NOT_READABLE, InvalidArgumentError) as error:
        if end - first == 1:
            wrong[first] = reason_of(error)
            return []
    middle = (first + end) // 2
    return in_halves(attempt, first, middle, wrong) + in_halves(attempt, middle, end, wrong)


def joined(parts: Sequence[Decoded], schema: pa.Schema, rejects: dict[int, str]) -> Decoded:
    """Return what a format has read in parts as one, in the order of their messages; columns that a part lacks are NULL
    in it. What is before a part that truncates the table does not count."""
    first = max((at for at, part in enumerate(parts) if part.truncates), default=0)
    truncates = any(part.truncates for part in parts)
    parts = [part for part in parts[first:] if part.rows.num_rows]
    if not parts:
        none = pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
        return Decoded(none, np.zeros(0, np.int64), np.zeros(0, np.bool_), rejects, truncates=truncates)
    numbers = np.concatenate([part.numbers for part in parts])
    is_delete = np.concatenate([part.is_delete for part in parts])
    absent = {
        name: np.concatenate([part.absent.get(name, np.zeros(part.rows.num_rows, np.bool_)) for part in parts])
        for name in {name for part in parts for name in part.absent}
    }
    whole = pa.concat_tables([pa.table(part.rows) for part in parts], promote_options="permissive").combine_chunks()
    rows = whole.to_batches()[0]
    if (np.diff(numbers) < 0).any():
        order = np.argsort(numbers, kind="stable")
        rows, numbers, is_delete = rows.take(pa.array(order)), numbers[order], is_delete[order]
        absent = {name: mask[order] for name, mask in absent.items()}
    return Decoded(rows, numbers, is_delete, rejects, absent, truncates)


def reason_of(error: Exception) -> str:
    """Return the error of a message as one line for the table of rejects."""
    text = error.message if isinstance(error, InvalidArgumentError) else str(error)
    return " ".join(text.split())[:500] or type(error).__name__
