"""Opening: what the manifest names is there and whole, what it does not name goes."""

import errno
import gc
from random import Random
from typing import Any

import pytest

from nyala.engine.catalog import catalog
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.store import Store
from nyala.engine.tablet.open import open_sound, remove_orphans
from nyala.engine.tablet.tablet import Tablet
from nyala.schemas.errors import CorruptionError, UnavailableError
from nyala.schemas.gc_pause import collector_paused
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.subject import Subject


def stopped() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    subject = Subject(fs)
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.upsert(2, v=1)
    subject.delete(3)
    subject.flush_deltas()
    subject.close()
    return fs


def test_rowsets_come_back_with_their_liveness_and_bounds() -> None:
    subject = Subject(stopped())
    tablet = subject.tablet
    (rowset,) = tablet.version.disk
    assert tablet.live_rows == 2 and rowset.live.dead_count == 1
    assert (tablet.inserts_durable_lsn, rowset.durable_lsn, tablet.last_lsn) == (1, 3, 3)
    assert tablet.last_timestamp == max(file.metadata.last_timestamp for file in rowset.deltas.files)
    assert subject.store.now() > tablet.last_timestamp
    assert tablet.rowset(rowset.slot) is rowset
    subject.store.close()


@pytest.mark.parametrize("kind", ["base", "undo", "redo"])
def test_a_missing_file_is_named(kind: str) -> None:
    fs = stopped()
    (path,) = (f"tablets/2/{name}" for name in fs.list("tablets/2") if name.endswith(kind))
    fs.unlink(path)
    subject = Subject(fs)
    with pytest.raises(CorruptionError, match="is missing") as caught:
        subject.scan()
    assert path in caught.value.message
    subject.store.close()


def test_a_failed_opening_lets_go_of_the_lock() -> None:
    disk = stopped()
    too_many = FaultRule(calls=frozenset({"open"}), path="*.base", error=errno.EMFILE)  # no fault of the file
    fs = FaultyFileSystem(disk, [too_many])
    with pytest.raises(UnavailableError, match="could not be opened"):
        Subject(fs)
    subject = Subject(disk)
    assert len(subject.scan()) == 2
    subject.store.close()


def test_a_file_that_the_disk_does_not_give_is_no_more_than_a_quarantine() -> None:
    disk = stopped()
    subject = Subject(FaultyFileSystem(disk, [FaultRule(calls=frozenset({"open"}), path="*.base")]))
    with pytest.raises(CorruptionError, match=r"2/3\.base .*quarantine"):
        subject.scan()
    subject.store.close()
    subject = Subject(disk)
    assert len(subject.scan()) == 2
    subject.store.close()


def test_a_stray_file_beside_the_tablets_is_swept() -> None:
    fs = stopped()
    fs.create("tablets/stray").append(b"left over")
    subject = Subject(fs)
    assert fs.list("tablets") == ["2"] and len(subject.scan()) == 2
    subject.store.close()


def test_files_and_directories_that_nothing_names_are_swept() -> None:
    fs = stopped()
    kept = fs.list("tablets/2")
    fs.create("tablets/2/77.base")
    fs.make_directory("tablets/9")
    fs.create("tablets/9/1.redo")
    Subject(fs).store.close()
    assert fs.list("tablets") == ["2"] and fs.list("tablets/2") == kept


def test_an_orphan_that_cannot_be_removed_waits_for_the_next_start() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    subject = Subject(fs)
    for number in (98, 99):
        disk.create(f"tablets/2/{number}.base")
    fs.rules.append(FaultRule(calls=frozenset({"unlink"}), path="*98.base"))
    fs._matched.append(0)
    remove_orphans(subject.environment, "tablets/2/98.base", "tablets/2/97.base", "tablets/2/99.base")
    assert disk.list("tablets/2") == ["98.base"]
    subject.restart()
    assert disk.list("tablets/2") == []
    subject.close()


def test_the_remains_of_a_store_without_a_manifest_are_not_built_over() -> None:
    fs = stopped()
    fs.unlink("manifest")
    with pytest.raises(CorruptionError, match="no manifest"):
        Store.open(fs)


def test_tablets_are_opened_without_passes_of_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = stopped()
    seen: list[bool] = []

    def seeing(*args: Any) -> Tablet:
        with collector_paused():
            seen.append(gc.isenabled())
        seen.append(gc.isenabled())
        return open_sound(*args)

    monkeypatch.setattr(catalog, "open_sound", seeing)
    Subject(fs).store.close()
    assert seen == [False, False] and gc.isenabled()
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), collector_paused():
            raise ZeroDivisionError
        assert not gc.isenabled(), "it was off before"
    finally:
        gc.enable()


def test_opening_again_and_again_changes_nothing() -> None:
    subject = Subject(stopped())
    subject.store.close()
    for seed in range(3):
        image = subject.fs.crash_image(Random(seed))  # pyright: ignore[reportAttributeAccessIssue]
        after = Subject(image)
        assert after.scan(ordered=True) == [(1, 0, "s"), (2, 1, "s")]
        after.store.close()
