"""Balancing: tablets move between servers until each has its share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import BaseModel

from ...schemas.errors import ConflictError, NotFoundError, UnavailableError
from ..cluster.upkeep.balance import planned_balance
from ..cluster.upkeep.balance_report import MARGIN, MEASURES, BalancePlan, PlannedMove
from ..executors.progress import JobProgress, Show
from .link import Store, StoreLink


class SkippedMove(BaseModel, frozen=True):
    """A move of a tablet in a plan of balancing that the job did not make."""

    move: PlannedMove
    why: str


def plan_balance(
    store: Store,
    *,
    by: Sequence[str] = MEASURES,
    margin: float = MARGIN,
    moves_max: int | None = None,
    tables: Collection[str] | None = None,
    watch_seconds: float = 0.0,
) -> BalancePlan:
    """Plan the job that balances servers: return the moves of tablets after which each server has its share, and move
    nothing, but end moves that were interrupted. See docs/servers.md.

    ``by`` names what counts: ``"tables"``, ``"bytes"``, ``"tablets"``, and ``"reads"`` and ``"writes"``, of which rows
    are counted for ``watch_seconds``; at 0 they do not count. A move must be worth ``margin`` of a server's fair share.
    At most ``moves_max`` moves are returned, of tablets of ``tables``; None: as many as it takes, of all tables.

    Raises:
        InvalidArgumentError: the store is of one server, or ``by`` names nothing, or no measure.
        NotFoundError: one of ``tables`` does not exist.
        ConflictError: a tablet is on two servers.
        UnavailableError: a server cannot be reached.
    """
    return planned_balance(StoreLink.to(store).service, by, margin, moves_max, tables, watch_seconds)


def apply_balance(store: Store, plan: BalancePlan, *, show: Show = "auto") -> list[SkippedMove]:
    """Run the job that balances servers: make the moves of a plan, one after the other; reads and writes continue.
    Return those that were left out because their tablet was split, dropped or moved since. Interrupted, at most one
    move is unfinished; a new plan ends it.

    Raises:
        UnavailableError: a server cannot be reached, or rows of a table are staged. The moves before are made. Plan
            again to go on.
    """
    service = StoreLink.to(store).service
    skipped: list[SkippedMove] = []
    with JobProgress("balance", len(plan.moves), show) as progress:
        for number, move in enumerate(plan.moves):
            try:
                service.move_tablet(move.table, move.tablet, move.to, move.source)
            except (NotFoundError, ConflictError) as error:
                skipped.append(SkippedMove(move=move, why=error.message))
            except UnavailableError as error:
                done = f"after {number} of {len(plan.moves)} moves: " if number else ""
                raise UnavailableError(f"{done}{error.message}", error.retry_after_seconds) from error
            progress.add(0)
    return skipped
