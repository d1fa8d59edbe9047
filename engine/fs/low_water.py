"""LowWater: refuses writes while the disk is nearly full, so that flushes and compactions still find room on it."""

from __future__ import annotations

from ...schemas.errors import StorageFullError
from .filesystem import FileSystem

_PARTS, _MOST_BYTES = 100, 256 << 20
"""The mark of a store that is given none: a hundredth of the disk, at most so much."""


def low_mark(disk: FileSystem, given_bytes: int | None) -> int:
    """Return below how many free bytes a disk is nearly full: what is given, else by its size. Raises OSError."""
    return min(disk.total_bytes("") // _PARTS, _MOST_BYTES) if given_bytes is None else given_bytes


class LowWater:
    """Tells when the disk of one store is nearly full, so that writes are refused. Measured when memory is; below the
    mark, before every write, so that writes continue as soon as there is room again."""

    def __init__(self, fs: FileSystem, mark_bytes: int | None) -> None:
        self._fs = fs
        self._given = mark_bytes
        self.is_low = False
        """Whether the disk was below its mark when it was last measured."""
        self._measure()

    def check(self) -> None:
        """Measure the disk.

        Raises:
            StorageFullError: it is below its mark.
        """
        if why := self.why():
            raise StorageFullError(why)

    def why(self) -> str:
        """Measure the disk, and return why writes are refused; empty if it is not below its mark."""
        free, mark = self._measure()
        if not self.is_low:
            return ""
        return (
            f"the disk has {free:,} bytes left, and writes stop at {mark:,} (disk_low_bytes): free some space; "
            "reads continue, and writes resume when there is room"
        )

    def mark_bytes(self) -> int:
        """Return the mark."""
        return self._measure()[1]

    def _measure(self) -> tuple[int, int]:
        """Return the bytes that are free, and the mark."""
        try:
            free, mark = self._fs.free_bytes(""), low_mark(self._fs, self._given)
        except OSError:  # a disk that does not tell fails the write itself, if it is broken
            free = mark = 0
        self.is_low = free < mark
        return free, mark
