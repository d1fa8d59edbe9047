"""Entrance: which calls of a server with authentication get a thread, and which wait for one or are rejected before.

Thousands of calls that arrive at once would each take a thread, which all want the interpreter: none gets on. So few
calls start at once, and the others wait where they cost nothing, those of each caller in a queue of their own, from
which they come in turns. Strangers, who show no valid token, wait for nobody: some are told what is wrong, the others
are rejected at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ...schemas.errors import NOT_BEGUN
from ..native.call_gate import KNOWN_MAX, CallGate, GateLimits, HeldCall

_LOG = logging.getLogger("nyala.flight_server")
_LIMITS = GateLimits(starting=8, checks=50, first=16, further=12)
_WAITING_MAX, _WAITING_OF_ONE_MAX = 8_192, 2_048
_STARTING_SECONDS = 0.01
"""A call that has not started by then may never: its client is gone, or sends no message where gRPC waits for one."""
_BUSY = f"UNAVAILABLE: {NOT_BEGUN}too many calls without a known token; try again in a second"
_CROWDED = f"UNAVAILABLE: {NOT_BEGUN}too many calls of this client wait; send fewer at once, and try again in a second"
_STOPPED = f"UNAVAILABLE: {NOT_BEGUN}the server is stopping; try again when it is back"


class Entrance:
    """The entrance of one server: lets callers with a valid token in, and holds or rejects others before they get a
    thread. Thread safe."""

    def __init__(self, trusts_certificates: bool, missing: str, is_good: Callable[[str], bool]) -> None:
        """``missing``: why a call without a token is rejected. ``is_good`` returns whether a header is that of a valid
        token, or raises an error; it counts and logs nothing."""
        self._trusts_certificates = trusts_certificates
        self._is_good = is_good
        self._known: set[str] = set()
        self._queues: OrderedDict[int, deque[HeldCall]] = OrderedDict()
        self._waiting = 0
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

    def has_started(self, was_known: bool) -> None:
        """Note that a call has a thread and the interpreter. Another one may come in the place of a known caller's."""
        if self._gate is not None and was_known:
            self._gate.has_started()
            if self._waiting:
                self._let_in()

    def close(self) -> None:
        """Reject all calls that wait, and that would from now on."""
        with self._lock:
            self._is_closed = True
            queues, self._queues, self._waiting = self._queues, OrderedDict(), 0
        for call in (call for queue in queues.values() for call in queue):
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

    def _hold(self, call: HeldCall, caller: int) -> None:
        """Keep a call until it may start. On a thread of gRPC."""
        is_first = False
        with self._lock:
            queue = self._queues.get(caller)
            why = None
            if self._is_closed:
                why = _STOPPED
            elif self._waiting >= _WAITING_MAX or (queue is not None and len(queue) >= _WAITING_OF_ONE_MAX):
                why = _CROWDED
            else:
                self._queues.setdefault(caller, deque()).append(call)
                self._waiting += 1
                is_first, self._is_counting = not self._is_counting, True
        if why is not None:
            call.reject(why)
            return
        self._let_in()  # one may have started meanwhile
        if is_first:
            threading.Thread(target=self._count_anew, name="nyala-entrance", daemon=True).start()

    def _count_anew(self) -> None:
        """Forget calls that were let in and have not started, again and again, until none waits."""
        assert self._gate is not None, "only a gate holds calls"
        while True:
            time.sleep(_STARTING_SECONDS)
            self._gate.count_anew()
            self._let_in()
            with self._lock:
                if not self._waiting:
                    self._is_counting = False
                    return

    def _let_in(self) -> None:
        """Let calls in as long as there may be others, one of each caller in turn."""
        assert self._gate is not None, "only a gate holds calls"
        while (call := self._next(self._gate)) is not None:
            call.let_in()

    def _next(self, gate: CallGate) -> HeldCall | None:
        with self._lock:
            if not self._waiting or not gate.start_another():
                return None
            caller, queue = self._queues.popitem(last=False)
            call = queue.popleft()
            self._waiting -= 1
            if queue:
                self._queues[caller] = queue  # at the end
            return call
