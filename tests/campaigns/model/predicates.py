"""Filters of the model: a tree that says itself in SQL and is true, false or unknown (None) of a row."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Protocol

_COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARISONS = tuple(_COMPARISONS)


class Filter(Protocol):
    def holds(self, row: Mapping[str, Any]) -> bool | None: ...


def literal(value: Any) -> str:
    """Return a value as SQL text."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime | date):
        return f"'{value.isoformat()}'"
    if isinstance(value, timedelta):
        return f"INTERVAL '{value // timedelta(microseconds=1)}' MICROSECOND"
    return str(value)


@dataclass(frozen=True)
class Compare:
    column: str
    sign: str
    value: Any

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {literal(self.value)}"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        cell = row[self.column]
        return None if cell is None else _COMPARISONS[self.sign](cell, self.value)


@dataclass(frozen=True)
class IsNull:
    column: str

    def __str__(self) -> str:
        return f"{self.column} IS NULL"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        return row[self.column] is None


@dataclass(frozen=True)
class In:
    column: str
    values: Sequence[Any]

    def __str__(self) -> str:
        return f"{self.column} IN ({', '.join(map(literal, self.values))})"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        cell = row[self.column]
        return None if cell is None else cell in self.values


@dataclass(frozen=True)
class Between:
    column: str
    low: Any
    high: Any

    def __str__(self) -> str:
        return f"{self.column} BETWEEN {literal(self.low)} AND {literal(self.high)}"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        cell = row[self.column]
        return None if cell is None else self.low <= cell <= self.high


@dataclass(frozen=True)
class Not:
    part: Filter

    def __str__(self) -> str:
        return f"NOT ({self.part})"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        found = self.part.holds(row)
        return None if found is None else not found


@dataclass(frozen=True)
class Both:
    left: Filter
    right: Filter

    def __str__(self) -> str:
        return f"({self.left}) AND ({self.right})"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        parts = {self.left.holds(row), self.right.holds(row)}
        return False if False in parts else None if None in parts else True


@dataclass(frozen=True)
class Either:
    left: Filter
    right: Filter

    def __str__(self) -> str:
        return f"({self.left}) OR ({self.right})"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        parts = {self.left.holds(row), self.right.holds(row)}
        return True if True in parts else None if None in parts else False
