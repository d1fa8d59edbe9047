"""What all rewrites of files share: they leave nothing behind when they fail, and nobody's file goes too early.

1. The new files are written and synced, with the names that ``NewFiles`` gave out.
2. The manifest is committed: it names the new files and not the old ones. Before, a failure removes the new files; a
   crash leaves them to the sweep of the next start.
3. The caller swaps rowsets under the write lock, then retires the old files. Scans that still read them go on: what
   is mapped stays after its name is gone.

A failure between 2 and the end of the swap leaves files that hold what memory holds too: written once more, rows would
be there twice. So the store is halted then (`halted_if_half_done`); a restart goes by the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ...schemas.errors import StorageFullError
from ..delta.file import DeltaFile
from ..fs.failures import named
from ..rowset.base_file import ColumnsFile
from ..tablet import files
from ..tablet.environment import Environment
from ..tablet.manifest import TabletEntry
from ..tablet.open import remove_orphans


@contextmanager
def halted_if_half_done(tablet_id: int, environment: Environment) -> Iterator[None]:
    """Halt the store when the body, which edits the tablet in the manifest and then in memory, fails in between."""
    before = environment.manifest.current.tablet(tablet_id)
    try:
        yield
    except BaseException as error:
        now = environment.manifest.current.tablet(tablet_id)
        if now is not None and now is not before:
            environment.halt.stop(f"new files of tablet {tablet_id} could not be put in place ({error!r})")
        raise


class NewFiles:
    """The files of a tablet that are being written and that no manifest names yet."""

    def __init__(self, tablet_id: int, environment: Environment) -> None:
        self._tablet_id = tablet_id
        self._environment = environment
        self.paths: list[str] = []

    def name(self, kind: str) -> tuple[int, str]:
        """Return the id and the path of a file to be created; ``kind`` is base, undo or redo."""
        file_id = self._environment.manifest.new_id()
        self.paths.append(files.path(self._tablet_id, file_id, kind))
        return file_id, self.paths[-1]

    def commit(self, edit: Callable[[TabletEntry], TabletEntry]) -> None:
        """Make the names of the files durable, then the manifest that has them."""
        environment = self._environment
        environment.fs.sync_directory(files.directory(self._tablet_id))
        named_now, self.paths = self.paths, []  # whatever comes in between: the manifest may name them from here on
        try:
            environment.manifest.commit(lambda manifest: manifest.with_tablet(self._tablet_id, edit))
        except StorageFullError:
            self.paths = named_now
            raise


@contextmanager
def new_files(tablet_id: int, environment: Environment, what: str) -> Iterator[NewFiles]:
    """Give out names; when the body fails before its commit, the files go. After it, the body does the swap.

    Raises:
        StorageFullError, UnavailableError: for a failed call of the disk; the text says ``what`` could not be done.
    """
    new = NewFiles(tablet_id, environment)
    try:
        with halted_if_half_done(tablet_id, environment), named(what):
            yield new
    except BaseException:
        remove_orphans(environment, *new.paths)
        raise


def retire(environment: Environment, old: Iterable[DeltaFile | ColumnsFile]) -> None:
    """Remove files that neither the manifest nor the tablet's version names any more."""
    for file in old:
        file.close()
        remove_orphans(environment, file.path)
