"""The services that the tablets of a store share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...schemas.store.placement import ServerIdentity
from ..cfile.cache import PageCache
from ..fs.filesystem import FileSystem
from ..mvcc.mvcc import MvccManager
from ..wal.store_log import StoreLog
from .damage import DamageRegistry
from .key_budget import KeyIndexBudget, unlimited
from .manifest import ManifestFile
from .read_only_latch import ReadOnlyLatch
from .work_counts import WorkCounts


class Files(Protocol):
    """The services of a store that are needed to read its files: a part of its environment."""

    @property
    def fs(self) -> FileSystem: ...
    @property
    def page_cache(self) -> PageCache: ...
    @property
    def key_index(self) -> KeyIndexBudget: ...


@dataclass(frozen=True, slots=True)
class LooseFiles:
    """The services that are needed to open a store's files outside of an open store."""

    fs: FileSystem
    page_cache: PageCache
    key_index: KeyIndexBudget = field(default_factory=unlimited)


@dataclass(frozen=True, slots=True)
class Environment:
    """The services that the tablets of a store share: the disk, the manifest and the log on it, visibility of commits,
    decompressed pages, memory for key indexes, the placement, the damaged files, the counts of maintenance."""

    fs: FileSystem
    manifest: ManifestFile
    wal: StoreLog
    mvcc: MvccManager
    page_cache: PageCache
    key_index: KeyIndexBudget = field(default_factory=unlimited)
    here: ServerIdentity | None = None
    """The placement, which decides which tablets of new tables and ranges are here; None: all."""
    damage: DamageRegistry = field(default_factory=DamageRegistry)
    work: WorkCounts = field(default_factory=WorkCounts)

    @property
    def latch(self) -> ReadOnlyLatch:
        """Whether the store may change; not if the manifest on disk is in doubt."""
        return self.manifest.latch

    def wait_until_settled(self, timestamp: int, lsn: int) -> None:
        """Wait until the commits up to ``timestamp``, logged up to ``lsn``, are visible, and durable in the log.

        Then the manifest may name a file with them. Visibility is not enough: a commit may have been acknowledged when
        the operating system had its record, and the log may never be shorter than what files hold.

        Raises:
            UnavailableError: the log has failed, or memory is inconsistent.
        """
        self.latch.check()
        self.mvcc.wait_for(timestamp)
        self.wal.wait(lsn)
