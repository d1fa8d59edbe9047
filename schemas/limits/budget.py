"""Budget: bytes of memory that all requests share, of which each user has a share."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count

from ..errors import UnavailableError
from .share import is_over_share

_RETRY_SECONDS = 1.0


class Budget:
    """Bytes of memory that requests share, which they take in portions. Thread safe."""

    def __init__(self, what: str, bytes_max: int) -> None:
        """``what`` takes them, in the plural."""
        self._what = what
        self._bytes_max = bytes_max
        self._taken: Counter[str] = Counter()
        """By user."""
        self._waiting: list[tuple[int, int]] = []
        """What those who wait have, and a number, higher for who came first."""
        self._numbers = count()
        self._changed = threading.Condition()

    @property
    def taken_bytes(self) -> int:
        """The bytes that requests have."""
        with self._changed:
            return self._taken.total()

    def most_of(self, user: str) -> int:
        """Return the bytes that a user may have if nobody else has any."""
        return self._bytes_max // 2 if user else self._bytes_max

    def take(self, size: int, wait_seconds: float = 0, user: str = "", held: int = 0) -> None:
        """Take ``size`` more bytes, waiting until they are free. One portion may always be taken, however large, and
        the first one of a user whatever is left to others.

        Of those who wait and have ``held`` bytes that others wait for, only the one with the most goes on waiting: so
        one gets on, whatever all of them want.

        Raises:
            UnavailableError: they did not become free in time.
        """
        with self._changed:
            if not self._has(size, user) and not self._wait(size, wait_seconds, user, held):
                taken = self._taken.total()
                whose = f", {self._taken[user]:,} of them by the user {user!r}" if user else ""
                raise UnavailableError(
                    f"{self._what} use {taken:,} of {self._bytes_max:,} bytes{whose}; "
                    f"try again in {_RETRY_SECONDS:g} s",
                    _RETRY_SECONDS,
                )
            self._taken[user] += size

    def _wait(self, size: int, seconds: float, user: str, held: int) -> bool:
        """Wait until bytes are free, and return whether they are; under the lock."""
        mine = held, -next(self._numbers)
        self._waiting.append(mine)
        if held:
            self._changed.notify_all()  # one who has less gives up
        try:
            self._changed.wait_for(lambda: self._has(size, user) or (held and max(self._waiting) > mine), seconds)
        finally:
            self._waiting.remove(mine)
        return self._has(size, user)

    def take_spare(self, size: int, user: str) -> bool:
        """Take ``size`` more bytes if half of the budget stays free, and half of what the user may have; return whether
        they do."""
        with self._changed:
            is_spare = (
                self._has(size, user)
                and 2 * (self._taken.total() + size) <= self._bytes_max
                and 2 * (self._taken[user] + size) <= self.most_of(user)
            )
            if is_spare:
                self._taken[user] += size
        return is_spare

    def give_back(self, size: int, user: str = "") -> None:
        """Return bytes to the budget."""
        with self._changed:
            self._taken[user] -= size
            if not self._taken[user]:
                del self._taken[user]
            self._changed.notify_all()

    def _has(self, size: int, user: str) -> bool:
        before, own = self._taken.total(), self._taken[user]
        if not before:
            return True
        if before + size > self._bytes_max:
            return False
        return not (user and own and is_over_share(self._bytes_max, before + size, own + size))


class BudgetShare:
    """The share of one request in a budget of memory. For one thread."""

    def __init__(self, budget: Budget, wait_seconds: float = 0, user: str = "") -> None:
        self._budget = budget
        self._wait_seconds = wait_seconds
        self._user = user
        self._taken = 0

    @property
    def most(self) -> int:
        """The bytes that it may have if nobody else has any."""
        return self._budget.most_of(self._user)

    @property
    def taken(self) -> int:
        """The bytes that it has."""
        return self._taken

    def fits(self, size: int) -> bool:
        """Whether it might have ``size`` more bytes if nobody else had any."""
        return self._taken + size <= self.most

    def take(self, size: int) -> None:
        """Take ``size`` more bytes. Raises UnavailableError if too few are left."""
        self._budget.take(size, self._wait_seconds, self._user, self._taken)
        self._taken += size

    def take_spare(self, size: int) -> bool:
        """Take ``size`` more bytes if nobody is likely to need them; return whether it has them."""
        is_spare = self._budget.take_spare(size, self._user)
        self._taken += size * is_spare
        return is_spare

    def keep(self, size: int) -> None:
        """Return all but ``size`` bytes, if it has more."""
        more, self._taken = max(self._taken - size, 0), min(self._taken, size)
        if more:
            self._budget.give_back(more, self._user)

    def give_back(self) -> None:
        """Return all bytes."""
        self.keep(0)

    def __enter__(self) -> BudgetShare:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()
