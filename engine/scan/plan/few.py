"""Scans of a few keys: read like gets (`tablet/lookup`), not chunk by chunk."""

from __future__ import annotations

import pyarrow as pa

from ....schemas.rows.scan import ScanSpec
from ...rowset.native.cell_table import TooManyBytesError
from ...table.point_plan import PointPlan
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.lookup import Asked, look_up_natively
from ...tablet.tablet import Tablet
from ...vectors.keys.keys import hash_keys
from ..read.chunk import ScanRequest

_LOOK_UPS_MAX = 1024
_BYTES_MAX = 8 << 20
"""Rows with more are read chunk by chunk."""


def rows_of_few_keys(
    spec: ScanSpec, table: Table, version: TableVersion, request: ScanRequest, tablets: list[Tablet]
) -> pa.RecordBatch | None:
    """Return all rows of a scan whose filter selects a few keys, in key order; None if only a scan can tell.

    The snapshot must be in the history of the tablets now.

    Raises:
        StoreError: a file is damaged.
    """
    keys = request.few
    if keys is None or request.changes or request.aggregate or request.is_split or not request.columns:
        return None
    if len(tablets) * len(keys) > _LOOK_UPS_MAX:
        return None
    hashes = hash_keys(keys)
    asked = [Asked(tablet, keys, hashes) for tablet in tablets]
    columns = version.plans[PointPlan].columns_of(request.columns)
    try:
        found = look_up_natively(asked, request.snapshot, columns, _BYTES_MAX)
    except TooManyBytesError:
        return None
    is_kept = all(request.snapshot >= tablet.version.history_floor for tablet in tablets)
    if found is None or not is_kept or table.version is not version:
        return None
    return found.slice(spec.offset, spec.limit).select([column.name for column in request.columns])
