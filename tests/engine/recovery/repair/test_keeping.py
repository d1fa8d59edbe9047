"""What a repair replaces is kept whole, also on a disk without hard links whose power fails meanwhile."""

import errno
from functools import partial

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.recovery.repair.keeping import keep
from nyala.engine.recovery.repair.report import ROOT
from tests.campaigns.crash.images import cut_at_every_call

PATHS = ["tablets/1.base"]
KEPT = f"{ROOT}/tablets/1.base"
CONTENT = bytes(range(256)) * 20_000
"""More than one piece of a copy."""


def disk_with_a_file() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("tablets")
    file = fs.create("tablets/1.base")
    file.append(CONTENT)
    file.sync()
    file.close()
    fs.sync_directory("tablets")
    fs.sync_directory("")
    return fs


def content_of(fs: MemoryFileSystem, path: str) -> bytes:
    file = fs.open(path)
    return file.pread(0, file.size)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_power_cut_leaves_no_half_copy_under_the_name_of_a_whole_one(
    has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not has_links:
        monkeypatch.setattr(MemoryFileSystem, "link", refuse)
    whole = disk_with_a_file()
    keep(whole, PATHS)
    assert content_of(whole, KEPT) == CONTENT
    for image in cut_at_every_call(disk_with_a_file, partial(keep, paths=PATHS), images=40):
        keep(image, PATHS)
        assert content_of(image, KEPT) == CONTENT
        assert image.list(f"{ROOT}/tablets") == ["1.base"]
