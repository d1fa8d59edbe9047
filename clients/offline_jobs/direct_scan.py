"""Direct read: scans a table's files outside the server, in any number of processes.

The server flushes the table up to a snapshot and keeps the files for a time; any process that sees its directory, or
the bucket of its store, reads them with the engine. So bytes are decoded where they are used, and the server does no
work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from ...engine.bucket.opening import bucket_of
from ...engine.fs.filesystem import FileSystem
from ...engine.offload.direct.reader import PinnedReader, files_in_bucket
from ...engine.scan.read.pool import ScanPool
from ...schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.direct import PinnedTable, PinSnapshot
from ...schemas.store.pins import OpenPin
from ...schemas.table.names import Names, listed
from ..convert.where import Where, where_json
from .bulk_import import Directory, file_system, ran


@dataclass(frozen=True)
class DirectSplit:
    """A part of a direct scan, outside the server, that any process that sees the files can read. Can be pickled."""

    _pinned: PinnedTable
    _spec: ScanSpec
    _directory: Directory
    rows: int
    """An estimate from statistics."""

    def batches(self, threads: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows; up to ``threads`` threads read at once, by default only that of the caller.

        Raises:
            NotFoundError: the files are gone: the pin expired or was released, or the server was restarted.
        """
        with ScanPool(threads) as pool, _reader(self._pinned, self._directory, self._spec) as reader:
            yield from reader.scan(self._spec, pool, pool.ahead).batches


def read(split: DirectSplit) -> pa.Table:
    """Return the rows of a direct scan's split, read from the store's files: the function for executors."""
    return pa.Table.from_batches(split.batches(), split._spec.batch_schema(split._pinned.schema_.arrow))


@contextmanager
def _reader(pinned: PinnedTable, directory: Directory, spec: ScanSpec) -> Iterator[PinnedReader]:
    tablets = None if spec.tablet is None else [spec.tablet]
    with _files(pinned, directory) as files:
        reader = PinnedReader(pinned, files, tablets)
        try:
            yield reader
        finally:
            reader.close()


@contextmanager
def _files(pinned: PinnedTable, directory: Directory) -> Iterator[FileSystem]:
    if pinned.bucket is None:
        yield file_system(directory)
        return
    files = files_in_bucket(pinned.bucket, bucket_of(str(directory)))
    try:
        yield files
    finally:
        files.close()


class DirectScan:
    """A direct scan: it reads a store's files outside the server. They are kept until ``close`` or the end of a
    ``with``; see ``Table.direct_scan``. Those of a kept pin stay; see ``Database.pinned_scan``."""

    def __init__(self, store: StoreService, pinned: PinnedTable, spec: ScanSpec, directory: Directory) -> None:
        self._store = store
        self._pinned = pinned
        self._spec = spec
        with _reader(pinned, directory, spec) as reader:
            plan = reader.plan(spec)
        parts = (
            (split, {"tablet": split.tablet, "key_lower": split.key_lower, "key_upper": split.key_upper})
            for split in plan.splits
        )
        self.splits = [
            DirectSplit(pinned, spec.model_copy(update=update), directory, split.rows) for split, update in parts
        ]
        """The parts that make up the scan."""

    @property
    def snapshot(self) -> int:
        """The timestamp at which the scan reads."""
        return self._pinned.snapshot

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._spec.batch_schema(self._pinned.schema_.arrow)

    def to_arrow(self, executor: Any = None) -> pa.Table:
        """Return all rows, in any order; ``executor`` reads the splits, by default threads of this process."""
        return pa.concat_tables([self.schema.empty_table(), *ran(executor, read, self.splits)])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for split in self.splits:
            yield from split.batches()

    def renew(self) -> None:
        """Keep the files for another ``ttl_seconds``; those of a kept pin stay anyway. Raises NotFoundError if they are
        gone."""
        if self._pinned.ttl_seconds is not None:
            self._store.renew_pin(self._pinned.pin_id)

    def close(self) -> None:
        """Let the server release the files, unless it has. Splits being read finish; no other can start."""
        if self._pinned.ttl_seconds is None:
            return
        with suppress(NotFoundError):
            self._store.release_pin(self._pinned.pin_id)

    def __enter__(self) -> DirectScan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def direct_scan(
    store: StoreService,
    table: str,
    columns: Names | None = None,
    where: Where = None,
    as_of: Any = None,
    *,
    directory: Directory | None = None,
    split_bytes: int | None = None,
    ttl_seconds: int = 3600,
) -> DirectScan:
    """Pin a snapshot of a table and plan a direct scan of its files, outside the server: see ``Table.direct_scan``."""
    wanted = None if columns is None else listed(columns)
    spec = ScanSpec(table=table, columns=wanted, where=where_json(where), split_bytes=split_bytes).checked()
    pinned = store.pin_snapshot(PinSnapshot(table=table, as_of=as_of, ttl_seconds=ttl_seconds))
    try:
        return DirectScan(store, pinned, spec.pinned(pinned.snapshot), _place(store, pinned, directory))
    except StoreError:
        store.release_pin(pinned.pin_id)
        raise


def pinned_scan(
    store: StoreService,
    pin_id: str,
    table: str | None = None,
    columns: Names | None = None,
    where: Where = None,
    *,
    directory: Directory | None = None,
    split_bytes: int | None = None,
) -> DirectScan:
    """Plan a direct scan of the files that a kept pin keeps, outside the server: see ``Database.pinned_scan``."""
    pinned = store.open_pin(OpenPin(pin_id=pin_id, table=table)).pinned
    wanted = None if columns is None else listed(columns)
    spec = ScanSpec(table=pinned.table, columns=wanted, where=where_json(where), split_bytes=split_bytes).checked()
    return DirectScan(store, pinned, spec.pinned(pinned.snapshot), _place(store, pinned, directory))


def _place(store: StoreService, pinned: PinnedTable, directory: Directory | None) -> Directory:
    """Return where the files of a pin are for this process and its executors."""
    place = directory or (pinned.bucket.url if pinned.bucket else getattr(store, "directory", None))
    if place is None:
        raise InvalidArgumentError(
            "give the server's data directory, as this process and its executors see it: --directory DIR (in Python "
            "directory=)"
        )
    return place
