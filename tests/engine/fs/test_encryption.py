"""What stands on the disk below an encrypted file system, and what happens when somebody changes it."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.fs import FileSystem, MemoryFileSystem
from nyala.engine.fs.encryption import header, keyring
from nyala.engine.fs.encryption.blocks import BLOCK_BYTES
from nyala.engine.fs.encryption.filesystem import EncryptedFileSystem
from nyala.engine.fs.encryption.header import HEADER_BYTES
from nyala.engine.fs.encryption.keyring import create_keyring, open_keyring
from nyala.engine.fs.encryption.records import space_for
from nyala.engine.fs.filesystem import WritableFile
from nyala.engine.fs.together import SyncTogether
from nyala.schemas.errors import CorruptionError
from tests.campaigns.crash import workloads
from tests.campaigns.crash.images import run_until
from tests.campaigns.options import in_force
from tests.doubles.encrypted import KEY, RandomBytes, encrypted
from tests.doubles.faulty import WRITES, FaultRule, FaultyFileSystem

STRIDE = BLOCK_BYTES + 16
SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES + 5]


def write(fs: FileSystem, path: str, *pieces: bytes) -> None:
    file = fs.create(path)
    for piece in pieces:
        file.append(piece)
    file.sync()
    file.close()


def raw(fs: MemoryFileSystem, path: str) -> bytes:
    file = fs.open(path)
    return file.pread(0, file.size)


def replaced(content: bytes, path: str = "a") -> EncryptedFileSystem:
    """Return the disk of ``encrypted`` with this on it."""
    disk = MemoryFileSystem()
    disk.create(path).append(content)
    return encrypted(disk)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SIZES), st.integers(0, 3), st.integers(0, 1 << 20))
def test_any_part_of_a_file_can_be_read(size: int, cuts: int, seed: int) -> None:
    random = Random(seed)
    content = random.randbytes(size)
    ends = sorted(random.randint(0, size) for _ in range(cuts))
    disk = MemoryFileSystem()
    fs = encrypted(disk)
    write(fs, "a", *(content[a:b] for a, b in zip([0, *ends], [*ends, size], strict=True)))
    file = fs.open("a")
    assert (file.size, fs.size("a"), bytes(file.view())) == (size, size, content)
    for _ in range(5):
        offset, length = random.randint(0, size + 5), random.randint(0, size + 5)
        assert file.pread(offset, length) == content[offset : offset + length]
    assert not content or len(content) < 8 or content not in raw(disk, "a")


def test_a_file_of_the_same_content_is_other_bytes_each_time() -> None:
    disk = MemoryFileSystem()
    fs = encrypted(disk)
    for path in "ab":
        write(fs, path, b"content" * 100)
    assert raw(disk, "a")[HEADER_BYTES:] != raw(disk, "b")[HEADER_BYTES:]


def damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what an attacker without the key can do to a file of three whole blocks and a bit."""
    head, body = content[:HEADER_BYTES], content[HEADER_BYTES:]
    blocks = [body[start : start + STRIDE] for start in range(0, len(body), STRIDE)]
    yield "swapped", head + blocks[1] + blocks[0] + blocks[2] + blocks[3]
    yield "repeated", head + blocks[0] + blocks[0] + blocks[2] + blocks[3]
    yield "cut at a block", head + b"".join(blocks[:3])
    yield "cut in a block", content[: HEADER_BYTES + 2 * STRIDE + 100]
    yield "cut in a checksum", content[: HEADER_BYTES + 3 * STRIDE + 8]
    yield "without its first block", head + b"".join(blocks[1:])
    yield "longer", content + bytes(40)


def test_blocks_that_were_moved_or_cut_off_are_found() -> None:
    disk = MemoryFileSystem()
    content = Random(0).randbytes(3 * BLOCK_BYTES + 500)
    write(encrypted(disk), "a", content)
    sound = raw(disk, "a")
    assert bytes(replaced(sound).open("a").view()) == content
    for what, changed in damages(sound):
        with pytest.raises(CorruptionError) as caught:
            replaced(changed).open("a").view()
        assert caught.value.path == "a", what


def test_a_file_of_another_store_is_not_read_even_with_the_same_store_key() -> None:
    disks = [MemoryFileSystem(), MemoryFileSystem()]
    stores = [EncryptedFileSystem(disk, create_keyring(disk, KEY)) for disk in disks]
    write(stores[0], "a", b"content")
    disks[1].create("a").append(raw(disks[0], "a"))
    with pytest.raises(CorruptionError, match="belongs to another store"):
        stores[1].open("a")


class Recorded:
    """An AESGCM that notes each nonce that a key encrypts with."""

    used: ClassVar[Counter[tuple[bytes, bytes]]] = Counter()

    def __init__(self, key: bytes) -> None:
        self._key, self._inner = key, AESGCM(key)

    def encrypt(self, nonce: bytes, *rest: Any) -> bytes:
        self.used[self._key, nonce] += 1
        return self._inner.encrypt(nonce, *rest)

    def encrypt_into(self, nonce: bytes, *rest: Any) -> int:
        self.used[self._key, nonce] += 1
        return self._inner.encrypt_into(nonce, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[bytes, bytes]]:
    monkeypatch.setattr(header, "AESGCM", Recorded)
    monkeypatch.setattr(keyring, "AESGCM", Recorded)
    Recorded.used = Counter()
    return Recorded.used


