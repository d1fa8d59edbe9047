"""Stage rows over Flight as a part of a transaction, again where the connection breaks or the server is restarted.

What was sent is kept until the server has it on disk. A long part goes as several, each of which is answered before the
next begins, so that no more than ``KEPT_BYTES_MAX`` is kept. A part that is staged again takes the place of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import chain

import pyarrow as pa

from ...schemas.errors import StoreError, UnavailableError
from ...schemas.transaction import StagedBatch, StageResult
from ...schemas.write import TRANSACTION_LENGTH_MAX, WriteCommand
from .put_stream import PutStream
from .server_wait import ServerWait

KEPT_BYTES_MAX = 64 << 20


class StagingPut:
    """Stages one part. For one thread."""

    def __init__(self, open_stream: Callable[[WriteCommand, pa.Schema], PutStream], wait: ServerWait) -> None:
        """``wait`` says how long a server that is away is waited for."""
        self._open_stream = open_stream
        self._wait = wait

    def stage(self, command: WriteCommand, schema: pa.Schema, batches: Iterable[StagedBatch]) -> StageResult:
        """Stage batches of one schema; the answer names the parts that they are.

        Raises:
            StoreError: the server refused them, or stays away.
        """
        coming = _Coming(batches)
        staged: list[StageResult] = []
        while not staged or coming.has_more():
            staged.append(self._one(named(command, len(staged)), schema, coming))
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
                    with suppress(StoreError):  # either none is left to raise, or one is on its way up already
                        stream.close()
            except UnavailableError as error:
                if coming.is_broken:
                    raise
                self._wait.wait(error)


class _Coming:
    """Batches on their way, and those of them that may have to be sent again."""

    def __init__(self, batches: Iterable[StagedBatch]) -> None:
        self._source = iter(batches)
        self._kept: list[StagedBatch] = []
        self._kept_bytes = 0
        self._next: StagedBatch | None = None
        self.is_broken = False
        """Whether whoever gives the batches raised an error: then those that came are not all."""

    def from_kept(self) -> Iterator[StagedBatch]:
        """Yield what is kept, then more, up to as much as may be kept."""
        return chain(tuple(self._kept), self._more())

    def _more(self) -> Iterator[StagedBatch]:
        while self._kept_bytes < KEPT_BYTES_MAX and self.has_more():
            assert self._next is not None, "there is more"
            self._kept.append(self._next)
            self._kept_bytes += self._next.batch.nbytes
            self._next = None
            yield self._kept[-1]

    def has_more(self) -> bool:
        """Whether a batch comes that was not sent."""
        if self._next is None:
            try:
                self._next = next(self._source, None)
            except BaseException:
                self.is_broken = True
                raise
        return self._next is not None

    def forget(self) -> None:
        """Keep none of them any longer."""
        self._kept, self._kept_bytes = [], 0


def named(command: WriteCommand, number: int) -> WriteCommand:
    """Return the command that stages a further part, of which the first has the name that was given."""
    if not number or command.stage is None:
        return command
    name = f"{command.stage.part}~{number}"
    if len(name) > TRANSACTION_LENGTH_MAX:
        name = f"{blake2b(command.stage.part.encode(), digest_size=16).hexdigest()}~{number}"
    return command.model_copy(update={"stage": command.stage.model_copy(update={"part": name})})
