"""What a store's files are in a bucket, beyond what every FileSystem does."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.copy import bring
from nyala.engine.fs.failures import is_of_the_file
from nyala.engine.fs.together import SyncTogether
from nyala.engine.fs.tree import remove_tree
from tests.contracts.filesystem_contract import read, write
from tests.doubles.faulty import WRITES, FaultRule, FaultyFileSystem
from tests.doubles.watched_bucket import WatchedBucket

from .conftest import Opening


def test_a_file_is_in_the_bucket_once_it_is_synced(opening: Opening, bucket: WatchedBucket) -> None:
    fs, other = opening("a"), opening("b")
    file = fs.create("tablets/1/x")
    file.append(b"some")
    assert not bucket.inner.list("") and fs.exists("tablets/1/x") and not other.exists("other/x")
    file.append(b" rows")
    file.sync()
    assert bucket.inner.list("") == [("root/tablets/1/x", 9)]
    assert read(other, "tablets/1/x") == b"some rows" and other.list("tablets") == ["1"]
    file.close()
    assert bucket.calls["put"] == 1


def test_a_file_that_was_never_synced_leaves_nothing(opening: Opening, bucket: WatchedBucket, tmp_path: Path) -> None:
    fs = opening()
    for name in "xy":
        file = fs.create(name)
        file.append(bytes(1000))
        file.close()
    fs.unlink("x")
    assert not fs.exists("x") and len(list((tmp_path / "cache/pieces").iterdir())) == 1
    again = opening()
    assert not again.exists("y") and not again.list("")
    assert not bucket.inner.list("") and not bucket.calls["delete"]


@pytest.mark.parametrize("too_late", [False, True])
def test_a_failed_upload_is_an_error_and_is_not_repeated(
    opening: Opening, bucket: WatchedBucket, too_late: bool
) -> None:
    fs = opening()
    file = fs.create("tablets/x")
    file.append(b"rows")
    bucket.failing, bucket.too_late = (lambda _, call: call == "put"), too_late
    with pytest.raises(OSError, match="no answer to put") as caught:
        file.sync()
    assert caught.value.errno == errno.EAGAIN and not is_of_the_file(caught.value)
    bucket.failing = lambda *_: False
    with pytest.raises(OSError, match="an earlier upload failed"):
        file.sync()
    file.close()
    fs.unlink("tablets/x")
    assert fs.deletions.release(fs.deletions.mark()) == ["tablets/x"] and not bucket.inner.list("")


def test_what_is_uploaded_is_what_was_written(opening: Opening, bucket: WatchedBucket, tmp_path: Path) -> None:
    fs = opening()
    file = fs.create("tablets/x")
    file.append(b"rows" * 50_000)
    (piece,) = (tmp_path / "cache/pieces").iterdir()
    with piece.open("r+b") as raw:
        raw.seek(100_000)
        raw.write(b"?")
    with pytest.raises(OSError, match="returned bytes that were not written"):
        file.sync()
    file.close()
    assert not bucket.inner.list("")


def test_a_full_cache_makes_room_for_new_files(opening: Opening) -> None:
    fs = opening(MemoryFileSystem(capacity_bytes=100_000))
    write(fs, "tablets/old", bytes(60_000))
    write(fs, "tablets/new", b"n" * 60_000)
    assert read(fs, "tablets/new") == b"n" * 60_000 and read(fs, "tablets/old") == bytes(60_000)
    file = fs.create("tablets/large")
    with pytest.raises(OSError) as caught:
        file.append(bytes(200_000))
    assert caught.value.errno == errno.ENOSPC
    assert fs.free_bytes("") == fs.total_bytes("") == 100_000


def test_a_link_and_a_new_name_are_copies(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    write(fs, "tablets/a", b"content")
    fs.link("tablets/a", "pins/1/a")
    assert not fs.is_linked("tablets/a", "pins/1/a") and fs.list("pins/1") == ["a"]
    with pytest.raises(FileExistsError):
        fs.link("tablets/a", "pins/1/a")
    with pytest.raises(OSError) as caught:
        fs.link("tablets/a", "b", LocalFileSystem("/nowhere"))
    assert caught.value.errno == errno.EXDEV
    fs.unlink("tablets/a")
    fs.deletions.release(fs.deletions.mark())
    assert read(fs, "pins/1/a") == b"content"
    fs.rename("pins/1/a", "pins/1/b")
    assert fs.list("pins/1") == ["b"] and read(fs, "pins/1/b") == b"content"
    write(fs, "staged", b"rows")
    bring(fs, "staged", fs, "tablets/2/c")
    assert read(opening("other"), "tablets/2/c") == b"rows" and bucket.calls["copy"] == 3


def test_a_replaced_file_has_its_new_content_or_its_old(opening: Opening) -> None:
    fs = opening()
    write(fs, "keys", b"old")
    reader = fs.open("keys")
    write(fs, "keys.new", b"new!")
    fs.rename("keys.new", "keys")
    assert (read(fs, "keys"), reader.pread(0, 9), fs.list("")) == (b"new!", b"old", ["keys"])
    fs.deletions.release(fs.deletions.mark())
    cold = opening("other")
    reader = cold.open("keys")
    write(cold, "keys.new", b"more")
    cold.rename("keys.new", "keys")
    with pytest.raises(OSError) as caught:
        reader.pread(0, 9)
    assert caught.value.errno == errno.ESTALE and read(cold, "keys") == b"more"


def test_directories_are_there_while_something_is_in_them(opening: Opening) -> None:
    fs = opening()
    assert fs.list("tablets/7") == [] and not fs.exists("tablets")
    fs.make_directory("tablets/7")
    assert fs.exists("tablets") and fs.list("tablets") == ["7"]
    write(fs, "tablets/7/x", b"")
    with pytest.raises(OSError) as caught:
        fs.remove_directory("tablets/7")
    assert caught.value.errno == errno.ENOTEMPTY
    again = opening("other")
    assert again.list("tablets") == ["7"] and again.exists("tablets/7")
    remove_tree(again, "tablets/7")
    assert again.list("tablets") == [] and not again.exists("tablets")


def test_own_directories_are_listed_once(opening: Opening, bucket: WatchedBucket) -> None:
    fs, other = opening(), opening("other")
    for number in range(20):
        write(fs, f"tablets/{number}/x", b"rows")
    bucket.reset()
    assert all(other.exists(f"tablets/{number}/x") and not other.exists(f"tablets/{number}/y") for number in range(20))
    assert all(
        other.list(f"tablets/{number}") == ["x"] and other.size(f"tablets/{number}/x") == 4 for number in range(20)
    )
    assert bucket.calls == {"list": 1}
    write(fs, "imports/1/part", b"rows")
    assert other.list("imports/1") == ["part"] and not other.exists("imports/1/later")
    write(fs, "imports/1/later", b"rows")
    assert other.exists("imports/1/later")


def test_what_an_opening_found_empty_is_not_asked_for_until_it_is_open(opening: Opening, bucket: WatchedBucket) -> None:
    fs, other = opening(), opening("other")
    for path in ("tablets/1/x", "staging/1", "imports.old"):
        write(other, path, b"rows")
    bucket.reset()
    fs.take_stock()
    assert fs.list("tablets/1") == ["x"] and fs.size("tablets/1/x") == 4
    assert not fs.exists("imports") and fs.list("imports") == [] and not fs.exists("imports/1/x")
    assert bucket.calls == {"list": 1}
    assert (
        fs.list("staging") == ["1"]
        and fs.exists("imports.old")
        and fs.list("") == ["imports.old", "staging", "tablets"]
    )
    write(fs, "imports/1/x", b"mine")
    write(other, "imports/1/y", b"rows")
    write(other, "pins/1", b"rows")
    assert fs.list("imports/1") == ["x", "y"] and not fs.exists("pins")
    fs.forget_stock()
    assert fs.list("pins") == ["1"] and fs.exists("pins/1") and fs.list("tablets") == ["1"]


def test_files_of_a_flush_are_uploaded_at_once(opening: Opening, bucket: WatchedBucket) -> None:
    fs = opening()
    bucket.delay_seconds = 0.05
    with SyncTogether(fs) as together:
        for number in range(8):
            write(together, f"tablets/1/{number}", b"rows")
            assert read(fs, f"tablets/1/{number}") == b"rows"
        together.sync_directories(["tablets/1"])
    assert bucket.most_at_once > 3 and len(bucket.inner.list("root/tablets/")) == 8


def test_every_call_of_the_bucket_may_fail(opening: Opening, bucket: WatchedBucket) -> None:
    """Each fails in turn, before or after its effect: an OSError, and the next attempt does what was asked."""

    def work(fs_name: str) -> list[bytes]:
        fs = opening(fs_name)
        found: list[bytes] = []
        for path in (f"tablets/{fs_name}", f"other/{fs_name}"):
            write(fs, path, path.encode())
            fs.link(path, f"{path}.link")
            found += [read(fs, path), read(fs, f"{path}.link")]
            fs.unlink(f"{path}.link")
            assert fs.list(path.split("/")[0])
        fs.deletions.release(fs.deletions.mark())
        return found

    work("first")
    calls = bucket.calls.total()
    for nth in range(1, calls + 1):
        for late in (False, True):
            bucket.reset()
            bucket.failing, bucket.too_late = (lambda number, _, nth=nth: number == nth), late
            name = f"{nth}.{late}"
            try:
                work(name)
            except OSError as error:
                assert error.errno == errno.EAGAIN and "no answer" in str(error)
            assert bucket.calls.total() >= nth or not late
            assert work(f"{name}.again")[0] == f"tablets/{name}.again".encode()


def test_a_disk_that_fails_while_a_file_is_written_is_told(opening: Opening, bucket: WatchedBucket) -> None:
    disk = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=WRITES, nth=2)])
    file = opening(disk).create("tablets/x")
    file.append(b"one")
    with pytest.raises(OSError, match="injected EIO"):
        file.append(b"two")
    assert not bucket.inner.list("")


def test_a_file_that_another_process_deleted_is_forgotten_while_it_is_read(opening: Opening, tmp_path: Path) -> None:
    fs, holder = opening("a"), opening("b")
    write(holder, "tablets/1/x", bytes(1000))
    file = fs.open("tablets/1/x")
    assert file.pread(0, 1000) == bytes(1000) and len(list((tmp_path / "a/pieces").iterdir())) == 1
    holder.unlink("tablets/1/x")
    holder.deletions.release(holder.deletions.mark())
    fs.look_again("tablets/1")
    assert file.pread(0, 1000) == bytes(1000), "its reader goes on with what is here"
    assert not list((tmp_path / "a/pieces").iterdir()) and not fs.exists("tablets/1/x")
    file.close()
