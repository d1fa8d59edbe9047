"""Running calls: the work of each, and the end of those that are stuck in their clients.

A stream that waits for its client, to send or to take a batch, occupies a thread and a slot. It is ended after
``stalled_seconds_max``; and already after ``yielding_seconds`` if another stream needs a slot and none is free. After
``stream_seconds_max`` every stream is ended.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow.flight as fl

from ...schemas.errors import UnavailableError
from ...schemas.limits.budget import BudgetShare
from ...schemas.protocol.request import Request, serving
from ...schemas.protocol.verb import Kind
from ..admission.admission import STREAMS, Admission, Slot
from ..admission.peers import peer_of
from ..errors.request_log import RequestLog, code_of, mark, new_request_id
from ..native.call import UNAUTHENTICATED, UNAVAILABLE, end_call
from ..settings.config import ServerConfig
from .cpu_turns import Turns, Work
from .recent_requests import RecentRequest, RecentRequests
from .scan_summary import Scanned
from .server_metrics import ServerMetrics

if TYPE_CHECKING:
    from ..security.authentication import Authentication
    from .traces import Span, Traces

_TAKE_TURNS = frozenset({Kind.SCAN, Kind.PLAN, Kind.EXCHANGE, Kind.STATEMENT})
"""Calls that take turns. Writes do not: they are short, or wait for the disk."""
_STEP_SECONDS = 0.001
_ASK_SECONDS = 0.02
"""Between two questions to the transport whether the client is there. To answer, the transport does whatever work the
network has for any call, and pyarrow holds the interpreter's lock meanwhile: asked every millisecond, it held the lock
for a third of the time beside hostile clients."""
_STUCK = ("stalled", "displaced")
"""Why calls were ended that speak against their connection."""
_LOOK_SECONDS = 0.05
"""Minimum pause between searches for stuck streams, however many requests wait for slots."""
_TURNOVER_SHARE = 0.01
"""Of a processor, for streams that are displaced: each was sent all that its client's transport takes ahead, some 30
MB, and the next one will be. What the transport spends is not counted, and is several times as much."""
_TURNOVER_SECONDS_MAX = 1.0
"""The longest pause after a displaced stream, which may have worked for long before it got stuck."""
_TABLE_LENGTH_MAX = 256
"""So much is kept of a name: a client sends what it likes."""
_LOG = logging.getLogger("nyala.flight_server")
_STALLED = "UNAVAILABLE: the stream made no progress for {seconds:g} seconds and was ended; begin it again"
_TOO_LONG = (
    "UNAVAILABLE: the stream was open for {seconds:g} seconds, the longest time allowed (stream_seconds_max), "
    "and was ended; begin another"
)
_STOPPED = "UNAVAILABLE: the server is stopping; try again when it is back"
_ELSEWHERE = "UNAVAILABLE: this process no longer has the store; the action `where` names the process that has it"


class Call:
    """One running call: its work and time, and its end if it is stuck in its client. Use ``check``, ``step`` and
    ``look`` only on its own thread, ``watch`` on any."""

    def __init__(
        self,
        calls: Calls,
        context: fl.ServerCallContext,
        verb: str,
        kind: Kind,
        size: int,
        span: Span | None = None,
    ) -> None:
        self._began: float | None = time.monotonic()
        self._admission_seconds = self._client_seconds = 0.0
        self.sent_rows = self.sent_bytes = self.received_bytes = self.written_rows = 0
        self.error_code = ""
        """Of the error that ended its work; empty: none has."""
        self.scanned: Scanned | None = None
        """What it scans; None: nothing."""
        self.span = span
        """None: the server sends no traces, or not of this call as a whole."""
        self._id = ""
        self._table = ""
        self.verb = verb
        self.kind = kind
        self.metrics = calls.metrics
        self.log = calls.log
        self.identity = calls.authentication.caller if calls.authentication else None
        """Who calls; None if the server asks nobody, or lets anyone do this."""
        self.peer = peer_of(context.peer(), self.user or "")
        self.waiting_since: float | None = None
        """When it began to wait for its client; None while the server works."""
        self.is_carried_out: Callable[[], bool] = lambda: False
        """Whether the server works for it, though its own thread waits."""
        self._sending_since: float | None = None
        self._calls = calls
        self._context: fl.ServerCallContext | None = context
        self._lock = threading.RLock()  # the garbage collector may close the call on the thread that ends it
        self._work = Work(calls.turns)
        self._step_from = 0.0
        self._ask_from = self._began + _ASK_SECONDS
        self._large: Slot | None = None
        # Take this slot first: a call that waits for it must not hold the other one.
        if size > calls.config.large_request_bytes:
            self._large = calls.admission.admit(Kind.LARGE, self.peer, self.check)
        self._slot: Slot | None = self._admitted(kind)
        self._admission_seconds = time.monotonic() - self._began
        self._watch_from = 0.0
        self._request = Request(self.peer.address, self.step, self.id, self.watch, self.peer.user)
        calls._add(self)

    @property
    def table(self) -> str:
        """For the log and the console; empty if it is not known, or there is not one."""
        return self._table

    @table.setter
    def table(self, name: str) -> None:
        self._table = name[:_TABLE_LENGTH_MAX]

    def id(self) -> str:
        """Return what identifies the call in the log. It is made when it is first asked for: few calls fail."""
        if not self._id:
            self._id = new_request_id()
        return self._id

    def sent(self, size: int, rows: int = 0) -> None:
        """Count what goes to the client."""
        self.sent_bytes += size
        self.sent_rows += rows
        self.metrics.sent(size)

    def received(self, size: int) -> None:
        """Count bytes from the client."""
        self.received_bytes += size
        self.metrics.received(size)

    def wrote(self, rows: int) -> None:
        """Count rows that were applied."""
        self.written_rows += rows
        self.metrics.wrote(rows)

    def next_request(self) -> None:
        """Begin another request of a session, with an id of its own."""
        self._id = ""

    @property
    def began(self) -> float | None:
        """When it began, on the monotonic clock; None once it is over."""
        return self._began

    @property
    def user(self) -> str | None:
        """Who calls, for the log; None if that is not known."""
        return self.identity.user if self.identity else None

    def check(self) -> None:
        """Raise UnavailableError if the client is gone, its deadline has passed, or the server stops; and as
        ``check_time``. The transport is asked every 20 ms."""
        self.check_time()
        context, now = self._context, time.monotonic()
        if context is None or now < self._ask_from:
            return
        if context.is_cancelled():  # and the next check asks again
            raise UnavailableError("the client is gone, or its deadline is over")
        self._ask_from = now + _ASK_SECONDS

    def step(self) -> None:
        """Do as ``check``; let other requests have their turns during long reads. Call it between steps of work; it
        acts once a millisecond."""
        if self._looked() and self.kind in _TAKE_TURNS:
            gives_way = self._large is not None or (self.kind is Kind.STATEMENT and self._work.is_long)
            self._work.step(gives_way, self._others_run)

    def look(self) -> None:
        """Do as ``step``, without turns."""
        self._looked()

    def watch(self) -> None:
        """Do as ``check``, on any thread, once a millisecond; raise UnavailableError also if the call is over."""
        now = time.monotonic()
        if now < self._watch_from:
            return
        self._watch_from = now + _STEP_SECONDS
        with self._lock:  # while it is held, the call's own thread cannot finish
            if self._context is None:
                raise UnavailableError("the request is over")
            self.check()

    def _looked(self) -> bool:
        now = time.monotonic()
        if now < self._step_from:
            return False
        self._step_from = now + _STEP_SECONDS
        self.check()
        return True

    def _others_run(self) -> bool:
        mine = (self._large is not None) + (self._slot is not None)
        return self._calls.admission.running > mine

    def working(self) -> _Working:
        """Let this thread work for the call during the body."""
        return _Working(self)

    def waits_for_client(self) -> None:
        """Mark the call as waiting for its client, until the server works for it again."""
        self.waiting_since = time.monotonic()

    def client_came(self) -> None:
        """Mark the call as working."""
        since, self.waiting_since = self.waiting_since, None
        if since is not None:
            self._client_seconds += time.monotonic() - since

    @contextmanager
    def with_client(self) -> Iterator[None]:
        """Mark the call as waiting for its client during the body."""
        self.waits_for_client()
        try:
            yield
        finally:
            self.client_came()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mark the call as waiting for its client to take an answer, on a second thread, during the body."""
        self._sending_since = time.monotonic()
        try:
            yield
        finally:
            self._sending_since = None

    @property
    def stuck_since(self) -> float | None:
        """When it began to wait for its client, on either thread; None while the server works."""
        sending, waiting = self._sending_since, None if self.is_carried_out() else self.waiting_since
        return waiting if sending is None else min(sending, waiting or sending)

    @property
    def processor_seconds(self) -> float:
        """What the server's threads worked for it, up to the last pause."""
        return self._work.spent

    def _admitted(self, kind: Kind) -> Slot | None:
        if kind is Kind.PLAN and self._large:
            return None  # its only work is that of a long text
        try:
            return self._calls.admission.admit(kind, self.peer, self.check)
        except BaseException:
            self.has_read()
            raise

    def has_read(self) -> None:
        """Let the next request with a long text in: this one's is parsed."""
        large, self._large = self._large, None
        if large:
            large.release()

    def decompressed(self) -> BudgetShare:
        """Return the call's share of the memory for decompressed batches."""
        return BudgetShare(self._calls.admission.decompressed, self._calls.config.wait_seconds_max, self.peer.user)

    def check_time(self) -> None:
        """Raise UnavailableError if the server stops now, UnauthenticatedError if the caller's token is not valid any
        more."""
        self._calls.admission.check_time()
        if self.identity is not None:
            self.identity.check()

    def end(self, message: str, status: int = UNAVAILABLE) -> None:
        """End the call from another thread; does nothing if it is over."""
        with self._lock:  # while it is held, the call's own thread cannot finish
            if self._context is not None:
                self.error_code = self.error_code or message.partition(":")[0]
                end_call(self._context, message, status)

    def close(self) -> None:
        """Release what the call holds. Call it before its handler, or its stream, returns; twice is harmless."""
        with self._lock:
            self._context = None
            began, self._began = self._began, None
        if began is not None:
            self.client_came()
            seconds = time.monotonic() - began
            self.metrics.of(self.verb).add(seconds)
            if self.kind is not Kind.EXCHANGE:  # it is as long as the client wants
                self.log.took(seconds - self._client_seconds, self._id, self.verb, self.user, self.table)
            if self.scanned is not None or self.kind is Kind.PUT or self.written_rows:
                self._calls.recent.add(self._ended(seconds))
            if self.kind is Kind.TASK:
                self._calls.recent.tasks.add(self._ended(seconds))
            if self.span is not None:
                self.span.end_call(self._ended(seconds))
        self._calls._remove(self)
        self.has_read()
        slot, self._slot = self._slot, None
        if slot:
            slot.release()

    def _ended(self, seconds: float) -> RecentRequest:
        return RecentRequest(
            id=self.id(),
            verb=self.verb,
            table=self.table,
            user=self.user,
            address=self.peer.address,
            ended=time.time(),
            seconds=seconds,
            admission_seconds=self._admission_seconds,
            client_seconds=self._client_seconds,
            processor_seconds=self._work.spent,
            rows=self.written_rows or self.sent_rows,
            bytes=self.received_bytes or self.sent_bytes,
            code=self.error_code,
            scanned=self.scanned,
        )

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Working(serving):
    """See ``Call.working``."""

    __slots__ = ("_call", "_leave_span")

    def __init__(self, call: Call) -> None:
        super().__init__(call._request)
        self._call = call
        self._leave_span: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self._call.client_came()
        self._call._work.begin()
        super().__enter__()
        if self._call.span is not None:
            self._leave_span = self._call.span.enter()

    def __exit__(self, _: object = None, error: BaseException | None = None, *more: object) -> None:
        if self._leave_span is not None:
            self._leave_span()
        super().__exit__()
        self._call._work.end()
        if error is not None:
            mark(error, self._call.id())
            self._call.error_code = code_of(error)


