"""The forms in which the shell writes rows."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SqlForm(StrEnum):
    """The form in which ``nyala sql`` writes the rows of a statement."""

    TABLE = "table"
    """A table on a terminal; elsewhere a line of column names and tab-separated cells."""
    CSV = "csv"
    JSON = "json"
    """One object a line."""
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def needs_file(self) -> bool:
        """Whether it is for files alone, and a file holds the rows of one statement."""
        return self in (SqlForm.PARQUET, SqlForm.ARROW)


SUFFIXES: Mapping[str, SqlForm] = {
    ".parquet": SqlForm.PARQUET,
    ".csv": SqlForm.CSV,
    ".arrow": SqlForm.ARROW,
    ".feather": SqlForm.ARROW,
    ".jsonl": SqlForm.JSON,
    ".ndjson": SqlForm.JSON,
    ".json": SqlForm.JSON,
}
"""The form of a file by the suffix of its name."""
