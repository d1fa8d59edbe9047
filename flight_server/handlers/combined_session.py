"""CombinedSession: the gets, rows and scans of one session that other threads carry out; see `combining`.

While one of them does, the thread of the session waits, so that both may use what the session has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...schemas.errors import StoreError
from ...schemas.protocol.request import Request, serving
from ...schemas.protocol.service import RowGatherer
from ...schemas.protocol.session import SessionDetails, parts_of
from ...schemas.protocol.verb import Kind
from ...schemas.rows.write import WriteResult
from ...schemas.store.metrics import Histogram
from ..native.session_hook import ANSWER_BYTES_MAX, NO_QUEUES, Queues
from ..requests.calls import Call, Calls
from .kept_gets import KeptGets
from .session_answers import Rows
from .session_row import SessionRow, details_of

Get = Callable[[list[Any], bytes], bytes]
"""Returns the answer to a get of a key, whose message is given, too. Raises as the store's ``get_row``."""
Scan = Callable[[bytes], tuple[bytes, Rows | None] | None]
"""Returns the answer to a scan, whose first line is given; None if it is another request. Raises StoreError."""
Prepared = tuple[bytes, Rows | None] | StoreError
"""An answer, or the error to raise instead."""

_RETURNS_MOST, _AWAY_SECONDS = 3, 0.25
"""After so many requests of a kind in a row that went back, a session is left to its thread for so long."""
_LONG_SCAN_SECONDS = 0.02
"""After a scan that took longer, too."""
_LOOK_SECONDS = 0.05
"""So often it is looked after what else a session's thread sees to: before kept answers end."""


