"""Scans of a few keys: read like gets (`tablet/lookup`), not chunk by chunk."""

from __future__ import annotations

import pyarrow as pa

from ....schemas.protocol.service import Marked, ScanStream
from ...rowset.native.cell_table import TooManyBytesError
from ...table.point_plan import PointPlan
from ...tablet.lookup import Asked, look_up_natively
from ...vectors.keys.keys import hash_keys
from .resolve import ResolvedScan

_LOOK_UPS_MAX = 1024
_BYTES_MAX = 1 << 20
"""Rows with more are read chunk by chunk."""


def rows_of_few_keys(scan: ResolvedScan) -> pa.RecordBatch | None:
    """Return all rows of a scan whose filter selects a few keys, in key order; None if only chunks can tell.

    The snapshot must be in the history of the tablets now.

    Raises:
        StoreError: a file is damaged.
    """
    spec, request, tablets = scan.spec, scan.request, scan.wanted.tablets
    keys = request.few
    if keys is None or request.changes or request.aggregate or request.is_split or not request.columns:
        return None
    if len(tablets) * len(keys) > _LOOK_UPS_MAX:
        return None
    hashes = hash_keys(keys)
    columns = scan.version.plans[PointPlan].columns_of(request.columns)
    try:
        rows = look_up_natively(
            [Asked(tablet, keys, hashes) for tablet in tablets], request.snapshot, columns, _BYTES_MAX
        )
    except TooManyBytesError:
        return None
    is_kept = all(request.snapshot >= tablet.version.history_floor for tablet in tablets)
    if rows is None or not is_kept or scan.table.version is not scan.version:
        return None
    return rows.slice(spec.offset, spec.limit).select([column.name for column in request.columns])


def stream_of_rows(scan: ResolvedScan, rows: pa.RecordBatch) -> ScanStream:
    """Return a stream of the rows of a scan, which have been read."""
    request = scan.request
    batches = [rows] if rows.num_rows else []
    marked = (Marked(batch, None) for batch in batches) if scan.spec.marks else None
    return ScanStream(request.schema, request.snapshot, (batch for batch in batches), marked, source=scan.source)
