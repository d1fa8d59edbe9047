"""A file system that only reads, while another process deletes files."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from nyala.engine.fs import LocalFileSystem
from nyala.engine.fs import local as local_module
from nyala.engine.fs.read_only import ReadOnlyFileSystem
from nyala.schemas.errors import UnavailableError

CHANGES: dict[str, Callable[[ReadOnlyFileSystem], object]] = {
    "create": lambda fs: fs.create("b"),
    "sync_file": lambda fs: fs.sync_file("a"),
    "rename": lambda fs: fs.rename("a", "b"),
    "link": lambda fs: fs.link("a", "b"),
    "unlink": lambda fs: fs.unlink("a"),
    "make_directory": lambda fs: fs.make_directory("d"),
    "remove_directory": lambda fs: fs.remove_directory(""),
    "sync_directory": lambda fs: fs.sync_directory(""),
    "lock": lambda fs: fs.lock("lock"),
}


@pytest.fixture
def fs(tmp_path: Path) -> ReadOnlyFileSystem:
    (tmp_path / "a").write_bytes(b"content")
    return ReadOnlyFileSystem(LocalFileSystem(tmp_path))


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_is_changed(fs: ReadOnlyFileSystem, tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError) as caught:
        CHANGES[name](fs)
    assert caught.value.errno == errno.EROFS
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and fs.list("") == ["a"] and fs.exists("a")


def test_an_open_file_may_lose_its_name(fs: ReadOnlyFileSystem, tmp_path: Path) -> None:
    file = fs.open("a")
    (tmp_path / "a").unlink()
    file.check()
    assert file.size == 7 and file.pread(0, 3) == b"con" and bytes(file.view()) == b"content"
    file.close()


def test_one_that_could_not_stay_open_is_replaced(
    fs: ReadOnlyFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module.descriptors, "most", 0)
    file = fs.open("a")
    assert file.pread(0, 3) == b"con"
    (tmp_path / "a").unlink()
    content = bytearray(3)
    for read in (lambda: file.pread(0, 3), lambda: file.read_into(0, content), file.view):
        with pytest.raises(UnavailableError, match="has replaced a, and this process may keep no more files open"):
            read()
    (tmp_path / "a").write_bytes(b"another")
    kept = LocalFileSystem(tmp_path, keeps_open=True).open("a")
    (tmp_path / "a").unlink()
    assert kept.pread(0, 7) == b"another"
    with pytest.raises(FileNotFoundError):
        kept.check()
