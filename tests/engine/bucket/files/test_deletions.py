"""What is unlinked is deleted when the owner of the log says so, and not before."""

from __future__ import annotations

from contextlib import suppress

import pytest

from nyala.schemas.errors import UnavailableError
from tests.contracts.filesystem_contract import read, write
from tests.doubles.watched_bucket import WatchedBucket

from .conftest import Opening


def names(bucket: WatchedBucket) -> list[str]:
    return [name.removeprefix("root/") for name, _ in bucket.inner.list("root/")]


def test_only_what_was_asked_before_the_mark_goes(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    for name in "abc":
        write(fs, f"tablets/{name}", b"rows")
    fs.unlink("tablets/a")
    mark = fs.deletions.mark()
    fs.unlink("tablets/b")
    assert not fs.exists("tablets/a") and fs.list("tablets") == ["c"] and len(names(bucket)) == 3
    assert opening("other").list("tablets") == ["a", "b", "c"]
    assert fs.deletions.release(mark) == ["tablets/a"] and names(bucket) == ["tablets/b", "tablets/c"]
    assert fs.deletions.release(mark) == [] and fs.deletions.has_due()


def test_nothing_goes_any_more_after_an_unknown_commit(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    write(fs, "tablets/a", b"rows")
    fs.unlink("tablets/a")
    fs.deletions.abandon()
    assert fs.deletions.release(fs.deletions.mark()) == [] and names(bucket) == ["tablets/a"]


def test_a_file_that_is_read_waits(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening(capacity_bytes=0)
    write(fs, "tablets/a", b"rows")
    reader = fs.open("tablets/a")
    fs.unlink("tablets/a")
    assert fs.deletions.release(fs.deletions.mark()) == [] and reader.pread(0, 9) == b"rows"
    reader.close()
    assert fs.deletions.release(fs.deletions.mark()) == ["tablets/a"] and not names(bucket)


def test_a_failed_deletion_comes_again(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    write(fs, "a", b"rows")
    fs.unlink("a")
    bucket.failing = lambda _, call: call == "delete"
    assert fs.deletions.release(fs.deletions.mark()) == []
    file = fs.create("a")
    with pytest.raises(OSError, match="is being deleted"):  # by a request that may still be on its way
        file.sync()
    file.close()
    fs.unlink("a")
    bucket.failing = lambda *_: False
    assert fs.deletions.release(fs.deletions.mark()) == ["a"] and not names(bucket)


def test_a_name_that_is_used_again_is_not_deleted(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    write(fs, "a", b"old")
    fs.unlink("a")
    file = fs.create("a")
    file.append(b"new")
    assert fs.deletions.release(0) == [] and read(fs, "a") == b"new"
    file.sync()
    file.close()
    assert fs.deletions.release(fs.deletions.mark()) == [] and read(opening("other"), "a") == b"new"
    fs.unlink("a")
    file = fs.create("a")
    file.append(b"newest")
    assert fs.deletions.release(fs.deletions.mark()) == ["a"]
    assert read(fs, "a") == b"newest"
    file.sync()
    assert names(bucket) == ["a"]


def test_a_copy_that_fails_takes_no_file_of_its_name(
    opening: Opening, bucket: WatchedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call has made the file meanwhile, or before."""
    fs = opening()
    bucket.inner.put("other/a", b"rows")
    copy = bucket.copy

    def fails(source: str, target: str) -> None:
        monkeypatch.setattr(bucket, "copy", copy)
        with suppress(OSError):
            fs.copy_object("other/a", "tablets/a")
        raise UnavailableError("no answer")

    for _ in range(2):
        monkeypatch.setattr(bucket, "copy", fails)
        with pytest.raises(OSError):
            fs.copy_object("other/a", "tablets/a")
        assert fs.deletions.release(fs.deletions.mark()) == [] and read(fs, "tablets/a") == b"rows"
