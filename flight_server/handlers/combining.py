"""Combining: small requests of many sessions, carried out by a thread each for gets, rows and short scans.

Each session has a thread, but only one of them has the interpreter. Where many send requests, they lose more time by
handing it to each other than by their work. So a thread carries out those of all sessions of a server, one after the
other, or all rows that wait with one sync, and lets the threads of the sessions send the answers, which takes no
interpreter. A request that comes alone stays with the thread of its session. (Flat combining, after D. Hendler, I.
Incze, N. Shavit and M. Tzafrir, SPAA 2010.)

It does nothing that may take long, but for the log, and reads nothing from a disk. A request that is not plain, in
whatever way, goes back to the thread of its session, with nothing done: that one knows all ways, and all errors.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...schemas.protocol.service import RowGatherer
from ..native.session_hook import Queues, RequestQueue, request_queue
from .combined_session import CombinedSession

_LOG = logging.getLogger("nyala.flight_server")
_ROWS_AT_ONCE = 128
"""So many are written with one sync: another sync costs each little, and none waits for long."""


class Combining:
    """The threads that carry out requests for the sessions of a server; they start with the first of them."""

    def __init__(self) -> None:
        self.gets = _CombiningThread("nyala-gets", _read)
        self.writes = _CombiningThread("nyala-rows", _write)
        self.scans = _CombiningThread("nyala-scans", _scan)

    def add(self, session: CombinedSession) -> None:
        """Carry out requests of a session, too."""
        session.take_by(Queues(self.gets.add(session), self.writes.add(session), self.scans.add(session)))

    def remove(self, session: CombinedSession) -> None:
        """Carry out nothing more for a session, on its thread."""
        session.close()
        for thread in (self.gets, self.writes, self.scans):
            thread.remove(session)

    def close(self) -> None:
        """End the threads. No session may be left."""
        for thread in (self.gets, self.writes, self.scans):
            thread.close()


class _CombiningThread:
    """A thread with a queue of requests."""

    def __init__(self, name: str, carry_out: Callable[[Sequence[CombinedSession]], None]) -> None:
        self._name = name
        self._carry_out = carry_out
        self._sessions: dict[int, CombinedSession] = {}
        self._lock = threading.Lock()
        self._queue: RequestQueue | None = None
        self._thread: threading.Thread | None = None

    def add(self, session: CombinedSession) -> RequestQueue | None:
        """Return the queue whose requests are carried out, those of this session, too; None: there is none, or no
        thread for it."""
        with self._lock:
            if self._queue is None:
                self._queue = request_queue()
            if self._queue is not None and self._thread is None:
                thread = threading.Thread(target=self._run, args=[self._queue], name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # as many run as the system allows
                    _LOG.warning("each session answers its own requests, as no thread can start: %s", error)
                    return None
                self._thread = thread
            self._sessions[session.number] = session
            return self._queue

    def remove(self, session: CombinedSession) -> None:
        """Forget a session, which has no request that waits."""
        self._sessions.pop(session.number, None)

    def close(self) -> None:
        with self._lock:
            if self._queue is not None:
                self._queue.close()
            if self._thread is not None:
                self._thread.join()

    def _run(self, queue: RequestQueue) -> None:
        while numbers := queue.take():
            self._take([self._sessions[number] for number in numbers])

    def _take(self, sessions: Sequence[CombinedSession]) -> None:
        try:
            for session in sessions:
                session.begin(self._carry_out)
            self._carry_out(sessions)
        except BaseException:
            _LOG.exception("requests of sessions could not be carried out together")
        finally:
            for session in sessions:
                session.give_back(self._carry_out)


def _read(sessions: Sequence[CombinedSession]) -> None:
    """Carry out gets."""
    for session in sessions:
        session.get()
        session.give_back(_read)


def _scan(sessions: Sequence[CombinedSession]) -> None:
    """Carry out scans."""
    for session in sessions:
        session.scan()
        session.give_back(_scan)


def _write(sessions: Sequence[CombinedSession]) -> None:
    """Carry out writes of rows."""
    for first in range(0, len(sessions), _ROWS_AT_ONCE):
        planned: dict[CombinedSession, Any] = {}
        for session in sessions[first : first + _ROWS_AT_ONCE]:
            if (row := session.planned_row()) is not None:
                planned[session] = row
            else:
                session.give_back(_write)
        gatherers: dict[RowGatherer, list[CombinedSession]] = {}
        for session in planned:  # all have one, unless another store has taken the place of the first
            gatherers.setdefault(session.gatherer, []).append(session)
        for gatherer, those in gatherers.items():
            for session, result in zip(those, gatherer.write_each([planned[each] for each in those]), strict=True):
                session.wrote(result)
                session.give_back(_write)
