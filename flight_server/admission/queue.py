"""Waiting calls: the queue for the slots of one kind, and when those for whom it has no place come again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter

from .peers import Peer

RETRY_SECONDS = 1.0
"""When a rejected client should retry, at the earliest."""
_RETRY_SECONDS_MAX = 20.0
"""So that a client that waits for a minute in all asks several times."""
_RETURNS_A_SECOND = 32
"""How many rejected clients should retry in a second."""


class WaitingCall:
    """A request that waits in a queue of admission, with its own condition, so that waking one wakes no other."""

    __slots__ = ("changed", "is_admitted", "is_displaced", "peer")

    def __init__(self, peer: Peer, lock: threading.RLock) -> None:
        self.peer = peer
        self.changed = threading.Condition(lock)
        self.is_admitted = False
        self.is_displaced = False


class WaitingCalls:
    """The queue of admission for slots of one kind: the requests that wait, the longest first. Use it under the lock of
    the admission."""

    def __init__(self) -> None:
        self._calls: list[WaitingCall] = []
        self._of_users: Counter[str] = Counter()
        self._of_connections: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[WaitingCall]:
        return iter(self._calls)

    def add(self, call: WaitingCall) -> None:
        """Add a request at the end."""
        self._calls.append(call)
        self._of_users[call.peer.user] += 1
        self._of_connections[call.peer.connection] += 1

    def remove(self, call: WaitingCall) -> None:
        """Remove a request, wherever it stands."""
        self._calls.remove(call)
        for counts, name in ((self._of_users, call.peer.user), (self._of_connections, call.peer.connection)):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    def is_first(self, call: WaitingCall) -> bool:
        """Return whether no request has waited longer."""
        return bool(self._calls) and self._calls[0] is call

    def displace(self, peer: Peer) -> bool:
        """Remove the last request of the user with the most, if ``peer`` has fewer by at least two; or of the
        connection. Return whether there was one."""
        for counts, whose in ((self._of_users, attrgetter("user")), (self._of_connections, attrgetter("connection"))):
            if len(counts) == len(self._calls):
                continue  # one each
            greediest, most = counts.most_common(1)[0]
            if most > counts[whose(peer)] + 1:
                last = next(each for each in reversed(self._calls) if whose(each.peer) == greediest)
                self.remove(last)
                last.is_displaced = True
                last.changed.notify()
                return True
        return False


class Returns:
    """Spreads over time when the requests of a kind that admission rejected come again: each is told a moment of its
    own, so that a thousand that find no place do not come again all at once. Thread safe under the lock of the
    admission."""

    def __init__(self) -> None:
        self._next = 0.0

    def seconds(self) -> float:
        """Return after how many seconds the next rejected client should retry."""
        now = time.monotonic()
        self._next = min(max(self._next + 1 / _RETURNS_A_SECOND, now + RETRY_SECONDS), now + _RETRY_SECONDS_MAX)
        return round(self._next - now, 1)
