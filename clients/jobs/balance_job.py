"""Balancing: tablets move between servers until each has its share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import BaseModel

from ..cluster.balance import carried_out, planned_balance
from ..cluster.balance_report import MARGIN, MEASURES, BalancePlan, Measure, PlannedMove
from ..executors.progress import JobProgress, Show
from .link import Store, StoreLink


class SkippedMove(BaseModel, frozen=True):
    """A move of a plan that was not made."""

    move: PlannedMove
    why: str


def plan_balance(
    store: Store,
    *,
    by: Sequence[Measure] = MEASURES,
    margin: float = MARGIN,
    moves_max: int | None = None,
    tables: Collection[str] | None = None,
    watch_seconds: float = 0.0,
) -> BalancePlan:
    """Return the moves of tablets after which each server has its share, and move nothing. See docs/servers.md.

    Raises:
        InvalidArgumentError: the store is of one server.
        NotFoundError: one of ``tables`` does not exist.
        ConflictError: a tablet is on two servers.
        UnavailableError: a server cannot be reached.
    """
    return planned_balance(StoreLink.to(store).service, by, margin, moves_max, tables, watch_seconds)


def apply_balance(store: Store, plan: BalancePlan, *, show: Show = "auto") -> list[SkippedMove]:
    """Make the moves of a plan, one after the other; reads and writes continue. Return those that were left out because
    their tablet was split, dropped or moved since.

    Raises:
        UnavailableError: a server cannot be reached, or rows of a table are staged. Plan again to go on.
    """
    skipped: list[SkippedMove] = []
    with JobProgress("balance", len(plan.moves), show) as progress:
        for move, why in carried_out(StoreLink.to(store).service, plan):
            progress.add(0)
            if why:
                skipped.append(SkippedMove(move=move, why=why))
    return skipped
