"""Keeps old files under ``damaged/`` before they are removed: a repair destroys nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.errors import UnreadableFileError
from ...fs.copy import bring
from ...fs.filesystem import FileSystem, join, parent_of
from .report import ROOT

_PARTIAL = ".partial"


def keep(fs: FileSystem, paths: Sequence[str]) -> None:
    """Link files into ``damaged/`` before a repair removes them, durably; skips those that are there already, or
    missing."""
    directories = {parent_of(join(ROOT, path)) for path in paths}
    for directory in sorted(directories):
        fs.make_directory(directory)
    for path in paths:
        kept = join(ROOT, path)
        if fs.exists(path) and not fs.exists(kept):
            try:
                if fs.exists(f"{kept}{_PARTIAL}"):
                    fs.unlink(f"{kept}{_PARTIAL}")
                bring(fs, path, fs, f"{kept}{_PARTIAL}")
                fs.rename(f"{kept}{_PARTIAL}", kept)  # without hard links, a crash leaves a partial copy
            except OSError as error:
                why = f"it cannot be moved to {ROOT}/ ({error.strerror}): move it away by hand"
                raise UnreadableFileError(path, why) from error
    above = {parent_of(directory) for directory in directories}
    for directory in (*sorted(directories), *sorted(above - directories - {""}), ""):
        fs.sync_directory(directory)


def set_aside(fs: FileSystem, path: str) -> None:
    """Copy a file that a repair will rewrite under the same name to its own name under ``damaged/``, durably."""
    fs.make_directory(ROOT)
    number = 1 + sum(name.startswith(f"{path}.") for name in fs.list(ROOT))
    bring(fs, path, fs, join(ROOT, f"{path}.{number}"))
    fs.sync_directory(ROOT)
    fs.sync_directory("")