class Calls:
    """All running calls of a server. Thread safe."""

    def __init__(
        self, config: ServerConfig, authentication: Authentication | None = None, traces: Traces | None = None
    ) -> None:
        self.config = config
        self.authentication = authentication
        self.traces = traces
        self.metrics = ServerMetrics()
        self.log = RequestLog(config.slow_request_seconds)
        self.recent = RecentRequests()
        self.admission = Admission(config)
        self.admission.make_room = self._make_room
        self.turns = Turns(config.long_reads_max or len(os.sched_getaffinity(0)))
        self._look_from: dict[Kind, float] = {}
        """When stuck streams of a kind may be looked for again."""
        # Reentrant: the garbage collector may close a call on a thread that holds it.
        self._lock = threading.RLock()
        self._running: set[Call] = set()
        self._ending: dict[Call, tuple[float, str]] = {}
        """Those that were told to end: when, and why."""
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="nyala-stalled-streams", daemon=True).start()

    def begin(self, context: fl.ServerCallContext, verb: str, kind: Kind, size: int = 0) -> Call:
        """Admit a call whose text has ``size`` bytes; the caller closes it. Few with long texts are admitted at once.
        ``verb`` is its name in the metrics.

        Raises:
            UnavailableError: too many of its kind run.
        """
        if self.traces is None:
            return Call(self, context, verb, kind, size)
        span = self.traces.of_call(verb)
        try:
            return Call(self, context, verb, kind, size, span)
        except BaseException as error:
            span.fail(verb, error)
            raise

    def running(self) -> list[tuple[Call, float, bool]]:
        """Return the running calls, the longest first: each with its seconds, and whether it waits for its client."""
        now = time.monotonic()
        found = [(call, now - since, call.stuck_since is not None) for call in self._all() if (since := call.began)]
        return sorted(found, key=lambda each: -each[1])

    def end_all(self) -> None:
        """End all running calls: the server stops."""
        for call in self._all():
            call.end(_STOPPED)

    def end_earlier(self, seconds: float) -> None:
        """Let the calls that run end by themselves for some seconds, of sessions what they have begun; then end those
        that are left: the process no longer has its store."""
        earlier, until = self._all(), time.monotonic() + seconds
        calls = [call for call in earlier if call.kind is not Kind.EXCHANGE]
        while time.monotonic() < until and any(call.began is not None for call in calls):
            time.sleep(_LOOK_SECONDS)
        self.admission.due.wait(until)
        for call in earlier:
            call.end(_ELSEWHERE)

    def failed(self, request_id: str, verb: str, code: str) -> None:
        """Count and log an error that a client gets, on the thread of its request."""
        self.metrics.failed(verb, code)
        caller = self.authentication.caller if self.authentication else None
        self.log.failed(request_id, verb, code, caller.user if caller else None)

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def _add(self, call: Call) -> None:
        with self._lock:
            self._running.add(call)

    def _remove(self, call: Call) -> None:
        with self._lock:
            was_running = call in self._running
            self._running.discard(call)
            _, why = self._ending.pop(call, (0.0, ""))
        if was_running:
            self.admission.learn(call.peer, why not in _STUCK)

    def _all(self) -> list[Call]:
        with self._lock:
            return list(self._running)

    def _watch(self) -> None:
        """End stuck calls, and those whose token is not valid any more, until the server stops."""
        longest, oldest = self.config.stalled_seconds_max, self.config.stream_seconds_max
        while not self._stopped.wait(min(longest / 4, oldest / 4 or 1.0, 1.0)):
            before = time.monotonic() - longest
            for call in self._all():
                if call.identity is not None and not call.identity.is_valid:
                    with suppress(Exception):
                        call.end(f"UNAUTHENTICATED: {call.identity.ended}", UNAUTHENTICATED)
                elif (since := call.stuck_since) is not None and since < before:
                    self._end(call, _STALLED.format(seconds=longest), "stalled")
                elif self._is_too_old(call):
                    self._end(call, _TOO_LONG.format(seconds=self.config.stream_seconds_max), "too_old")

    def _is_too_old(self, call: Call) -> bool:
        longest, began = self.config.stream_seconds_max, call.began
        return bool(longest) and call.kind in STREAMS and began is not None and began < time.monotonic() - longest

    def _make_room(self, kind: Kind) -> bool:
        """End one stream that has been stuck in its client for too long to keep its slot: of the peer with the most
        streams of this kind."""
        now = time.monotonic()
        before = now - self.config.yielding_seconds
        with self._lock:
            if now < self._look_from.get(kind, -math.inf):
                return False
            self._look_from[kind] = now + min(_LOOK_SECONDS, self.config.yielding_seconds)
            if any(call.kind is kind and since >= before for call, (since, _) in self._ending.items()):
                return True
            stuck = [
                (self.admission.count(kind, call.peer), -since, call)
                for call in self._running
                if call.kind is kind and call not in self._ending
                if (since := call.stuck_since) is not None and since < before
            ]
            if not stuck:
                return False
            chosen = max(stuck, key=lambda each: each[:2])[2]
            pause = min(chosen.processor_seconds / _TURNOVER_SHARE, _TURNOVER_SECONDS_MAX)
            self._look_from[kind] = now + max(_LOOK_SECONDS, pause)
        self._end(chosen, _STALLED.format(seconds=self.config.yielding_seconds), "displaced")
        return True

    def _end(self, call: Call, message: str, reason: str) -> None:
        with self._lock:
            if call in self._ending or call not in self._running:
                return
            self._ending[call] = time.monotonic(), reason
            self.metrics.ended[reason] += 1
        _LOG.info("ended a stream (%s) of %s: %s", call.kind.value, call.peer.connection or "?", reason)
        with suppress(Exception):
            call.end(message)
