"""Writes split by server: each server's part of a batch is a commit of its own.

Each server has a lane that sends its parts in order; lanes do not wait for each other. If a server no longer has a
tablet, nothing of that part was applied: its lane stops, all lanes finish, and the rejected rows are routed again by
the current locations. So the changes to a row keep the order of the batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from ...schemas.errors import UnavailableError, WrongServerError
from ...schemas.rows.write import ROW_ERRORS_MAX, WRITER_LENGTH_MAX, WriteCommand, WriteResult, combine
from .servers import Servers
from .tablet_locations import TabletLocations, TabletLocationsCache

_AHEAD = 3
"""Batches in flight."""
_TURNS_MAX = 20
"""How often in a row the same rows may be rejected because their tablet moved."""
_PAUSE_SECONDS = 0.05


@dataclass(slots=True)
class _ServerRows:
    """The rows of a batch that go to one server."""

    rows: pa.RecordBatch
    positions: np.ndarray
    """Their positions in the batch."""
    answer: Future[WriteResult]


@dataclass(slots=True)
class _Sent:
    """A batch in flight and the answers so far, with positions in the batch."""

    rows: int
    parts: list[_ServerRows] = field(default_factory=list)
    answers: list[WriteResult] = field(default_factory=list)


class _Lane:
    """One server's parts, in order."""

    def __init__(self, servers: Servers, name: str, seq: int | None) -> None:
        self._servers = servers
        self._name = name
        self._seq = seq
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"nyala-write-{name}")
        self._stopped: WrongServerError | None = None

    def send(self, command: WriteCommand, rows: pa.RecordBatch) -> Future[WriteResult]:
        return self._thread.submit(copy_context().run, self._write, command, rows)

    def close(self, at_once: bool) -> None:
        """Return when all parts in flight have finished; with ``at_once``, after the current part."""
        self._thread.shutdown(wait=True, cancel_futures=at_once)

    def _write(self, command: WriteCommand, rows: pa.RecordBatch) -> WriteResult:
        if self._stopped:
            raise self._stopped
        try:
            return self._servers.store(self._name).write(command, rows, self._seq)
        except WrongServerError as error:
            self._stopped = error
            raise


class PlacedWrite:
    """A write whose rows go to several servers, each to that of its tablet. For one thread."""

    def __init__(
        self, servers: Servers, cache: TabletLocationsCache, command: WriteCommand, seq: int | None = None
    ) -> None:
        """With ``seq``, write exactly one batch."""
        self._servers = servers
        self._cache = cache
        self._command = command
        self._seq = seq
        self._locations: TabletLocations | None = None
        """By which rows were sent that are in flight: others may have newer ones, but a later row of a key could then
        overtake an earlier one, which has to be sent again."""
        self._lanes: dict[str, _Lane] = {}
        self._sent: deque[_Sent] = deque()

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """Write batches; yield an answer for each, in order.

        Raises:
            StoreError: a server rejected its part of a batch; the parts of other servers may be applied.
        """
        try:
            for batch in batches:
                if not self._sent:
                    self._locations = None
                sent = _Sent(batch.num_rows)
                self._send(sent, batch, np.arange(batch.num_rows))
                self._sent.append(sent)
                if len(self._sent) > _AHEAD:
                    yield self._first_answer()
            while self._sent:
                yield self._first_answer()
        finally:
            self._close_lanes(at_once=True)

    def _send(self, sent: _Sent, rows: pa.RecordBatch, positions: np.ndarray) -> None:
        """Route the rows at ``positions`` of a batch by server and send them."""
        for name, command, mine in self._by_server(rows):
            part = rows if len(mine) == rows.num_rows else rows.take(pa.array(mine))
            if name not in self._lanes:
                self._lanes[name] = _Lane(self._servers, name, self._seq)
            sent.parts.append(_ServerRows(part, positions[mine], self._lanes[name].send(command, part)))

    def _by_server(self, rows: pa.RecordBatch) -> list[tuple[str, WriteCommand, np.ndarray]]:
        """Return the parts of rows: the server, its command, and the positions.

        Numbered parts are numbered by tablet, since a server's answers move with the tablet.
        """
        command = self._command
        if self._locations is None:
            self._locations = self._cache.of(command.table)
        if command.writer is None or self._seq is None:
            return [(name, command, mine) for name, mine in self._locations.by_server(rows).items()]
        parts = self._locations.by_tablet(rows)
        if not all(tablet for _, tablet, _ in parts):  # perhaps of a range that was added meanwhile
            self._cache.forget(command.table)
            self._locations = self._cache.of(command.table)
            parts = self._locations.by_tablet(rows)
        return [
            (name, command.model_copy(update={"writer": numbered_by(command.writer, tablet)}), mine)
            for name, tablet, mine in parts
        ]

    def _first_answer(self) -> WriteResult:
        first = self._sent[0]
        for _ in range(_TURNS_MAX):
            try:
                for part in first.parts:
                    part.answer.result()
            except WrongServerError:
                self._turn()
                continue
            self._settle(first)
            self._sent.popleft()
            return _whole(first)
        raise UnavailableError("the tablets of the rows keep moving between servers; try again", 1.0)

    def _turn(self) -> None:
        """Wait for all lanes, then send rejected rows again by the current locations."""
        self._close_lanes(at_once=False)
        self._cache.forget(self._command.table)
        self._locations = None
        refused = [(sent, part) for sent in self._sent for part in self._settle(sent)]
        time.sleep(_PAUSE_SECONDS)
        for sent, part in refused:
            self._send(sent, part.rows, part.positions)

    def _settle(self, sent: _Sent) -> list[_ServerRows]:
        """Keep the answers of a batch's finished parts; return the parts that must go to another server."""
        refused: list[_ServerRows] = []
        for part in sent.parts:
            try:
                sent.answers.append(_at(part.answer.result(), part.positions))
            except WrongServerError:
                refused.append(part)
        sent.parts = []
        return refused

    def _close_lanes(self, at_once: bool) -> None:
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close(at_once)


def numbered_by(writer: str, tablet: str) -> str:
    """Return the name of a write's writer at one tablet of several servers: servers keep the answers with the tablet.

    A name that would be too long is replaced by its hash.
    """
    if not tablet:
        return writer
    name = f"{writer}@{tablet}"
    if len(name) <= WRITER_LENGTH_MAX:
        return name
    return f"{blake2b(writer.encode(), digest_size=16).hexdigest()}@{tablet}"


def _at(answer: WriteResult, positions: np.ndarray) -> WriteResult:
    """Return an answer whose errors have positions in the whole batch."""
    errors = [error.model_copy(update={"row": int(positions[error.row])}) for error in answer.errors]
    return answer.model_copy(update={"errors": errors})


def _whole(sent: _Sent) -> WriteResult:
    """Return the answer to a batch."""
    united = combine(sent.answers)
    errors = sorted((error for answer in sent.answers for error in answer.errors), key=lambda error: error.row)
    return united.model_copy(update={"errors": errors[:ROW_ERRORS_MAX]})
