"""Admission: how many requests of each kind run at once, which of the waiting ones is next, and how a server stops.

Every kind of work has its own slots, so that cheap requests never wait for expensive ones. If all slots are taken, a
request waits a little. A free slot goes to the peer with the fewest, then to peers that did not let streams get stuck,
then to the request that has waited longest. One user gets only a share of the slots of each kind, one peer only a share
of those for streams, and some of these are reserved for connections whose last call ended well: a thousand new
connections cannot shut these out. In a full queue a request takes the place of the user, or the connection, with the
most.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.limits.budget import Budget
from ...schemas.protocol.verb import Kind
from ..settings.config import MIB, ServerConfig
from .due_answers import DueAnswers
from .peers import Peer
from .queue import RETRY_SECONDS, Returns, WaitingCall, WaitingCalls

_EXCHANGES_A_SCAN = 4
"""Open streams of point reads for each scan that may run."""
_POLL_SECONDS = 0.25
"""How often the first of the waiting requests checks that its client is still there, and looks for a stuck stream to
end."""
_POLL_SECONDS_MAX = 1.0
"""The same for the others: they are many."""
_PARTS_MAX = 500_000
"""JSON objects and lists in one text: more than the values that a filter may list, each an object."""
_REMEMBERED = 4096
"""Connections whose last outcome is remembered."""
NOBODY = Peer("", "")

STREAMS = frozenset({Kind.SCAN, Kind.PUT, Kind.EXCHANGE})
"""The kinds of requests that last as long as their clients want."""


class Slot:
    """The right that admission gives to run one request. Releasing twice is harmless, and a dropped slot releases
    itself."""

    __slots__ = ("_admission", "_kind", "_peer")

    def __init__(self, admission: Admission, kind: Kind, peer: Peer) -> None:
        self._admission: Admission | None = admission
        self._kind = kind
        self._peer = peer

    def release(self) -> None:
        """Release the slot."""
        admission, self._admission = self._admission, None
        if admission:
            admission.leave(self._kind, self._peer)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


class Admission:
    """Decides which requests run, wait or are rejected: counts the running ones. It has three states: open; draining,
    which rejects new requests; expired, which also ends streams.

    All methods are thread safe.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._limits = {
            Kind.CALL: config.calls_max,
            Kind.TASK: config.tasks_max,
            Kind.STATEMENT: config.statements_max,
            Kind.PLAN: config.plans_max,
            Kind.LARGE: config.large_requests_max,
            Kind.SCAN: config.scans_max,
            Kind.PUT: config.puts_max,
            Kind.EXCHANGE: _EXCHANGES_A_SCAN * config.scans_max,
            Kind.READ: config.point_reads_max,
        }
        self._kept = {kind: int(most * config.known_share) for kind, most in self._limits.items()}
        """The slots reserved for known connections."""
        self._shares = {kind: math.ceil(most * config.peer_share) for kind, most in self._limits.items()}
        """The slots that one connection or machine may have."""
        self._user_shares = {kind: math.ceil(most * config.user_share) for kind, most in self._limits.items()}
        self._running = dict.fromkeys(Kind, 0)
        self._of_peers: dict[tuple[Kind, str], int] = {}
        self._trust: dict[str, int] = {}
        self._queues = {kind: WaitingCalls() for kind in Kind}
        self._returns = {kind: Returns() for kind in Kind}
        self.staged = Budget("staged streams", config.staged_bytes_max)
        self.decompressed = Budget("decompressed batches", config.decompressed_bytes_max)
        self.due = DueAnswers()
        """The answers to requests of sessions, which run no longer than until they are applied."""
        self.make_room: Callable[[Kind], bool] = lambda _: False
        """Ends a stream of this kind that makes no progress, if there is one; returns whether one is about to end."""
        # Reentrant: the garbage collector may release a slot, and a signal expire all, while this thread holds it.
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._waiting_for_end = 0
        """Threads in ``wait_until_idle``."""
        self._draining = False
        self._expired = False

    def admit(self, kind: Kind, peer: Peer = NOBODY, check: Callable[[], None] = lambda: None) -> Slot:
        """Return the right to run one request; wait for it if all slots are taken.

        ``check`` raises if the client is gone.

        Raises:
            UnavailableError: the server stops, or no slot became free in time; with the time to retry.
        """
        self.enter(kind, peer, check)
        return Slot(self, kind, peer)

    def enter(self, kind: Kind, peer: Peer, check: Callable[[], None]) -> None:
        """Like ``admit``, without a slot: the caller calls ``leave``."""
        with self._lock:
            if self._draining or self._queues[kind] or not self._has_place(kind, peer):
                self._check_open()
                self._wait(kind, peer, check)
            else:
                self._enter(kind, peer)

    def enters_at_once(self, kind: Kind, peer: Peer) -> bool:
        """Do as ``enter`` if that takes no wait; return whether it was done."""
        with self._lock:
            if is_open := not (self._draining or self._queues[kind]) and self._has_place(kind, peer):
                self._enter(kind, peer)
            return is_open

    def _wait(self, kind: Kind, peer: Peer, check: Callable[[], None]) -> None:
        queue = self._queues[kind]
        if self._has_place(kind, peer):
            self._next(kind)
            if self._has_place(kind, peer):  # and nobody who waits may have it
                self._enter(kind, peer)
                return
        if len(queue) >= self._config.waiting_max and not queue.displace(peer):
            raise self._crowded(kind)
        waiting = WaitingCall(peer, self._lock)
        queue.add(waiting)
        deadline = time.monotonic() + self._config.wait_seconds_max
        try:
            while not waiting.is_admitted:
                left = deadline - time.monotonic()
                if waiting.is_displaced:
                    raise self._crowded(kind)
                if left <= 0:
                    raise self._full(kind, peer)
                if kind in STREAMS and self._trust.get(peer.connection, 0) >= 0:
                    self.make_room(kind)  # not for peers with stuck streams: two would end each other's for ever
                waiting.changed.wait(min(left, _POLL_SECONDS if queue.is_first(waiting) else _POLL_SECONDS_MAX))
                check()
                self._check_open()
                if not waiting.is_admitted and self._has_place(kind, peer):
                    self._next(kind)  # its connection has become known meanwhile
        except BaseException:
            if waiting.is_admitted:
                self.leave(kind, peer)
            elif not waiting.is_displaced:
                queue.remove(waiting)
            raise

    def _next(self, kind: Kind) -> None:
        """Admit waiting requests in order of rank, as long as there are slots."""
        queue = self._queues[kind]
        while queue and (able := [each for each in queue if self._has_place(kind, each.peer)]):
            chosen = min(able, key=lambda each: self._rank(kind, each.peer))
            queue.remove(chosen)
            chosen.is_admitted = True
            self._enter(kind, chosen.peer)
            chosen.changed.notify()

    def _rank(self, kind: Kind, peer: Peer) -> tuple[int, int]:
        return self._count_of(kind, peer.connection), -self._trust.get(peer.connection, 0)

    def learn(self, peer: Peer, is_good: bool) -> None:
        """Record how a call of a connection ended: of those with as many requests, one with stuck streams is last."""
        if not peer.connection:
            return  # all clients of a Unix socket look alike
        with self._lock:
            self._trust.pop(peer.connection, None)
            self._trust[peer.connection] = 1 if is_good else -1
            if len(self._trust) > _REMEMBERED:
                del self._trust[next(iter(self._trust))]

    def _has_place(self, kind: Kind, peer: Peer) -> bool:
        free = self._limits[kind] - self._running[kind]
        if kind not in STREAMS or free <= 0:
            return free > 0 and not self._is_users_over(kind, peer)
        return (free > self._kept[kind] or self._is_known(peer)) and not self._is_over_share(kind, peer)

    def _is_known(self, peer: Peer) -> bool:
        """Return whether a connection's last call ended well. Clients of a Unix socket cannot be told apart."""
        return not peer.connection or self._trust.get(peer.connection, 0) > 0

    def _is_over_share(self, kind: Kind, peer: Peer) -> bool:
        if self._running[kind] < self._shares[kind]:
            return self._is_users_over(kind, peer)
        names = (peer.connection, peer.address)
        is_over = any(name and self._count_of(kind, name) >= self._shares[kind] for name in names)
        return is_over or self._is_users_over(kind, peer)

    def _is_users_over(self, kind: Kind, peer: Peer) -> bool:
        most = self._user_shares[kind]
        return bool(peer.user) and self._running[kind] >= most and self._count_of(kind, peer.user_name) >= most

    def _count_of(self, kind: Kind, name: str) -> int:
        return self._of_peers.get((kind, name), 0)

    def _full(self, kind: Kind, peer: Peer) -> UnavailableError:
        most, whose = self._limits[kind], "are running"
        if kind in STREAMS and not self._is_known(peer):
            most -= self._kept[kind]
        if kind in STREAMS and self._is_over_share(kind, peer):
            most, whose = self._shares[kind], "of this client are running"
        if self._is_users_over(kind, peer):
            most, whose = self._user_shares[kind], f"of the user {peer.user!r} are running"
        return self._come_again(kind, f"{most} {kind.value} {whose} already")

    def _crowded(self, kind: Kind) -> UnavailableError:
        return self._come_again(kind, f"{self._config.waiting_max} {kind.value} are already waiting")

    def _come_again(self, kind: Kind, why: str) -> UnavailableError:
        seconds = self._returns[kind].seconds()
        return UnavailableError(f"{why}; try again in {seconds:g} s", seconds)

    def _enter(self, kind: Kind, peer: Peer) -> None:
        self._running[kind] += 1
        of_peers = self._of_peers
        for name in peer.names:
            of_peers[kind, name] = of_peers.get((kind, name), 0) + 1

    def _check_open(self) -> None:
        if self._draining:
            raise UnavailableError("the server is stopping; try again when it is back", RETRY_SECONDS)

    def check_time(self) -> None:
        """Let a running stream continue, unless the server's time to stop has come.

        Raises:
            UnavailableError: after ``expire``.
        """
        if self._expired:
            raise UnavailableError("the server is stopping; try again when it is back", RETRY_SECONDS)

    @property
    def running(self) -> int:
        """The number of running requests; an open stream of point reads does not count."""
        return sum(self._running.values()) - self._running[Kind.EXCHANGE]

    def count(self, kind: Kind, peer: Peer | None = None) -> int:
        """Return how many of a kind run, of all peers or of one connection."""
        return self._running[kind] if peer is None else self._count_of(kind, peer.connection)

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return how many requests run, and how many wait, by the name of their kind."""
        running = {kind.name.lower(): count for kind, count in self._running.items()}
        return running, {kind.name.lower(): len(queue) for kind, queue in self._queues.items()}

    def limits(self) -> dict[str, int]:
        """Return how many requests may run at once, by the name of their kind."""
        return {kind.name.lower(): most for kind, most in self._limits.items()}

    @property
    def is_draining(self) -> bool:
        """Whether new requests are rejected."""
        return self._draining

    def drain(self) -> None:
        """Reject new requests from now on."""
        with self._lock:
            self._draining = True
            for waiting in (each for queue in self._queues.values() for each in queue):
                waiting.changed.notify()

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing runs, and sessions have answered what they had begun; return False after ``seconds``, or
        if ``expire`` is called."""
        deadline = time.monotonic() + seconds
        with self._ended:
            self._waiting_for_end += 1
            while self.running and not self._expired:
                if not self._ended.wait(max(deadline - time.monotonic(), 0)):
                    break
            self._waiting_for_end -= 1
            if self.running:
                return False
        return self.due.wait(deadline, lambda: self._expired)

    def expire(self) -> None:
        """End running requests at their next step, and the wait for them. A signal handler may call it."""
        with self._ended:
            self._expired = True
            self._ended.notify_all()

    def leave(self, kind: Kind, peer: Peer) -> None:
        """End a request that ``enter`` admitted."""
        with self._lock:
            self._running[kind] -= 1
            of_peers = self._of_peers
            for name in peer.names:
                if left := of_peers[kind, name] - 1:
                    of_peers[kind, name] = left
                else:
                    del of_peers[kind, name]
            if self._queues[kind]:
                self._next(kind)
            if self._waiting_for_end:
                self._ended.notify_all()


def sized(body: bytes, what: str, most: int) -> bytes:
    """Admit the ``body`` of a request by its size: return it if it has at most ``most`` bytes, and not too many JSON
    objects and lists.

    While these become Python objects no other thread runs.

    Raises:
        InvalidArgumentError: it is larger.
    """
    if len(body) > most:
        raise InvalidArgumentError(f"{what} has {len(body):,} bytes; at most {most:,} are allowed")
    if len(body) > _PARTS_MAX:
        ends = range(0, len(body), MIB)
        count = sum(body.count(sign, first, first + MIB) for sign in (b"{", b"[") for first in ends)
        if count > _PARTS_MAX:
            raise InvalidArgumentError(f"{what} has {count:,} objects and lists; at most {_PARTS_MAX:,} are allowed")
    return body
