"""Leases: values kept for an outside client for a renewable time, and dropped when it does not come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from ...schemas.errors import NotFoundError
from ...schemas.protocol.request import NOBODY, Owner, owner
from .. import threads
from ..commit.room import Room
from ..fs.failures import named
from ..maintenance.op import MaintenanceOp, TabletOp
from ..mvcc.clock import Clock

T = TypeVar("T")


@dataclass(slots=True)
class _Lease(Generic[T]):
    value: T
    ttl_seconds: int
    until: int
    owner: Owner
    users: int = 0


class Leases(Generic[T]):
    """Values kept for outside clients by id, each with an expiry time on the clock that never jumps. Thread safe."""

    def __init__(self, what: str, drop: Callable[[str, T], None], clock: Clock, room: Room) -> None:
        """``what`` names the values in errors; ``drop`` cleans up after an ended one; ``room`` limits ``begun``."""
        self._what = what
        self._drop = drop
        self._room = room
        self._beginning: Counter[Owner] = Counter()
        self._clock = clock
        self._leases: dict[str, _Lease[T]] = {}
        self._lock = threads.Lock()

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease_id: str, value: T, ttl_seconds: int) -> None:
        """Keep ``value`` for ``ttl_seconds``."""
        with self._lock:
            until = self._clock.steady_microseconds() + ttl_seconds * 1_000_000
            self._leases[lease_id] = _Lease(value, ttl_seconds, until, owner())

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Check the limits; the body then makes a value and adds it.

        Raises:
            UnavailableError: there are too many values.
            StorageFullError: the disk has no more than its reserve left.
        """
        who = owner()
        with self._lock:
            now = self._clock.steady_microseconds()
            owners = [each.owner for each in self._leases.values() if each.users or each.until > now]
            self._room.check_count(f"{self._what}s", [*owners, *self._beginning.elements()])
            with named(f"a {self._what} could not be started"):
                self._room.check_disk(0)
            self._beginning[who] += 1
        try:
            yield
        finally:
            with self._lock:
                self._beginning[who] -= 1

    def renew(self, lease_id: str) -> None:
        """Restart the time of a value. Raises NotFoundError if it is gone."""
        with self._lock:
            lease = self._found(lease_id)
            lease.until = self._clock.steady_microseconds() + lease.ttl_seconds * 1_000_000

    @contextmanager
    def used(self, lease_id: str) -> Iterator[T]:
        """Yield a value, which stays while the body runs. Raises NotFoundError if it is gone."""
        with self._lock:
            lease = self._found(lease_id)
            lease.users += 1
        try:
            yield lease.value
        finally:
            with self._lock:
                lease.users -= 1

    def owner(self, lease_id: str) -> Owner:
        """Return whose a value is; nobody's if it is gone."""
        lease = self._leases.get(lease_id)
        return NOBODY if lease is None else lease.owner

    def values(self) -> dict[str, T]:
        """Return all values by id, oldest first."""
        with self._lock:
            return {lease_id: lease.value for lease_id, lease in self._leases.items()}

    def end_known(self, lease_id: str) -> None:
        """Drop a value, expired or not. Raises NotFoundError if it is gone already."""
        if not self.end(lease_id):
            raise self._gone(lease_id)

    def end(self, lease_id: str) -> bool:
        """Drop a value, expired or not; return whether it existed."""
        with self._lock:
            lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._drop(lease_id, lease.value)
        return lease is not None

    def expired(self) -> list[str]:
        """Return the ids of expired values that nobody uses."""
        now = self._clock.steady_microseconds()
        with self._lock:
            return [lease_id for lease_id, lease in self._leases.items() if lease.until <= now and not lease.users]

    def end_expired(self, lease_id: str) -> None:
        """Drop a value if it has expired, and was not renewed or taken into use meanwhile."""
        with self._lock:
            lease = self._leases.get(lease_id)
            if lease is None or lease.users or lease.until > self._clock.steady_microseconds():
                return
            del self._leases[lease_id]
        self._drop(lease_id, lease.value)

    def removals(self, verb: str = "drop") -> list[MaintenanceOp]:
        """Return the work of dropping expired values; ``verb`` names it."""
        return [
            TabletOp(f"{verb} {self._what} {lease_id}", lambda: 1.0, partial(self.end_expired, lease_id))
            for lease_id in self.expired()
        ]

    def _found(self, lease_id: str) -> _Lease[T]:
        lease = self._leases.get(lease_id)
        if lease is None or (lease.until <= self._clock.steady_microseconds() and not lease.users):
            raise self._gone(lease_id)
        return lease

    def _gone(self, lease_id: str) -> NotFoundError:
        return NotFoundError(
            f"there is no {self._what} {lease_id!r}: it expired, it ended, or the server was restarted; start a new one"
        )
