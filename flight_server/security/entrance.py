"""Entrance: which calls of a server with authentication get a thread, and which wait for one or are rejected before.

Thousands of calls that arrive at once would each take a thread, which all want the interpreter: none gets on. So few
calls start at once, and the others wait where they cost nothing, those of each caller in a queue of their own, from
which they come in turns. Streams from clients (DoPut, DoExchange, Handshake) wait apart from other calls: gRPC gives a
stream its thread before a message has come, so that silent ones could take all threads. Strangers, who show no valid
token, wait for nobody: some are told what is wrong, the others are rejected at once.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext

from ...schemas.errors import NOT_BEGUN
from ..native.call_gate import KNOWN_MAX, CallGate, GateLimits, HeldCall

_LOG = logging.getLogger("nyala.flight_server")
_LIMITS = GateLimits(requests=8, streams=8, checks=50, first=16, further=12)
_WAITING_MAX = 8_192
_WAITING_OF_ONE_MAX = {False: 2_048, True: 256}
"""Requests, and streams, of one caller that wait."""
_STARTING_SECONDS = 0.01
"""A request that has not started by then may never: its client is gone, or sends no message, for which gRPC waits."""
_STREAM_STARTING_SECONDS = 0.02
"""Where no stream has started for so long, those that were let in may never: their clients are gone. Others have a
thread already, which waits for the interpreter."""
_REFUSED_SECONDS = 0.1
"""For so long streams of a user who has too many are rejected without a thread."""
_BUSY = f"UNAVAILABLE: {NOT_BEGUN}too many calls without a known token; try again in a second"
_CROWDED = f"UNAVAILABLE: {NOT_BEGUN}too many calls of this client wait; send fewer at once, and try again in a second"
_SILENT = f"UNAVAILABLE: {NOT_BEGUN}too many streams of this user have sent no message yet; send messages, or end some"
_STOPPED = f"UNAVAILABLE: {NOT_BEGUN}the server is stopping; try again when it is back"


class CallTurns:
    """Calls that wait, those of each caller in a queue of their own. They come in turns: one of each caller, then the
    second ones. Not thread safe."""

    def __init__(self) -> None:
        self._queues: OrderedDict[int, deque[HeldCall]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[HeldCall]:
        return itertools.chain.from_iterable(self._queues.values())

    def count_of(self, caller: int) -> int:
        """Return how many calls of a caller wait."""
        return len(self._queues.get(caller, ()))

    def add(self, call: HeldCall, caller: int) -> None:
        """Add a call behind those of its caller."""
        self._queues.setdefault(caller, deque()).append(call)
        self._count += 1

    def remove_all(self, caller: int) -> Collection[HeldCall]:
        """Remove the calls of a caller, and return them."""
        calls = self._queues.pop(caller, ())
        self._count -= len(calls)
        return calls

    def pop(self) -> HeldCall:
        """Remove the call whose turn it is, and return it. Raises KeyError if none waits."""
        caller, queue = self._queues.popitem(last=False)
        call = queue.popleft()
        self._count -= 1
        if queue:
            self._queues[caller] = queue  # at the end
        return call


class Entrance:
    """The entrance of one server: lets callers with a valid token in, and holds or rejects others before they get a
    thread. Thread safe."""

    def __init__(self, trusts_certificates: bool, missing: str, is_good: Callable[[str], bool]) -> None:
        """``missing``: why a call without a token is rejected. ``is_good`` returns whether a header is that of a valid
        token, or raises an error; it counts and logs nothing."""
        self._trusts_certificates = trusts_certificates
        self._is_good = is_good
        self._known: set[str] = set()
        self._turns = {False: CallTurns(), True: CallTurns()}
        """The calls that wait, requests and streams."""
        self._refused: dict[int, float] = {}
        """Until when streams of a caller are rejected."""
        self._stream_started = 0.0
        """The last moment at which a stream started, or the first one began to wait."""
        self._is_counting = False
        self._is_closed = False
        self._lock = threading.RLock()  # gRPC may hold a call on the thread that lets another one in
        missing = f"UNAUTHENTICATED: {missing}"
        try:
            self._gate = CallGate(self._hold, self._check, _LIMITS, trusts_certificates, missing, _BUSY)
        except (LookupError, OSError, RuntimeError) as error:
            _LOG.warning(
                "with this version of pyarrow, each call without a valid token takes a thread before it is "
                "rejected: %s",
                error,
            )
            self._gate = None

    @property
    def rejected(self) -> int:
        """How many strangers' calls were rejected before they got a thread."""
        return self._gate.rejected if self._gate else 0

    def knows(self, header: str | None) -> bool:
        """Whether calls with this header are let in as those of known callers."""
        return self._trusts_certificates if header is None else header in self._known

    def learn(self, header: str) -> None:
        """Let calls with this header in as those of a known caller."""
        if self._gate is None or header in self._known:
            return
        with self._lock:
            if len(self._known) >= KNOWN_MAX or not self._gate.learn(header.encode()):
                self._forget_all()
                self._gate.learn(header.encode())
            self._known.add(header)

    def forget(self, header: str) -> None:
        """Let calls with this header in as those of a stranger. All others are checked again at their next call."""
        if header in self._known:
            with self._lock:
                self._forget_all()

    def _forget_all(self) -> None:
        assert self._gate is not None, "only a gate knows headers"
        self._known = set()
        self._gate.forget_all()
        for is_stream in (False, True):
            self._gate.count_anew(is_stream)  # calls that are starting were known, and start as strangers

    def has_started(self, was_known: bool, is_stream: bool) -> None:
        """Note that a call has a thread and the interpreter. Another one may come in the place of a known caller's."""
        if self._gate is not None and was_known:
            self._gate.has_started(is_stream)
            if is_stream:
                self._stream_started = time.monotonic()
            if self._turns[is_stream]:
                self._let_in(is_stream)

    def refuse_streams(self, header: str | None) -> None:
        """Reject streams with this header for a while, also those that wait: their user has too many silent ones."""
        if self._gate is None or header is None or header not in self._known:
            return
        caller = self._gate.number_of(header.encode())
        with self._lock:
            now = time.monotonic()
            self._refused = {each: until for each, until in self._refused.items() if until > now}
            self._refused[caller] = now + _REFUSED_SECONDS
            self._gate.hold_streams(caller)
            waiting = self._turns[True].remove_all(caller)
        for call in waiting:
            call.reject(_SILENT)

    def close(self) -> None:
        """Reject all calls that wait, and that would from now on."""
        with self._lock:
            self._is_closed = True
            turns, self._turns = self._turns, {False: CallTurns(), True: CallTurns()}
        for call in itertools.chain(*turns.values()):
            call.reject(_STOPPED)

    def listening(self) -> AbstractContextManager[None]:
        """Be the entrance of the one server that begins to listen in the body."""
        return self._gate.listening() if self._gate else nullcontext()

    def _check(self, header: bytes) -> bool:
        """Return whether a header is good, and learn it then. On a thread of gRPC."""
        text = header.decode()
        if not self._is_good(text):
            return False
        self.learn(text)
        return True

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._turns.values()))

    def _hold(self, call: HeldCall, caller: int) -> None:
        """Keep a call until it may start. On a thread of gRPC."""
        is_first = False
        with self._lock:
            turns = self._turns[call.is_stream]
            why = None
            if self._is_closed:
                why = _STOPPED
            elif call.is_stream and self._is_refused(caller):
                why = _SILENT
            elif self._waiting >= _WAITING_MAX or turns.count_of(caller) >= _WAITING_OF_ONE_MAX[call.is_stream]:
                why = _CROWDED
            else:
                if call.is_stream and not turns:
                    self._stream_started = time.monotonic()
                turns.add(call, caller)
                is_first, self._is_counting = not self._is_counting, True
        if why is not None:
            call.reject(why)
            return
        self._let_in(call.is_stream)  # one may have started meanwhile
        if is_first:
            try:
                threading.Thread(target=self._count_anew, name="nyala-entrance", daemon=True).start()
            except RuntimeError as error:  # as many run as the system allows
                _LOG.warning("waiting calls go on when another call comes, as no thread can start: %s", error)
                self._is_counting = False  # the next call that is held tries again

    def _is_refused(self, caller: int) -> bool:
        assert self._gate is not None, "only a gate holds calls"
        if time.monotonic() < self._refused.get(caller, 0.0):
            return True
        self._refused.pop(caller, None)
        self._gate.pass_streams(caller)
        return False

    def _count_anew(self) -> None:
        """Forget calls that were let in and have not started, again and again, until none waits."""
        assert self._gate is not None, "only a gate holds calls"
        while True:
            time.sleep(_STARTING_SECONDS)
            self._gate.count_anew(False)
            self._let_in(False)
            if time.monotonic() - self._stream_started >= _STREAM_STARTING_SECONDS:
                self._stream_started = time.monotonic()
                self._gate.count_anew(True)
                self._let_in(True)
            with self._lock:
                if not self._waiting:
                    self._is_counting = False
                    return

    def _let_in(self, is_stream: bool) -> None:
        """Let calls in as long as there may be others, one of each caller in turn."""
        assert self._gate is not None, "only a gate holds calls"
        while (call := self._next(self._gate, is_stream)) is not None:
            call.let_in()

    def _next(self, gate: CallGate, is_stream: bool) -> HeldCall | None:
        with self._lock:
            turns = self._turns[is_stream]
            return turns.pop() if turns and gate.start_another(is_stream) else None
