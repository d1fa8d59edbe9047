"""What verification answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

Checksum = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""The sum of the hashes of rows, modulo 2 to the 64, in hexadecimal."""


class TabletChecksum(BaseModel):
    """The rows of one tablet."""

    model_config = ConfigDict(frozen=True)

    tablet: int
    """Its number, on ``server`` where several servers share the table."""
    rows: int
    checksum: Checksum
    server: str | None = None


class TableChecksum(BaseModel):
    """The rows of a table at a snapshot: how many, and the sum of their hashes, which depends on no order and no
    partitioning. See ``row_hash`` for the algorithm."""

    model_config = ConfigDict(frozen=True)

    table: str
    snapshot: int
    rows: int
    checksum: Checksum
    tablets: list[TabletChecksum]

    def is_same(self, other: TableChecksum) -> bool:
        """Tell whether the other is of the same rows."""
        return (self.rows, self.checksum) == (other.rows, other.checksum)


class KeyDifference(BaseModel):
    """A key whose rows differ: there on one side only, or on both with other values."""

    model_config = ConfigDict(frozen=True)

    key: dict[str, Any]
    what: Literal["only_left", "only_right", "values"]


class Verification(BaseModel):
    """Whether two tables hold the same rows, and where they do not."""

    model_config = ConfigDict(frozen=True)

    equal: bool
    left: TableChecksum
    right: TableChecksum
    columns: list[str] = []
    """What differs between the columns, in words; then the rows are not compared."""
    tablets: list[int | str] = []
    """Tablets of the left table that have rows which differ: numbers, or ``server/number``."""
    differences: list[KeyDifference] = []
    """The first keys that differ."""
    complete: bool = True
    """Whether ``differences`` and ``tablets`` tell all."""
