"""A bucket that is watched, and file systems over it that share it as several processes would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.bucket.memory import MemoryBucket
from nyala.engine.bucket.patient import Patience
from nyala.engine.fs import FileSystem, LocalFileSystem
from tests.doubles.watched_bucket import WatchedBucket

Opening = Callable[..., BucketFileSystem]


@pytest.fixture
def bucket() -> WatchedBucket:
    return WatchedBucket(MemoryBucket(patience=Patience(seconds=0)))


@pytest.fixture
def opening(bucket: WatchedBucket, tmp_path: Path) -> Iterator[Opening]:
    """Returns the files as a process sees them; ``cache`` names its directory."""
    opened: list[BucketFileSystem] = []

    def open_one(
        cache: str | FileSystem = "cache", capacity_bytes: int = 1 << 30, store: str = "s"
    ) -> BucketFileSystem:
        disk = LocalFileSystem(tmp_path / cache) if isinstance(cache, str) else cache
        opened.append(BucketFileSystem(bucket, "root/", disk, capacity_bytes, store))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
