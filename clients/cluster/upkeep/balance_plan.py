"""Plans which tablets to move, so that each server has its share. Pure: it asks no server and moves nothing.

What a tablet weighs is counted in several *measures*: bytes on disk, rows read and written, the tablets of the cluster,
and the tablets of each table, so that a table is spread even where the cluster is even without it. Shares of a total
have no unit, so the measures can be added up. A server's *load* in a measure is its share of the total, divided by its
share of the weights: 1 is fair. The plan lowers

    sum over measures and servers of    load ** 2 * share of the weights

which is smallest if all loads are 1; the tables count as much as all other measures together, since a single move can
make a table even only at the cost of those. It moves the one tablet that lowers it most, to the server where it does,
and again, until no move is worth it. So a plan made after a plan was carried out is empty, unless the tablets changed.

Sources: the greedy steps, and that tables count as well as the cluster, are those of Apache Kudu's rebalancer
(``src/kudu/rebalance/rebalance_algo.h``, which counts replicas only); the sum of sizes and rates is that of Apache
HBase's ``StochasticLoadBalancer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .balance_report import MARGIN, MEASURES, BalancePlan, PlannedMove, ServerLoad, TabletLoad

_NOISE = 1e-9
"""Gains below this are the rounding of sums."""


def plan_moves(
    tablets: Sequence[TabletLoad],
    weights: Mapping[str, float],
    by: Sequence[str] = MEASURES,
    margin: float = MARGIN,
    moves_max: int | None = None,
) -> BalancePlan:
    """Return the moves that balance servers, which spread tablets by their weights, in the order in which they help
    most.

    First every tablet leaves a server on which the placement does not want it, or whose weight is 0 while it may be on
    another one, the largest first.
    Then a tablet moves from one server to another only if, with half of it moved, the first would still have the higher
    load by more than ``margin``, on the average of the measures ``by``, weighted by the shares of the tablet. A tablet
    that would move on later goes to its last server at once.

    ``weights`` has all servers, in the order in which they are preferred.
    """
    spread = _Spread(tablets, weights, by)
    home, before = spread.home.copy(), spread.loads()
    order: list[int] = []
    while (moves_max is None or len(set(order)) < moves_max) and (step := spread.best(margin)):
        tablet, server = step
        order.append(tablet)
        spread.move(tablet, server)
    moved = [tablet for tablet in dict.fromkeys(order) if spread.home[tablet] != home[tablet]]
    names = list(weights)
    return BalancePlan(
        moves=[
            PlannedMove(
                table=tablets[each].table,
                tablet=tablets[each].tablet,
                source=tablets[each].server,
                to=names[spread.home[each]],
                bytes=tablets[each].bytes,
            )
            for each in moved
        ],
        before=before[0],
        after=spread.loads()[0],
        deviation_before=before[1],
        deviation_after=spread.loads()[1],
    )


class _Spread:
    """Where the tablets are, and what it would gain to move each. Rows are tablets, columns are servers."""

    def __init__(self, tablets: Sequence[TabletLoad], weights: Mapping[str, float], by: Sequence[str]) -> None:
        place = {name: number for number, name in enumerate(weights)}
        self.names = list(weights)
        self.home = np.array([place[each.server] for each in tablets], np.int64)
        share = np.array(list(weights.values()), np.float64)
        self._share = share / share.sum()
        self._allowed = np.zeros((len(tablets), len(place)), np.bool_)
        for row, each in enumerate(tablets):
            self._allowed[row, [place[name] for name in each.servers]] = True
        may_share = self._allowed & (self._share > 0)
        self._allowed = np.where(may_share.any(axis=1, keepdims=True), may_share, self._allowed)
        amounts = {
            "bytes": [each.bytes for each in tablets],
            "tablets": [1] * len(tablets),
            "reads": [each.rows_read for each in tablets],
            "writes": [each.rows_written for each in tablets],
        }
        self._amounts = {name: np.array(values, np.float64) for name, values in amounts.items()}
        self._by = [name for name in amounts if name in by]
        others = sum(self._amounts[name].any() for name in self._by)
        self._in_tables = max(others, 1) / max(len(tablets), 1) if "tables" in by else 0.0
        tables = {name: number for number, name in enumerate(dict.fromkeys(each.table for each in tablets))}
        self._table = np.array([tables[each.table] for each in tablets], np.int64)
        self._table_share = np.zeros((len(tables), len(place)))
        np.maximum.at(self._table_share, self._table, np.where(self._allowed, self._share, 0.0))
        self._table_share /= np.maximum(self._table_share.sum(axis=1, keepdims=True), _NOISE)
        self._weight = sum((self._of_total(name) for name in self._by), np.full(len(tablets), self._in_tables))

    def move(self, tablet: int, server: int) -> None:
        self.home[tablet] = server

    def best(self, margin: float) -> tuple[int, int] | None:
        """Return the move that helps most, as a tablet and a server; None if none is worth it."""
        if not len(self.home):
            return None
        leaving, staying = self._costs()
        rows = np.arange(len(self.home))
        misplaced = ~self._allowed[rows, self.home] & self._allowed.any(axis=1)
        if misplaced.any():
            tablet = int(np.argmax(np.where(misplaced, self._amounts["bytes"], -1.0)))
            return tablet, int(np.argmin(np.where(self._allowed[tablet], staying[tablet], np.inf)))
        gains = np.where(self._allowed, leaving[rows, self.home][:, None] - staying, -np.inf)
        gains[rows, self.home] = -np.inf
        worth = gains > (max(margin, _NOISE) * self._weight)[:, None]
        if not worth.any():
            return None
        tablet, server = np.unravel_index(np.argmax(np.where(worth, gains, -np.inf)), gains.shape)
        return int(tablet), int(server)

    def _costs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what each tablet costs on each server: if it leaves it, and if it comes to it.

        Elementwise, so that a number does not depend on the order of the tablets: a product of matrices may round
        each row in its own way, and a plan would then find something to do after the last one.
        """
        leaving, coming = np.zeros(self._allowed.shape), np.zeros(self._allowed.shape)
        for name in self._by:
            mine = self._of_total(name)[:, None]
            load = _over(self._by_server(self._amounts[name]) / max(self._amounts[name].sum(), 1.0), self._share)
            half = mine * _over(np.ones(len(self.names)), self._share) / 2
            leaving += mine * (load - half)
            coming += mine * (load + half)
        if self._in_tables:
            counts = np.zeros_like(self._table_share)
            np.add.at(counts, (self._table, self.home), 1.0)
            totals = counts.sum(axis=1, keepdims=True)
            load, half = _over(counts / totals, self._table_share), _over(0.5 / totals, self._table_share)
            leaving += self._in_tables * (load - half)[self._table]
            coming += self._in_tables * (load + half)[self._table]
        return leaving, coming

    def _of_total(self, name: str) -> np.ndarray:
        """Return each tablet's share of a measure. Amounts are whole numbers, whose sums are exact."""
        amounts = self._amounts[name]
        return amounts / max(amounts.sum(), 1.0)

    def _by_server(self, amounts: np.ndarray) -> np.ndarray:
        return np.bincount(self.home, amounts, len(self.names))

    def loads(self) -> tuple[list[ServerLoad], dict[str, float]]:
        """Return what each server has, and for each measure how far the loads are from 1: the root of their mean
        square, weighted by the servers."""
        found = {name: self._by_server(amounts) for name, amounts in self._amounts.items()}
        servers = [
            ServerLoad(
                server=name,
                share=float(self._share[number]),
                bytes=int(found["bytes"][number]),
                tablets=int(found["tablets"][number]),
                rows_read=int(found["reads"][number]),
                rows_written=int(found["writes"][number]),
            )
            for number, name in enumerate(self.names)
        ]
        deviation = {
            name: float(np.sqrt((self._share * (_over(each / each.sum(), self._share) - 1) ** 2).sum()))
            for name, each in found.items()
            if each.sum()
        }
        return servers, deviation


def _over(amounts: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Divide by the servers' shares; 0 where a server has none, which gets nothing."""
    return np.divide(amounts, shares, out=np.zeros(np.broadcast_shapes(amounts.shape, shares.shape)), where=shares > 0)
