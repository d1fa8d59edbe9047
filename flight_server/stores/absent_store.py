"""AbsentStore: what a process answers for a store that it does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ...schemas.errors import PermissionDeniedError, UnavailableError
from ...schemas.protocol.service import RefusingStore, StoreService
from ...schemas.store.description import Health
from ...schemas.store.metrics import Metrics
from ...schemas.store.whereabouts import Whereabouts

Denied = Callable[[str], object]
"""Notes that the caller was denied an action."""
_RETRY_SECONDS = 0.2
"""When a client should ask again while nobody is known to have the store."""


class AbsentStore(RefusingStore):
    """The store that a process serves in place of one that it does not have: a ``StoreService`` that answers
    UNAVAILABLE and who has the store, but for ``health`` and ``metrics``."""

    operates = True
    """Whether the caller may see what all users do."""

    def __init__(self, whereabouts: Callable[[], Whereabouts], version: str) -> None:
        """``whereabouts`` tells who has the store."""
        self._whereabouts = whereabouts
        self._version = version

    def for_others(self, guarded: StoreService | None, denied: Denied) -> AbsentStore:
        """Return what a caller gets who is no administrator, as far as is known without the grants of the store."""
        return ForOthers(self._whereabouts, self._version, denied)

    def check_operates(self, action: str = "console") -> None:
        """Raise PermissionDeniedError unless the caller may see what all users do, by this action."""

    def refuse(self) -> NoReturn:
        """Raise UnavailableError, with the locations of the process that has the store."""
        raise self.refusal(f"this process is a standby of the store {self._whereabouts().name}")

    def refusal(self, why: str) -> UnavailableError:
        """Return the error of a request that this process does not answer, with who does."""
        found = self._whereabouts()
        locations = found.holder.locations if found.holder else []
        if locations:
            what = f"connect to {' or '.join(locations)}, which has the store"
        elif found.holder:
            what = "another process has the store, and has recorded no location"
        else:
            what = "no process is known to have the store now"
        later = None if found.holder else _RETRY_SECONDS
        return UnavailableError(f"{why}; {what}", later, locations)

    def health(self) -> Health:
        """See StoreService. A process that stands by does its duty, unless it could not take the store over now."""
        found = self._whereabouts()
        status, reason = (
            ("degraded", f"it could not take the store over: {found.trouble}") if found.trouble else ("ok", "")
        )
        return Health(status=status, reason=reason, version=self._version, name=found.name, state="standby")

    def metrics(self) -> Metrics:
        """See StoreService. There are none of a store."""
        return Metrics()


class ForOthers(AbsentStore):
    """An ``AbsentStore`` for a caller of whom nobody knows that it is an administrator."""

    operates = False

    def __init__(self, whereabouts: Callable[[], Whereabouts], version: str, denied: Denied) -> None:
        """``denied`` is told of each denial."""
        super().__init__(whereabouts, version)
        self._denied = denied

    def check_operates(self, action: str = "console") -> None:
        self._denied(action)
        raise PermissionDeniedError(
            "this process is a standby, and has no grants: only users with the role admin, or in its option "
            "admins, may see its figures"
        )

    def metrics(self) -> Metrics:
        self.check_operates("metrics")
        return super().metrics()
