"""Power failures while checkpoints are made: a copy is what it was, or what it was to become, or no store at all."""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.fs.subdirectory import DirectoryFileSystem
from nyala.engine.home import checkpoint_mark
from nyala.engine.home.checkpoint_mark import CheckpointMark
from nyala.engine.manifest.manifest import Manifest, pack_manifest
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, StoreError
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.crash.images import LostError, State, clone, require, require_sound
from tests.campaigns.crash.workloads import SCHEMA, TABLE, open_store, read, row, write
from tests.campaigns.options import unlocked
from tests.dose import dose

IMAGES = 3
"""Of each call."""
FIRST: State = {(each,): row(each, 0) for each in (1, 2)}


@dataclass
class Progress:
    """What a run has come to."""

    acknowledged: State = field(default_factory=lambda: dict(FIRST))
    """The rows of the store."""
    pending: State = field(default_factory=lambda: dict(FIRST))
    checkpoints: list[State] = field(default_factory=list)
    """Those that were made."""
    under_way: State | None = None


@dataclass
class Disks:
    """The disk of the store and that of the copy, which may be one."""

    source: MemoryFileSystem
    target: MemoryFileSystem

    @classmethod
    def fresh(cls, is_one: bool) -> "Disks":
        source = MemoryFileSystem()
        disks = cls(source, source if is_one else MemoryFileSystem())
        for disk, directory in ((disks.source, "store"), (disks.target, "copy")):
            disk.make_directory(directory)
            disk.sync_directory("")  # a LocalFileSystem does so for its root
        with open_store(disks.store) as store:
            store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
            write(store, "insert", list(FIRST.values()))
            store.maintain(TABLE, "flush")
        return disks

    @property
    def store(self) -> FileSystem:
        return DirectoryFileSystem(self.source, "store")

    @property
    def copy(self) -> FileSystem:
        return DirectoryFileSystem(self.target, "copy")

    def image(self, random: Random) -> "Disks":
        """Return what may be there if the power of the target fails; that of the source is on if it is another."""
        target = self.target.crash_image(random)
        return Disks(target if self.source is self.target else clone(self.source), target)


def put(store: Store, progress: Progress, *ids: int) -> None:
    progress.pending = progress.acknowledged | {(each,): row(each, len(progress.acknowledged)) for each in ids}
    write(store, "upsert", [progress.pending[(each,)] for each in ids])
    progress.acknowledged = progress.pending


def workload(disks: Disks, progress: Progress) -> None:
    """Make a checkpoint, change the files and the log, and make another one in the same place."""
    store = open_store(disks.store)
    try:
        for ids in ((3,), (2, 4)):
            put(store, progress, *ids)
            progress.under_way = progress.acknowledged
            store._checkpoints.make_in(disks.copy)
            progress.checkpoints.append(progress.acknowledged)
            progress.under_way = None
            for op in ("flush", "flush_deltas", "compact")[: len(ids) + 1]:
                store.maintain(TABLE, op)
    finally:
        for disk in (disks.source, disks.target):
            disk.crash_at = min(disk.operations, disk.crash_at or disk.operations)
        with suppress(PowerFailure, StoreError):
            store.close()


def check(disks: Disks, progress: Progress) -> None:
    """Check what is left of the store, and that the next checkpoint works."""
    with open_store(disks.store) as store:
        require_sound(store)
        found = read(store)
        require(found in (progress.acknowledged, progress.pending), f"the store has {found}")
        store._checkpoints.make_in(disks.copy)
    require(verify_store(unlocked(disks.copy)).is_sound, "the next checkpoint is damaged")
    with open_store(disks.copy) as copy:
        require(read(copy) == found, "the next checkpoint is another")


def check_copy(copy: FileSystem, progress: Progress) -> None:
    if checkpoint_mark.is_empty(copy):
        require(not progress.checkpoints, "the checkpoint is gone")
        return
    allowed = [*progress.checkpoints[-1:], *([progress.under_way] if progress.under_way else [])]
    try:
        store = open_store(copy)
    except InvalidArgumentError as error:
        require("unfinished checkpoint" in error.message, error.message)
        require(not progress.checkpoints, "the checkpoint is not finished any more")
        return
    with store:
        require_sound(store)
        found = read(store)
        require(found in allowed, f"the copy has {found}\n  expected {' or '.join(map(str, allowed))}")
        write(store, "upsert", [row(9, 9)])


def campaign(is_one: bool, images: int = IMAGES, stride: int = 1) -> int:
    """Fail the power at every call; return how many calls there are."""
    whole = Disks.fresh(is_one)
    first = whole.target.operations
    workload(whole, Progress())
    last = whole.target.crash_at
    assert last is not None
    for call in range(first + 1, last + 1, stride):
        disks, progress = Disks.fresh(is_one), Progress()
        disks.target.crash_at = call
        with pytest.raises((PowerFailure, StoreError)):
            workload(disks, progress)
        disks.source.crash_at = None
        for seed in range(images):
            check_copy(disks.image(Random(seed)).copy, progress)
        check(disks.image(Random(images)), progress)
    return last - first


@pytest.mark.parametrize("is_one", [True, False], ids=["links", "copies"])
def test_a_power_failure_leaves_the_old_copy_or_the_new_or_none(is_one: bool) -> None:
    assert campaign(is_one, stride=dose(5, 1)) > 60


def _commit_by_a_manifest_that_is_named_at_once(fs: FileSystem, manifest: Manifest) -> None:
    checkpoint_mark.write(fs, "manifest.next", pack_manifest(manifest))
    checkpoint_mark.finish(fs)


def _commit_and_mark(fs: FileSystem, manifest: Manifest) -> None:
    _MARK(fs, CheckpointMark(source=UUID(int=0).hex))
    _COMMIT(fs, manifest)


_MARK, _COMMIT = checkpoint_mark.write_mark, checkpoint_mark.commit


@pytest.mark.parametrize(
    "bugs",
    [
        {"commit": _commit_by_a_manifest_that_is_named_at_once},
        {"write_mark": lambda *_: None, "commit": _commit_and_mark},
    ],
    ids=["a manifest that is named before it is durable", "a mark that comes last"],
)
def test_the_checker_sees_a_bug(bugs: dict[str, Any]) -> None:
    with patch.multiple(checkpoint_mark, **bugs), pytest.raises((LostError, StoreError)):
        campaign(True)
