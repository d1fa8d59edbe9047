"""PointReads: reads rows by many keys, over streams that stay open between calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import StoreError
from ...schemas.protocol.command import RowCount, TableName
from .errors import as_store_errors
from .holder_client import Client, HolderClient
from .idle_streams import IdleStreams


class _Kind(NamedTuple):
    client: Client
    table: str
    keys: pa.Schema
    token: tuple[str, ...]
    """Given if the next call may have another one."""


class _Stream:
    """One open DoExchange. For one thread at a time."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.idle_since = 0.0
        descriptor = fl.FlightDescriptor.for_command(TableName(table=kind.table).model_dump_json())
        self._writer, self._reader = kind.client.do_exchange(descriptor, *kind.token)
        self._writer.begin(kind.keys)

    def send(self, keys: pa.RecordBatch) -> None:
        """Ask for the rows of keys; ``receive`` them all before the next."""
        self._writer.write_batch(keys)

    def receive(self) -> tuple[pa.RecordBatch, bool]:
        """Return the next rows, and whether there are more. Raises StoreError."""
        with as_store_errors():
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                raise fl.FlightUnavailableError("the server ended the stream") from None
        return chunk.data, RowCount.model_validate_json(chunk.app_metadata.to_pybytes()).more

    def abandon(self) -> None:
        """End the stream without the rows that are still to come."""
        self._reader.cancel()
        self.close()

    def close(self) -> None:
        """End the stream, whether the server reports an error, is gone, or neither. It waits for the rows to come."""
        with suppress(pa.ArrowException, OSError):
            self._writer.close()


class PointReads:
    """Reads rows by keys from one server: lends an open Flight stream to each call; idle ones stay open for a moment.
    Thread safe."""

    def __init__(self, client: HolderClient) -> None:
        self._client = client
        self._current_token = client.current_token
        self._idle = IdleStreams[_Stream]()

    def look_up(self, table: str, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Return the live rows of the keys as they come, the first of which are there. If a stream that was idle fails
        before, use a new one, once.

        Raises:
            StoreError: the server rejected the keys, or cannot be reached.
        """
        token = () if self._current_token is None else (self._current_token(),)
        kind = _Kind(self._client.here, table, keys.schema, token)
        idle = self._idle.borrow(kind)
        if idle:
            with suppress(StoreError):  # its connection may be broken, or the table altered
                return self._ask(idle, keys)
            self._client.confirm()  # another process may have come
        kind = kind._replace(client=self._client.sure())
        with as_store_errors():
            stream = _Stream(kind)
        return self._ask(stream, keys)

    def close(self) -> None:
        """Close idle streams, and others when their calls end."""
        self._idle.close()

    def _ask(self, stream: _Stream, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            with as_store_errors():
                stream.send(keys)
            rows, more = stream.receive()
        except BaseException:
            stream.close()
            raise
        if more:
            return self._rest(rows, stream)
        self._idle.give_back(stream)
        return iter((rows,))

    def _rest(self, rows: pa.RecordBatch, stream: _Stream) -> Iterator[pa.RecordBatch]:
        more = True
        try:
            yield rows
            while more:
                rows, more = stream.receive()
                yield rows
        finally:
            if more:  # it failed, or its reader wants no more of it
                stream.abandon()
            else:
                self._idle.give_back(stream)
