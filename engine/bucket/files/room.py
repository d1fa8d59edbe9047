"""The room on a cache's disk for a store's new files, which are written there before they are put."""

from __future__ import annotations

from contextlib import suppress

from ....schemas.errors import StorageFullError
from ...fs.filesystem import FileSystem, join
from .cache import DIRECTORY

_TRIAL = "trial"
_TRIAL_BYTES = 4096


def check_room(cache: FileSystem, mark_bytes: int) -> None:
    """Check that the disk of the cache has ``mark_bytes`` left, with the pieces that can be given up, and takes a file.

    Raises:
        StorageFullError: it has less.
        OSError: it takes no file.
    """
    free = cache.free_bytes("")
    if free < mark_bytes:
        free += _pieces_bytes(cache)
    if free < mark_bytes:
        raise StorageFullError(
            f"the disk of the cache has {free:,} bytes left, and the store needs {mark_bytes:,} "
            "(disk_low_bytes): free some space"
        )
    with suppress(FileNotFoundError):  # of a process that was killed
        cache.unlink(_TRIAL)
    file = cache.create(_TRIAL)
    try:
        file.append(bytes(_TRIAL_BYTES))
        file.flush()
    finally:
        file.close()
        cache.unlink(_TRIAL)


def _pieces_bytes(cache: FileSystem) -> int:
    """Return the bytes of all pieces in a cache that another one may be using."""
    size = 0
    with suppress(OSError):
        for name in cache.list(DIRECTORY):
            with suppress(FileNotFoundError):
                size += cache.size(join(DIRECTORY, name))
    return size
