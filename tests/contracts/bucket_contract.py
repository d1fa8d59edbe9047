"""What every Bucket does, whatever is under it."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nyala.engine.bucket import Bucket, DirectoryBucket, MemoryBucket, bucket_of
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.schemas.errors import InvalidArgumentError
from tests.dose import by_night
from tests.doubles.faulty_bucket import Fault, FaultyBucket
from tests.doubles.s3_server import KEYS, s3_server, url_of

ALL_FAULTS = {number: list(Fault)[number % 5] for number in range(2, 5000, 3)}
"""Every third call goes wrong, in turn as each fault says, but for refused credentials: those end a call at once."""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["memory", "no faults", "faults", "directory", "directory in memory", "s3"])
def bucket(
    request: pytest.FixtureRequest, tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    made: dict[str, Bucket] = {
        "memory": MemoryBucket(),
        "no faults": FaultyBucket(),
        "faults": FaultyBucket(faults=ALL_FAULTS),
        "directory": DirectoryBucket(LocalFileSystem(tmp_path / "bucket")),
        "directory in memory": DirectoryBucket(MemoryFileSystem()),
        "s3": bucket_of(url_of(s3, tmp_path.name)),
    }
    yield made[request.param]


def names(bucket: Bucket, prefix: str = "", after: str = "") -> list[str]:
    return [name for name, _ in bucket.list(prefix, after)]


def test_create_takes_a_free_name(bucket: Bucket) -> None:
    assert bucket.create("log/1", b"one")
    assert bucket.get("log/1") == b"one"
    assert bucket.size("log/1") == 3


def test_create_says_whose_bytes_are_there(bucket: Bucket) -> None:
    assert bucket.create("log/1", b"one")
    assert not bucket.create("log/1", b"two")
    assert not bucket.create("log/1", b"one and more")
    assert not bucket.create("log/1", b"")
    assert bucket.create("log/1", b"one")
    assert bucket.get("log/1") == b"one"


def test_an_empty_object(bucket: Bucket) -> None:
    assert bucket.create("a", b"")
    assert bucket.create("a", b"")
    assert not bucket.create("a", b"x")
    bucket.put("b", b"")
    assert bucket.get("a") == bucket.get("b") == b""
    assert bucket.list("") == [("a", 0), ("b", 0)]


def test_a_name_is_free_again_after_its_deletion(bucket: Bucket) -> None:
    assert bucket.create("a", b"one")
    bucket.delete(["a"])
    assert names(bucket) == []
    assert bucket.create("a", b"two")


def test_put_replaces(bucket: Bucket) -> None:
    bucket.put("where", b"one")
    bucket.put("where", b"two, longer")
    bucket.put("where", b"two, longer")
    bucket.put("where", b"3")
    assert bucket.get("where") == b"3"
    assert bucket.list("") == [("where", 1)]


def test_put_takes_all_that_is_like_bytes(bucket: Bucket) -> None:
    bucket.put("a", bytearray(b"abc"))
    bucket.put("b", memoryview(b"abcdef")[1:4])
    bucket.put("c", np.arange(3, dtype="<u4"))
    assert [bucket.get(name) for name in "abc"] == [b"abc", b"bcd", np.arange(3, dtype="<u4").tobytes()]


@pytest.mark.parametrize("size", by_night([0, 1, (8 << 20) - 1, (16 << 20) + 3], [0, 1, (16 << 20) + 3]))
def test_put_reads_a_file(bucket: Bucket, size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    fs = MemoryFileSystem()
    writable = fs.create("file")
    writable.append(content)
    writable.close()
    bucket.put("tablets/17/1.base", fs.open("file"))
    assert bucket.size("tablets/17/1.base") == size
    assert bucket.get("tablets/17/1.base") == content


def test_what_is_missing(bucket: Bucket) -> None:
    bucket.put("log/2", b"x")
    for name in ("log/1", "elsewhere/1", "log/2x", "log"):
        with pytest.raises(FileNotFoundError):
            bucket.get(name)
        with pytest.raises(FileNotFoundError):
            bucket.get_range(name, 0, 1)
        with pytest.raises(FileNotFoundError):
            bucket.size(name)
        with pytest.raises(FileNotFoundError):
            bucket.copy(name, "target")
    assert names(bucket) == ["log/2"]


def test_ranges(bucket: Bucket) -> None:
    content = bytes(range(256)) * 8
    bucket.put("a", content)
    assert bucket.get_range("a", 3, 5) == content[3:8]
    assert bucket.get_range("a", 2047, 1) == b"\xff"
    ranges = [(1000, 10), (0, 2048), (1005, 1), (7, 0), (2040, 8)]
    assert bucket.get_ranges("a", ranges) == [content[start : start + length] for start, length in ranges]
    assert bucket.get_ranges("a", []) == []


def test_a_range_past_the_end_is_an_error(bucket: Bucket) -> None:
    bucket.put("a", b"0123456789")
    for offset, length in [(8, 3), (10, 1), (50, 2)]:
        with pytest.raises(OSError) as caught:
            bucket.get_ranges("a", [(0, 1), (offset, length)])
        assert caught.value.errno == errno.ESTALE


def test_list_is_whole_and_sorted(bucket: Bucket) -> None:
    expected = [f"log/{number:020d}" for number in (1, 2, 9, 10, 11, 99, 100)]
    for number, name in enumerate(reversed(expected)):
        bucket.put(name, bytes(number))
    bucket.put("logs/1", b"")
    bucket.put("log-1", b"")
    bucket.put("manifests/1-1", b"abc")
    assert names(bucket, "log/") == expected
    assert bucket.list("manifests/") == [("manifests/1-1", 3)]
    assert names(bucket) == sorted([*expected, "logs/1", "log-1", "manifests/1-1"])
    assert names(bucket, "lo/") == names(bucket, "nothing/") == []


def test_list_after_a_name(bucket: Bucket) -> None:
    for number in range(5):
        bucket.put(f"log/{number}", b"")
    assert names(bucket, "log/", "log/2") == ["log/3", "log/4"]
    assert names(bucket, "log/", "log/2x") == ["log/3", "log/4"]
    assert names(bucket, "log/", "log/4") == names(bucket, "log/", "zzz") == []
    assert len(names(bucket, "log/", "aaa")) == 5


def test_list_of_many(bucket: Bucket) -> None:
    expected = [f"log/{number:04d}" for number in range(1020)]
    for name in expected:
        bucket.put(name, b"")
    assert names(bucket) == expected
    bucket.delete(expected[:1010])
    assert names(bucket) == expected[1010:]


def test_delete_takes_what_is_there(bucket: Bucket) -> None:
    for name in ("a", "b/c", "b/d"):
        bucket.put(name, b"x")
    bucket.delete(["a", "missing", "b/c", "b/missing", "no/such/place"])
    bucket.delete([])
    bucket.delete(["a"])
    assert names(bucket) == ["b/d"]


def test_copy(bucket: Bucket) -> None:
    bucket.put("a", b"content")
    bucket.copy("a", "deep/er/b")
    bucket.delete(["a"])
    assert bucket.get("deep/er/b") == b"content"
    assert names(bucket) == ["deep/er/b"]


def test_names_are_checked(bucket: Bucket) -> None:
    for call in (
        lambda: bucket.create("../a", b""),
        lambda: bucket.put("/a", b""),
        lambda: bucket.get("a//b"),
        lambda: bucket.get_range("", 0, 1),
        lambda: bucket.size("a/"),
        lambda: bucket.list("a"),
        lambda: bucket.delete(["ok", ".."]),
        lambda: bucket.copy("a", ".b"),
    ):
        with pytest.raises(InvalidArgumentError):
            call()


def test_one_of_many_creators_wins(bucket: Bucket) -> None:
    rounds, racers = 20, 8
    won: list[list[int]] = [[] for _ in range(rounds)]
    start = threading.Barrier(racers)

    def race(racer: int) -> None:
        for number in range(rounds):
            start.wait()
            if bucket.create(f"race/{number}", b"racer %d" % racer):
                won[number].append(racer)

    threads = [threading.Thread(target=race, args=(racer,)) for racer in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(winners) for winners in won] == [1] * rounds
    for number, (winner,) in enumerate(won):
        assert bucket.get(f"race/{number}") == b"racer %d" % winner


def test_equal_bytes_all_win(bucket: Bucket) -> None:
    won: list[bool] = []
    threads = [threading.Thread(target=lambda: won.append(bucket.create("a", b"same"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [True] * 8


def test_a_created_object_is_seen_by_all(bucket: Bucket) -> None:
    seen: list[tuple[bytes, list[str]]] = []
    for number in range(10):
        assert bucket.create(f"log/{number}", b"%d" % number)
        thread = threading.Thread(target=lambda at=number: seen.append((bucket.get(f"log/{at}"), names(bucket))))
        thread.start()
        thread.join()
    assert seen == [(b"%d" % number, [f"log/{each}" for each in range(number + 1)]) for number in range(10)]
