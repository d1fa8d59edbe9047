"""Visit: one request for a page, with who asks and for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.service import StoreService
from ....schemas.store.grants import Privilege
from ....schemas.table.names import ALL_TABLES
from ...runtime.logs import RecentLog
from ...security.guarded_store import GuardedStore
from ...security.identity import Identity
from ...server import FlightServer
from ...stores.absent_store import AbsentStore
from .charts import Samples

if TYPE_CHECKING:
    from ...settings.settings import Shown


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the console knows of its process beside the server."""

    name: str = ""
    """The server's, as users gave it; empty: it has none."""
    settings: Callable[[], Sequence[Shown]] = tuple
    """Returns those in effect, without secrets."""
    log: RecentLog = field(default_factory=RecentLog)
    samples: Samples = field(default_factory=Samples)


@dataclass(frozen=True)
class Visit:
    """One visit to a page of the console: who asks, and for what. For the thread that makes the page."""

    server: FlightServer
    caller: Identity | None
    asked: Mapping[str, str] = field(default_factory=dict)
    """What the address says after its question mark."""
    around: Surroundings = Surroundings()

    @cached_property
    def store(self) -> StoreService:
        """The store as far as the caller may use it."""
        return self.server.store_of(self.caller)

    @property
    def first(self) -> int:
        """The first of the things to list. Raises InvalidArgumentError: it is no number."""
        given = self.asked.get("first", "0")
        if not given.isascii() or not given.isdigit() or len(given) > 9:
            raise InvalidArgumentError("`first` must be a number")
        return int(given)

    def check_operates(self) -> None:
        """Raise PermissionDeniedError unless the caller may maintain all tables: for pages about all users."""
        guarded = self.store
        if isinstance(guarded, GuardedStore):
            guarded.need(ALL_TABLES, Privilege.MAINTAIN, "console", {})
        elif isinstance(guarded, AbsentStore):
            guarded.check_operates()

    @property
    def operates(self) -> bool:
        """Whether the caller may maintain all tables."""
        return self.has_everywhere(Privilege.MAINTAIN)

    def check_administers(self, what: str) -> None:
        """Raise PermissionDeniedError unless the caller may do everything: ``what`` tells where files lie."""
        guarded = self.store
        if isinstance(guarded, GuardedStore):
            guarded.need(ALL_TABLES, Privilege.ADMIN, what, {})
        elif isinstance(guarded, AbsentStore):
            guarded.check_operates(what)

    @property
    def administers(self) -> bool:
        """Whether the caller may do everything."""
        return self.has_everywhere(Privilege.ADMIN)

    @property
    def has_login(self) -> bool:
        """Whether the server asks who calls."""
        return self.caller is not None

    def has_everywhere(self, privilege: Privilege) -> bool:
        """Whether the caller has a privilege on all tables."""
        guarded = self.store
        if isinstance(guarded, GuardedStore):
            return privilege in guarded.rights.everywhere
        return not isinstance(guarded, AbsentStore) or guarded.operates

    def readable(self, table: str) -> frozenset[str] | None:
        """Return the columns of a table that the caller may read; None: all."""
        guarded = self.store
        return guarded.rights.of(table).of(Privilege.READ) if isinstance(guarded, GuardedStore) else None

    def maintains(self, table: str) -> bool:
        """Whether the caller may maintain a table."""
        guarded = self.store
        return guarded.rights.of(table).has(Privilege.MAINTAIN) if isinstance(guarded, GuardedStore) else self.operates
