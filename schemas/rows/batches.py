"""Record batches: several as one, none, and a first one with the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa


def in_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of a request's or an answer's rows, of one schema, at least one, as one batch; a single batch is
    not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return the answer to a read that has no rows: a batch of its columns."""
    return pa.RecordBatch.from_pylist([], schema=schema)


def begun(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Begin to read the answer to a scan: the first of its batches, at least one, which may raise; return their schema,
    and all of them. Closing these closes those."""
    first = next(batches)

    def whole() -> Iterator[pa.RecordBatch]:
        try:
            yield first
            yield from batches
        finally:
            if close := getattr(batches, "close", None):
                close()

    return first.schema, whole()
