"""ScanReader: reads a scan over Flight, each row exactly once, even if the connection breaks.

The server marks some batches with a key: all rows below it have been sent. Batches are yielded up to the last mark;
later ones wait for the next mark. If the stream breaks they are discarded, and the same scan is requested again at the
same snapshot, from the mark's key on. So the reader sees no gap and no duplicate, whatever happened to the server's
files, and only the rows between two marks are buffered here: `engine/scan/read/marked.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.command import ScanMark
from ...schemas.rows.scan import ScanSpec
from .errors import as_store_errors
from .server_wait import ServerWait

_HELD_BYTES_MAX = 256 << 20
"""Rows that wait for a mark. Beyond this they are yielded without one, and a broken stream is then an error."""


class ScanReader:
    """Reads the rows of one ticket over Flight, each once, even if the connection breaks. For one thread."""

    def __init__(
        self, open_stream: Callable[[ScanSpec], fl.FlightStreamReader], wait: ServerWait, ticket: ScanSpec
    ) -> None:
        """``open_stream`` sends a ticket; ``wait`` decides how long to wait for a server that is down."""
        self._open_stream = open_stream
        self._wait = wait
        self._rest = ticket if ticket.aggregate is not None else ticket.model_copy(update={"marks": True})
        self._reader: fl.FlightStreamReader | None = None
        self._unmarked_rows = 0
        """How many rows past the last mark were yielded."""

    @property
    def rest(self) -> ScanSpec:
        """The ticket for the rows not yet yielded."""
        return self._rest

    def open(self) -> pa.Schema:
        """Start reading; return the schema of the batches.

        Raises:
            StoreError: the server rejected the ticket, or stays down.
        """
        while self._reader is None:
            try:
                with as_store_errors():
                    reader = self._open_stream(self._rest)
                    reader.schema  # waits for the server's answer  # noqa: B018
                self._reader = reader
            except UnavailableError as error:
                self._wait.wait(error)
            except InvalidArgumentError as error:
                if not (self._rest.marks and "'marks'" in error.message):
                    raise
                self._rest = self._rest.model_copy(update={"marks": False})  # a server of version 0.1 sends none
        return self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches.

        Raises:
            StoreError: the server rejected the rest of the scan, or stays down.
        """
        while True:
            self.open()
            try:
                yield from self._read_on()
                return
            except UnavailableError as error:
                self._reader = None
                if self._unmarked_rows:
                    raise
                self._wait.wait(error)
            finally:
                self.close()

    def close(self) -> None:
        """End the stream that is open."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()

    def _read_on(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one stream, up to its last mark or its end."""
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch, mark in self._messages():
            held.append(batch)
            held_bytes += batch.nbytes
            if mark is not None:
                self._go_on_at(ScanMark.model_validate_json(mark), held)
            elif held_bytes <= _HELD_BYTES_MAX:
                continue
            else:
                self._unmarked_rows += _rows(held)
            given, held, held_bytes = held, [], 0
            yield from given
        yield from held

    def _go_on_at(self, mark: ScanMark, given: list[pa.RecordBatch]) -> None:
        limit = self._rest.limit
        left = None if limit is None else limit - self._unmarked_rows - _rows(given)
        rest = {"key_lower": mark.below, "limit": left, "offset": 0}
        self._rest = self._rest.pinned(mark.snapshot).model_copy(update=rest)
        self._unmarked_rows = 0
        self._wait.reset()

    def _messages(self) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
        assert self._reader is not None, "opened"
        while True:
            with as_store_errors():
                try:
                    chunk = self._reader.read_chunk()
                except StopIteration:
                    self._reader = None
                    return
            yield chunk.data, chunk.app_metadata.to_pybytes() if chunk.app_metadata else None


def _rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)
