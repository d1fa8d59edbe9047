"""Files that are synced together are all durable before anything may refer to them, and no failed sync goes unheard."""

import errno
from random import Random

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.together import SyncTogether, sync_directories
from tests.doubles.faulty import SYNCS, FaultRule, FaultyFileSystem

NAMES = [f"{directory}/{number}" for directory in "ab" for number in range(40)]


def disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    for directory in "ab":
        fs.make_directory(directory)
    fs.sync_directory("")
    return fs


def write(fs: SyncTogether) -> None:
    for name in NAMES:
        file = fs.create(name)
        file.append(name.encode() * 100)
        file.sync()
        file.close()


def test_all_is_durable_when_the_directories_are_synced() -> None:
    inner = disk()
    with SyncTogether(inner) as fs:
        write(fs)
        sync_directories(fs, ["a", "b"])
        for seed in range(20):
            image = inner.crash_image(Random(seed))
            for name in NAMES:
                assert image.open(name).pread(0, 10_000) == name.encode() * 100


@pytest.mark.parametrize("path", ["a/7", "b/39", "a"])
def test_a_failed_sync_is_raised(path: str) -> None:
    inner = FaultyFileSystem(disk(), [FaultRule(calls=SYNCS, path=path)])
    with SyncTogether(inner) as fs:
        write(fs)
        with pytest.raises(OSError, match="EIO") as caught:
            sync_directories(fs, ["a", "b"])
        assert caught.value.errno == errno.EIO


def test_a_file_that_nobody_syncs_is_closed_only() -> None:
    inner = disk()
    with SyncTogether(inner) as fs:
        fs.create("a/1").close()
        sync_directories(fs, [])
    assert not [call for call in inner.operation_log if call.startswith("sync a/1")]
