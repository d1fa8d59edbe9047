"""The cache: what it saves, and that nothing that happens to it changes an answer."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from nyala.engine.bucket.files import cache
from nyala.engine.bucket.files.fetching import AT_ONCE, LARGE_AT_ONCE
from nyala.engine.bucket.files.piece import BLOCK_BYTES
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.far import FarFile, FarFileSystem
from tests.contracts.filesystem_contract import read, write
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.doubles.watched_bucket import WatchedBucket

from .conftest import Opening

CONTENT = Random(1).randbytes(5 * BLOCK_BYTES + 123)
PATH = "tablets/1/x"


@pytest.fixture(autouse=True)
def _a_file(opening: Opening, bucket: WatchedBucket) -> None:
    write(opening("writer"), PATH, CONTENT)
    bucket.reset()


def pieces(tmp_path: Path, cache: str = "cache") -> list[Path]:
    return sorted((tmp_path / cache / "pieces").iterdir())


def test_what_was_written_or_read_is_not_fetched(opening: Opening, bucket: WatchedBucket) -> None:
    assert read(opening("writer"), PATH) == CONTENT and not bucket.ranges
    fs = opening()
    file = fs.open(PATH)
    assert file.pread(100, 50) == CONTENT[100:150] and file.pread(300, 10) == CONTENT[300:310]
    assert bucket.ranges == [("root/" + PATH, 100, 50), ("root/" + PATH, 300, 10)]
    assert file.pread(90, 300) == CONTENT[90:390]
    assert bucket.ranges[2:] == [("root/" + PATH, 90, 10), ("root/" + PATH, 150, 150), ("root/" + PATH, 310, 80)]
    assert file.pread(90, 300) == CONTENT[90:390] and read(opening(), PATH)[90:390] == CONTENT[90:390]
    assert bucket.got_bytes == len(CONTENT)


@pytest.mark.parametrize("seed", range(6))
def test_any_ranges_in_any_order(opening: Opening, seed: int) -> None:
    """Small and large reads, some fetched ahead, in a cache that is too small for all of them."""
    random = Random(seed)
    file = opening(capacity_bytes=(0, 100_000, 1 << 20)[seed % 3]).open(PATH)
    assert isinstance(file, FarFile)
    for _ in range(300):
        offset, length = random.randrange(len(CONTENT)), random.choice([1, 100, 70_000, 1 << 20])
        if random.random() < 0.3:
            file.fetch([(offset, length), (random.randrange(len(CONTENT)), 5_000)])
        if random.random() < 0.1:
            file.forget(random.randrange(len(CONTENT)), 10_000)
        assert file.pread(offset, length) == CONTENT[offset : offset + length]


def test_a_restart_uses_what_is_there_if_it_is_the_same_store(opening: Opening, bucket: WatchedBucket) -> None:
    assert read(opening(), PATH) == CONTENT and read(opening(), PATH) == CONTENT
    assert bucket.got_bytes == len(CONTENT)
    assert read(opening(store="another"), PATH) == CONTENT
    assert bucket.got_bytes == 2 * len(CONTENT)


def test_names_that_may_be_used_again_do_not_outlast_a_restart(opening: Opening, bucket: WatchedBucket) -> None:
    fs, other = opening(), opening("other")
    write(fs, "staging/1", b"old rows")
    assert read(fs, "staging/1") == read(other, "staging/1") == b"old rows"
    fs.unlink("staging/1")
    fs.deletions.release(fs.deletions.mark())
    write(fs, "staging/1", b"new rows")
    assert read(opening("other"), "staging/1") == b"new rows"


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


HARM: dict[str, Callable[[Path, Random], object]] = {
    "deleted": lambda path, random: path.unlink(missing_ok=True),
    "truncated": lambda path, random: path.open("r+b").truncate(random.randrange(path.stat().st_size)),
    "emptied": lambda path, random: path.write_bytes(b""),
    "longer": lambda path, random: path.open("ab").write(b"more"),
    "flipped": lambda path, random: flip(path, random.randrange(path.stat().st_size)),
    "zeroed": lambda path, random: path.write_bytes(bytes(path.stat().st_size)),
    "exchanged": lambda path, random: path.write_bytes(random.choice(list(path.parent.iterdir())).read_bytes()),
}


@pytest.mark.parametrize("kind", HARM)
@pytest.mark.parametrize("restart", [False, True])
def test_harm_to_the_cache_changes_no_answer(opening: Opening, tmp_path: Path, kind: str, restart: bool) -> None:
    random = Random(kind)
    write(opening("writer"), "tablets/1/y", CONTENT[::-1])
    fs = opening()
    for _ in range(10):
        for path, content in ((PATH, CONTENT), ("tablets/1/y", CONTENT[::-1])):
            file = fs.open(path)
            for offset in range(0, len(content), 50_000):
                assert file.pread(offset, 50_000) == content[offset : offset + 50_000]
        for piece in random.sample(found := pieces(tmp_path), min(4, len(found))):
            HARM[kind](piece, random)
        fs = opening() if restart else fs
    (tmp_path / "cache/pieces/strange").write_bytes(b"?")
    (tmp_path / "cache/pieces/tablets%2F1%2Fx@0.7").write_bytes(b"?")
    assert read(opening(), PATH) == CONTENT


@pytest.mark.parametrize("what", ["cache", "cache/pieces"])
def test_a_deleted_directory_is_made_again(opening: Opening, bucket: WatchedBucket, tmp_path: Path, what: str) -> None:
    fs = opening()
    for _ in range(2):
        assert read(fs, PATH) == CONTENT
        shutil.rmtree(tmp_path / what)
    bucket.reset()
    assert read(fs, PATH) == CONTENT and bucket.got_bytes == len(CONTENT)
    assert read(fs, PATH) == CONTENT and bucket.got_bytes == len(CONTENT)
    shutil.rmtree(tmp_path / what)
    write(fs, "tablets/2/new", CONTENT)
    assert read(fs, "tablets/2/new") == read(opening("other"), "tablets/2/new") == CONTENT
    file = fs.create("tablets/2/next")
    file.append(b"rows")
    shutil.rmtree(tmp_path / what)
    assert fs.free_bytes("") > 0
    with suppress(OSError):
        file.sync()
    file.close()
    write(fs, "tablets/2/last", b"rows")


def files_open(directory: Path) -> int:
    """Return how many files below a directory this process has open."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += each.readlink().is_relative_to(directory)
    return count


