"""A process whose cache has no room leaves the store to others, and takes it once there is some."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nyala.engine.bucket.files.room import check_room
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.store import Store
from nyala.engine.wal.slots.standby import Standby
from nyala.schemas.errors import StorageFullError
from tests.doubles.machines import OPTIONS, Machine
from tests.doubles.waiting import until


@pytest.mark.parametrize("low", [None, 0])
def test_a_standby_whose_cache_disk_is_full_does_not_claim(low: int | None) -> None:
    """Not even where no bytes must be left: it could write no file."""
    first = Machine()
    Store.open(first.home(), OPTIONS).close()
    second = first.other()
    second.disk.capacity_bytes = 1 << 30
    second.disk.create("of somebody else").append(bytes((1 << 20) if low is None else 1))
    second.disk.capacity_bytes = 1 << 20 if low is None else 1
    standby, opened = Standby(), []
    home = second.home().by(standby, [])
    options = OPTIONS.model_copy(update={"disk_low_bytes": low})
    opening = threading.Thread(target=lambda: opened.append(Store.open(home, options)))
    opening.start()
    until(lambda: standby.trouble)
    assert ("(disk_low_bytes): free some" if low is None else "the disk is full: the cache of ") in standby.trouble
    slots = first.home().slots
    with Store.open(first.home(), OPTIONS):
        pass
    until(lambda: standby.seen is not None and standby.seen.end == slots.end())
    assert opened == [] and not opening.join(0.1)
    second.disk.capacity_bytes = 1 << 30
    opening.join(30)
    assert standby.trouble == ""
    opened[0].close()
    assert slots.end() > 0 and second.disk.list("") != []


def test_pieces_of_the_cache_are_room(tmp_path: Path) -> None:
    disk = MemoryFileSystem(1000)
    disk.make_directory("pieces")
    disk.create("pieces/x@0.1").append(bytes(900))
    with pytest.raises(OSError, match="ENOSPC"):
        check_room(disk, 1000)
    with pytest.raises(StorageFullError, match=r"1,000 bytes left.* needs 1,001 \(disk_low_bytes\)"):
        check_room(disk, 1001)


def test_what_a_killed_process_tried_is_no_harm(tmp_path: Path) -> None:
    cache = LocalFileSystem(tmp_path)
    cache.create("trial").append(b"x")
    check_room(cache, 1)
    assert cache.list("") == []


def test_processes_of_one_machine_have_a_cache_for_each_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one store is called as another with the number of a process."""
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path))
    places: set[str] = set()
    for name in ("a", "a.2", "a.2.2", "2-a", "a.3"):
        home = BucketHome(Machine().bucket, name, "memory://test", probes=False)
        for number in (1, 2, 3):
            places.add(repr(home._cache_directory(OPTIONS, number)))
    assert len(places) == 15
