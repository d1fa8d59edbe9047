"""Short scans: collected at once, since they need little time and their rows are few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.protocol.request import Request, identify, may_wait, serving
from ...schemas.protocol.service import OneBatch, ScanStream, StoreService
from ...schemas.rows.scan import ScanSpec
from ..requests.calls import Call
from ..requests.cpu_turns import SHORT_SECONDS
from .session_answers import Rows

BYTES_MAX = 256 << 10
_WAIT_SECONDS = 0.05
"""How long one may take by the clock: other threads may work for it, and it may wait for a disk."""

_CHECK_SECONDS = 0.001
"""A look at the clocks and at the client costs as much as a step of a short scan."""


class LongScanError(Exception):
    """A scan in a session needs more than a short one may."""


def short_scan(store: StoreService, spec: ScanSpec, call: Call) -> tuple[int | None, Rows]:
    """Answer a session's short scan at once: return the snapshot and the rows of a scan of less than 10 ms of processor
    time, 50 ms in all, and 256 KiB.

    Such a scan takes no turn. A longer one is given up, which costs no more than that.

    Raises:
        LongScanError: it is longer.
        StoreError: the scan is invalid, or the client is gone.
    """
    is_long = _limit()
    check_from = time.monotonic() + _CHECK_SECONDS

    def check() -> None:
        nonlocal check_from
        if (now := time.monotonic()) < check_from:
            return
        check_from = now + _CHECK_SECONDS
        if is_long():
            raise LongScanError
        call.check()

    with serving(Request(call.peer.address, check, identify(), call.watch, call.peer.user, may_wait())):
        stream = store.scan(spec)
        if isinstance(stream.batches, OneBatch):
            if stream.batches.message.nbytes > BYTES_MAX:
                raise LongScanError
            return stream.snapshot, Rows.of_message(stream.schema, stream.batches)
        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            for batch in stream.batches:
                size += batch.nbytes
                if size > BYTES_MAX:
                    raise LongScanError
                batches.append(batch)
        finally:
            stream.close()
    return stream.snapshot, Rows.of(stream.schema, batches)


def begun_scan(scan: ScanStream, call: Call) -> tuple[pa.Table | None, ScanStream]:
    """Collect the first rows of a running DoGet. Return all rows if these are all, else None; and the scan with all of
    its rows, whose end is that of ``scan``."""
    items: Iterator[Any] = scan.batches if scan.marked is None else scan.marked
    first: list[Any] = []
    size, is_long = 0, _limit()
    while size <= BYTES_MAX and not is_long():
        call.step()
        item = next(items, None)
        if item is None:
            break
        first.append(item)
        batch = item.batch if scan.marked is not None else item
        size += 0 if batch is None else batch.nbytes
    else:
        whole = chain(first, items)
        return None, replace(scan, batches=whole) if scan.marked is None else replace(scan, marked=whole)
    batches = [item.batch for item in first] if scan.marked is not None else first
    rows = [batch for batch in batches if batch is not None]
    if not scan.schema.names:  # a table without columns would not know how many rows it has
        return None, replace(scan, batches=iter(rows), marked=None)
    return pa.Table.from_batches(rows, schema=scan.schema).combine_chunks(), scan


def _limit() -> Callable[[], bool]:
    """Return what tells whether the work of this thread takes too long for a short scan, from now on."""
    spent, now = time.thread_time(), time.monotonic()
    return lambda: time.thread_time() - spent > SHORT_SECONDS or time.monotonic() - now > _WAIT_SECONDS


class ShortStream(fl.RecordBatchStream):
    """The answer to a short DoGet, which is sent without Python. It ends the call when the transport is done with it,
    and drops it."""

    def __init__(self, rows: pa.Table, call: Call) -> None:
        super().__init__(rows)
        self._call = call
        call.sent(rows.nbytes, rows.num_rows)
        call.waits_for_client()

    def __del__(self) -> None:
        self._call.close()