def test_few_pieces_stay_open(
    opening: Opening, bucket: WatchedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "OPEN_MOST", 5)
    fs = opening()
    for number in range(30):
        write(fs, f"tablets/2/{number}", CONTENT[:1000])
    file = fs.open(PATH)
    for offset in range(0, len(CONTENT), 5_000):
        file.pread(offset, 5_000)
    bucket.reset()

    def reads(seed: int) -> None:
        random = Random(seed)
        for _ in range(300):
            offset, length = random.randrange(len(CONTENT)), random.randrange(20_000)
            assert file.pread(offset, length) == CONTENT[offset : offset + length]

    before = files_open(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(reads, seed) for seed in range(4)]:
            each.result()
    for number in range(30):
        assert read(fs, f"tablets/2/{number}") == CONTENT[:1000]
    assert not bucket.ranges
    assert 0 < files_open(tmp_path) <= before + 5


def test_harm_while_many_read(opening: Opening, tmp_path: Path) -> None:
    random, fs = Random(7), opening(capacity_bytes=200_000)
    done = threading.Event()

    def reads(seed: int) -> None:
        mine = Random(seed)
        for _ in range(300):
            offset, length = mine.randrange(len(CONTENT)), mine.choice([10, 3_000, 90_000])
            assert fs.open(PATH).pread(offset, length) == CONTENT[offset : offset + length]

    def harms() -> None:
        while not done.wait(0.001):
            for piece in pieces(tmp_path)[:3]:
                try:
                    HARM[random.choice(list(HARM))](piece, random)
                except (OSError, ValueError):  # it went away
                    continue

    read(fs, PATH)
    with ThreadPoolExecutor(5) as pool:
        harming = pool.submit(harms)
        for each in [pool.submit(reads, seed) for seed in range(4)]:
            each.result()
        done.set()
        harming.result()


