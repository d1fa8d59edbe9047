"""The directories of tablets: made before the manifest names a tablet, removed when it no longer does."""

from __future__ import annotations

from collections.abc import Iterable

from ..fs.failures import named
from ..manifest import files
from ..manifest.environment import Environment
from .open import remove_orphans
from .tablet import Tablet


def make_directories(environment: Environment, tablets: Iterable[Tablet]) -> None:
    """Make the directories of new tablets, durably. Raises StorageFullError or UnavailableError."""
    fs = environment.fs
    with named("the directory of a tablet could not be created"):
        for tablet in tablets:
            fs.make_directory(files.directory(tablet.directory_id))
        fs.sync_directory(files.ROOT)


def retire(environment: Environment, tablets: Iterable[Tablet], why: str) -> None:
    """Stop maintenance of tablets that the manifest no longer names, and delete their files.

    Waits for running work. Running scans keep what they hold open, and nothing of it is cached any more.
    """
    for tablet in tablets:
        with tablet.maintenance_lock:
            tablet.retired = why
            tablet.close()  # pages of deltas that stay in the cache would hold their files open
            _remove(environment, tablet)


def _remove(environment: Environment, tablet: Tablet) -> None:
    """Delete the files of a tablet; the next start removes what cannot be deleted."""
    fs, directory = environment.fs, files.directory(tablet.directory_id)
    tablets = (other for table in environment.manifest.current.tables for other in table.tablets)
    try:
        if any(other.home == tablet.directory_id for other in tablets):
            remove_orphans(environment, *_paths(tablet))
            return
        for name in fs.list(directory):
            fs.unlink(f"{directory}/{name}")
        fs.remove_directory(directory)
    except OSError:
        return


def _paths(tablet: Tablet) -> list[str]:
    rowsets = tablet.version.on_disk
    more = [file.path for rowset in rowsets for file in (*rowset.columns_files, *rowset.deltas.files)]
    return [*(rowset.path for rowset in rowsets), *more]
