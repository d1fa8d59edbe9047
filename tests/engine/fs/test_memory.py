"""The crash model itself: each thing a power failure may do is seen to happen, and nothing else is."""

import errno
import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from nyala.engine.fs import FileSystem, MemoryFileSystem, PowerFailure

IMAGES = 400


def contents(fs: FileSystem, directory: str = "") -> dict[str, bytes]:
    return {name: bytes(fs.open(f"{directory}/{name}".lstrip("/")).view()) for name in fs.list(directory)}


def images(prepare: Callable[[MemoryFileSystem], None]) -> list[dict[str, bytes]]:
    fs = MemoryFileSystem()
    prepare(fs)
    return [contents(fs.crash_image(Random(seed))) for seed in range(IMAGES)]


def write(fs: FileSystem, path: str, content: bytes) -> None:
    file = fs.create(path)
    file.append(content)
    file.sync()
    file.close()


def test_what_was_synced_stays() -> None:
    def prepare(fs: MemoryFileSystem) -> None:
        write(fs, "a", b"content")
        fs.sync_directory("")

    assert all(image == {"a": b"content"} for image in images(prepare))


def test_a_synced_file_without_a_synced_name_may_vanish() -> None:
    found = images(lambda fs: write(fs, "a", b"content"))
    assert {frozenset(image.items()) for image in found} == {frozenset(), frozenset({("a", b"content")})}


def test_names_become_durable_in_order() -> None:
    def prepare(fs: MemoryFileSystem) -> None:
        for name in "abc":
            write(fs, name, b"")

    assert {"".join(image) for image in images(prepare)} == {"", "a", "ab", "abc"}


def test_a_rename_happens_whole_or_not_at_all() -> None:
    def prepare(fs: MemoryFileSystem) -> None:
        write(fs, "current", b"old")
        write(fs, "new", b"new")
        fs.sync_directory("")
        fs.rename("new", "current")

    before = frozenset({("current", b"old"), ("new", b"new")})
    after = frozenset({("current", b"new")})
    assert {frozenset(image.items()) for image in images(prepare)} == {before, after}


def test_an_unlink_may_be_undone() -> None:
    def prepare(fs: MemoryFileSystem) -> None:
        write(fs, "a", b"1")
        fs.sync_directory("")
        fs.unlink("a")

    assert {tuple(image) for image in images(prepare)} == {(), ("a",)}


def test_directories_are_names_too() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("d")
    write(fs, "d/a", b"1")
    fs.sync_directory("d")
    seen = {tuple(fs.crash_image(Random(seed)).list("")) for seed in range(IMAGES)}
    assert seen == {(), ("d",)}
    fs.sync_directory("")
    assert all(contents(fs.crash_image(Random(seed)), "d") == {"a": b"1"} for seed in range(IMAGES))


def test_an_unsynced_write_has_every_fate() -> None:
    written = b"\1" * 700 + b"\2" * 700

    def prepare(fs: MemoryFileSystem) -> None:
        file = fs.create("a", preallocate=2048)
        fs.sync_directory("")
        file.pwrite(100, written)

    found = {image["a"] for image in images(prepare)}
    whole = (bytes(100) + written).ljust(2048, b"\0")
    lost = bytes(2048)
    assert {whole, lost} <= found
    assert whole[:1024].ljust(2048, b"\0") in found  # torn where a sector ends
    assert bytes(512) + whole[512:] in found  # scattered sectors
    assert any(set(image) - {0, 1, 2} for image in found)  # garbage
    assert all(image[:100] == bytes(100) and image[1500:] == bytes(548) for image in found)


def test_writes_are_lost_each_on_its_own() -> None:
    def prepare(fs: MemoryFileSystem) -> None:
        file = fs.create("a", preallocate=3)
        fs.sync_directory("")
        for offset in range(3):
            file.pwrite(offset, b"x")

    assert {b"\0\0x", b"x\0\0", b"x\0x", b"xxx", b"\0\0\0"} <= {image["a"] for image in images(prepare)}


def test_a_crash_image_stands_alone() -> None:
    fs = MemoryFileSystem()
    write(fs, "a", b"1")
    fs.sync_directory("")
    image = fs.crash_image(Random(0))
    write(image, "b", b"2")
    assert fs.list("") == ["a"]


def test_the_power_fails_before_the_nth_change() -> None:
    fs = MemoryFileSystem(crash_at=2)
    file = fs.create("a")
    with pytest.raises(PowerFailure):
        file.append(b"lost")
    for call in (lambda: fs.list(""), lambda: fs.create("b"), file.sync, lambda: fs.open("a")):
        with pytest.raises(PowerFailure):
            call()
    assert list(fs.operation_log) == ["create a"]
    assert {tuple(fs.crash_image(Random(seed)).list("")) for seed in range(50)} == {(), ("a",)}


def test_a_killed_process_loses_nothing_that_a_power_failure_would_keep() -> None:
    fs = MemoryFileSystem(crash_at=3)
    file = fs.create("a")
    file.append(b"unsynced")
    with pytest.raises(PowerFailure):
        file.sync()
    fs.crash_at = None
    assert contents(fs) == {"a": b"unsynced"}
    assert {} in [contents(fs.crash_image(Random(seed))) for seed in range(50)]
    fs.sync_file("a")
    fs.sync_directory("")
    assert all(contents(fs.crash_image(Random(seed))) == {"a": b"unsynced"} for seed in range(50))


def test_a_full_disk_takes_nothing_and_recovers() -> None:
    fs = MemoryFileSystem(capacity_bytes=100)
    write(fs, "a", b"x" * 60)
    with pytest.raises(OSError) as caught:
        fs.create("b", preallocate=41)
    assert caught.value.errno == errno.ENOSPC
    assert fs.list("") == ["a"]
    assert fs.free_bytes("") == 40
    fs.unlink("a")
    fs.create("b", preallocate=100)
    assert fs.free_bytes("") == 0


def test_a_link_takes_no_space_and_its_content_goes_with_the_last_name() -> None:
    fs = MemoryFileSystem(capacity_bytes=100)
    write(fs, "a", b"x" * 60)
    fs.sync_directory("")
    fs.make_directory("d")
    fs.sync_directory("")
    fs.link("a", "d/b")
    assert fs.free_bytes("") == 40
    assert {tuple(fs.crash_image(Random(seed)).list("d")) for seed in range(50)} == {(), ("b",)}
    fs.sync_directory("d")
    fs.unlink("a")
    assert fs.free_bytes("") == 40
    assert contents(fs.crash_image(Random(0)), "d") == {"b": b"x" * 60}
    fs.unlink("d/b")
    assert fs.free_bytes("") == 100


def test_a_volatile_disk_keeps_nothing_that_was_unlinked() -> None:
    fs = MemoryFileSystem(is_volatile=True)
    fs.make_directory("d")
    tracemalloc.start()
    try:
        for each in range(40):
            file = fs.create(f"d/{each}")
            file.append(bytes(1 << 20))
            file.close()
            assert len(fs.open(f"d/{each}").view()) == 1 << 20
            fs.unlink(f"d/{each}")
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()
    assert not contents(fs.crash_image(Random(0)))
