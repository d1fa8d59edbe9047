"""The net is worth what it catches: three classic protocol bugs are planted, and each must be caught."""

import pytest

from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.fs.memory import MemoryFileSystem, MemoryWritableFile
from nyala.engine.tablet.manifest import ManifestFile
from tests.crash.images import LostError, campaign
from tests.crash.workloads import WORKLOADS

IMAGES = 10


def assert_caught(*workloads: str) -> None:
    for name in workloads:
        with pytest.raises(LostError):
            campaign(WORKLOADS[name], IMAGES, deep_every=1_000)


def test_a_log_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = MemoryWritableFile.sync

    def sync_all_but_the_log(file: MemoryWritableFile) -> None:
        if not file._path.startswith("wal/"):
            sync(file)

    monkeypatch.setattr(MemoryWritableFile, "sync", sync_all_but_the_log)
    assert_caught("load", "update", "restarts")


def test_a_manifest_that_is_renamed_before_it_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_new(self: ManifestFile, document: bytes) -> None:
        fs: FileSystem = self._fs
        file = fs.create("manifest.new")
        file.append(document)
        file.close()

    monkeypatch.setattr(ManifestFile, "_write_new", write_new)
    assert_caught("load", "update", "restarts")


def test_a_directory_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    sync_directory = MemoryFileSystem.sync_directory

    def sync_all_but_tablets(disk: MemoryFileSystem, path: str) -> None:
        if not path.startswith("tablets/"):
            sync_directory(disk, path)

    monkeypatch.setattr(MemoryFileSystem, "sync_directory", sync_all_but_tablets)
    assert_caught("load", "update", "restarts")
