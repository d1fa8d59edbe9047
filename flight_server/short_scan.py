"""Short scans: collected at once, if they need little time and their rows are few."""

from __future__ import annotations

import time

import pyarrow as pa

from ..schemas.request import Request, serving
from ..schemas.scan import ScanSpec
from ..schemas.service import StoreService
from .calls import Call
from .turns import SHORT_SECONDS

BYTES_MAX = 256 << 10


class LongScanError(Exception):
    """The scan needs more than a short one may."""


def short_scan(store: StoreService, spec: ScanSpec, call: Call) -> tuple[int | None, pa.Table]:
    """Return the snapshot and the rows of a scan of less than 10 ms of processor time and 256 KiB.

    Such a scan takes no turn. A longer one is given up, which costs no more than that.

    Raises:
        LongScanError: it is longer.
        StoreError: the scan is invalid, or the client is gone.
    """
    end = time.thread_time() + SHORT_SECONDS

    def check() -> None:
        if time.thread_time() > end:
            raise LongScanError
        call.step()

    with serving(Request(call.peer.address, check)):
        stream = store.scan(spec)
        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            for batch in stream.batches:
                size += batch.nbytes
                if size > BYTES_MAX:
                    raise LongScanError
                batches.append(batch)
        finally:
            if close := getattr(stream.batches, "close", None):
                close()
    return stream.snapshot, pa.Table.from_batches(batches, schema=stream.schema)
