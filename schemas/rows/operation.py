"""The write operations."""

from enum import StrEnum


class Operation(StrEnum):
    """The operation of a batch that is written to a table; it applies to all rows."""

    INSERT = "insert"
    INSERT_IGNORE = "insert_ignore"
    UPSERT = "upsert"
    UPSERT_IGNORE = "upsert_ignore"
    MERGE = "merge"
    """An upsert that combines values with those of a live row, by the merge rules of their columns."""
    UPDATE = "update"
    UPDATE_IGNORE = "update_ignore"
    DELETE = "delete"
    DELETE_IGNORE = "delete_ignore"

    @property
    def base(self) -> "Operation":
        """The operation without its ``_ignore``; a merge is an upsert."""
        return Operation.UPSERT if self is Operation.MERGE else Operation(self.value.removesuffix("_ignore"))

    @property
    def ignores(self) -> bool:
        """Whether a row in the wrong state (present or absent) is ignored instead of refused."""
        return self.value.endswith("_ignore")
