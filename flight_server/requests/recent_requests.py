"""RecentRequests: the last reads and writes of a server, with where their time went. Bounded, and without values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, count

from .scan_summary import Scanned

SLOW_SECONDS = 1.0
"""A request that the server works on for as long is kept apart, so that short ones do not push it out."""
_KEPT = 100


@dataclass(frozen=True, slots=True)
class RecentRequest:
    """The record of a request that has ended. All times are in seconds."""

    id: str
    verb: str
    table: str
    user: str | None
    address: str
    ended: float
    """When, by the clock, since 1970."""
    seconds: float
    """From its arrival to its end: what follows is part of it."""
    admission_seconds: float
    """It waited for a place."""
    client_seconds: float
    """It waited for its client."""
    processor_seconds: float
    """Its own thread computed. Threads that it shares with other requests are not counted."""
    rows: int
    bytes: int
    code: str
    """Of its error; empty: there was none."""
    scanned: Scanned | None = None
    """None: it is no scan."""

    @property
    def worked_seconds(self) -> float:
        """The server worked, or waited for a turn, a lock or a disk."""
        return max(self.seconds - self.admission_seconds - self.client_seconds, 0.0)


class RecentRequests:
    """The records of a server's last requests. For any number of threads."""

    def __init__(self) -> None:
        self.scans, self.writes = _Newest(), _Newest()
        self.slow = _Newest()
        """Slow ones of both, which stay longer."""
        self.tasks = _Newest()
        """Long actions, such as checkpoints; those that write rows are among the writes, too."""

    def add(self, request: RecentRequest) -> None:
        """Add a request that has ended."""
        (self.writes if request.scanned is None else self.scans).add(request)
        if request.worked_seconds >= SLOW_SECONDS:
            self.slow.add(request)

    def found(self, request_id: str) -> RecentRequest | None:
        """Return a request by its id; None if it is not kept any more."""
        kept = chain(self.scans.all(), self.writes.all(), self.slow.all())
        return next((each for each in kept if each.id == request_id), None)


class _Newest:
    """The last requests. Without a lock, which the garbage collector could ask for again: it closes calls."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, RecentRequest] | None] = [None] * _KEPT
        self._numbers = count()

    def add(self, request: RecentRequest) -> None:
        """Add a request; the oldest makes room."""
        number = next(self._numbers)
        self._kept[number % _KEPT] = number, request

    def all(self) -> list[RecentRequest]:
        """Return the requests, the newest first."""
        found = sorted((each for each in self._kept.copy() if each), key=lambda each: -each[0])
        return [request for _, request in found]
