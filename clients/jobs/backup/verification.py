"""The results of verification."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, StringConstraints

Checksum = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""The sum of row hashes, modulo 2^64, in hexadecimal."""


class TabletChecksum(BaseModel, frozen=True):
    """The checksum of one tablet in a verification: its rows."""

    tablet: int
    """Its number, on ``server`` if several servers share the table."""
    rows: int
    checksum: Checksum
    server: str | None = None


class TableChecksum(BaseModel, frozen=True):
    """The checksum of a table in a verification: the number of its rows at a snapshot, and the sum of their hashes,
    which depends on neither order nor partitioning. See ``row_hash`` for the algorithm."""

    table: str
    snapshot: int
    rows: int
    checksum: Checksum
    tablets: list[TabletChecksum]

    def is_same(self, other: TableChecksum) -> bool:
        """Return whether the other has the same rows."""
        return (self.rows, self.checksum) == (other.rows, other.checksum)


class KeyDifference(BaseModel, frozen=True):
    """A key at which a verification found two tables to differ: one side lacks the row, or has other values."""

    key: dict[str, Any]
    what: Literal["only_left", "only_right", "values"]


class Verification(BaseModel, frozen=True):
    """The result of a verification: whether two tables hold the same rows, and where they differ."""

    equal: bool
    left: TableChecksum
    right: TableChecksum
    columns: list[str] = []
    """Differences between the columns, as text; the rows are then not compared."""
    tablets: list[int | str] = []
    """Tablets of the left table with rows that differ: numbers, or ``server/number``."""
    differences: list[KeyDifference] = []
    """The first keys that differ."""
    complete: bool = True
    """Whether ``differences`` and ``tablets`` are complete."""
