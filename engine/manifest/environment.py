"""What the tablets of a store share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...schemas.placement import ServerIdentity
from ..cfile.cache import PageCache
from ..damage import DamageRegistry
from ..fs.filesystem import FileSystem
from ..mvcc.mvcc import MvccManager
from ..wal.log import WriteAheadLog
from .key_budget import KeyIndexBudget, unlimited
from .manifest import ManifestFile
from .read_only_latch import ReadOnlyLatch


class Files(Protocol):
    """The part of an environment that reading files takes."""

    @property
    def fs(self) -> FileSystem: ...
    @property
    def page_cache(self) -> PageCache: ...
    @property
    def key_index(self) -> KeyIndexBudget: ...


@dataclass(frozen=True, slots=True)
class LooseFiles:
    """What it takes to open files that no store has open here."""

    fs: FileSystem
    page_cache: PageCache
    key_index: KeyIndexBudget = field(default_factory=unlimited)


@dataclass(frozen=True, slots=True)
class Environment:
    """The seams: the disk, the manifest and the log on it, which commits are visible, decompressed pages, memory for
    key indexes, the placement, the damaged files."""

    fs: FileSystem
    manifest: ManifestFile
    wal: WriteAheadLog
    mvcc: MvccManager
    page_cache: PageCache
    key_index: KeyIndexBudget = field(default_factory=unlimited)
    here: ServerIdentity | None = None
    """Which tablets of new tables and ranges are this store's; None: all are."""
    damage: DamageRegistry = field(default_factory=DamageRegistry)

    @property
    def latch(self) -> ReadOnlyLatch:
        """Whether the store may be changed: not any more when the manifest on disk is in doubt."""
        return self.manifest.latch

    def wait_until_settled(self, timestamp: int, lsn: int) -> None:
        """Return when the commits up to ``timestamp``, logged up to ``lsn``, are visible, and durable in the log.

        A file that holds them may be named by the manifest then. Visible alone is not enough: a commit may have been
        acknowledged when the operating system had its record, and the log may never be shorter than what files hold.

        Raises:
            UnavailableError: the log has failed, or what is in memory is not what it should be.
        """
        self.latch.check()
        self.mvcc.wait_for(timestamp)
        self.wal.wait(lsn)
