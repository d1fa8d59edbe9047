"""Several record batches as one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def in_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of one schema, at least one, as one batch; a single batch is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
