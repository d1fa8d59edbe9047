"""Rows of several servers as one stream: in order of arrival, in key order, or up to a limit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import NotFoundError, UnavailableError, WrongServerError
from ...schemas.protocol.service import ScanStream
from ...schemas.rows.scan import ScanSpec
from .planning import ServersPlan
from .servers import Servers

_WAITING_BATCHES = 4
"""Batches that may wait, for each server."""
_LOOK_SECONDS = 0.2
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds between searches for a tablet that moves."""


def unordered(servers: Servers, plan: ServersPlan) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan from all servers, reading them concurrently."""
    names = [name for name, found in plan.plans.items() if found.splits]
    if len(names) == 1:
        yield from tickets(servers, names[0], plan)
        return
    with closing(_Gathered(servers, plan, names)) as gathered:
        yield from gathered.batches()


def in_turn(servers: Servers, plan: ServersPlan) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan from one server after the other."""
    for name in plan.plans:
        yield from tickets(servers, name, plan)


def limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first ``limit`` rows of a scan of several servers."""
    left = limit
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def tickets(servers: Servers, name: str, plan: ServersPlan) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the tablets that one server had when it planned the scan, wherever they are now."""
    for ticket in plan.tickets(name):
        yield from opened(servers, name, ticket).batches


def opened(servers: Servers, name: str, ticket: ScanSpec) -> ScanStream:
    """Start the scan of a ticket on the server ``name`` that planned it, or on the server that has the tablet now.

    Raises:
        WrongServerError: no server has the tablet.
    """
    if name in servers.names:
        try:
            return _going_on(servers, servers.store(name).scan(ticket))
        except WrongServerError:
            if ticket.partition is None:
                raise
    return followed(servers, ticket)


def followed(servers: Servers, ticket: ScanSpec) -> ScanStream:
    """Start the scan of a ticket of a tablet that has moved, on the server that has it now.

    Raises:
        WrongServerError: no server had it for longer than a move takes.
    """
    # The tablet's number and the digest of the columns mean something only to the server that planned.
    moved = ticket.model_copy(update={"planned": None, "tablet": None, "lease": None})
    for pause in (*_PAUSES, None):
        away: UnavailableError | None = None
        for name in servers.names:
            try:
                # Also makes a server take over what it was handed.
                servers.reached(name, patient=pause is None).tablets(ticket.table)
                found = servers.store(name).scan(moved)
                return _going_on(servers, replace(found, batches=begun(found.batches)))
            except (WrongServerError, NotFoundError):
                continue
            except UnavailableError as error:  # another server may have the tablet
                away = error
        if pause is not None:
            time.sleep(pause)
        elif away is not None:
            raise away
    raise WrongServerError("no server has the tablet to read: plan the scan again")


def _going_on(servers: Servers, stream: ScanStream) -> ScanStream:
    return replace(stream, batches=_followed_on(servers, stream))


def _followed_on(servers: Servers, stream: ScanStream) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan; the rest from another server if the tablet moved while this one restarted."""
    try:
        yield from stream.batches
    except WrongServerError:
        rest = stream.rest() if stream.rest else None
        if rest is None or rest.partition is None:
            raise
        yield from followed(servers, rest).batches


def begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches of a server's scan after the first has arrived: over Flight an error may come with it."""
    first = next(batches, None)
    return iter(()) if first is None else chain([first], batches)


class _Gathered:
    """Reads each server in a thread; batches wait in one queue."""

    def __init__(self, servers: Servers, plan: ServersPlan, names: Sequence[str]) -> None:
        self._waiting: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_WAITING_BATCHES * len(names))
        self._stopped = threading.Event()
        self._reading = len(names)
        try:
            for name in names:
                arguments = (self._read, servers, name, plan)  # in the caller's context, for its trace
                target = copy_context().run
                threading.Thread(target=target, args=arguments, name=f"nyala-read-{name}", daemon=True).start()
        except BaseException:  # those that run would wait for ever
            self.close()
            raise

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches until all servers have finished."""
        while self._reading:
            found = self._waiting.get()
            if found is None:
                self._reading -= 1
            elif isinstance(found, BaseException):
                raise found
            else:
                yield found

    def close(self) -> None:
        """Stop the threads."""
        self._stopped.set()

    def _read(self, servers: Servers, name: str, plan: ServersPlan) -> None:
        end: BaseException | None = None
        try:
            with closing(tickets(servers, name, plan)) as found:  # pyright: ignore[reportArgumentType] - a generator
                for batch in found:
                    if not self._put(batch):
                        return
        except BaseException as error:
            end = error
        self._put(end)

    def _put(self, item: pa.RecordBatch | BaseException | None) -> bool:
        """Add an item; return False if the consumer has stopped."""
        while not self._stopped.is_set():
            try:
                self._waiting.put(item, timeout=_LOOK_SECONDS)
                return True
            except queue.Full:
                continue
        return False


@dataclass(slots=True)
class _ServerStream:
    """The rows of one server that have arrived but not been merged, in key order."""

    coming: Iterator[pa.RecordBatch]
    rows: pa.RecordBatch | None = None

    def fill(self) -> bool:
        """Fetch rows if there are none at hand; return False at the end."""
        while self.rows is None or not self.rows.num_rows:
            self.rows = next(self.coming, None)
            if self.rows is None:
                return False
        return True


def merged(runs: Sequence[Iterator[pa.RecordBatch]], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Merge the streams of several servers, whose batches are each sorted by the columns ``by``.

    Each round sorts the batches at hand together and yields the rows up to the smallest of the batches' last rows:
    later rows of any stream are greater.
    """
    waiting = [run for run in map(_ServerStream, runs) if run.fill()]
    while len(waiting) > 1:
        batches = [run.rows for run in waiting if run.rows is not None]
        together = pa.Table.from_batches([batch.select(list(by)) for batch in batches])
        order = pc.sort_indices(together, sort_keys=[(name, "ascending") for name in by]).to_numpy()
        ends = np.cumsum([batch.num_rows for batch in batches])
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        out = int(ranks[ends - 1].min()) + 1
        yield pa.concat_batches(batches).take(pa.array(order[:out]))
        starts = ends - [batch.num_rows for batch in batches]
        for run, batch, start, end in zip(waiting, batches, starts.tolist(), ends.tolist(), strict=True):
            run.rows = batch.slice(int((ranks[start:end] < out).sum()))
        waiting = [run for run in waiting if run.fill()]
    for run in waiting:
        if run.rows is not None:
            yield run.rows
        yield from run.coming
