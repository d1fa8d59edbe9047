"""Buffers a write stream that is one commit until it is complete."""

from __future__ import annotations

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.budget import BudgetShare
from ...schemas.rows.batches import in_one
from ..settings.config import ServerConfig


class BufferedStream:
    """Keeps the batches of a DoPut stream that is one commit, until it is complete. For one thread."""

    def __init__(self, schema: pa.Schema, staging: BudgetShare, config: ServerConfig) -> None:
        self._schema = schema
        self._staging = staging
        self._bytes_max = config.batch_bytes_max
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch.

        Raises:
            InvalidArgumentError: the stream is too large for one commit.
            UnavailableError: all streams together are too large for the server.
        """
        size = batch.get_total_buffer_size()
        self._bytes += size
        self._rows += batch.num_rows
        if self._bytes > self._bytes_max:
            raise InvalidArgumentError(
                f"the staged stream is too large: one commit has at most {self._bytes_max:,} bytes; split it into "
                "several"
            )
        self._staging.take(size)
        self._batches.append(batch)

    def whole(self, rows: int) -> pa.RecordBatch:
        """Return the stream as one batch. Raises InvalidArgumentError unless it has ``rows`` rows."""
        if rows != self._rows:
            raise InvalidArgumentError(f"the stream had {self._rows:,} rows, not {rows:,}: nothing was applied")
        if not self._batches:
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)
        return in_one(self._batches)
