"""The moves of a store's tablets: from here to other servers (`departures`), and from there to here (`arrivals`).

A move has a name. The source decides: a move that it has not handed over, and that is not running, can never be handed
over under that name. So a target may then discard what it prepared.

The state of a move is about "now". Each answer about it ends with a look at the lease, after the state was read: a
process that has lost the store to another one must not say that a move is unknown, or that nothing is prepared, when
the other one knows better. It could not change that either, since a change is a manifest, which the log refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ...schemas.errors import InvalidArgumentError, NotFoundError
from ...schemas.store.moving import (
    HandedOver,
    MoveBegin,
    MoveFetch,
    MoveLacking,
    MoveNote,
    MoveRound,
    Moves,
    MoveState,
    MoveStatus,
)
from ..catalog.catalog import Catalog
from ..commit.commit_log import CommitLog
from ..commit.numbered_writes import NumberedWrites
from ..commit.room import Room
from ..home.shared_root import SharedRoot
from ..maintenance.op import MaintenanceOp, TabletOp
from ..manifest.environment import Environment
from ..scan.plan.snapshots import Snapshots
from ..table.table import Table
from ..transaction.staging.area import StagingArea
from .arrivals import Arrivals, arrived
from .departures import Departures

_IDLE_SECONDS = 3600
"""A move without a step for this long is abandoned; until then its files are kept."""


class Mover:
    """The move verbs of a store, see ``schemas.verbs.Verbs``. Thread safe."""

    def __init__(
        self,
        catalog: Catalog,
        environment: Environment,
        log: CommitLog,
        writers: NumberedWrites,
        staging: StagingArea,
        snapshots: Snapshots,
        now: Callable[[], int],
        room: Room,
        notify: Callable[[], None],
        root: SharedRoot | None,
    ) -> None:
        """``now`` gives microseconds, and never jumps; ``notify`` wakes maintenance; ``root`` is that of the bucket
        that the store is in."""
        self._catalog = catalog
        self._environment = environment
        self._notify = notify
        self.departures = Departures(environment, writers, staging, catalog.tables, now, root)
        self.arrivals = Arrivals(environment, log, writers, snapshots, now, room, root)
        self._now = now

    def moves(self, table: str) -> Moves:
        """Return the unfinished moves of a table's tablets, and those by which tablets came.

        Raises:
            NotFoundError: there is no such table.
            UnavailableError: another process may have the store.
        """
        with self._surely():
            return self._moves(self._found(table))

    def _moves(self, found: Table) -> Moves:
        manifest = self._environment.manifest.current
        entry = next((each for each in manifest.tables if each.id == found.table_id), None)
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
                for _, moved in arrived(manifest, found)
            ),
        )

    def begin(self, asked: MoveBegin) -> MoveRound:
        """Source: begin a move or its next round. Raises as ``Departures.begin``."""
        found = self.departures.begin(asked, self._catalog.table(asked.table))
        self._notify()
        return found

    def receive(self, asked: MoveRound) -> MoveLacking:
        """Target: start a round; create its table if it is not here. Raises as ``Arrivals.receive``."""
        table = self._catalog.adopt(asked.table, asked.schema_, asked.options, asked.partitions, asked.source)
        return self.arrivals.receive(asked, table)

    def fetch(self, asked: MoveFetch) -> None:
        """Raises InvalidArgumentError: a store alone reaches no other."""
        raise InvalidArgumentError(
            "this server shares its tables with no other server, so there is no server to fetch a file from"
        )

    def prepare(self, asked: MoveRound) -> None:
        """Target: install the files of the last round in the manifest. Raises as ``Arrivals.prepare``."""
        self.arrivals.prepare(asked, self._catalog.table(asked.table))

    def take_over(self, asked: HandedOver) -> None:
        """Target: serve the tablet. Raises as ``Arrivals.take_over``."""
        self.arrivals.take_over(asked, self._found(asked.table))
        self._notify()

    def abort(self, move: str) -> MoveStatus:
        """Abort a move, unless a tablet was handed over by it from here; return its state.

        Raises:
            NotFoundError: there is no such move here.
            UnavailableError: another process may have the store.
        """
        with self._surely():
            is_known = self.departures.status(move).state is not MoveState.UNKNOWN
            status = self.departures.abort(move)
            if status.state is MoveState.UNKNOWN and not (self.arrivals.abort(move) or is_known):
                raise NotFoundError(f"there is no move {move!r} here: it has ended, was aborted, or never began")
            return status

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of dropping abandoned moves."""
        before = self._now() - _IDLE_SECONDS * 1_000_000
        return [
            TabletOp(f"abort move {move}", lambda: 1.0, partial(drop, move))
            for idle, drop in (
                (self.departures.idle, self.departures.abort),
                (self.arrivals.idle, self.arrivals.drop_idle),
            )
            for move in idle(before)
        ]

    @contextmanager
    def _surely(self) -> Iterator[None]:
        """Let nobody believe what the body has found, or missed, unless this process still had the store then. Raises
        UnavailableError."""
        try:
            yield
        finally:
            self._environment.mvcc.check_now()

    def _found(self, name: str) -> Table:
        """Return a table by name, including dropped ones that can be recalled, so that moves can finish."""
        found = [table for table in self._catalog.tables() if table.name == name]
        if not found:
            raise NotFoundError(f"there is no table {name!r}")
        return min(found, key=lambda table: table.dropped_until is not None)
