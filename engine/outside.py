"""Outside: the part of a store's doors that leads past its process, to files which others build or read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from ..schemas.bulk import ImportBegin, ImportCommit, ImportPlan
from ..schemas.compaction import CompactionBegin, CompactionCommit, CompactionDone, CompactionPlan
from ..schemas.direct import PinnedTable, PinSnapshot
from ..schemas.errors import InvalidArgumentError
from ..schemas.moving import (
    HandedOver,
    MoveBegin,
    MoveFetch,
    MoveFile,
    MoveHandOver,
    MoveLacking,
    MoveProgress,
    MoveRead,
    MoveRound,
    Moves,
    MoveStatus,
)
from ..schemas.write import WriteResult
from .catalog.catalog import Catalog
from .damage import DamageRegistry, noticing
from .fs.filesystem import FileSystem
from .maintenance.manager import MaintenanceManager
from .maintenance.op import MaintenanceOp
from .moving.moves import Mover
from .offload.bulk.imports import Imports
from .offload.direct.pins import Pins
from .offload.merge.compactions import Compactions
from .scan.snapshots import Snapshots


class Outside(ABC):
    """See ``schemas.service.StoreService`` for what the methods do."""

    damage: DamageRegistry
    _fs: FileSystem
    _catalog: Catalog
    _maintenance: MaintenanceManager
    _imports: Imports
    _pins: Pins
    _compactions: Compactions
    _snapshots: Snapshots
    _mover: Mover

    @abstractmethod
    def _check_open(self) -> None:
        """Raise UnavailableError when the store is closed."""

    @abstractmethod
    def _after_flush(self) -> None:
        """Let waiting writers in, and go on with what a flush allows."""

    @property
    def directory(self) -> FileSystem:
        """Where the store lies, for those in this process who build files for it or read them."""
        return self._fs

    def _removals(self) -> list[MaintenanceOp]:
        """Return the work of dropping what was kept for others who did not come back."""
        kept = self._imports, self._pins, self._compactions, self._mover
        return [operation for each in kept for operation in each.removals()]

    def import_begin(self, asked: ImportBegin) -> ImportPlan:
        """See StoreService."""
        self._check_open()
        return self._imports.begin(asked, self._catalog.table(asked.table))

    @noticing
    def import_commit(self, asked: ImportCommit) -> WriteResult:
        """See StoreService."""
        self._check_open()
        result = self._imports.commit(asked)
        self._maintenance.notify()
        return result

    def import_abort(self, import_id: str) -> None:
        """See StoreService."""
        self._check_open()
        self._imports.abort(import_id)

    @noticing
    def pin_snapshot(self, asked: PinSnapshot) -> PinnedTable:
        """See StoreService."""
        self._check_open()
        table = self._catalog.table(asked.table)
        return self._pins.pin(asked, table, self._snapshots.of(asked.as_of, table, "as_of"))

    def renew_pin(self, pin_id: str) -> None:
        """See StoreService."""
        self._check_open()
        self._pins.renew(pin_id)

    def release_pin(self, pin_id: str) -> None:
        """See StoreService."""
        self._check_open()
        self._pins.release(pin_id)

    @noticing
    def compaction_begin(self, asked: CompactionBegin) -> CompactionPlan:
        """See StoreService."""
        self._check_open()
        table = self._catalog.table(asked.table)
        plan = self._compactions.begin(asked, table, self._snapshots.ancient_history_mark(table))
        self._after_flush()
        return plan

    @noticing
    def compaction_commit(self, asked: CompactionCommit) -> CompactionDone:
        """See StoreService."""
        self._check_open()
        done = self._compactions.commit(asked)
        self._after_flush()
        self._maintenance.notify()
        return done

    def compaction_renew(self, compaction_id: str) -> None:
        """See StoreService."""
        self._check_open()
        self._compactions.renew(compaction_id)

    def compaction_abort(self, compaction_id: str) -> None:
        """See StoreService."""
        self._check_open()
        self._compactions.abort(compaction_id)

    # Moves of tablets: see ``schemas.moving.MovingService``

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """Not possible. Raises InvalidArgumentError."""
        raise InvalidArgumentError(
            "a tablet moves between servers that share a table: connect to one of them, with nyala.connect"
        )

    def moves(self, table: str) -> Moves:
        """See MovingService."""
        self._check_open()
        return self._mover.of(self._mover.table(table))

    @noticing
    def move_begin(self, asked: MoveBegin) -> MoveRound:
        """See MovingService."""
        self._check_open()
        found = self._mover.departures.begin(asked, self._catalog.table(asked.table))
        self._maintenance.notify()
        return found

    def move_round(self, move: str) -> MoveRound:
        """See MovingService."""
        self._check_open()
        return self._mover.departures.round(move)

    def move_read(self, asked: MoveRead) -> Iterator[bytes]:
        """See MovingService."""
        self._check_open()
        return self._mover.departures.read(asked)

    def move_receive(self, asked: MoveRound) -> MoveLacking:
        """See MovingService."""
        self._check_open()
        table = self._catalog.adopt(asked.table, asked.schema_, asked.options, asked.partitions, asked.source)
        return self._mover.arrivals.receive(asked, table)

    def move_fetch(self, asked: MoveFetch) -> None:
        """Not possible: a store alone reaches no other. Raises InvalidArgumentError."""
        raise InvalidArgumentError("a store that shares its tables with no other has nowhere to fetch a file from")

    def move_write(self, move: str, file: MoveFile, chunks: Iterable[bytes]) -> None:
        """Take in a file of a tablet that moves here, as ``move_fetch`` brings it."""
        self._check_open()
        self._mover.arrivals.write(move, file, chunks)

    def move_prepare(self, asked: MoveRound) -> None:
        """See MovingService."""
        self._check_open()
        self._mover.arrivals.prepare(asked, self._catalog.table(asked.table))

    @noticing
    def move_hand_over(self, asked: MoveHandOver) -> HandedOver:
        """See MovingService. Whether the target has prepared the round is for the caller to know."""
        self._check_open()
        return self._mover.departures.hand_over(asked)

    def move_take_over(self, asked: HandedOver) -> None:
        """See MovingService."""
        self._check_open()
        self._mover.arrivals.take_over(asked, self._mover.table(asked.table))
        self._maintenance.notify()

    def move_forget(self, move: str) -> None:
        """See MovingService."""
        self._check_open()
        self._mover.departures.forget(move)

    def move_status(self, move: str) -> MoveStatus:
        """See MovingService."""
        self._check_open()
        return self._mover.departures.status(move)

    def move_abort(self, move: str) -> MoveStatus:
        """See MovingService. At the target the caller must know that the source has given it up."""
        self._check_open()
        return self._mover.abort(move)
