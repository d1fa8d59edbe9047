"""Files and directories that track which of their changes are durable.

After a power failure the disk may have (the model of SQLite's ``test6.c``):

* of each directory, its durable state plus a PREFIX of the changes to its names since its last ``sync_directory``;
* of each file, its durable state plus, of every write since its last ``sync``, independently: nothing, a part that
  ends at a sector, scattered sectors, garbage, or all of it;
* zeroes in preallocated bytes that were never written.
"""

from __future__ import annotations

import itertools
from typing import Protocol

SECTOR_BYTES = 512


class Chance(Protocol):
    """Decides what a power failure of the disk in memory leaves: the used part of ``random.Random``."""

    def random(self) -> float: ...
    def randint(self, a: int, b: int) -> int: ...
    def randrange(self, start: int, stop: int) -> int: ...
    def randbytes(self, n: int) -> bytes: ...


class DurableFile:
    """A file of the disk in memory. ``content`` ends with the last byte written; from there to ``size`` the file has
    preallocated zeroes."""

    def __init__(self, size: int, content: bytes = b"", is_volatile: bool = False) -> None:
        """If ``is_volatile``, nothing of it outlives a power failure, and nothing is kept for one."""
        self.content = bytearray(content)
        self.size = size
        self._is_volatile = is_volatile
        self.names = 1
        """The number of directory entries that refer to it."""
        self._durable = bytearray(content)
        self._durable_size = size
        self._pending: list[tuple[int, bytes]] = []

    def write(self, offset: int, content: bytes) -> None:
        _overwrite(self.content, offset, content)
        self.size = max(self.size, len(self.content))
        if not self._is_volatile:
            self._pending.append((offset, content))

    def read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        return bytes(self.content[offset : offset + length]).ljust(length, b"\0")

    def sync(self) -> None:
        for offset, content in self._pending:
            _overwrite(self._durable, offset, content)
        self._pending.clear()
        self._durable_size = self.size

    def crash_image(self, random: Chance) -> DurableFile:
        content = bytearray(self._durable)
        for offset, written in self._pending:
            for start, survivor in _survivors(offset, written, random):
                _overwrite(content, start, survivor)
        return DurableFile(max(self._durable_size, len(content)), bytes(content))


class DurableDirectory:
    """A directory of the disk in memory. ``entries`` is what callers see; ``_pending`` holds the changes that a power
    failure may undo."""

    def __init__(self, is_volatile: bool = False) -> None:
        """If ``is_volatile``, nothing of it outlives a power failure, and nothing is kept for one: else what was
        unlinked takes memory until the directory is synced."""
        self._is_volatile = is_volatile
        self.entries: dict[str, DurableFile | DurableDirectory] = {}
        self._durable: dict[str, DurableFile | DurableDirectory] = {}
        self._pending: list[tuple[_Change, ...]] = []

    def change(self, *changes: _Change) -> None:
        """Apply the changes, which become durable together or not at all."""
        _apply(self.entries, changes)
        if not self._is_volatile:
            self._pending.append(changes)

    def sync(self) -> None:
        self._pending.clear()
        if not self._is_volatile:
            self._durable = dict(self.entries)

    def crash_image(self, random: Chance) -> DurableDirectory:
        names = dict(self._durable)
        for changes in self._pending[: random.randint(0, len(self._pending))]:
            _apply(names, changes)
        image = DurableDirectory()
        image.entries = {name: node.crash_image(random) for name, node in names.items()}
        image._durable = dict(image.entries)
        return image

    def file_bytes(self) -> int:
        return sum(node.size if isinstance(node, DurableFile) else node.file_bytes() for node in self.entries.values())


_Change = tuple[str, DurableFile | DurableDirectory | None]


def _apply(names: dict[str, DurableFile | DurableDirectory], changes: tuple[_Change, ...]) -> None:
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _overwrite(content: bytearray, offset: int, written: bytes) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(written)] = written


def _survivors(offset: int, written: bytes, random: Chance) -> list[tuple[int, bytes]]:
    """Return what the disk may have of one unsynced write, as (offset, bytes)."""
    fate = random.random()
    if fate < 0.35:
        return []
    if fate < 0.55:
        end = random.randrange(offset, offset + len(written) + 1) // SECTOR_BYTES * SECTOR_BYTES
        return [(offset, written[: max(0, end - offset)])]
    if fate < 0.65:
        return [sector for sector in _sectors(offset, written) if random.random() < 0.5]
    if fate < 0.75:
        return [(offset, random.randbytes(len(written)))]
    return [(offset, written)]


def _sectors(offset: int, written: bytes) -> list[tuple[int, bytes]]:
    """Split a write at the disk's sectors."""
    end = offset + len(written)
    cuts = [
        offset,
        *range(offset // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES),
        end,
    ]
    return [(start, written[start - offset : stop - offset]) for start, stop in itertools.pairwise(cuts)]
