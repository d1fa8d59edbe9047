"""What only the real disk can show."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nyala.engine.fs import LocalFileSystem


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
