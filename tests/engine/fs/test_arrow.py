"""Files in S3 and in other file systems of pyarrow: what an import needs of them, against a server that plays S3."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nyala.engine.fs.arrow import ArrowFileSystem
from nyala.engine.fs.tree import remove_tree
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture(params=["s3", "local"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> ArrowFileSystem:
    where = request.getfixturevalue("s3") if request.param == "s3" else (tmp_path / "root").as_uri()
    found = ArrowFileSystem.from_uri(where)
    remove_tree(found, "")
    found.make_directory("")
    return found


def write(fs: ArrowFileSystem, path: str, *pieces: bytes) -> None:
    file = fs.create(path)
    for piece in pieces:
        file.append(piece)
    assert file.size == sum(map(len, pieces))
    file.sync()
    file.close()


def test_whole_files_come_and_go(fs: ArrowFileSystem) -> None:
    fs.make_directory("a/b")
    write(fs, "a/b/one", b"first ", b"second")
    file = fs.open("a/b/one")
    assert (file.size, bytes(file.view()), file.pread(6, 3), file.pread(10, 99), file.pread(50, 1)) == (
        12, b"first second", b"sec", b"nd", b"",
    )  # fmt: skip
    file.close()
    fs.sync_file("a/b/one")
    fs.sync_directory("a/b")
    fs.link("a/b/one", "a/b/two")
    fs.rename("a/b/two", "a/b/three")
    assert fs.list("a/b") == ["one", "three"] and fs.list("a") == ["b"] and fs.size("a/b/three") == 12
    fs.unlink("a/b/one")
    assert not fs.exists("a/b/one") and fs.exists("a/b") and fs.free_bytes("") > 0
    remove_tree(fs, "a")
    assert not fs.exists("a/b/three") and not fs.exists("a")


def test_what_cannot_be_done_is_refused(fs: ArrowFileSystem) -> None:
    write(fs, "a", b"content")
    refused = {
        errno.EEXIST: [lambda: fs.create("a"), lambda: fs.link("a", "a")],
        errno.ENOENT: [
            lambda: fs.create("none/a"),
            lambda: fs.list("none"),
            lambda: fs.unlink("none"),
            lambda: fs.size("none"),
            lambda: fs.sync_file("none"),
        ],
        errno.ENOTDIR: [lambda: fs.list("a")],
        errno.EISDIR: [lambda: fs.unlink("")],
        errno.ENOTEMPTY: [lambda: fs.remove_directory("")],
        errno.ENOTSUP: [lambda: fs.create("b", preallocate=1), lambda: fs.lock("lock")],
        errno.EXDEV: [lambda: fs.rename("a", "d/a")],
    }
    for number, calls in refused.items():
        for call in calls:
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == number
    with pytest.raises(ValueError):
        fs.open("../a")
    with pytest.raises(FileNotFoundError):
        fs.open("none")
    file = fs.create("c")
    file.append(b"x")
    with pytest.raises(OSError):
        file.pwrite(0, b"y")
    file.sync()
    with pytest.raises(OSError):
        file.append(b"after")
    assert fs.size("c") == 1


def test_what_is_no_place_is_said() -> None:
    for uri in ("nonsense", "ftp://host/x", "s3://"):
        with pytest.raises(InvalidArgumentError, match="is not a valid path or URI"):
            ArrowFileSystem.from_uri(uri)
