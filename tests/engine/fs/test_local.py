"""What only the real disk can show."""

import errno
import gc
import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from nyala.engine.fs import LocalFileSystem, local
from nyala.engine.fs.local import LocalReadableFile


def test_files_and_directories_are_private(tmp_path: Path) -> None:
    fs = LocalFileSystem(tmp_path / "above" / "root")
    fs.make_directory("d/e")
    fs.create("d/e/file").close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "above").rglob("*")}
    assert modes == {"root": 0o700, "d": 0o700, "e": 0o700, "file": 0o600}


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    taken = []

    def stingy(descriptor: int, pieces: Any, offset: int) -> int:
        taken.append(len(pieces))
        return real(descriptor, [b"".join(pieces)[:7]], offset)

    monkeypatch.setattr(os, "pwritev", stingy)
    pieces = [bytes([number]) * (number % 11) for number in range(60)]
    file = LocalFileSystem(tmp_path).create("a")
    file.pwrite(0, *pieces)
    file.close()
    assert (tmp_path / "a").read_bytes() == b"".join(pieces)
    assert len(taken) > 40


def test_a_disk_too_small_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError) as caught:
        LocalFileSystem(tmp_path).create("a", preallocate=4096)
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_which_sync_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preallocated file's length is durable from the start; a growing file's is not."""
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: seen.append("fdatasync"))
    fs = LocalFileSystem(tmp_path)
    grows, fixed = fs.create("a"), fs.create("b", preallocate=4096)
    assert seen == ["fsync"]
    grows.sync()
    fixed.sync()
    assert seen == ["fsync", "fsync", "fdatasync"]
    grows.close()
    fixed.close()


def test_no_descriptor_leaks(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    fs = LocalFileSystem(tmp_path)
    for number in range(20):
        fs.create(f"{number}", preallocate=100).close()
        file = fs.open(f"{number}")
        file.view()
        file.close()
        fs.sync_directory("")
        fs.lock("LOCK").close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture(params=["kept open", "opened by name"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalReadableFile:
    """A file of ten bytes, as it is read when few files are open, and when too many are."""
    if request.param == "opened by name":
        monkeypatch.setattr(local.descriptors, "most", 0)
    (tmp_path / "a").write_bytes(b"0123456789")
    return LocalFileSystem(tmp_path).open("a")


def test_a_sound_file_is_read_and_checked(file: LocalReadableFile) -> None:
    file.check()
    assert (file.size, file.pread(2, 3), bytes(file.view())) == (10, b"234", b"0123456789")


def test_somebody_else_removes_a_file(file: LocalReadableFile, tmp_path: Path) -> None:
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError):
        file.check()


def test_somebody_else_replaces_a_file(file: LocalReadableFile, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"abcdefghij")
    (tmp_path / "b").rename(tmp_path / "a")
    with pytest.raises(OSError) as caught:
        file.check()
    assert caught.value.errno == errno.ESTALE


def test_somebody_else_cuts_a_file(file: LocalReadableFile, tmp_path: Path) -> None:
    os.truncate(tmp_path / "a", 4)
    with pytest.raises(OSError) as caught:
        file.check()
    assert caught.value.errno == errno.ESTALE
    buffer = bytearray(4)
    assert (file.read_into(2, buffer), bytes(file.view())) == (2, b"0123")


MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB, 4 * MIB + 5])
@pytest.mark.parametrize("written", [[], [0], [MIB - 1], [2 * MIB], [5, 3 * MIB + 1], [4 * MIB + 4]])
def test_a_view_is_the_file_zeroes_and_all(size: int, written: list[int], tmp_path: Path) -> None:
    content = bytearray(size)
    for place in written:
        content[place : place + 1] = b"x"[: max(size - place, 0)]
    (tmp_path / "f").write_bytes(content)
    file = LocalFileSystem(tmp_path).open("f")
    assert file.view() == content and file.view().readonly
    os.truncate(tmp_path / "f", size * 2 // 3)
    assert file.view() == content[: size * 2 // 3]
    file.close()


def test_a_view_needs_no_huge_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9_999)  # an advice that this kernel does not know
    (tmp_path / "f").write_bytes(b"x" * 5_000_000)
    file = LocalFileSystem(tmp_path).open("f")
    assert file.view() == b"x" * 5_000_000
    file.close()


def test_the_files_that_are_kept_open_are_bounded_and_all_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = LocalFileSystem(tmp_path)
    for number in range(20):
        (tmp_path / str(number)).write_bytes(bytes([number]))
    gc.collect()
    monkeypatch.setattr(local.descriptors, "most", local.descriptors._kept + 5)
    before = len(os.listdir("/proc/self/fd"))
    files = [fs.open(str(number)) for number in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before + 5
    assert [file.pread(0, 9) for file in files] == [bytes([number]) for number in range(20)]
    for number in range(20):
        fs.unlink(str(number))
    assert [file.pread(0, 9) for file in files] == [bytes([number]) for number in range(20)], (
        "we unlinked them ourselves"
    )
    del files
    assert len(os.listdir("/proc/self/fd")) == before
    assert not fs._readers


@pytest.mark.parametrize("call", ["check", "pread"])
def test_a_file_that_we_unlink_while_it_is_looked_at_goes_on(
    file: LocalReadableFile, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The store unlinks it between two calls of the system."""
    stat, opened = os.stat, local._open_to_read

    def unlinked(*_: Any) -> None:
        monkeypatch.setattr(os, "stat", stat)
        monkeypatch.setattr(local, "_open_to_read", opened)
        file._fs.unlink("a")

    def unlinked_stat(where: str) -> os.stat_result:
        unlinked()
        return stat(where)

    def unlinked_open(where: str) -> int:
        unlinked()
        return opened(where)

    monkeypatch.setattr(os, "stat", unlinked_stat)
    monkeypatch.setattr(local, "_open_to_read", unlinked_open)
    if call == "check":
        file.check()
    assert file.pread(2, 3) == b"234"
