"""Reads the files of a pinned snapshot in another process, without the store, with the same scan code."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor

from pydantic import ValidationError

from ....schemas.description import ScanPlan
from ....schemas.direct import PinnedTable
from ....schemas.errors import CorruptionError, InvalidArgumentError, NotFoundError
from ....schemas.scan import ScanSpec
from ....schemas.service import ScanStream
from ....schemas.table import TableOptions
from ...cfile.cache import PageCache
from ...filter.compiled import FilterCache
from ...fs.failures import named
from ...fs.filesystem import FileSystem
from ...fs.subdirectory import DirectoryFileSystem
from ...manifest.environment import LooseFiles
from ...manifest.manifest import TabletEntry
from ...options import StoreOptions
from ...scan import scanning
from ...scan.chunk import ScanRequest
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.open import open_tablet
from ...tablet.tablet import Tablet

_DEFAULTS = StoreOptions()


class PinnedReader:
    """Some or all tablets of a pinned table, open for reading. Close it."""

    def __init__(self, pinned: PinnedTable, store: FileSystem, tablets: Collection[int] | None = None) -> None:
        """Open the files; ``store`` is the store's directory. Tablets outside ``tablets`` show no rows.

        Raises:
            NotFoundError: the files are gone.
            CorruptionError: a file is not what was written.
            UnavailableError: the disk failed.
        """
        self._pinned = pinned
        self._filters = FilterCache(pinned.limits)
        self._tablets: list[Tablet] = []
        try:
            with named("the files of a pinned snapshot could not be opened"):
                self._check_there(store)
                cache = PageCache()
                found = LooseFiles(DirectoryFileSystem(store, pinned.directory), cache)
                for each in pinned.tablets:
                    entry = TabletEntry.model_validate(each)
                    if tablets is not None and entry.id not in tablets:
                        entry = entry.model_copy(update={"rowsets": ()})
                    self._tablets.append(open_tablet(entry, pinned.schema_, found))
        except (CorruptionError, OSError):
            self.close()
            self._check_there(store)
            raise
        except ValidationError as error:
            raise InvalidArgumentError(f"this version cannot read this pin: {error}") from None
        version = TableVersion(pinned.schema_, TableOptions(), tuple(self._tablets), pinned.partitions)
        self._table = Table(pinned.table_id, pinned.table, version)

    def scan(self, spec: ScanSpec, pool: Executor, ahead: int = 2) -> ScanStream:
        """Start a scan at the pinned snapshot; ``pool`` reads ``ahead`` chunks at once.

        Raises:
            InvalidArgumentError: the scan asks for changes or another snapshot.
            InvalidArgumentError, NotFoundError: a column or filter is invalid.
        """
        request = self._resolved(spec)
        version, limits = self._table.version, self._pinned.limits
        wanted = scanning.wanted_tablets(spec, self._table, version, request)
        versions = scanning.pinned(spec, wanted.tablets, self._table, request)
        marked = scanning.run(spec, version, request, wanted.tablets, versions, pool, ahead, limits)
        return ScanStream(request.schema, request.snapshot, scanning.unmarked(marked))

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """Return how a scan would run, in parts of about ``split_bytes`` that can be read alone. Raises as ``scan``."""
        request = self._resolved(spec)
        version = self._table.version
        wanted = scanning.wanted_tablets(spec, self._table, version, request)
        versions = scanning.pinned(spec, wanted.tablets, self._table, request)
        splits, explain = scanning.estimate(spec, wanted, versions, version, request)
        return ScanPlan(
            snapshot=request.snapshot, schema_version=version.schema.version, splits=splits, explain=explain
        )

    def close(self) -> None:
        """Close the files; batches that were returned stay valid."""
        for tablet in self._tablets:
            tablet.close()

    def _resolved(self, spec: ScanSpec) -> ScanRequest:
        pinned = self._pinned
        if spec.changes is not None or spec.as_of not in (None, pinned.snapshot):
            raise InvalidArgumentError(
                f"files are pinned for one snapshot, {pinned.snapshot}: for another, scan through the server"
            )
        version = self._table.version
        chunk_bytes = _DEFAULTS.scan_batch_bytes
        return scanning.resolve(spec, version, pinned.snapshot, None, self._filters, chunk_bytes)

    def _check_there(self, store: FileSystem) -> None:
        if not store.exists(self._pinned.directory):
            raise NotFoundError(
                f"the files of pin {self._pinned.pin_id!r} are not in this directory: it is not the store's, or the "
                "pin expired, was released, or the server was restarted; pin the table again"
            )
