"""Outside: the part of a store's doors that leads past its process, to files which others build or read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..schemas.bulk import ImportBegin, ImportCommit, ImportPlan
from ..schemas.compaction import CompactionBegin, CompactionCommit, CompactionDone, CompactionPlan
from ..schemas.direct import PinnedTable, PinSnapshot
from ..schemas.write import WriteResult
from .bulk.imports import Imports
from .catalog import Catalog
from .direct.pins import Pins
from .distributed.compactions import Compactions
from .fs.filesystem import FileSystem
from .maintenance.manager import MaintenanceManager
from .snapshots import Snapshots


class Outside(ABC):
    """See ``schemas.service.StoreService`` for what the methods do."""

    _fs: FileSystem
    _catalog: Catalog
    _maintenance: MaintenanceManager
    _imports: Imports
    _pins: Pins
    _compactions: Compactions
    _snapshots: Snapshots

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

    def import_begin(self, asked: ImportBegin) -> ImportPlan:
        """See StoreService."""
        self._check_open()
        return self._imports.begin(asked, self._catalog.table(asked.table))

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

    def compaction_begin(self, asked: CompactionBegin) -> CompactionPlan:
        """See StoreService."""
        self._check_open()
        table = self._catalog.table(asked.table)
        plan = self._compactions.begin(asked, table, self._snapshots.ancient_history_mark(table))
        self._after_flush()
        return plan

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
