"""DoGet: a ticket is the JSON of a scan, made by GetFlightInfo or by the client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.protocol.command import read_json
from ...schemas.protocol.service import ScanStream, StoreService
from ...schemas.protocol.verb import Kind
from ...schemas.rows.scan import ScanSpec
from ..admission.admission import sized
from ..errors.errors import Guarded, Translator
from ..requests.calls import Call, Calls
from ..requests.scan_summary import asked
from ..settings.config import ServerConfig
from .message_split import cut
from .resume_marks import cut_marked
from .short_scan import ShortStream, begun_scan

_REMEMBERED_BYTES_MAX = 4096
"""Scans with less text are remembered, since clients repeat them."""


def scan_spec(body: bytes, what: str, config: ServerConfig) -> ScanSpec:
    """Return the scan that a client asks for in a DoGet's ticket or in a descriptor's command; ``what`` names it in
    errors.

    Raises:
        InvalidArgumentError: it is too large, or not a scan.
    """
    if len(body) <= _REMEMBERED_BYTES_MAX:
        return _remembered(body, what)
    return read_json(ScanSpec, sized(body, what, config.scan_bytes_max), what).checked()


@lru_cache(1024)
def _remembered(body: bytes, what: str) -> ScanSpec:
    return read_json(ScanSpec, body, what).checked()


def stream(
    store: StoreService, context: fl.ServerCallContext, ticket: bytes, calls: Calls, translator: Translator
) -> fl.FlightDataStream:
    """Answer a DoGet: return the batches of its ticket. The scan is closed when the stream ends or the client
    disconnects.

    A short result is collected and sent as one message, which needs no Python. A longer one pulls a Python iterator:
    only this kind of stream keeps the code of an error in its middle.

    Raises:
        StoreError: the ticket is invalid, or too many scans run.
    """
    config = calls.config
    sized(ticket, "the ticket", config.scan_bytes_max)
    call = calls.begin(context, "do_get", Kind.SCAN, len(ticket))
    try:
        with call.working():
            spec = scan_spec(ticket, "the ticket", config)
            call.table = spec.table
            call.scanned = scanned = asked(spec, len(ticket))
            began = time.monotonic()
            scan = store.scan(spec)
            scanned.planned(spec, len(ticket), time.monotonic() - began, scan.counts)
            call.has_read()
        return sent(scan, call, config, translator)
    except BaseException:
        call.close()
        raise


def sent(scan: ScanStream, call: Call, config: ServerConfig, translator: Translator) -> fl.FlightDataStream:
    """Return the answer to a DoGet: the batches of a scan. It closes scan and call."""
    with call.working():
        whole, begun = begun_scan(scan, call)
    if whole is not None:
        return ShortStream(whole, call)
    batches = Guarded(_sent(begun, config, call), translator, "do_get", lambda: _end(scan, call))
    call.waits_for_client()
    return fl.GeneratorStream(scan.schema, batches)


def _sent(
    scan: ScanStream, config: ServerConfig, call: Call
) -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]:
    if scan.marked is None or scan.snapshot is None:
        messages = cut(scan.batches, config)
    else:
        messages = cut_marked(scan.marked, scan.snapshot, config)
    while True:
        with call.working():
            call.step()
            message = next(messages, None)
        if message is None:
            return
        batch = message[0] if isinstance(message, tuple) else message
        call.sent(batch.nbytes, batch.num_rows)
        with call.with_client():
            yield message


def _end(scan: ScanStream, call: Call) -> None:
    try:
        for items in (scan.marked, scan.batches):
            if close := getattr(items, "close", None):
                close()
    finally:
        call.close()
