"""A cfile in a bucket: a page that is damaged in the cache is fetched again, one that is damaged there is not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.bucket.files.cache import PieceCache
from nyala.engine.bucket.memory import MemoryBucket
from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader, file_id_of
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.fs import FileSystem, LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.far import FarFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector
from nyala.schemas.errors import CorruptionError, UnavailableError
from tests.doubles.encrypted import encrypted
from tests.doubles.watched_bucket import WatchedBucket

KEY = StreamKey(1, "base")
CELLS = np.random.default_rng(1).integers(0, 1 << 60, 200_000)
PATH = "tablets/1/7.base"


@pytest.fixture
def bucket() -> WatchedBucket:
    bucket = WatchedBucket(MemoryBucket())
    written(BucketFileSystem(bucket, "", MemoryFileSystem(), 1 << 30, "s"))
    bucket.reset()
    return bucket


def written(fs: FileSystem) -> None:
    with CFileWriter(fs, PATH, 7, "base") as writer:
        writer.write_stream(KEY, PhysicalType.INT64, [FixedVector(CELLS)], "plain")
        writer.finish({})


def opened(bucket: WatchedBucket, where: Path) -> CFileReader:
    fs = BucketFileSystem(bucket, "", LocalFileSystem(where), 1 << 30, "s")
    return CFileReader.open(fs, PATH, 7, PageCache(0))


def cells(reader: CFileReader) -> np.ndarray:
    found = reader.stream(KEY).read(0, len(CELLS))
    assert isinstance(found, FixedVector)
    return found.values


def test_a_page_that_is_damaged_in_the_cache_is_fetched_again(bucket: WatchedBucket, tmp_path: Path) -> None:
    reader = opened(bucket, tmp_path)
    assert (cells(reader) == CELLS).all()
    fetched = len(bucket.ranges)
    assert (cells(reader) == CELLS).all() and len(bucket.ranges) == fetched
    largest = max((tmp_path / "pieces").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[1000] ^= 1
    largest.write_bytes(content)
    assert (cells(reader) == CELLS).all() and len(bucket.ranges) == fetched + 1
    reader.verify()


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_what_is_damaged_on_its_way_is_fetched_again(tmp_path: Path, is_encrypted: bool) -> None:
    """The cache keeps it with sums of its own, and then has what was never written."""
    bucket = WatchedBucket(MemoryBucket())

    def files(cache: FileSystem) -> FileSystem:
        fs = BucketFileSystem(bucket, "", cache, 1 << 30, "s")
        return encrypted(fs) if is_encrypted else fs

    written(files(MemoryFileSystem()))
    fs = files(LocalFileSystem(tmp_path))
    assert isinstance(fs, FarFileSystem)
    fs.fetch_ends([PATH], 0, 16_384)
    reader = CFileReader.open(fs, PATH, 7, PageCache(0))
    assert bucket.got_bytes < 80_000
    bucket.reset()
    bucket.flipped = 50_000
    reader.fetch([(0, reader.size_bytes)])
    assert (cells(reader) == CELLS).all() and bucket.flipped is None
    requests = len(bucket.ranges)
    assert 2 <= requests <= 5 and bucket.got_bytes < 2.1 * reader.size_bytes
    assert (cells(reader) == CELLS).all() and len(bucket.ranges) == requests


def test_what_is_damaged_is_read_in_one_place_only(
    bucket: WatchedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that drops the piece, as soon as there is one, must not get its bytes from the request once more."""
    reader, kept, is_read = opened(bucket, tmp_path), threading.Event(), threading.Event()
    keep = PieceCache.keep

    def keep_and_wait(*arguments: Any) -> None:
        keep(*arguments)
        kept.set()
        assert is_read.wait(30)

    monkeypatch.setattr(PieceCache, "keep", keep_and_wait)
    bucket.flipped = 50_000
    reader.fetch([(0, reader.size_bytes)])
    assert kept.wait(30)
    monkeypatch.setattr(PieceCache, "keep", keep)
    try:
        assert (cells(reader) == CELLS).all()
    finally:
        is_read.set()
    assert bucket.flipped is None


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_what_is_damaged_while_a_file_is_opened_is_fetched_again(tmp_path: Path, is_encrypted: bool) -> None:
    """Each byte of the ends; else the file would count as damaged in every later life, too."""
    bucket = WatchedBucket(MemoryBucket())

    def files(cache: FileSystem) -> FileSystem:
        fs = BucketFileSystem(bucket, "", cache, 1 << 30, "s")
        return encrypted(fs) if is_encrypted else fs

    written(files(MemoryFileSystem()))
    for at in (0, 1, 20, 80, *range(-200, 0, 7), -1):
        cache = MemoryFileSystem()
        bucket.flipped = at
        assert file_id_of(files(cache), PATH) == 7
        assert bucket.flipped is None
        bucket.flipped = at
        reader = CFileReader.open(files(cache), PATH, 7, PageCache(0))
        assert reader.streams() == [KEY]
    reader.verify()


def test_a_page_that_is_damaged_in_the_bucket_is_corruption(bucket: WatchedBucket, tmp_path: Path) -> None:
    content = bytearray(bucket.inner.get(PATH))
    content[1000] ^= 1
    bucket.inner.put(PATH, bytes(content))
    reader = opened(bucket, tmp_path)
    bucket.reset()
    with pytest.raises(CorruptionError, match="page 0: checksum"):
        cells(reader)
    assert len(bucket.ranges) == 2


def test_a_bucket_that_does_not_answer_damages_nothing(bucket: WatchedBucket, tmp_path: Path) -> None:
    reader = opened(bucket, tmp_path)
    bucket.failing = lambda *_: True
    with pytest.raises(UnavailableError, match=r"tablets/1/7\.base cannot be read: the bucket failed: no answer"):
        cells(reader)
    bucket.failing = lambda *_: False
    assert (cells(reader) == CELLS).all()
    other = opened(bucket, tmp_path / "other")
    bucket.inner.delete([PATH])
    with pytest.raises(CorruptionError, match="removed"):
        cells(other)