class CombinedSession:
    """The requests of one session that other threads carry out."""

    def __init__(
        self,
        gatherer: RowGatherer,
        kept: KeptGets,
        calls: Calls,
        call: Call,
        request: Request,
        told: Callable[[WriteResult], bytes],
    ) -> None:
        """``told`` makes answers to writes."""
        self._hook = kept.hook
        self.number = self._hook.number
        self.gatherer = gatherer
        self._kept = kept
        self._admission = calls.admission
        self._call = call
        self._request = replace(request, may_wait=False)
        self._told = told
        self._times = {each: calls.metrics.of(f"session_{each}") for each in ("get", "write", "scan")}
        self._rows: dict[bytes, SessionRow] = {}
        self._gets: dict[bytes, Get] = {}
        self._scan: Scan | None = None
        self._not_before = self._look_from = 0.0
        self._returns: dict[object, int] = {}
        self._began = 0.0
        self._owed_by: object = None
        """Who owes the session, whose thread waits, an answer; None: nobody."""
        self._admitted: Kind | None = None
        self._queues = NO_QUEUES
        self.prepared: Prepared | None = None
        """The answer to the last request, for its thread to send; None: it is sent, or there is none."""
        call.is_carried_out = self._hook.is_waiting

    # On the thread of the session

    def take_by(self, queues: Queues) -> None:
        """Let requests be taken from these queues."""
        self._queues = queues

    def learn(self, first: bytes, asked: Get | SessionRow) -> None:
        """Let requests with a first line be carried out by the other threads."""
        if isinstance(asked, SessionRow):
            self._rows[first] = asked
        else:
            self._gets[first] = asked

    def learn_scans(self, scan: Scan) -> None:
        """Let scans be carried out by the other threads."""
        self._scan = scan

    def forget(self) -> None:
        """Forget all first lines."""
        self._rows.clear()
        self._gets.clear()

    def are_taken(self, now: float, is_next: bool) -> None:
        """Let requests that the session reads be taken from ``now`` on, if no answer ``is_next`` before theirs."""
        self.prepared = None
        gets, writes, scans = NO_QUEUES if is_next or now < self._not_before else self._queues
        self._hook.ask(
            Queues(gets if self._gets else None, writes if self._rows else None, scans if self._scan else None)
        )

    def close(self) -> None:
        """Let nothing more be taken."""
        self._hook.ask(NO_QUEUES)

    # On one of the other threads

    def begin(self, by: object) -> None:
        """Note who owes the session an answer, or its request back."""
        self._owed_by, self._began = by, time.perf_counter()
        self._call.next_request()

    def get(self) -> None:
        """Carry out a get, if it is plain."""
        message = self._hook.message()
        first, second, _ = parts_of(message)
        if (get := self._gets.get(first)) is None:
            return
        try:
            if (details := self._admitted_details(Kind.READ, second)) and details.key is not None:
                with serving(self._request):
                    answer = get(details.key, message)
                self._note(self._times["get"])
                self._answer(answer)
        except StoreError as error:
            self._prepare(error)
        except Exception:  # it is on a disk; or else the thread of the session says what is wrong
            return

    def scan(self) -> None:
        """Carry out a scan, if it is plain, and let the thread of the session send its rows."""
        first, _, _ = parts_of(self._hook.message())
        if self._scan is None or not self._is_admitted(Kind.READ):
            return
        began = time.perf_counter()
        try:
            with serving(self._request):
                prepared = self._scan(first)
            if prepared is not None:
                self._note(self._times["scan"])
                self._prepare(prepared)
        except StoreError as error:
            self._prepare(error)
        except Exception:  # as in ``get``
            return
        if time.perf_counter() - began > _LONG_SCAN_SECONDS:
            self._not_before = time.monotonic() + _AWAY_SECONDS

    def planned_row(self) -> object | None:
        """Return the row that the session has asked to write; None: it is not plain."""
        first, second, _ = parts_of(self._hook.message())
        if (row := self._rows.get(first)) is None:
            return None
        try:
            if (details := self._admitted_details(Kind.PUT, second)) and not details.more:
                with serving(self._request):
                    return row.planned(details)
        except StoreError as error:
            self._prepare(error)
        except Exception:  # as in ``get``
            return None
        return None

    def wrote(self, result: WriteResult | StoreError | None) -> None:
        """Answer a planned row with what became of it; None: nothing."""
        if isinstance(result, StoreError):
            self._prepare(result)
        elif result is not None:
            self._call.wrote(result.applied)
            self._note(self._times["write"])
            self._answer(self._told(result))

    def _admitted_details(self, kind: Kind, second: bytes) -> SessionDetails | None:
        """Return the second line of a request that may run now; None if it may not. Raises InvalidArgumentError."""
        details = details_of(second)
        return details if self._is_admitted(kind) else None

    def _is_admitted(self, kind: Kind) -> bool:
        self._call.check_time()
        if self._admission.enters_at_once(kind, self._call.peer):
            self._admitted = kind
        return self._admitted is not None

    def _note(self, times: Histogram) -> None:
        """Note how long a request took, which has its answer."""
        seconds, call = time.perf_counter() - self._began, self._call
        times.add(seconds)
        if seconds >= call.log.slow_seconds:
            call.log.took(seconds, call.id(), "session", call.user)

    def _answer(self, answer: bytes) -> None:
        if len(answer) > ANSWER_BYTES_MAX:
            self._prepare((answer, None))
            return
        call = self._call
        call.received(self._hook.message_bytes())
        call.sent(len(answer))
        if (now := time.monotonic()) >= self._look_from:
            self._look_from = now + _LOOK_SECONDS
            call.waiting_since = now
            self._kept.count()
            self._kept.are_answered(now, is_next=False)
        self._end(answer)

    def _prepare(self, prepared: Prepared) -> None:
        """Let the thread of the session send an answer, or raise an error."""
        self.prepared = prepared
        self._end(None)

    def give_back(self, by: object) -> None:
        """Let the thread of the session answer, unless that is done."""
        if self._owed_by is by:
            returns = self._returns[by] = self._returns.get(by, 0) + 1
            if returns > _RETURNS_MOST:
                self._returns[by], self._not_before = 0, time.monotonic() + _AWAY_SECONDS
            self._owed_by = None
            self._leave()
            self._hook.answer(None)

    def _end(self, answer: bytes | None) -> None:
        self._returns[self._owed_by] = 0
        self._leave()
        self._owed_by = None
        self._hook.answer(answer)

    def _leave(self) -> None:
        if self._admitted is not None:
            kind, self._admitted = self._admitted, None
            self._admission.leave(kind, self._call.peer)
