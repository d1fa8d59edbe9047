"""Stages rows over Flight as a part of a transaction, and resends them if the connection breaks or the server restarts.

Batches are kept until the server has them on disk. A long part is sent as several parts, each answered before the next
begins, so that at most about ``KEPT_BYTES_MAX`` are kept. A part staged again replaces the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import chain

import pyarrow as pa

from ...schemas.errors import StoreError, UnavailableError
from ...schemas.rows.transaction import StagedBatch, StageResult
from ...schemas.rows.write import TRANSACTION_LENGTH_MAX, WriteCommand
from .put_stream import PutStream
from .server_wait import ServerWait

KEPT_BYTES_MAX = 64 << 20


class StagingPut:
    """Stages the rows of one part of a transaction over DoPut, and resends them if the connection breaks. For one
    thread."""

    def __init__(self, open_stream: Callable[[WriteCommand, pa.Schema], PutStream], wait: ServerWait) -> None:
        """``wait`` decides how long to wait for a server that is down."""
        self._open_stream = open_stream
        self._wait = wait

    def stage(self, command: WriteCommand, schema: pa.Schema, batches: Iterable[StagedBatch]) -> StageResult:
        """Stage batches of one schema; the answer names the parts that hold them.

        Raises:
            StoreError: the server rejected them, or stays down.
        """
        coming = _Coming(batches)
        staged: list[StageResult] = []
        while not staged or coming.has_more():
            staged.append(self._one(named(command, len(staged)), schema, coming))
            self._wait.reset()
            coming.forget()
        return staged[0].model_copy(
            update={
                "parts": [each.part for each in staged],
                "part_rows": [each.rows for each in staged],
                "rows": sum(each.rows for each in staged),
                "seconds_to_live": staged[-1].seconds_to_live,
            }
        )

    def _one(self, command: WriteCommand, schema: pa.Schema, coming: _Coming) -> StageResult:
        while True:
            try:
                stream = self._open_stream(command, schema)
                try:
                    return stream.send_part(coming.from_kept())
                finally:
                    with suppress(StoreError):  # there is no error, or it is being raised already
                        stream.close()
            except UnavailableError as error:
                if coming.is_broken:
                    raise
                self._wait.wait(error)


class _Coming:
    """The incoming batches, and those that may have to be resent."""

    def __init__(self, batches: Iterable[StagedBatch]) -> None:
        self._source = iter(batches)
        self._kept: list[StagedBatch] = []
        self._kept_bytes = 0
        self._next: StagedBatch | None = None
        self.is_broken = False
        """Whether the source of the batches raised an error: then they are incomplete."""

    def from_kept(self) -> Iterator[StagedBatch]:
        """Yield the kept batches, then more until the limit is reached."""
        return chain(tuple(self._kept), self._more())

    def _more(self) -> Iterator[StagedBatch]:
        while self._kept_bytes < KEPT_BYTES_MAX and self.has_more():
            assert self._next is not None, "there is more"
            self._kept.append(self._next)
            self._kept_bytes += self._next.batch.nbytes
            self._next = None
            yield self._kept[-1]

    def has_more(self) -> bool:
        """Return whether there is another batch to send."""
        if self._next is None:
            try:
                self._next = next(self._source, None)
            except BaseException:
                self.is_broken = True
                raise
        return self._next is not None

    def forget(self) -> None:
        """Drop the kept batches."""
        self._kept, self._kept_bytes = [], 0


def named(command: WriteCommand, number: int) -> WriteCommand:
    """Return the command to send a further part of staged rows to the server; part 0 keeps the given name."""
    if not number or command.stage is None:
        return command
    name = f"{command.stage.part}~{number}"
    if len(name) > TRANSACTION_LENGTH_MAX:
        name = f"{blake2b(command.stage.part.encode(), digest_size=16).hexdigest()}~{number}"
    return command.model_copy(update={"stage": command.stage.model_copy(update={"part": name})})
