"""The directories of the processes of one store: the first in the data directory itself, the others below it.

    DATA/                    the store of p0: an ordinary store, with a manifest
    DATA/processes/p1/       the store of p1, and so on
    DATA/processes/p0.sock   where p0 listens

So a store served by one process becomes that of p0 as it is. How many processes a store has is what is on disk.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...engine.fs.local import LocalFileSystem
from ...schemas.errors import InvalidArgumentError
from ...schemas.store.placement import Placement

FOLDER = "processes"
PROCESSES_MAX = 64
_SOCKET_BYTES_MAX = 107
"""The longest path of a Unix socket."""
_RETIRED = ".retired"


@dataclass(frozen=True, slots=True)
class ProcessLayout:
    """The directories and sockets of the processes that serve the store in ``data``, an absolute path."""

    data: Path

    @property
    def folder(self) -> Path:
        """What the processes have beside the store of the first."""
        return self.data / FOLDER

    def count(self) -> int:
        """Return how many processes the store has; 1 for a store of one process, or none."""
        found = [number for number in self._numbers() if (self.directory(f"p{number}") / "manifest").exists()]
        return 1 + max(found, default=0)

    def begun(self) -> list[Path]:
        """Return the directories of further processes, which never came so far as to have a store."""
        return [self.directory(f"p{number}") for number in self._numbers() if number >= self.count()]

    def _numbers(self) -> list[int]:
        return sorted(int(name[1:]) for name in _names(self.folder) if re.fullmatch(r"p[1-9]\d*", name))

    def directory(self, name: str) -> Path:
        """Return the data directory of a process."""
        return self.data if name == "p0" else self.folder / name

    def directories(self) -> dict[str, Path]:
        """Return the data directories of all processes by their names."""
        return {name: self.directory(name) for name in names(self.count())}

    def socket(self, name: str) -> Path:
        """Return where a process listens."""
        return self.folder / f"{name}.sock"

    def placement(self, count: int) -> Placement:
        """Return the placement of ``count`` processes."""
        return Placement(servers={name: (f"grpc+unix://{self.socket(name)}",) for name in names(count)})

    def check_paths(self, count: int) -> None:
        """Raise InvalidArgumentError if the path of a socket of ``count`` processes is too long."""
        longest = os.fsencode(self.socket(f"p{count - 1}"))
        if len(longest) > _SOCKET_BYTES_MAX:
            raise InvalidArgumentError(
                f"the path of the data directory is too long for --processes: {os.fsdecode(longest)} has "
                f"{len(longest)} bytes, and the path of a socket at most {_SOCKET_BYTES_MAX}; use a directory with a "
                "shorter path"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other servers off the store. Makes the folder, which only this user may enter: the sockets in it have no
        other guard. Finishes a ``retire`` that was interrupted.

        Raises:
            UnavailableError: another server has the store.
        """
        LocalFileSystem(self.folder).make_directory("")
        self.folder.chmod(0o700)
        with LocalFileSystem(self.folder).lock("lock"):
            for name in _names(self.folder):
                if name.endswith(_RETIRED):
                    shutil.rmtree(self.folder / name)
            yield

    def retire(self, gone: Sequence[str]) -> None:
        """Delete the directories of processes that have no tablets any more; the caller holds the lock."""
        for name in reversed(gone):
            retired = self.folder / f"{name}{_RETIRED}"
            self.directory(name).rename(retired)
            _sync(self.folder)
            shutil.rmtree(retired)
        if self.count() == 1:
            shutil.rmtree(self.folder)


def names(count: int) -> list[str]:
    """Return the names of the ``count`` processes of a store."""
    return [f"p{number}" for number in range(count)]


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
