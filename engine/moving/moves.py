"""The moves of a store's tablets: from here to other servers (`departures`), and from there to here (`arrivals`).

A move has a name. The source decides: what it has not handed over, and does not know as under way, can never be handed
over by that name, so that a target may throw away what it prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...schemas.errors import NotFoundError
from ...schemas.moving import MoveNote, Moves, MoveState, MoveStatus
from ..commit.commit_log import CommitLog
from ..commit.numbered_writes import NumberedWrites
from ..maintenance.op import MaintenanceOp
from ..maintenance.upkeep import TabletOp
from ..manifest.environment import Environment
from ..room import Room
from ..scan.snapshots import Snapshots
from ..table.table import Table
from ..transaction.staging.area import StagingArea
from .arrivals import Arrivals, arrived
from .departures import Departures

_IDLE_SECONDS = 3600
"""After so long without a step a move counts as given up; until then files are held for it."""


class Mover:
    """What a store does for moves. Thread safe."""

    def __init__(
        self,
        environment: Environment,
        log: CommitLog,
        writers: NumberedWrites,
        staging: StagingArea,
        snapshots: Snapshots,
        tables: Callable[[], list[Table]],
        now: Callable[[], int],
        room: Room,
    ) -> None:
        """``now`` tells the time in microseconds since 1970."""
        self._environment = environment
        self._tables = tables
        self.departures = Departures(environment, writers, staging, tables, now)
        self.arrivals = Arrivals(environment, log, writers, snapshots, now, room)
        self._now = now

    def of(self, table: Table) -> Moves:
        """Return the moves of a table's tablets that did not end, and those by which tablets came."""
        manifest = self._environment.manifest.current
        entry = next((each for each in manifest.tables if each.id == table.table_id), None)
        tablets = entry.tablets if entry else ()
        return Moves(
            arriving=tuple(
                MoveNote(move=come.name, server=come.server, tablet=come.came_as, number=come.number)
                for come in (each.arriving for each in tablets)
                if come
            ),
            left=tuple(
                MoveNote(move=each.moved.name, server=each.moved.server, tablet=each.moved.tablet)
                for each in tablets
                if each.moved and each.elsewhere
            ),
            arrived=tuple(
                MoveNote(move=moved.name, server=moved.server, tablet=moved.tablet)
                for _, moved in arrived(manifest, table)
            ),
        )

    def abort(self, move: str) -> MoveStatus:
        """Give a move up, unless a tablet was handed over by it from here; return where it stands then.

        Raises:
            NotFoundError: there is no such move here, or not any more.
        """
        is_known = self.departures.status(move).state is not MoveState.UNKNOWN
        status = self.departures.abort(move)
        if status.state is MoveState.UNKNOWN and not (self.arrivals.abort(move) or is_known):
            raise NotFoundError(f"there is no move {move!r} here: it has ended, was given up, or never began")
        return status

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of letting go of moves that nobody drives any more."""
        before = self._now() - _IDLE_SECONDS * 1_000_000
        return [
            TabletOp(f"give up move {move}", lambda: 1.0, partial(drop, move))
            for idle, drop in (
                (self.departures.idle, self.departures.abort),
                (self.arrivals.idle, self.arrivals.drop_idle),
            )
            for move in idle(before)
        ]

    def table(self, name: str) -> Table:
        """Return a table by its name, also one that was dropped and can be recalled: moves come to their ends."""
        found = [table for table in self._tables() if table.name == name]
        if not found:
            raise NotFoundError(f"there is no table {name!r}")
        return min(found, key=lambda table: table.dropped_until is not None)
