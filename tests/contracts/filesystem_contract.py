"""What every FileSystem does, whatever is under it."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.bucket.memory import MemoryBucket
from nyala.engine.fs import FileSystem, LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.encryption.filesystem import EncryptedFileSystem
from nyala.engine.fs.subdirectory import DirectoryFileSystem
from nyala.schemas.errors import UnavailableError
from tests.doubles.encrypted import encrypted
from tests.doubles.faulty import FaultyFileSystem

KINDS = ["local", "memory", "faulty", "directory", "encrypted", "bucket", "encrypted bucket", "bucket without a cache"]


def in_bucket(tmp_path: Path, capacity_bytes: int = 1 << 30) -> BucketFileSystem:
    cache = LocalFileSystem(tmp_path / "cache")
    return BucketFileSystem(MemoryBucket(), "root/", cache, capacity_bytes, "uuid")


@pytest.fixture(params=KINDS)
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileSystem]:
    made: dict[str, FileSystem] = {
        "local": LocalFileSystem(tmp_path / "root"),
        "memory": MemoryFileSystem(),
        "faulty": FaultyFileSystem(MemoryFileSystem()),
        "directory": DirectoryFileSystem(LocalFileSystem(tmp_path / "root"), "a/b"),
        "encrypted": encrypted(LocalFileSystem(tmp_path / "root")),
        "bucket": in_bucket(tmp_path),
        "encrypted bucket": encrypted(in_bucket(tmp_path)),
        "bucket without a cache": in_bucket(tmp_path, 0),
    }
    disk = made[request.param]
    disk.make_directory("")
    yield disk


@pytest.fixture
def any_order(fs: FileSystem) -> FileSystem:
    """A file system that writes files in any order, and lets preallocated ones grow."""
    if isinstance(fs, EncryptedFileSystem):
        pytest.skip("an encrypted file is written in order")
    return fs


@pytest.fixture
def disk(fs: FileSystem, request: pytest.FixtureRequest) -> FileSystem:
    """A file system with directories, links and names that change: a bucket has none of them (tests/engine/bucket)."""
    if "bucket" in request.node.callspec.params["fs"]:
        pytest.skip("not in a bucket")
    return fs


def write(fs: FileSystem, path: str, content: bytes) -> None:
    file = fs.create(path)
    file.append(content)
    file.sync()
    file.close()


def read(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path)
    try:
        return file.pread(0, file.size)
    finally:
        file.close()


def test_append_adds_at_the_end(fs: FileSystem) -> None:
    file = fs.create("a")
    file.append(b"one")
    file.append(memoryview(b"two"))
    file.append(np.array([1], dtype="<u2"))
    assert file.size == 8
    file.close()
    assert read(fs, "a") == b"onetwo\x01\0"
    assert fs.size("a") == 8


def test_pwrite_takes_many_pieces(any_order: FileSystem) -> None:
    fs = any_order
    pieces = [bytes([number % 251]) * (number % 7) for number in range(5000)]
    file = fs.create("a")
    file.pwrite(3, *pieces)
    assert file.size == 3 + sum(map(len, pieces))
    file.pwrite(0, b"abc")
    assert file.size == 3 + sum(map(len, pieces))
    file.close()
    assert read(fs, "a") == b"abc" + b"".join(pieces)


def test_a_gap_reads_as_zeroes(any_order: FileSystem) -> None:
    fs = any_order
    file = fs.create("a")
    file.pwrite(5, b"x")
    file.close()
    assert read(fs, "a") == b"\0\0\0\0\0x"


def test_create_refuses_a_taken_name(fs: FileSystem) -> None:
    write(fs, "a", b"kept")
    with pytest.raises(FileExistsError):
        fs.create("a")
    assert read(fs, "a") == b"kept"


def test_create_needs_its_directory(disk: FileSystem) -> None:
    fs = disk
    with pytest.raises(FileNotFoundError):
        fs.create("missing/a")


def test_preallocated_bytes_are_zero_and_overwritten_in_order(fs: FileSystem) -> None:
    file = fs.create("a", preallocate=10_000)
    assert (file.size, fs.size("a")) == (0, 10_000)
    file.append(b"head")
    file.append(b"body")
    file.sync()
    file.close()
    assert read(fs, "a") == b"headbody".ljust(10_000, b"\0")


def test_small_and_large_writes_into_preallocated_space(fs: FileSystem) -> None:
    size = 10 << 20
    large = np.random.default_rng(1).integers(1, 255, 3 << 20, dtype=np.uint8).tobytes()
    expected = bytearray(size)
    file = fs.create("a", preallocate=size)
    for offset, piece in [(0, b"x" * 100), (100, large), (len(large) + 100, b"y" * (2 << 20)), (9 << 20, b"z")]:
        file.pwrite(offset, piece)
        expected[offset : offset + len(piece)] = piece
    file.pwrite(50, b"again")
    expected[50:55] = b"again"
    file.close()
    assert read(fs, "a") == expected


def test_pread_is_short_only_at_the_end(fs: FileSystem) -> None:
    write(fs, "a", b"0123456789")
    file = fs.open("a")
    assert file.size == 10
    assert file.pread(2, 3) == b"234"
    assert file.pread(8, 100) == b"89"
    assert file.pread(10, 1) == file.pread(99, 1) == b""
    file.close()


def test_read_into_fills_what_the_file_has(fs: FileSystem) -> None:
    write(fs, "a", b"0123456789")
    file = fs.open("a")
    buffer = np.zeros(4, np.uint8)
    assert (file.read_into(3, buffer), buffer.tobytes()) == (4, b"3456")
    assert (file.read_into(8, buffer), buffer.tobytes()) == (2, b"8956")
    assert file.read_into(10, buffer) == file.read_into(99, bytearray(3)) == 0
    file.close()


def test_what_is_read_does_not_change_with_the_file(fs: FileSystem) -> None:
    write(fs, "a", b"0123456789")
    file = fs.open("a")
    view = file.view()
    file.close()
    fs.unlink("a")
    write(fs, "a", b"abcdefghij")
    assert view.readonly
    assert bytes(view[3:6]) == b"345"


def test_a_file_that_is_open_is_read_on_after_it_was_unlinked(fs: FileSystem) -> None:
    write(fs, "a", b"0123456789")
    file = fs.open("a")
    fs.unlink("a")
    file.check()
    assert file.pread(0, 99) == b"0123456789"
    file.close()


def test_a_file_that_is_open_is_read_on_after_it_was_replaced(disk: FileSystem) -> None:
    write(disk, "a", b"abc")
    file = disk.open("a")
    write(disk, "new", b"xyz")
    disk.rename("new", "a")
    file.check()
    assert file.pread(0, 99) == b"abc"
    file.close()


def test_the_view_of_an_empty_file_is_empty(fs: FileSystem) -> None:
    write(fs, "a", b"")
    assert len(fs.open("a").view()) == 0


def test_a_closed_file_refuses_writes(fs: FileSystem) -> None:
    file = fs.create("a")
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.append(b"late")


def test_rename_replaces(fs: FileSystem) -> None:
    write(fs, "new", b"new")
    write(fs, "current", b"old")
    fs.rename("new", "current")
    assert fs.list("") == ["current"]
    assert read(fs, "current") == b"new"


def test_rename_stays_in_its_directory(fs: FileSystem) -> None:
    fs.make_directory("d")
    write(fs, "a", b"")
    with pytest.raises(OSError) as caught:
        fs.rename("a", "d/a")
    assert caught.value.errno == errno.EXDEV
    assert fs.exists("a")


@pytest.mark.parametrize("call", ["open", "unlink", "size", "sync_file"])
def test_what_is_missing_is_said_so(fs: FileSystem, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(fs, call)("missing")


@pytest.mark.parametrize("call", ["list", "sync_directory", "remove_directory"])
def test_a_directory_that_is_missing_is_said_so(disk: FileSystem, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)("missing")


def test_a_link_is_a_second_name(disk: FileSystem) -> None:
    fs = disk
    fs.make_directory("d")
    write(fs, "a", b"content")
    fs.link("a", "d/b")
    fs.sync_directory("d")
    assert fs.is_linked("a", "d/b")
    fs.unlink("a")
    assert read(fs, "d/b") == b"content" and not fs.exists("a") and fs.list("d") == ["b"]
    write(fs, "a", b"other")
    for taken, error in (("d/b", errno.EEXIST), ("none/b", errno.ENOENT)):
        with pytest.raises(OSError) as caught:
            fs.link("a", taken)
        assert caught.value.errno == error
    fs.unlink("d/b")
    assert not fs.list("d")


def test_a_link_into_another_directory_of_the_same_disk(tmp_path: Path) -> None:
    memory = MemoryFileSystem()
    local = LocalFileSystem(tmp_path / "a"), LocalFileSystem(tmp_path / "b")
    for source, target in (local, (DirectoryFileSystem(memory, "a"), DirectoryFileSystem(memory, "b"))):
        for each in (source, target):
            each.make_directory("d")
        write(source, "d/x", b"content")
        source.link("d/x", "d/y", target)
        write(target, "d/z", b"content")
        assert source.is_linked("d/x", "d/y", target) and not source.is_linked("d/x", "d/z", target)
        assert not source.is_linked("d/x", "d/y", MemoryFileSystem())
        source.unlink("d/x")
        assert read(target, "d/y") == b"content"
        with pytest.raises(OSError) as caught:
            target.link("d/y", "z", MemoryFileSystem())
        assert caught.value.errno == errno.EXDEV


def test_a_directory_gets_another_name(disk: FileSystem) -> None:
    fs = disk
    fs.make_directory("a/b")
    fs.make_directory("a/taken")
    for path in ("a/b/file", "a/taken/file"):
        write(fs, path, b"content")
    fs.rename("a/b", "a/c")
    assert fs.list("a") == ["c", "taken"] and read(fs, "a/c/file") == b"content"
    with pytest.raises(OSError):
        fs.rename("a/c", "a/taken")


def test_directories(fs: FileSystem) -> None:
    fs.make_directory("a/b/c")
    fs.make_directory("a/b")
    write(fs, "a/b/file", b"")
    assert fs.list("a") == ["b"]
    assert fs.list("a/b") == ["c", "file"]
    with pytest.raises(OSError) as caught:
        fs.remove_directory("a/b")
    assert caught.value.errno == errno.ENOTEMPTY
    fs.remove_directory("a/b/c")
    fs.unlink("a/b/file")
    fs.remove_directory("a/b")
    assert (fs.exists("a"), fs.exists("a/b"), fs.exists("a/b/c")) == (True, False, False)


def test_a_file_where_a_directory_should_be(fs: FileSystem) -> None:
    write(fs, "a", b"")
    with pytest.raises(OSError):
        fs.make_directory("a")
    with pytest.raises(OSError):
        fs.make_directory("a/b")


def test_everything_syncs(fs: FileSystem) -> None:
    fs.make_directory("d")
    write(fs, "d/a", b"1")
    fs.sync_file("d/a")
    fs.sync_directory("d")
    fs.sync_directory("")


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "../a", "a/../../b", "a\0b"])
def test_no_path_leaves_the_root(fs: FileSystem, path: str) -> None:
    with pytest.raises(ValueError):
        fs.create(path)
    with pytest.raises(ValueError):
        fs.open(path)


def test_one_holds_the_lock(fs: FileSystem) -> None:
    with fs.lock("LOCK"):
        with pytest.raises(UnavailableError):
            fs.lock("LOCK")
        assert fs.list("") in (["LOCK"], [])  # beside a bucket it is in the cache
    again = fs.lock("LOCK")
    again.close()
    again.close()


def test_free_bytes(fs: FileSystem) -> None:
    assert 0 < fs.free_bytes("") <= fs.total_bytes("")


def test_threads_work_on_files_of_their_own(fs: FileSystem) -> None:
    def work(number: int) -> None:
        file = fs.create(f"{number}", preallocate=4096)
        for _ in range(50):
            file.append(bytes([number]) * 10)
        file.sync()
        file.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        assert read(fs, f"{number}")[:500] == bytes([number]) * 500


def test_a_file_is_checked_by_its_name_and_size(any_order: FileSystem, disk: FileSystem) -> None:
    fs = any_order
    file = fs.create("a", preallocate=100)
    file.check()
    file.append(b"x" * 200)
    file.check()
    fs.rename("a", "b")
    with pytest.raises(OSError):
        file.check()
    write(fs, "a", b"x" * 200)
    with pytest.raises(OSError):
        file.check()
    fs.unlink("a")
    fs.rename("b", "a")
    file.check()
    fs.unlink("a")
    with pytest.raises(OSError):
        file.check()
    file.close()
