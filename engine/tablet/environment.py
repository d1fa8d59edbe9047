"""What the tablets of a store share."""

from __future__ import annotations

from dataclasses import dataclass

from ..cfile.cache import PageCache
from ..fs.filesystem import FileSystem
from ..mvcc.mvcc import MvccManager
from .manifest import ManifestFile


@dataclass(frozen=True, slots=True)
class Environment:
    """The seams: the disk, the manifest on it, which commits are visible, and decompressed pages."""

    fs: FileSystem
    manifest: ManifestFile
    mvcc: MvccManager
    page_cache: PageCache
