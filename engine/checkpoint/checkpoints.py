"""Checkpoints: copies of a running store, as stores of their own.

A checkpoint has the column files that the manifest names, as hard links (they never change), and a log of its own with
the rest. Writes continue meanwhile. It shows what a power failure at one moment would have left:

1. The *cut*: a manifest, and the end of the log while it was the current one. No log record before the end knows of a
   later manifest; what the manifest takes for durable is before the end. Recovery works on just such a pair.
2. The log up to the end is written to ``wal.next``. The store does not free its log meanwhile.
3. The files of the manifest, and of rowsets that the log attaches, get names in the directory; those that are there
   already stay. If a compaction has removed one since the cut, all starts again with a new cut. It takes long to copy
   files to another disk, so most are brought before the first cut.
4. Directories are synced, and the manifest is put in place (`home.checkpoint_mark`), as the last step.

The copy has an identity of its own, in its manifest and in every checksum of its log. So nobody takes one store for the
other: backups are continued by the first alone, and imports in shared storage are swept only by their own store.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from ...schemas.errors import CorruptionError, InvalidArgumentError, UnavailableError
from ...schemas.store.checkpoint import Checkpoint, MakeCheckpoint
from ..commit.authors_file import NAME as AUTHORS
from ..commit.authors_file import AuthorsFile
from ..commit.commit_log import CommitLog
from ..fs.copy import NO_LINK, copy_file
from ..fs.document import replace
from ..fs.encryption.opening import files_of_copy, give_keys
from ..fs.failures import named
from ..fs.filesystem import FileLock, FileSystem, join
from ..fs.local import directory_apart
from ..fs.store_lock import STORE_LOCK
from ..fs.tree import remove_tree
from ..home import checkpoint_mark
from ..home.checkpoint_mark import NEXT_LOG, CheckpointMark
from ..maintenance.log_freeing import LogFreeing
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.manifest import CleanStopEntry, Manifest
from ..options import StoreOptions
from ..tablet.attach import logged_attachments, with_logged
from ..wal.format import GROUP_HEADER_BYTES, SEGMENT_HEADER_BYTES, encode_record, record_extent
from ..wal.records import LogRecords
from ..wal.rewriting import LogRewriter

_CUTS = 20
"""How often the files may change before all of them are there."""
_TAIL_BYTES = 4096
"""The end of a column file: its footer has moments and a checksum, and tells it from all others."""
_PART = ".part"


@dataclass(slots=True)
class _Brought:
    """What was brought to a directory."""

    linked: set[str] = field(default_factory=set[str])
    copied: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class _Cut:
    """The state of a store at one moment."""

    manifest: Manifest
    last_lsn: int
    groups_bytes: int
    timestamp: int


class Checkpoints:
    """Makes checkpoints of one store. Thread safe."""

    def __init__(
        self,
        environment: Environment,
        log: CommitLog,
        log_freeing: LogFreeing,
        options: StoreOptions,
        new_uuid: Callable[[], UUID],
        authors: AuthorsFile,
    ) -> None:
        """``new_uuid`` gives each copy its identity."""
        self._environment = environment
        self._log = log
        self._log_freeing = log_freeing
        self._options = options
        self._new_uuid = new_uuid
        self._authors = authors

    def make(self, asked: MakeCheckpoint) -> Checkpoint:
        """Make a checkpoint in a directory that is new, empty, or has an earlier checkpoint of this store.

        Raises:
            InvalidArgumentError: the path is not absolute, the directory has something else, or the store shares its
                tables with others.
            UnavailableError: another process uses the directory, the log has failed, or a disk fails.
            StorageFullError: a disk is full; an earlier checkpoint in the directory is as it was.
            CorruptionError: a file of the store is missing.
        """
        if self._options.server is not None:
            raise InvalidArgumentError(
                "this server shares its tables with others, so its checkpoint would lack their tablets: use "
                "`nyala job backup`"
            )
        return self.make_in(directory_apart(asked.directory, self._environment.fs), asked.directory)

    def make_in(self, disk: FileSystem, directory: str = "") -> Checkpoint:
        """Do the same in the root of a file system; ``directory`` is its name."""
        self._environment.latch.check()
        target = files_of_copy(self._environment.fs, disk)
        with named(f"the checkpoint in {directory} could not be made"):
            if target.exists(""):
                self._marked(target, directory)  # before anything is made there
            target.make_directory("")
            with _locked(target, directory):
                is_marked = self._marked(target, directory)
                give_keys(self._environment.fs, disk)
                if is_marked:
                    checkpoint_mark.finish(target)
                else:
                    checkpoint_mark.write_mark(target, CheckpointMark(source=self._source))
                target.make_directory(files.ROOT)
                return self._made(target, directory)

    @property
    def _source(self) -> str:
        return self._environment.manifest.current.store_uuid

    def _marked(self, target: FileSystem, directory: str) -> bool:
        """Whether a directory has earlier checkpoints of this store. Raises InvalidArgumentError if it has something
        else."""
        mark = checkpoint_mark.read_mark(target)
        if mark is None and not checkpoint_mark.is_empty(target):
            raise InvalidArgumentError(
                f"{directory} has a store or other files: give a directory that is new, empty, or has only "
                "earlier checkpoints that were never opened as a store"
            )
        if mark is not None and mark.source != self._source:
            raise InvalidArgumentError(f"{directory} has checkpoints of another store: give another directory")
        return mark is not None

    def _made(self, target: FileSystem, directory: str) -> Checkpoint:
        brought = _Brought()
        self._bring(self._environment.manifest.current, target, brought)
        copy_uuid = self._new_uuid()
        for _ in range(_CUTS):
            with self._log_freeing.kept():
                cut = self._cut()
                if gone := self._bring(cut.manifest, target, brought):
                    self._check_replaced(gone)
                    continue
                crc = self._write_log(cut, target, copy_uuid)
            break
        else:
            raise UnavailableError("the files of the store keep changing: try again later", 1.0)
        stop = CleanStopEntry(last_lsn=cut.last_lsn, crc=crc)
        manifest = cut.manifest.model_copy(
            update={
                "store_uuid": copy_uuid.hex,
                "clean_stop": stop,
                "last_timestamp": max(cut.timestamp, cut.manifest.last_timestamp),
            }
        )
        names, paths = _names(manifest), _paths(manifest)
        for home in names:
            target.sync_directory(files.directory(home))
        target.sync_directory(files.ROOT)
        replace(target, AUTHORS, self._authors.document())
        checkpoint_mark.commit(target, manifest)
        _sweep(target, names)
        return Checkpoint(
            directory=directory,
            timestamp=cut.timestamp,
            store_uuid=copy_uuid.hex,
            files=len(paths),
            linked=len(brought.linked & paths),
            copied=len(brought.copied.keys() & paths),
            bytes=sum(map(target.size, paths)),
            bytes_copied=sum(brought.copied.values()),
            log_bytes=cut.groups_bytes,
        )

    def _cut(self) -> _Cut:
        """Return a state that has everything acknowledged so far, with rowsets that the log attaches as if the manifest
        named them. The log is not freed."""
        manifest_file, wal = self._environment.manifest, self._environment.wal.writer
        timestamp = self._log.settle()
        wal.wait(wal.last_lsn)  # also what others acknowledge before it is durable
        while True:
            manifest, last_lsn = manifest_file.current, wal.durable_lsn
            if manifest_file.current is manifest:
                break
        attached, size = [], 0
        for records in self._records(manifest, last_lsn):
            attached += logged_attachments([records])
            size += GROUP_HEADER_BYTES + sum(map(record_extent, records.lengths.tolist()))
            timestamp = max(timestamp, records[-1].timestamp)
        next_id = max([manifest.next_id, *(entry.id + 1 for _, entry in attached)])
        whole = with_logged(manifest, attached).model_copy(update={"next_id": next_id})
        return _Cut(whole, last_lsn, size, timestamp)

    def _records(self, manifest: Manifest, last_lsn: int) -> Iterator[LogRecords]:
        """Yield what the log has up to ``last_lsn`` that the files of the manifest may lack, each time alike."""
        for records in self._environment.wal.records_up_to(last_lsn):
            if records.last_lsn >= manifest.log_needed_from:
                yield records

    def _write_log(self, cut: _Cut, target: FileSystem, copy_uuid: UUID) -> int:
        """Write the log of a cut under another identity; return the crc of its last group."""
        remove_tree(target, NEXT_LOG)
        target.make_directory(NEXT_LOG)
        size = min(self._options.wal_segment_bytes, SEGMENT_HEADER_BYTES + cut.groups_bytes)
        writer = LogRewriter(target, NEXT_LOG, copy_uuid.bytes, 1, size)
        for records in self._records(cut.manifest, cut.last_lsn):
            group = [encode_record(record.timestamp, [record.payload]) for record in records]
            writer.add(group, records.first_lsn)
        writer.end(cut.last_lsn + 1)
        return writer.crc

    def _bring(self, manifest: Manifest, target: FileSystem, brought: _Brought) -> str | None:
        """Give all files that a manifest names a name in ``target``, unless they are there. Return the path of one that
        is gone from the store, if any is."""
        gone: str | None = None
        for home, wanted in _names(manifest).items():
            directory = files.directory(home)
            target.make_directory(directory)
            present = set(target.list(directory))
            for path in (join(directory, name) for name in wanted):
                if path in brought.linked or path in brought.copied:
                    continue
                try:
                    self._bring_file(path, target, brought, posixpath.basename(path) in present)
                except FileNotFoundError:
                    if self._environment.fs.exists(path):
                        raise
                    gone = path
        return gone

    def _bring_file(self, path: str, target: FileSystem, brought: _Brought, is_there: bool) -> None:
        source, part = self._environment.fs, path + _PART
        if is_there and source.is_linked(path, path, target):
            return
        if target.exists(part):
            target.unlink(part)
        try:
            source.link(path, part, target)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            if is_there and _end_of(source, path) == _end_of(target, path):
                return
            copy_file(source, path, target, part)
            brought.copied[path] = target.size(part)
        else:
            brought.linked.add(path)
        # Only what is whole has the name. One that had it is of another life of the store, which somebody ended by
        # putting an older copy of its directory back.
        target.rename(part, path)

    def _check_replaced(self, gone: str) -> None:
        """Raise CorruptionError if a file is gone that the store still needs."""
        if gone in _paths(self._environment.manifest.current) and not self._environment.fs.exists(gone):
            raise CorruptionError(gone, 0, "the manifest names this file, but it is missing")


def _locked(target: FileSystem, directory: str) -> FileLock:
    """Lock a directory as a store in it is locked, so that nobody opens half a copy."""
    try:
        return target.lock(STORE_LOCK)
    except UnavailableError:
        raise UnavailableError(
            f"{directory} is in use: another checkpoint is made in it, or its copy is open as a store. Wait until that "
            "ends, or give another directory",
            1.0,
        ) from None


def _names(manifest: Manifest) -> dict[int, list[str]]:
    """Return the names of the files of each tablet directory; tablets that were split share some."""
    found: dict[int, dict[str, None]] = {}
    for tablet in (tablet for table in manifest.tables for tablet in table.tablets):
        wanted = found.setdefault(tablet.home, {})
        wanted.update((name, None) for rowset in tablet.rowsets for name in rowset.file_names)
    return {home: list(wanted) for home, wanted in found.items()}


def _paths(manifest: Manifest) -> set[str]:
    return {join(files.directory(home), name) for home, names in _names(manifest).items() for name in names}


def _sweep(target: FileSystem, names: dict[int, list[str]]) -> None:
    """Remove the files of older checkpoints, and of interrupted ones."""
    homes = {str(home): set(wanted) for home, wanted in names.items()}
    for home in target.list(files.ROOT):
        directory = join(files.ROOT, home)
        if home not in homes:
            remove_tree(target, directory)
            continue
        for name in target.list(directory):
            if name not in homes[home]:
                target.unlink(join(directory, name))


def _end_of(fs: FileSystem, path: str) -> tuple[int, bytes]:
    """Return the size of a file and its last bytes."""
    file = fs.open(path)
    try:
        return file.size, file.pread(max(0, file.size - _TAIL_BYTES), _TAIL_BYTES)
    finally:
        file.close()
