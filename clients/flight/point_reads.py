"""PointReads: reads rows by many keys, over streams that stay open between calls."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.command import RowCount, TableName
from ...schemas.errors import StoreError
from .errors import as_store_errors
from .holder_client import Client, HolderClient
from .idle_streams import IdleStreams


class _Kind(NamedTuple):
    client: Client
    table: str
    keys: pa.Schema


class _Stream:
    """One open DoExchange. For one thread at a time."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.idle_since = 0.0
        descriptor = fl.FlightDescriptor.for_command(TableName(table=kind.table).model_dump_json())
        self._writer, self._reader = kind.client.do_exchange(descriptor)
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

    def __init__(self, client: HolderClient) -> None:
        self._client = client
        self._idle = IdleStreams[_Stream]()

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """Return the live rows of the keys. If a stream that was idle fails, use a new one, once.

        Raises:
            StoreError: the server rejected the keys, or cannot be reached.
        """
        kind = _Kind(self._client.here, table, keys.schema)
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

    def _ask(self, stream: _Stream, keys: pa.RecordBatch) -> pa.Table:
        try:
            with as_store_errors():
                found = stream.ask(keys)
        except BaseException:
            stream.close()
            raise
        self._idle.give_back(stream)
        return found
