"""The limits of a store; settable when it is opened."""

from typing import Any

from pydantic import PositiveInt, SerializerFunctionWrapHandler, model_serializer

from ..message import Message

_NESTED_CELL_BYTES = 1024 * 1024


class Limits(Message, frozen=True, extra="forbid"):
    """The limits of a store: what it accepts. Sizes are in bytes."""

    cell_bytes: PositiveInt = 64 * 1024
    """The largest string or binary cell."""
    nested_cell_bytes: PositiveInt = _NESTED_CELL_BYTES
    """The largest cell of a list, struct or map."""
    key_bytes: PositiveInt = 16 * 1024
    """The largest encoded primary key; not checked for deletes."""
    columns: PositiveInt = 300
    """Columns in a table."""
    tablets: PositiveInt = 10_000
    """Tablets of a table: the buckets of all hash levels times the ranges."""
    tables: PositiveInt = 10_000
    """Tables of the store, those that were dropped and can be recalled included."""
    store_tablets: PositiveInt = 100_000
    """Tablets of all tables: each takes memory, and the manifest names all of them."""
    identifier_bytes: PositiveInt = 256
    """A table's or column's name in UTF-8."""
    batch_bytes: PositiveInt = 256 * 1024 * 1024
    """One record batch, which is one commit: it is held in memory and in one log record."""
    batch_rows: PositiveInt = 1 << 26
    """Rows of one record batch, however few bytes they have."""
    predicate_nodes: PositiveInt = 10_000
    """Nodes of a filter tree, the values of IN lists not counted."""
    in_list_values: PositiveInt = 100_000
    """Values of one IN list."""
    predicate_values: PositiveInt = 400_000
    """Values of all IN lists of a filter together."""
    aggregate_bytes: PositiveInt = 256 * 1024 * 1024
    """The groups of one aggregate with what is kept of them: they are held in memory."""

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what has its default: version 0.1 rejects fields that it does not know."""
        parts = written(self)
        if self.nested_cell_bytes == _NESTED_CELL_BYTES:
            parts.pop("nested_cell_bytes", None)
        return parts
