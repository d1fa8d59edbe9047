"""Spreads tablets evenly over processes, with as few moves as that takes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ...clients.cluster.moving import settle
from ...clients.cluster.servers import Servers
from ...clients.cluster.store import PlacedStore
from ...schemas.errors import ConflictError, NotFoundError
from ...schemas.protocol.service import StoreService

_LOG = logging.getLogger("nyala.flight_server")

Tablets = dict[str, dict[str, list[int]]]
"""By table and process: the numbers of the tablets there."""
Move = tuple[str, int, str, str]
"""A table, a tablet's number, its process, and where it goes."""


def balance(servers: Servers, count: int) -> None:
    """Spread the tablets of each table over the first ``count`` processes of a store; repeat the call after an
    interruption.

    Raises:
        ConflictError: a process that is to end has a table that was dropped and can be recalled.
        StoreError: a tablet cannot be moved; those before it have been.
    """
    _check_dropped(servers, servers.names[count:])
    store = PlacedStore(servers)
    for table in store.tables():  # a tablet between two processes is listed by neither
        settle(servers, table, servers.names)
    placed: Tablets = {table: {name: [] for name in servers.names} for table in store.tables()}
    for table, by_process in placed.items():
        for place in store.tablets(table).tablets:
            assert place.server is not None
            by_process[place.server].append(place.tablet)
    planned = moves(placed, servers.names[:count])
    for number, (table, tablet, source, target) in enumerate(planned, 1):
        _LOG.info(
            "moving tablet %d of %s from %s to %s (%d of %d)", tablet, table, source, target, number, len(planned)
        )
        store.move_tablet(table, tablet, target, source)


def check_empty(servers: Servers, gone: Sequence[str]) -> None:
    """Check that the processes of a store in ``gone`` can be deleted. ``servers`` are all, and nobody else has them
    open.

    Raises:
        ConflictError: one has a tablet or a dropped table, or a tablet is between one and another process.
    """
    _check_dropped(servers, gone)
    for table in PlacedStore(servers).tables():
        for name in servers.names:
            try:
                has_part = _has_part(servers.store(name), table, name in gone, gone)
            except NotFoundError:
                continue
            if has_part:
                raise ConflictError(
                    f"table {table!r} has changed meanwhile, and {name} has a tablet that would be lost without "
                    f"{', '.join(gone)}: start again with the same number of processes"
                )


def _has_part(store: StoreService, table: str, is_gone: bool, gone: Sequence[str]) -> bool:
    """Return whether a process has, or is to get, a tablet that the end of the processes in ``gone`` would take."""
    unfinished = store.moves(table)
    moving = [*unfinished.arriving, *unfinished.left]
    if not is_gone:
        return any(move.server in gone for move in moving)
    return bool(moving) or any(place.server is None for place in store.tablets(table).tablets)


def moves(placed: Tablets, kept: Sequence[str]) -> list[Move]:
    """Return the moves after which only the processes of a store in ``kept`` have tablets, those of each table evenly,
    and as evenly as that leaves over all tables."""
    totals = {name: sum(len(found[name]) for found in placed.values()) for name in kept}
    tables = [_Table(table, found, totals) for table, found in placed.items()]
    planned = [move for table in tables for move in table.emptied()]
    for is_last in (False, True):  # the totals are known when each table is even
        while step := next(filter(None, (table.step(is_last) for table in tables)), None):
            planned.append(step)
    return planned


class _Table:
    """The tablets of one table; ``totals`` counts those of all tables by process, and is kept up to date."""

    def __init__(self, name: str, placed: Mapping[str, Sequence[int]], totals: dict[str, int]) -> None:
        self._name = name
        self._movable = {process: list(numbers) for process, numbers in placed.items()}
        self._counts = {process: len(placed[process]) for process in totals}
        self._totals = totals

    def emptied(self) -> list[Move]:
        """Move all tablets off the processes that are not to keep any."""
        gone = [process for process in self._movable if process not in self._totals]
        return [self._move(process, self._emptiest()) for process in gone for _ in list(self._movable[process])]

    def step(self, for_totals: bool) -> Move | None:
        """Move a tablet that was not moved before, if that makes the table or, with ``for_totals``, all more even."""
        sources = [process for process in self._counts if self._movable[process]]
        target = self._emptiest()
        for source in sorted(sources, key=lambda process: (-self._counts[process], -self._totals[process])):
            gap = self._counts[source] - self._counts[target]
            if gap > 1 or (for_totals and gap == 1 and self._totals[source] - self._totals[target] > 1):
                return self._move(source, target)
        return None

    def _emptiest(self) -> str:
        return min(self._counts, key=lambda process: (self._counts[process], self._totals[process]))

    def _move(self, source: str, target: str) -> Move:
        for counts in (self._counts, self._totals):
            counts[target] += 1
            if source in counts:
                counts[source] -= 1
        return self._name, self._movable[source].pop(), source, target


def _check_dropped(servers: Servers, names: Sequence[str]) -> None:
    for name in names:
        if dropped := servers.store(name).dropped_tables():
            raise ConflictError(
                f"cannot reduce --processes: {name} keeps the dropped table {dropped[0].name!r} until "
                f"{dropped[0].until:%Y-%m-%d %H:%M:%S} UTC; recall it, or keep as many processes until then"
            )
