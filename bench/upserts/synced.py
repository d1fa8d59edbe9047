"""Durability for the stores that are files which nobody syncs: the benchmark does, in the time."""

import os
from pathlib import Path


class NewFiles:
    """The files of a folder that this process has not synced yet. Such stores never change a file that they wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._synced: set[str] = set(self._below(folder)) if folder.exists() else set()

    def sync(self) -> None:
        """Sync the files that are new, and the folders that name them."""
        new = [path for path in self._below(self.folder) if path not in self._synced]
        for path in {*new, *(os.path.dirname(path) for path in new)}:
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # a try of another process that came to nothing, and was cleared away
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._synced.update(new)

    def _below(self, folder: Path) -> list[str]:
        paths = []
        waiting = [str(folder)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    paths.append(entry.path)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        return paths
