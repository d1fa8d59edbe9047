"""The weight of all tablets of all servers, for a plan that balances them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from ....schemas.errors import ConflictError, InvalidArgumentError, NotFoundError
from ....schemas.protocol.service import StoreService
from ....schemas.store.description import TableStats, TabletStats
from ....schemas.table.partition_schema import TabletPartition, sum_of
from .. import moving
from ..servers import Servers
from .balance_report import MEASURES, BalancePlan, TabletLoad

Found = dict[tuple[str, TabletPartition], tuple[str, TabletStats]]
"""Each tablet by its table and partition: its server, and what that says of it."""


def planned_balance(
    store: StoreService,
    by: Sequence[str],
    margin: float,
    moves_max: int | None,
    tables: Collection[str] | None,
    watch_seconds: float,
) -> BalancePlan:
    """Return the moves that balance the servers of a store: see ``nyala.jobs.plan_balance``."""
    if strange := [name for name in by if name not in MEASURES]:
        raise InvalidArgumentError(f"unknown measure {strange[0]!r}; known: {', '.join(MEASURES)}")
    if not by:
        raise InvalidArgumentError(f"by must name at least one measure; known: {', '.join(MEASURES)}")
    servers: Servers | None = getattr(store, "servers", None)
    if servers is None:
        raise InvalidArgumentError("there is nothing to balance: this server shares its tables with no other server")
    names = store.tables()
    if strange := sorted(set(tables or ()) - set(names)):
        raise NotFoundError(f"there is no table {strange[0]!r}")
    for name in names:  # a tablet between two servers is on neither
        moving.settle(servers, name, servers.names)
    found = _found(servers)
    earlier: Found = {}
    if watch_seconds:
        time.sleep(watch_seconds)
        earlier, found = found, _found(servers)
    loads = [_load(servers, tables, place, found[place], earlier.get(place)) for place in _ordered(found)]
    weights = {name: servers.placement.weight_of(name) for name in servers.names}
    from .balance_plan import plan_moves  # needs numpy

    return plan_moves(loads, weights, by, margin, moves_max)


def _found(servers: Servers) -> Found:
    """Return the tablets of all servers. Raises ConflictError if one is on two."""
    found: Found = {}
    for server, each in servers.each(_stats).items():
        for stats in each:
            for tablet in stats.tablets:
                place = stats.name, tablet.partition
                if place in found:
                    raise ConflictError(
                        f"a tablet of table {stats.name!r} is on two servers, {found[place][0]} and {server}: see "
                        "nyala cluster check"
                    )
                found[place] = server, tablet
    return found


def _stats(store: StoreService) -> list[TableStats]:
    found: list[TableStats] = []
    for name in store.tables():
        try:
            found.append(store.table_stats(name))
        except NotFoundError:  # dropped meanwhile
            continue
    return found


def _ordered(found: Mapping[tuple[str, TabletPartition], object]) -> list[tuple[str, TabletPartition]]:
    """Return the tablets in an order that does not depend on their servers, so that plans do not either."""
    return sorted(found, key=lambda place: (place[0], sum_of([place[1]])))


def _load(
    servers: Servers,
    tables: Collection[str] | None,
    place: tuple[str, TabletPartition],
    now: tuple[str, TabletStats],
    before: tuple[str, TabletStats] | None,
) -> TabletLoad:
    (table, partition), (server, stats) = place, now
    known = before[1] if before and before[0] == server else stats
    may_move = (tables is None or table in tables) and stats.quarantine is None
    return TabletLoad(
        table=table,
        tablet=stats.tablet,
        server=server,
        bytes=stats.bytes_on_disk,
        rows_read=max(stats.rows_read - known.rows_read, 0),
        rows_written=max(stats.rows_written - known.rows_written, 0),
        servers=servers.placement.allowed(table, partition) if may_move else (),
    )
