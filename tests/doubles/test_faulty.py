"""Faults come where the rule says, and have no other effect."""

import errno

import pytest

from nyala.engine.fs import MemoryFileSystem
from tests.doubles.faulty import CONTENT, SYNCS, WRITES, FaultRule, FaultyFileSystem


def test_the_nth_matching_call_fails_once() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=WRITES, nth=2, error=errno.EIO)])
    file = fs.create("a")
    file.append(b"one")
    with pytest.raises(OSError) as caught:
        file.append(b"two")
    assert caught.value.errno == errno.EIO
    file.append(b"three")
    assert bytes(fs.open("a").view()) == b"onethree"
    assert fs.injected == ["append a: EIO"]


def test_sticky_fails_for_ever() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=SYNCS, nth=2, sticky=True)])
    file = fs.create("a")
    file.sync()
    for _ in range(3):
        with pytest.raises(OSError):
            file.sync()
    with pytest.raises(OSError):
        fs.sync_directory("")


def test_a_short_write_leaves_its_bytes() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=WRITES, error=errno.ENOSPC, short_write=4)])
    file = fs.create("a")
    with pytest.raises(OSError) as caught:
        file.pwrite(0, b"abc", b"def")
    assert caught.value.errno == errno.ENOSPC
    assert bytes(fs.open("a").view()) == b"abcd"


def test_rules_choose_by_path() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(path="wal/*", sticky=True)])
    fs.make_directory("wal")
    fs.create("a")
    with pytest.raises(OSError):
        fs.create("wal/a")
    assert fs.calls == 3


@pytest.mark.parametrize("call", ["pread", "read_into", "view"])
def test_a_read_that_lies(call: str) -> None:
    disk = MemoryFileSystem()
    disk.create("a").append(b"0123456789")

    def read(rule: FaultRule) -> list[bytes]:
        fs = FaultyFileSystem(disk, [rule])
        file = fs.open("a")
        found: list[bytes] = []
        for _ in range(3):
            buffer = bytearray(10)
            count = file.read_into(0, buffer) if call == "read_into" else 10
            content = buffer if call == "read_into" else file.pread(0, 10) if call == "pread" else file.view()
            found.append(bytes(content[:count]))
        assert fs.injected == [f"{call} a: other bytes"]
        return found

    sound = b"0123456789"
    assert read(FaultRule(CONTENT, nth=2, short_read=4)) == [sound, b"0123", sound]
    assert read(FaultRule(CONTENT, nth=3, flip=17)) == [sound, sound, b"010" + sound[3:]]
    assert read(FaultRule(CONTENT, nth=1, flip=17 + 80 * 5)) == [b"010" + sound[3:], sound, sound]
