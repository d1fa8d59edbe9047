"""The answers of all servers about themselves and their tables, for a check: asked at once, and without waiting."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ....schemas.cells.timestamp import microseconds_of
from ....schemas.errors import NotFoundError, PermissionDeniedError, StoreError, UnauthenticatedError
from ....schemas.protocol.service import StoreService
from ....schemas.store.description import Health, TableDescription, TableStats, TabletMap
from ....schemas.store.metrics import Metrics
from ....schemas.store.moving import Moves
from ....schemas.store.placement import Placement
from ....schemas.store.whereabouts import Whereabouts
from ...flight.deadline import answered_within
from ...flight.store import FlightStore
from ..servers import Servers


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The answer of a server about a table, for a check of all servers."""

    about: TableDescription
    tablets: TabletMap
    moves: Moves
    stats: TableStats


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The answers of a server about itself and its tables, for a check of all servers."""

    health: Health
    placement: Placement | None
    """None: it shares its tables with no other."""
    clock_seconds: tuple[float, float]
    """Its time less this process's, at least and at most: the answer takes a while."""
    disk_free_bytes: int | None
    processes: dict[str, Whereabouts | StoreError]
    """What each process that can have its store says of itself, by location."""
    tables: dict[str, TableFacts]


Told = dict[str, ServerFacts | StoreError]
"""By server: what it says, or the error with which it, or the way to it, answered."""


def told_by(store: StoreService, seconds: float) -> Told:
    """Ask all servers of a store about themselves and their tables, for a check, for at most ``seconds``; a store in
    one piece is asked under its own name.

    Raises:
        PermissionDeniedError, UnauthenticatedError: the caller may not ask.
    """
    with answered_within(seconds):
        servers: Servers | None = getattr(store, "servers", None)
        found: Told = {"": _outcome(store)} if servers is None else servers.outcomes_now(facts_of)
    for each in found.values():
        if isinstance(each, PermissionDeniedError | UnauthenticatedError):
            raise each
    return found


def _outcome(store: StoreService) -> ServerFacts | StoreError:
    try:
        return facts_of(store)
    except StoreError as error:
        return error


def facts_of(store: StoreService) -> ServerFacts:
    """Ask one server about itself and its tables, for a check of all servers."""
    health = store.health()
    began = time.monotonic()
    now = microseconds_of(store.now()) / 1e6
    ended = time.monotonic()
    tables: dict[str, TableFacts] = {}
    for name in store.tables():
        try:
            tables[name] = _of_table(store, name)
        except NotFoundError:  # dropped, or renamed, meanwhile
            continue
    return ServerFacts(
        health=health,
        placement=None if health.server is None else store.placement(),
        clock_seconds=(now - ended, now - began),
        processes=store.processes() if isinstance(store, FlightStore) else {},
        disk_free_bytes=_free_bytes(store.metrics()),
        tables=tables,
    )


def _of_table(store: StoreService, name: str) -> TableFacts:
    moves = store.moves(name)  # before it is asked for tablets, when it ends what can be ended
    return TableFacts(
        about=store.describe_table(name), tablets=store.tablets(name), moves=moves, stats=store.table_stats(name)
    )


def _free_bytes(metrics: Metrics) -> int | None:
    """Return the free space of the fullest disk: a server may consist of several processes."""
    found = [
        sample.value
        for family in metrics.families
        if family.name == "nyala_disk_free_bytes"
        for sample in family.samples
    ]
    return int(min(found)) if found else None
