"""A directory as a bucket: durable at each return, whatever fails, and whoever else writes."""

import errno
import gc
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from nyala.engine.bucket import DirectoryBucket
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem, PowerFailure
from nyala.schemas.errors import UnavailableError
from tests.doubles.faulty import EVERY_CALL, SYNCS, FaultRule, FaultyFileSystem
from tests.doubles.faulty_bucket import impatience


def work(bucket: DirectoryBucket, done: list[str]) -> None:
    """Create, put and delete; ``done`` names what has returned."""
    for number in range(3):
        assert bucket.create(f"log/{number}", b"slot %d" % number)
        done.append(f"log/{number}")
    bucket.put("tablets/1/2.base", bytes(1000))
    done.append("tablets/1/2.base")
    bucket.delete(["log/0"])
    done.remove("log/0")


@pytest.mark.parametrize("seed", range(3))
def test_what_has_returned_survives_a_power_failure_at_each_call(seed: int) -> None:
    random = Random(seed)
    whole = MemoryFileSystem()
    work(DirectoryBucket(whole), [])
    assert whole.operations > 30
    for crash_at in range(1, whole.operations + 2):
        disk = MemoryFileSystem(crash_at=crash_at)
        done: list[str] = []
        with suppress(PowerFailure):
            work(DirectoryBucket(disk), done)
        bucket = DirectoryBucket(disk.crash_image(random))
        found = dict(bucket.list(""))
        assert set(done) <= found.keys() | ({"log/0"} if "tablets/1/2.base" in done else set())
        for name in found:
            expected = bytes(1000) if name.startswith("tablets") else b"slot %s" % name[-1].encode()
            assert bucket.get(name) == expected, "an object is there whole or not at all"
        assert bucket.create("log/9", b"the next one writes")


def test_each_failing_call_is_repeated_or_told() -> None:
    counted = FaultyFileSystem(MemoryFileSystem())
    work(DirectoryBucket(counted), [])
    for nth in range(1, counted.calls + 1):
        disk = MemoryFileSystem()
        faulty = FaultyFileSystem(disk, [FaultRule(EVERY_CALL, nth=nth, error=errno.EIO)])
        done: list[str] = []
        try:
            work(DirectoryBucket(faulty, impatience(3)), done)
        except UnavailableError as error:
            assert "sync" in str(error), "only a failed sync of names is for good"
        found = dict(DirectoryBucket(disk).list(""))
        assert set(done) <= found.keys()


def test_a_name_whose_sync_failed_is_not_taken_for_created() -> None:
    disk = MemoryFileSystem()
    bucket = DirectoryBucket(FaultyFileSystem(disk, [FaultRule(frozenset({"sync_directory"}), "log")]), impatience(3))
    with pytest.raises(UnavailableError, match=r"outcome is unknown .*a sync of the directory failed"):
        bucket.create("log/1", b"one")
    for call in (lambda: bucket.get("log/1"), lambda: bucket.list(""), lambda: bucket.put("a", b"")):
        with pytest.raises(UnavailableError, match="repair the disk"):
            call()


def test_a_file_whose_sync_failed_is_written_again() -> None:
    faulty = FaultyFileSystem(MemoryFileSystem(), [FaultRule(SYNCS, ".temporary/*")])
    bucket = DirectoryBucket(faulty, impatience(3))
    assert bucket.create("log/1", b"one")
    assert len(faulty.injected) == 1


def test_temporary_files_are_gone_and_never_listed(tmp_path: Path) -> None:
    bucket = DirectoryBucket(LocalFileSystem(tmp_path))
    assert bucket.create("log/1", b"one")
    assert not bucket.create("log/1", b"two")
    bucket.put("log/2", b"three")
    assert os.listdir(tmp_path / ".temporary/0") == []
    assert sorted(os.listdir(tmp_path / "log")) == ["1", "2"]
    (tmp_path / ".temporary/0/7").write_bytes(b"half an obj")
    assert [name for name, _ in bucket.list("")] == ["log/1", "log/2"]


def test_the_next_writer_clears_up_after_a_killed_one(tmp_path: Path) -> None:
    code = (
        "import sys; from nyala.engine.bucket import DirectoryBucket; from nyala.engine.fs import LocalFileSystem\n"
        f"bucket = DirectoryBucket(LocalFileSystem({str(tmp_path)!r})); bucket.create('log/1', b'one')\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    beside = DirectoryBucket(LocalFileSystem(tmp_path))
    assert not beside.create("log/1", b"two")
    assert sorted(os.listdir(tmp_path / ".temporary")) == ["0", "0.lock", "1", "1.lock"]
    (tmp_path / ".temporary/0/5").write_bytes(b"half")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    after = DirectoryBucket(LocalFileSystem(tmp_path))
    assert after.create("log/2", b"three")
    assert os.listdir(tmp_path / ".temporary/0") == []


@pytest.mark.parametrize("left", ["tablets/2/.replacing..temporary.0.5", "tablets/2/.replacing.0.5"])
def test_what_a_killed_writer_left_beside_objects_is_removed_by_who_lists_them(tmp_path: Path, left: str) -> None:
    """Also by one that has taken its number, and never while it may be on its way."""
    killed = DirectoryBucket(LocalFileSystem(tmp_path))
    killed.put("tablets/2/1.base", b"x")
    (tmp_path / left).write_bytes(b"half")
    strange = tmp_path / "tablets/2/.replacing.of somebody else"
    strange.write_bytes(b"?")
    other = DirectoryBucket(LocalFileSystem(tmp_path))
    for bucket in (other, killed):
        (tmp_path / ".temporary/0/5").write_bytes(b"half")
        assert bucket.list("") == [("tablets/2/1.base", 1)]
        assert (tmp_path / left).exists(), "its writer lives"
    del bucket, killed
    gc.collect()
    after = DirectoryBucket(LocalFileSystem(tmp_path))
    assert after.create("log/1", b"x") and (tmp_path / left).exists()
    assert after.list("tablets/") == [("tablets/2/1.base", 1)]
    assert not (tmp_path / left).exists() and strange.exists()


def test_a_writer_clears_up_after_all_that_were_killed(tmp_path: Path) -> None:
    writers = [DirectoryBucket(LocalFileSystem(tmp_path)) for _ in range(3)]
    for number, each in enumerate(writers):
        each.put(f"log/{number}", b"x")
        (tmp_path / f".temporary/{number}/9").write_bytes(b"half")
    beside = writers.pop()
    writers.clear()
    del each
    gc.collect()
    DirectoryBucket(LocalFileSystem(tmp_path)).put("log/9", b"x")
    assert [place.name for place in sorted((tmp_path / ".temporary").iterdir()) if place.is_dir()] == ["0", "2"]
    assert (tmp_path / ".temporary/2/9").exists() and beside.get("log/2") == b"x"


def test_processes_race_for_names(tmp_path: Path) -> None:
    code = (
        "import sys; from nyala.engine.bucket import DirectoryBucket; from nyala.engine.fs import LocalFileSystem\n"
        f"bucket = DirectoryBucket(LocalFileSystem({str(tmp_path)!r})); me = sys.argv[1]\n"
        "print(*[n for n in range(200) if bucket.create(f'log/{n}', me.encode())])"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", code, str(racer)], stdout=subprocess.PIPE, text=True)
        for racer in range(3)
    ]
    won = [[int(number) for number in racer.communicate()[0].split()] for racer in racers]
    bucket = DirectoryBucket(LocalFileSystem(tmp_path))
    owners = [int(bucket.get(f"log/{number}")) for number in range(200)]
    assert won == [[number for number in range(200) if owners[number] == racer] for racer in range(3)]
