"""Guard: gives each caller of a server the store as far as it may use it."""

from __future__ import annotations

import threading
from typing import cast

from ...schemas.protocol.service import StoreService
from .admins import Admins
from .audit import AuditLog
from .guarded_store import GuardedStore
from .identity import Identity
from .rights import Caller, GrantBook

_KNOWN_MAX = 4096
_NOBODY = Caller("")


class Guard:
    """The grants of a store, which the server enforces for each caller. Thread safe."""

    def __init__(self, store: StoreService, admins: Admins, audit: AuditLog | None) -> None:
        self._store = store
        self._admins = admins
        self._book = GrantBook(store)
        self._audit = audit
        self._known: dict[Caller, GuardedStore] = {}
        self._lock = threading.Lock()

    def is_admin(self, identity: Identity) -> bool:
        """Whether a caller may do everything. Raises StoreError: the grants cannot be read."""
        return self._book.rights(self._caller(identity), self._book.version()).is_admin

    def store_of(self, identity: Identity | None) -> StoreService:
        """Return the store for a caller; None has no rights."""
        caller = _NOBODY if identity is None else self._caller(identity)
        found = self._known.get(caller)
        if found is None:
            with self._lock:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                found = self._known.setdefault(caller, GuardedStore(self._store, caller, self._book, self._audit))
        return cast(StoreService, found)  # the server closes its own store

    def _caller(self, identity: Identity) -> Caller:
        return Caller(identity.user, identity.roles, self._admins.include(identity))
