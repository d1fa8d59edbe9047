"""The place of the manifest of a store, and the switch to a new one."""

from __future__ import annotations

from typing import Protocol

from ..fs.document import write
from ..fs.filesystem import FileSystem

PATH = "manifest"
NEW_PATH = "manifest.new"
COPY_PATH = "manifest.copy"
"""The copy, written at a clean stop."""


class ManifestPlace(Protocol):
    """The place of a store's manifest: takes one new manifest after the other. One thread at a time calls it."""

    def write(self, document: bytes) -> None:
        """Make a new manifest durable. It does not count yet: an error changes nothing.

        Raises:
            OSError: the disk is full, or fails.
            UnavailableError: it cannot be stored now.
        """
        ...

    def install(self, log_needed_from: int) -> None:
        """Make the manifest that was written last count, durably. It needs the log from a position on. After an error
        nobody knows whether it counts.

        Raises:
            OSError: the disk fails.
            UnavailableError: somebody else has the store now, or whether it counts cannot be known.
        """
        ...

    def copy(self, document: bytes) -> None:
        """Keep a copy of the manifest that counts, if this place keeps any. Raises OSError."""
        ...


class ManifestInDirectory:
    """The place of a manifest in a directory: a file that is replaced: ``manifest.new`` is written and synced, renamed,
    and the directory is synced."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def write(self, document: bytes) -> None:
        write(self._fs, NEW_PATH, document)

    def install(self, log_needed_from: int) -> None:
        del log_needed_from  # it is in the document
        self._replace(NEW_PATH, PATH)

    def copy(self, document: bytes) -> None:
        new = f"{COPY_PATH}.new"
        write(self._fs, new, document)
        self._replace(new, COPY_PATH)

    def _replace(self, new: str, path: str) -> None:
        self._fs.rename(new, path)
        self._fs.sync_directory("")