@pytest.mark.parametrize("call", [None, 60])
def test_no_nonce_is_used_twice_with_a_key(call: int | None, used: Counter[tuple[bytes, bytes]]) -> None:
    """Through loads, flushes, restarts, a power failure, and a recovery of what it left."""
    with in_force("encryption=on"):
        _, disk = run_until(workloads.WORKLOADS["restarts"], call)
        workloads.open_store(disk.crash_image(Random(0))).close()
    assert len(used) > 10
    assert max(used.values()) == 1


def test_the_record_of_nonces_sees_one_that_is_used_twice(used: Counter[tuple[bytes, bytes]]) -> None:
    head, opened = header.new_header(create_keyring(MemoryFileSystem(), KEY, RandomBytes()), 1, BLOCK_BYTES, 0)
    for _ in range(2):
        opened.cipher.encrypt(bytes(12), b"", None)
    assert len(head) == HEADER_BYTES and max(used.values()) == 2


class Interrupting:
    """A file whose next write is interrupted, after it reached the disk."""

    def __init__(self, inner: WritableFile) -> None:
        self._inner = inner
        self.armed = False

    def pwrite(self, offset: int, *pieces: Any) -> None:
        self._inner.pwrite(offset, *pieces)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_write_of_the_log_that_was_interrupted_can_be_repeated(used: Counter[tuple[bytes, bytes]]) -> None:
    """With the same bytes or with others: each time under a nonce of its own."""
    disk = MemoryFileSystem()
    fs = EncryptedFileSystem(disk, create_keyring(disk, KEY))
    file: Any = fs.create("a", preallocate=4096)
    file._inner = interrupting = Interrupting(file._inner)
    file.append(b"1" * 64)
    for content in (b"2" * 64, b"3" * 64):
        interrupting.armed = True
        with pytest.raises(KeyboardInterrupt):
            file.pwrite(64, content)
    file.pwrite(64, b"4" * 64)
    file.append(b"5" * 64)
    assert bytes(fs.open("a").view()).rstrip(b"\0") == b"1" * 64 + b"4" * 64 + b"5" * 64
    assert max(used.values()) == 1


def test_after_a_failed_write_a_file_is_never_continued() -> None:
    disk = MemoryFileSystem()
    fs = encrypted(FaultyFileSystem(disk, [FaultRule(calls=WRITES, nth=1, error=errno.ENOSPC)]))
    file = fs.create("a")
    with pytest.raises(OSError):
        file.append(bytes(2 * BLOCK_BYTES))
    for call in (lambda: file.append(b"x"), file.sync):
        with pytest.raises(OSError):
            call()
    file.close()
    assert raw(disk, "a") == b""


def test_a_synced_file_is_not_continued() -> None:
    file = encrypted(MemoryFileSystem()).create("a")
    file.append(b"x")
    file.sync()
    file.sync()
    with pytest.raises(OSError, match="in order"):
        file.append(b"y")


def test_a_file_that_is_synced_later_can_be_read_at_once() -> None:
    fs = encrypted(MemoryFileSystem())
    with SyncTogether(fs) as together:
        file = together.create("a")
        file.append(b"content")
        file.sync()
        assert fs.open("a").pread(0, 99) == b"content"
        file.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_log_shows_what_was_whole_and_no_wrong_byte(seed: int) -> None:
    random = Random(seed)
    disk = MemoryFileSystem()
    file = encrypted(disk).create("a", preallocate=4096)
    expected = b""
    ends = []
    while len(expected) < 1500:
        expected += (piece := random.randbytes(8 * random.randint(8, 40)))
        file.append(piece)
        ends.append(len(expected))
    content = raw(disk, "a")
    assert len(content) == space_for(4096)
    for end in range(HEADER_BYTES, len(content.rstrip(b"\0")), 37):
        view = bytes(replaced(content[:end] + bytes(len(content) - end)).open("a").view())
        start = max(whole for whole in [0, *ends] if view.startswith(expected[:whole]))
        assert len(view) == 4096
        assert set(view[start:]) <= {0, 0xFF}
        assert end >= HEADER_BYTES + start


def test_a_crash_before_the_head_leaves_an_empty_file() -> None:
    for content in (b"", bytes(128), bytes(5000), b"NYALAENC" + bytes(4000)):
        file = replaced(content[:HEADER_BYTES] + bytes(max(len(content) - HEADER_BYTES, 0))).open("a")
        assert (file.size, file.pread(0, 10), bytes(file.view())) == (0, b"", b"")


def test_the_keys_open_what_they_closed_after_they_were_read_again() -> None:
    disk = MemoryFileSystem()
    write(EncryptedFileSystem(disk, create_keyring(disk, KEY)), "a", b"content")
    assert bytes(EncryptedFileSystem(disk, open_keyring(disk, KEY)).open("a").view()) == b"content"