def test_a_caller_with_a_checksum_of_its_own_says_what_is_wrong(opening: Opening, tmp_path: Path) -> None:
    file = opening().open(PATH)
    assert isinstance(file, FarFile)
    buffer = bytearray(1000)
    file.read_unchecked(0, buffer)
    flip(pieces(tmp_path)[0], 500)
    assert file.read_unchecked(0, buffer) == 1000 and buffer != CONTENT[:1000]
    file.forget(0, 1000)
    assert file.read_unchecked(0, buffer) == 1000 and buffer == CONTENT[:1000]
    file.read_unchecked(2000, buffer)
    pieces(tmp_path)[0].write_bytes(b"")
    pieces(tmp_path)[1].write_bytes(b"")
    assert file.read_unchecked(2000, buffer) == 1000 and buffer == CONTENT[2000:3000]


def test_the_least_recently_used_goes(opening: Opening, bucket: WatchedBucket, tmp_path: Path) -> None:
    writer = opening("writer")
    for number in range(10):
        write(writer, f"tablets/2/{number}", bytes([number]) * 10_000)
    fs = opening(capacity_bytes=45_000)
    for number in (0, 1, 2, 3, 0, 4, 5, 0):
        assert read(fs, f"tablets/2/{number}") == bytes([number]) * 10_000
    assert sum(path.stat().st_size for path in pieces(tmp_path)) <= 45_000
    bucket.reset()
    for number in (0, 4, 5):
        read(fs, f"tablets/2/{number}")
    assert not bucket.ranges
    read(fs, "tablets/2/1")
    assert len(bucket.ranges) == 1
    opening(capacity_bytes=15_000).open(PATH)
    assert len(pieces(tmp_path)) == 1
    assert read(opening(capacity_bytes=9_000), "tablets/2/1")[:1] == b"\1" and len(pieces(tmp_path)) == 0


def test_a_full_disk_keeps_what_fits(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening(MemoryFileSystem(capacity_bytes=100_000))
    for _ in range(2):
        file = fs.open(PATH)
        for offset in range(0, len(CONTENT), 60_000):
            assert file.pread(offset, 60_000) == CONTENT[offset : offset + 60_000]
    assert read(fs, PATH) == CONTENT


@pytest.mark.parametrize("calls", ["create", "append", "open", "unlink", "list", "pread", "read_into"])
def test_a_disk_that_always_fails_keeps_nothing(opening: Opening, calls: str) -> None:
    disk = FaultyFileSystem(MemoryFileSystem())
    fs = opening(disk)
    assert read(fs, PATH) == CONTENT
    disk.rules.append(FaultRule(calls=frozenset({calls}), sticky=True))
    disk._matched.append(0)
    assert read(fs, PATH) == CONTENT and read(opening(disk), PATH) == CONTENT


@pytest.mark.parametrize("call", ["size", "list"])
def test_a_disk_that_failed_once_at_the_start_is_used_on(opening: Opening, bucket: WatchedBucket, call: str) -> None:
    """One piece is lost, or all; no name is given again, and no file of another is removed."""
    disk = FaultyFileSystem(MemoryFileSystem())
    fs = opening(disk)
    for offset in range(0, len(CONTENT), 50_000):
        fs.open(PATH).pread(offset, 50_000)
    names = set(disk.inner.list("pieces"))
    disk.rules.append(FaultRule(calls=frozenset({call}), path="pieces*"))
    disk._matched.append(0)
    bucket.reset()
    fs = opening(disk)
    assert read(fs, PATH) == CONTENT and bucket.got_bytes == (50_000 if call == "size" else len(CONTENT))
    assert len(disk.inner.list("pieces")) == len(names) + (call == "list")
    assert len(names.intersection(disk.inner.list("pieces"))) == len(names) - (call == "size")
    write(fs, "tablets/2/new", CONTENT)
    assert read(fs, "tablets/2/new") == read(opening("other"), "tablets/2/new") == CONTENT


def test_a_file_of_another_is_not_removed(opening: Opening) -> None:
    disk = MemoryFileSystem()
    file = opening(disk).open(PATH)
    assert file.pread(0, 10) == CONTENT[:10]
    taken = "pieces/tablets%2F1%2Fx@100.2"
    disk.create(taken).close()
    assert file.pread(100, 10) == file.pread(100, 10) == CONTENT[100:110] and disk.exists(taken)


def test_one_thread_fetches_for_all(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    bucket.delay_seconds = 0.1
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: fs.open(PATH).pread(1000, 5000), range(8)))
    assert found == [CONTENT[1000:6000]] * 8 and len(bucket.ranges) == 1


