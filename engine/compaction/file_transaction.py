"""The common part of all rewrites of files: a failure leaves nothing behind, and no file is removed too early.

1. The new files are written and synced, under names from ``NewFiles``.
2. The manifest is committed: it names the new files and not the old ones. Before that, a failure removes the new files;
   after a crash the next start removes them.
3. The caller replaces rowsets under the write lock, then retires the old files. Running scans continue: a mapped file
   outlives its name.

One manifest may commit the files of many tablets together (`commit_together`).

A failure between 2 and the new version leaves files and memory with the same content, and a second flush
would write those rows twice. So the store then becomes read-only (`read_only_if_half_done`); a restart follows the
manifest. Ctrl-C takes effect after the new version (``NewFiles.installed``), and stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ...schemas.errors import StorageFullError, UnavailableError
from ..delta.file import DeltaFile
from ..fs.failures import named
from ..fs.together import sync_directories
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.interrupts import interrupts_later
from ..manifest.manifest import TabletEntry
from ..rowset.base_file import ColumnsFile
from ..rowset.diskrowset import DiskRowSet
from ..tablet.open import remove_orphans
from ..tablet.tablet import Tablet


@contextmanager
def read_only_if_half_done(
    tablet_id: int, environment: Environment, is_installed: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Make the store read-only if the body, which installs rewritten files in the manifest and then in memory, fails in
    between: before ``is_installed``."""
    before = environment.manifest.current.tablet(tablet_id)
    try:
        yield
    except BaseException as error:
        now = environment.manifest.current.tablet(tablet_id)
        # Compares rowsets only: other threads may update the entry's log positions at any time.
        is_named = now is not None and (before is None or now.rowsets is not before.rowsets)
        if is_named and not is_installed():
            environment.latch.stop(f"new files of tablet {tablet_id} could not be installed ({error!r})")
        raise


class NewFiles:
    """The new files of a flush or compaction of a tablet, and slots for their rowsets, which no manifest names yet."""

    def __init__(self, tablet: Tablet, environment: Environment) -> None:
        self._tablet = tablet
        self._environment = environment
        self._paths: list[str] = []
        self._slots: list[int] = []
        self.is_installed = False
        """Whether memory has what the manifest names."""

    def name(self, kind: str) -> tuple[int, str]:
        """Return the id and the path of a new file; ``kind`` is base, undo or redo."""
        file_id = self._environment.manifest.new_file_id()
        self._paths.append(files.path(self._tablet.directory_id, file_id, kind))
        return file_id, self._paths[-1]

    def brought(self, file_id: int, kind: str) -> str:
        """Return the path for a file that was written elsewhere, under an id reserved before."""
        self._paths.append(files.path(self._tablet.directory_id, file_id, kind))
        return self._paths[-1]

    def take_slot(self, rowset: DiskRowSet) -> None:
        """Give a new, unused rowset its slot. Raises UnavailableError if none is left."""
        with self._tablet.write_lock:
            rowset.slot = self._tablet.free_slot()
            self._tablet.take_slot(rowset)
        self._slots.append(rowset.slot)

    def commit(
        self,
        edit: Callable[[TabletEntry], TabletEntry],
        put: Callable[[], object],
        follow: Callable[[], object] = lambda: None,
    ) -> None:
        """Commit the files, and install them: see ``UncommittedFiles``. Raises as ``ManifestFile.commit``."""
        commit_together(self._environment, [UncommittedFiles(self, edit, put, follow)])

    @property
    def tablet_id(self) -> int:
        return self._tablet.tablet_id

    @property
    def directory_id(self) -> int:
        """The number of their directory."""
        return self._tablet.directory_id

    def hand_over(self) -> list[str]:
        """Give up responsibility for the files, since the manifest may name them from here on; return their paths."""
        paths, self._paths = self._paths, []
        return paths

    def take_back(self, paths: list[str]) -> None:
        """Take responsibility back for files that the manifest does not name after all."""
        self._paths = paths

    def keep_slots(self) -> None:
        """Leave the slots to the tablet: the manifest names their rowsets."""
        self._slots.clear()

    def installed(self) -> None:
        """Note that the tablet has a version with the files: what remains to be done may fail."""
        self.is_installed = True

    def undo(self) -> None:
        """Free the slots, which no location names, and remove the files unless the manifest may name them."""
        with self._tablet.write_lock:
            for slot in self._slots:
                self._tablet.drop_slot(slot)
        remove_orphans(self._environment, *self._paths)


@dataclass(frozen=True, slots=True, eq=False)
class UncommittedFiles:
    """The written files of a flush or compaction, in the body of ``new_files``."""

    new: NewFiles
    edit: Callable[[TabletEntry], TabletEntry]
    """Edits the tablet's manifest entry."""
    put: Callable[[], object]
    """Installs the files after the commit."""
    follow: Callable[[], object] = lambda: None
    """Does what may wait until the files of all tablets are installed."""


def commit_together(environment: Environment, staged: Sequence[UncommittedFiles]) -> None:
    """Commit the new files of flushes or compactions of several tablets: make their names durable, then the manifest
    with them, and install them. Raises as ``ManifestFile.commit``."""
    # An interruption comes after all are installed, or while keys follow, and stops no other of these.
    with ExitStack() as following, interrupts_later():
        _commit(environment, [(each.new, each.edit) for each in staged])
        for each in staged:
            each.put()
            each.new.installed()
            following.callback(each.follow)


def _commit(environment: Environment, edits: Sequence[tuple[NewFiles, Callable[[TabletEntry], TabletEntry]]]) -> None:
    directories = dict.fromkeys(new.directory_id for new, _ in edits)
    sync_directories(environment.fs, [files.directory(directory_id) for directory_id in directories])
    # After an error the manifest may name them, unless it is known that nothing changed.
    named_now = [new.hand_over() for new, _ in edits]
    try:
        by_tablet = [(new.tablet_id, edit) for new, edit in edits]
        environment.manifest.commit(lambda manifest: manifest.with_tablets(by_tablet))
    except (StorageFullError, UnavailableError):
        if environment.manifest.is_writable:
            for (new, _), paths in zip(edits, named_now, strict=True):
                new.take_back(paths)
        raise
    for new, _ in edits:
        new.keep_slots()


@contextmanager
def new_files(tablet: Tablet, environment: Environment, what: str) -> Iterator[NewFiles]:
    """Write, commit and install the new files of a flush or compaction in the body. A failure before the commit removes
    files and slots; a failure after it makes the store read-only.

    Raises:
        StorageFullError, UnavailableError: the disk failed; the text says ``what`` could not be done.
    """
    new = NewFiles(tablet, environment)
    try:
        with read_only_if_half_done(tablet.tablet_id, environment, lambda: new.is_installed), named(what):
            yield new
    except BaseException:
        new.undo()
        raise


def retire(environment: Environment, old: Iterable[DeltaFile | ColumnsFile]) -> None:
    """Remove files that a flush or compaction has replaced: neither the manifest nor the tablet's version names
    them."""
    for file in old:
        file.close()
        remove_orphans(environment, file.path)
