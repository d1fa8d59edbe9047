"""PointReads: keeps streams of point reads open between calls, so that a read is one message each way."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.command import RowCount, TableName
from ...schemas.errors import StoreError
from .errors import as_store_errors

IDLE_SECONDS = 0.5
"""A stream idle for this long is closed: it occupies a thread of the server."""
IDLE_COUNT_MAX = 8


class _Kind(NamedTuple):
    table: str
    keys: pa.Schema


class _Stream:
    """One open DoExchange. For one thread at a time."""

    def __init__(self, client: fl.FlightClient, kind: _Kind) -> None:
        self.kind = kind
        self.idle_since = 0.0
        descriptor = fl.FlightDescriptor.for_command(TableName(table=kind.table).model_dump_json())
        self._writer, self._reader = client.do_exchange(descriptor)
        self._writer.begin(kind.keys)

    def ask(self, keys: pa.RecordBatch) -> pa.Table:
        """Send keys and return the rows that come back."""
        self._writer.write_batch(keys)
        batches: list[pa.RecordBatch] = []
        more = True
        while more:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                raise fl.FlightUnavailableError("the server ended the stream") from None
            batches.append(chunk.data)
            more = RowCount.model_validate_json(chunk.app_metadata.to_pybytes()).more
        return pa.Table.from_batches(batches)

    def close(self) -> None:
        """End the stream, whether the server reports an error, is gone, or neither."""
        with suppress(pa.ArrowException, OSError):
            self._writer.close()


class PointReads:
    """Lends a stream to each call; idle ones stay open for a moment. Thread safe."""

    def __init__(self, client: fl.FlightClient) -> None:
        self._client = client
        self._idle: list[_Stream] = []
        self._changed = threading.Condition()
        self._closer: threading.Thread | None = None
        self._closed = False

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """Return the live rows of the keys. If a stream that was idle fails, use a new one, once.

        Raises:
            StoreError: the server rejected the keys, or cannot be reached.
        """
        kind = _Kind(table, keys.schema)
        idle = self._borrow(kind)
        if idle:
            with suppress(StoreError):  # its connection may be broken, or the table altered
                return self._ask(idle, keys)
        with as_store_errors():
            stream = _Stream(self._client, kind)
        return self._ask(stream, keys)

    def close(self) -> None:
        """Close idle streams, and others when their calls end."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for stream in idle:
            stream.close()

    def _ask(self, stream: _Stream, keys: pa.RecordBatch) -> pa.Table:
        try:
            with as_store_errors():
                found = stream.ask(keys)
        except BaseException:
            stream.close()
            raise
        self._give_back(stream)
        return found

    def _borrow(self, kind: _Kind) -> _Stream | None:
        with self._changed:
            for place in reversed(range(len(self._idle))):
                if self._idle[place].kind == kind:
                    return self._idle.pop(place)
        return None

    def _give_back(self, stream: _Stream) -> None:
        stream.idle_since = time.monotonic()
        with self._changed:
            if not self._closed and len(self._idle) < IDLE_COUNT_MAX:
                self._idle.append(stream)
                if self._closer is None:
                    self._closer = threading.Thread(target=self._close_idle, name="nyala-point-reads", daemon=True)
                    self._closer.start()
                return
        stream.close()

    def _close_idle(self) -> None:
        """Close streams that have been idle long enough, until none are left."""
        while True:
            with self._changed:
                if not self._idle:
                    self._closer = None
                    return
                self._changed.wait(IDLE_SECONDS / 2)
                before = time.monotonic() - IDLE_SECONDS
                old = [stream for stream in self._idle if stream.idle_since < before]
                self._idle = [stream for stream in self._idle if stream.idle_since >= before]
            for stream in old:
                stream.close()
