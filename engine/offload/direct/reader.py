"""Reads the files of a pinned snapshot in another process, without the store, with the same scan code."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Executor

import pyarrow as pa
from pydantic import ValidationError

from ....schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from ....schemas.limits.budget import Budget, BudgetShare
from ....schemas.protocol.service import ScanStream
from ....schemas.rows.scan import ScanSpec
from ....schemas.rows.scan_plan import ScanPlan
from ....schemas.store.direct import PinnedIn, PinnedTable
from ....schemas.table.table import TableOptions
from ...bucket import Bucket
from ...bucket.files import BucketFileSystem
from ...cfile.cache import PageCache
from ...filter.compiled import FilterCache
from ...fs.failures import named
from ...fs.far import FarFileSystem
from ...fs.filesystem import FileSystem
from ...fs.memory import MemoryFileSystem
from ...fs.subdirectory import DirectoryFileSystem
from ...manifest.environment import LooseFiles
from ...manifest.manifest import TabletEntry
from ...options import StoreOptions
from ...scan.plan.by_chunks import run, unmarked
from ...scan.plan.estimate import estimate
from ...scan.plan.resolve import ResolvedScan, resolve
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.open import open_tablet
from ...tablet.tablet import Tablet

_DEFAULTS = StoreOptions()
_CACHE_BYTES = 64 << 20
"""What a reader keeps of objects: enough for what it fetches ahead."""


class PinnedReader:
    """Some or all tablets of a pinned table, open for reading. Close it."""

    def __init__(self, pinned: PinnedTable, store: FileSystem, tablets: Collection[int] | None = None) -> None:
        """Open the files; ``store`` is the store's directory, or ``files_in_bucket``. Tablets outside ``tablets`` show
        no rows.

        Raises:
            NotFoundError: the files are gone.
            CorruptionError: a file is not what was written.
            UnavailableError: the disk failed.
        """
        self._pinned = pinned
        self._store = store
        self._filters = FilterCache(pinned.limits)
        self._tablets: list[Tablet] = []
        try:
            with named("the files of a pinned snapshot could not be opened"):
                self._check_there()
                found = LooseFiles(self._files(), PageCache())
                self._is_far = isinstance(found.fs, FarFileSystem)
                for each in pinned.tablets:
                    entry = TabletEntry.model_validate(each)
                    if tablets is not None and entry.id not in tablets:
                        entry = entry.model_copy(update={"rowsets": ()})
                    self._tablets.append(open_tablet(entry, pinned.schema_, found))
        except StoreError:
            self.close()
            self._check_there()
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
        scan = self._resolved(spec)
        memory = BudgetShare(Budget("groups and scans", _DEFAULTS.reads_bytes))
        marked = run(scan, pool, ahead, self._pinned.limits, memory)
        return ScanStream(scan.request.schema, scan.request.snapshot, self._read(unmarked(marked)))

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """Return how a scan would run, in parts of about ``split_bytes`` that can be read alone. Raises as ``scan``."""
        scan = self._resolved(spec)
        splits, explain = estimate(scan)
        return ScanPlan(
            snapshot=scan.request.snapshot, schema_version=scan.version.schema.version, splits=splits, explain=explain
        )

    def close(self) -> None:
        """Close the files; batches that were returned stay valid."""
        for tablet in self._tablets:
            tablet.close()

    def _resolved(self, spec: ScanSpec) -> ResolvedScan:
        pinned = self._pinned
        if spec.changes is not None or spec.as_of not in (None, pinned.snapshot):
            raise InvalidArgumentError(
                f"the table is pinned for the snapshot {pinned.snapshot} only: to read changes or another snapshot, "
                "scan through the server"
            )
        version = self._table.version
        chunk_bytes = _DEFAULTS.scan_batch_bytes
        request = resolve(spec, version, pinned.snapshot, None, self._filters, chunk_bytes, self._is_far)
        return ResolvedScan.of(spec, self._table, version, request)

    def _files(self) -> FileSystem:
        pinned = self._pinned
        return self._store if pinned.bucket else DirectoryFileSystem(self._store, pinned.directory)

    def _read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches. If one cannot be read because the pin has ended, say so."""
        try:
            yield from batches
        except StoreError:
            self._check_there()
            raise

    def _check_there(self) -> None:
        pinned = self._pinned
        there = pinned.bucket.manifest if pinned.bucket else pinned.directory
        with named("the files of a pinned snapshot could not be found"):
            if self._store.exists(there):
                return
        if pinned.ttl_seconds is None:
            what = "bucket of the store" if pinned.bucket else "data directory of the server"
            raise NotFoundError(
                f"there are no files of the pin {pinned.pin_id!r} here: this is not the {what}, or the pin was dropped"
            )
        where, why = ("bucket", "") if pinned.bucket else ("directory", ", or the server was restarted")
        raise NotFoundError(
            f"the files of pin {pinned.pin_id!r} are not in this {where}: it belongs to another store, or the "
            f"pin expired or was released{why}; pin the table again"
        )


def files_in_bucket(pinned: PinnedIn, bucket: Bucket) -> BucketFileSystem:
    """Return the files of a pinned table that are in a bucket, with a small cache in memory; close it."""
    cache = MemoryFileSystem(is_volatile=True)
    return BucketFileSystem(bucket, pinned.prefix, cache, _CACHE_BYTES, pinned.store_uuid, known=pinned.sizes)
