"""What the tablets of all servers weigh, for a plan that balances them, and how the plan is carried out."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from ...schemas.description import TableStats, TabletStats
from ...schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, UnavailableError
from ...schemas.partition_schema import TabletPartition, sum_of
from ...schemas.service import StoreService
from . import moving
from .balance_report import MARGIN, MEASURES, BalancePlan, Measure, PlannedMove, TabletLoad
from .servers import Servers

Found = dict[tuple[str, TabletPartition], tuple[str, TabletStats]]
"""Each tablet by its table and partition: its server, and what that says of it."""


def planned_balance(
    store: StoreService,
    by: Sequence[Measure] = MEASURES,
    margin: float = MARGIN,
    moves_max: int | None = None,
    tables: Collection[str] | None = None,
    watch_seconds: float = 0.0,
) -> BalancePlan:
    """Return the moves that balance the servers of a store; nothing is moved yet, but interrupted moves are ended.

    With ``watch_seconds`` the rows read and written are counted for so long; without, they do not count. ``tables``
    names the tables whose tablets may move, by default all.

    Raises:
        InvalidArgumentError: the store is of one server, or there is no such table.
        ConflictError: a tablet is on two servers.
        UnavailableError: a server cannot be reached.
    """
    servers: Servers | None = getattr(store, "servers", None)
    if servers is None:
        raise InvalidArgumentError("there is nothing to balance: this server shares its tables with no other")
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


def carried_out(store: StoreService, plan: BalancePlan) -> Iterator[tuple[PlannedMove, str]]:
    """Make the moves of a plan, one at a time; yield each with the reason why it was left out, empty if it was made.

    A tablet that was split, dropped or moved since the plan is left out. Interrupted, at most one move is unfinished;
    a new plan ends it.

    Raises:
        UnavailableError: a server cannot be reached, or rows of the table are staged. The moves before are made.
    """
    for number, move in enumerate(plan.moves):
        try:
            store.move_tablet(move.table, move.tablet, move.to, move.source)
        except (NotFoundError, ConflictError) as error:
            yield move, error.message
        except UnavailableError as error:
            done = f"after {number} of {len(plan.moves)} moves: " if number else ""
            raise UnavailableError(f"{done}{error.message}", error.retry_after_seconds) from error
        else:
            yield move, ""


def _found(servers: Servers) -> Found:
    """Return the tablets of all servers. Raises ConflictError if one is on two."""
    found: Found = {}
    for server, each in servers.each(_stats).items():
        for stats in each:
            for tablet in stats.tablets:
                place = stats.name, tablet.partition
                if place in found:
                    raise ConflictError(
                        f"a tablet of table {stats.name!r} is on {found[place][0]} and on {server}: "
                        "see nyala cluster check"
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
