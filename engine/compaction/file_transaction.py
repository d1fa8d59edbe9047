"""What all rewrites of files share: they leave nothing behind when they fail, and nobody's file goes too early.

1. The new files are written and synced, with the names that ``NewFiles`` gave out.
2. The manifest is committed: it names the new files and not the old ones. Before, a failure removes the new files; a
   crash leaves them to the sweep of the next start.
3. The caller replaces rowsets under the write lock, then retires the old files. Scans that still read them go on: what
   is mapped stays after its name is gone.

The files of many tablets may be committed together, by one manifest (`commit_together`).

A failure between 2 and the end of the switch-over leaves files that hold what memory holds too: a second flush would
write those rows twice. So the store is made read-only then (`read_only_if_half_done`); a restart goes by the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...schemas.errors import StorageFullError
from ..delta.file import DeltaFile
from ..fs.failures import named
from ..fs.together import sync_directories
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.manifest import TabletEntry
from ..rowset.base_file import ColumnsFile
from ..rowset.diskrowset import DiskRowSet
from ..tablet.open import remove_orphans
from ..tablet.tablet import Tablet


@contextmanager
def read_only_if_half_done(tablet_id: int, environment: Environment) -> Iterator[None]:
    """Make the store read-only when the body, which edits the manifest and then memory, fails in between."""
    before = environment.manifest.current.tablet(tablet_id)
    try:
        yield
    except BaseException as error:
        now = environment.manifest.current.tablet(tablet_id)
        # By the rowsets: up to where files hold the log is noted in the entry by others at any moment.
        if now is not None and (before is None or now.rowsets is not before.rowsets):
            environment.latch.stop(f"new files of tablet {tablet_id} could not be installed ({error!r})")
        raise


class NewFiles:
    """The files of a tablet that are being written, and slots of rowsets in them, which no manifest names yet."""

    def __init__(self, tablet: Tablet, environment: Environment) -> None:
        self._tablet = tablet
        self._environment = environment
        self._paths: list[str] = []
        self._slots: list[int] = []

    def name(self, kind: str) -> tuple[int, str]:
        """Return the id and the path of a file to be created; ``kind`` is base, undo or redo."""
        file_id = self._environment.manifest.new_id()
        self._paths.append(files.path(self._tablet.directory_id, file_id, kind))
        return file_id, self._paths[-1]

    def brought(self, file_id: int, kind: str) -> str:
        """Return the path for a file that was written elsewhere, by an id that was given out before."""
        self._paths.append(files.path(self._tablet.directory_id, file_id, kind))
        return self._paths[-1]

    def take_slot(self, rowset: DiskRowSet) -> None:
        """Give a new rowset, which nobody knows yet, its slot. Raises UnavailableError when there is none left."""
        with self._tablet.write_lock:
            rowset.slot = self._tablet.free_slot()
            self._tablet.take_slot(rowset)
        self._slots.append(rowset.slot)

    def commit(self, edit: Callable[[TabletEntry], TabletEntry]) -> None:
        """Make the names of the files durable, then the manifest that has them. Raises what ``ManifestFile.commit``
        does."""
        _commit(self._environment, [(self, edit)])

    @property
    def tablet_id(self) -> int:
        """The tablet that the files are of."""
        return self._tablet.tablet_id

    @property
    def directory_id(self) -> int:
        """The number of the directory that they are in."""
        return self._tablet.directory_id

    def hand_over(self) -> list[str]:
        """Leave the files to the manifest, which may name them from here on, and return their paths."""
        paths, self._paths = self._paths, []
        return paths

    def take_back(self, paths: list[str]) -> None:
        """Answer for files again that the manifest does not name after all."""
        self._paths = paths

    def keep_slots(self) -> None:
        """Leave the slots to the tablet: the manifest names what is in them."""
        self._slots.clear()

    def undo(self) -> None:
        """Give the slots back, which no location names, and remove the files unless the manifest may name them."""
        with self._tablet.write_lock:
            for slot in self._slots:
                self._tablet.drop_slot(slot)
        remove_orphans(self._environment, *self._paths)


@dataclass(frozen=True, slots=True, eq=False)
class UncommittedFiles:
    """New files of a tablet, all of them written, in the body of ``new_files``."""

    new: NewFiles
    edit: Callable[[TabletEntry], TabletEntry]
    """What the manifest is to say of them."""
    put: Callable[[], object]
    """Puts them in place, once it says so."""


def commit_together(environment: Environment, staged: Sequence[UncommittedFiles]) -> None:
    """Commit the new files of several tablets by one manifest, and put them in place. Raises as ``NewFiles.commit``."""
    _commit(environment, [(each.new, each.edit) for each in staged])
    for each in staged:
        each.put()


def _commit(environment: Environment, edits: Sequence[tuple[NewFiles, Callable[[TabletEntry], TabletEntry]]]) -> None:
    directories = dict.fromkeys(new.directory_id for new, _ in edits)
    sync_directories(environment.fs, [files.directory(directory_id) for directory_id in directories])
    # Whatever comes in between: the manifest may name them from here on.
    named_now = [new.hand_over() for new, _ in edits]
    try:
        by_tablet = [(new.tablet_id, edit) for new, edit in edits]
        environment.manifest.commit(lambda manifest: manifest.with_tablets(by_tablet))
    except StorageFullError:
        for (new, _), paths in zip(edits, named_now, strict=True):
            new.take_back(paths)
        raise
    for new, _ in edits:
        new.keep_slots()


@contextmanager
def new_files(tablet: Tablet, environment: Environment, what: str) -> Iterator[NewFiles]:
    """Write new files, commit them and put them in place in the body. When it fails before the commit, files and slots
    are given up; after it, the store is made read-only.

    Raises:
        StorageFullError, UnavailableError: for a failed call of the disk; the text says ``what`` could not be done.
    """
    new = NewFiles(tablet, environment)
    try:
        with read_only_if_half_done(tablet.tablet_id, environment), named(what):
            yield new
    except BaseException:
        new.undo()
        raise


def retire(environment: Environment, old: Iterable[DeltaFile | ColumnsFile]) -> None:
    """Remove files that neither the manifest nor the tablet's version names any more."""
    for file in old:
        file.close()
        remove_orphans(environment, file.path)
