"""Backups in a folder as a source for repairs: each tablet is temporarily restored into a store of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...clients.api.database import Database
from ...clients.jobs.backup.tablet_backup import backups_of_table, write_tablet
from ...clients.jobs.folder import Folder
from ...engine.options import StoreOptions
from ...engine.recovery.repair import Range
from ...engine.store import Store
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.write import Durability
from ...schemas.store.description import TableDescription
from ...schemas.store.store_key import StoreKey

_KEYS_AT_ONCE = 8_192


class FolderBackups:
    """The newest backups in a folder, for the command ``nyala repair``; a context manager. The folder is not changed.

    Restored tablets are in a temporary directory, which is removed at the end.
    """

    def __init__(self, place: str | Path, key: StoreKey | None = None) -> None:
        """``place`` is a path or a URI, as for jobs; ``key`` encrypts what is read from it into a temporary store."""
        self._key = key
        self._root = Folder.at(place)
        self._directory = tempfile.TemporaryDirectory(prefix="nyala-repair-")
        self._store: Store | None = None
        self._count = 0

    def __enter__(self) -> FolderBackups:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store:
            self._store.close()
        self._directory.cleanup()

    def of(self, about: TableDescription, tablet_ids: tuple[int, ...]) -> RestoredTablet:
        """See ``engine.repair.Backups``."""
        backups = backups_of_table(self._root, about)
        chain = backups.chain()
        if self._store is None:
            self._store = Store.open(self._directory.name, StoreOptions(durability=Durability.OS, key=self._key))
        self._count += 1
        name = f"backup_{self._count}"
        write_tablet(Database(self._store), name, chain, about, tablet_ids)
        newest = chain[-1][1]
        return RestoredTablet(self._store, name, newest.until, f"the backup of {newest.moment} in {backups.folder}")


class RestoredTablet:
    """A tablet's rows from a backup, for the command ``nyala repair``: in a table of a temporary store."""

    def __init__(self, store: Store, table: str, until: int, told: str) -> None:
        self._store = store
        self._table = table
        self.until = until
        self.told = told

    def rows_of(self, keys: pa.RecordBatch) -> pa.Table:
        """Return the rows of these keys that exist, in the order of the keys."""
        parts = (keys.slice(first, _KEYS_AT_ONCE) for first in range(0, keys.num_rows, _KEYS_AT_ONCE))
        return pa.concat_tables([self._store.get(self._table, part) for part in parts])

    def batches(self, between: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows between two keys, in key order."""
        lower, upper = between
        bounds: dict[str, Any] = {
            "key_lower": None if lower is None else (lower + b"\0").hex(),
            "key_upper": None if upper is None else upper.hex(),
        }
        yield from self._store.scan(ScanSpec(table=self._table, ordered=True, **bounds)).batches