def test_a_failed_fetch_fails_all_who_wait_and_nobody_later(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    bucket.delay_seconds = 0.1
    bucket.failing = lambda _, call: call == "get_range"
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(fs.open(PATH).pread, 0, 5000) for _ in range(4)]:
            with pytest.raises(OSError, match="no answer to get_range"):
                each.result()
    bucket.failing = lambda *_: False
    assert fs.open(PATH).pread(0, 5000) == CONTENT[:5000]


def test_ranges_are_fetched_ahead_and_together(opening: Opening, bucket: WatchedBucket) -> None:
    writer = opening("writer")
    for number in range(40):
        write(writer, f"tablets/3/{number}", CONTENT)
    fs = opening()
    assert isinstance(fs, FarFileSystem)
    fs.exists(PATH)
    bucket.reset()
    bucket.delay_seconds = 0.05
    fs.fetch_ends([f"tablets/3/{number}" for number in range(40)], 24, 16_384)
    for number in range(40):
        file = fs.open(f"tablets/3/{number}")
        assert file.pread(0, 24) == CONTENT[:24] and file.pread(file.size - 16_384, 16_384) == CONTENT[-16_384:]
    assert len(bucket.ranges) == 80 and bucket.got_bytes == 40 * (24 + 16_384)
    assert LARGE_AT_ONCE < bucket.most_at_once <= AT_ONCE
    file = fs.open(PATH)
    file.fetch([(100_000, 50_000), (0, 50_000), (52_000, 40_000)])
    assert file.pread(0, 50_000) == CONTENT[:50_000] and file.pread(52_000, 98_000) == CONTENT[52_000:150_000]
    assert sorted(bucket.ranges[80:]) == [("root/" + PATH, 0, 150_000)]


def test_few_large_ranges_are_in_memory_at_once(opening: Opening, bucket: WatchedBucket) -> None:
    writer, content = opening("writer"), CONTENT * 3
    for number in range(40):
        write(writer, f"tablets/3/{number}", content)
    fs = opening()
    files = [fs.open(f"tablets/3/{number}") for number in range(40)]
    bucket.reset()
    bucket.delay_seconds = 0.02
    for file in files:
        file.fetch([(0, len(content))])
    assert all(file.pread(0, len(content)) == content for file in files)
    assert 1 < bucket.most_at_once <= LARGE_AT_ONCE


def test_nobody_waits_for_ever_for_files_that_are_closed(opening: Opening, bucket: WatchedBucket) -> None:
    writer, count = opening("writer"), 2 * AT_ONCE
    for number in range(count):
        write(writer, f"tablets/4/{number}", CONTENT)
    fs = opening()
    files = [fs.open(f"tablets/4/{number}") for number in range(count)]
    bucket.delay_seconds = 0.1
    for file in files:
        file.fetch([(0, len(CONTENT))])
    with ThreadPoolExecutor(count) as pool:
        reads = [pool.submit(file.pread, 0, 10) for file in files]
        fs.close()
        errors = [error for each in reads if (error := each.exception(timeout=20))]
    assert 0 < len(errors) < count and {str(error.args[1]) for error in errors} == {"the files are closed"}
    files[0].fetch([(0, len(CONTENT))])
    with pytest.raises(OSError, match="the files are closed"):
        fs.open(PATH).pread(500, 10)


def test_all_is_fetched_once_though_no_thread_can_be_started(
    opening: Opening, bucket: WatchedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool keeps what it could not start, and does it once it has a thread."""
    file = opening().open(PATH)
    assert isinstance(file, FarFile)

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        file.fetch([(0, 50_000), (200_000, 50_000)])
        assert file.pread(0, 50_000) == CONTENT[:50_000]
    file.fetch([(100_000, 50_000)])
    for offset in (100_000, 200_000):
        assert file.pread(offset, 50_000) == CONTENT[offset : offset + 50_000]
    assert sorted(offset for _, offset, _ in bucket.ranges) == [0, 100_000, 200_000]
