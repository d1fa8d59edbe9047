"""The bytes of the mark of a checkpoint, pinned, and what is made of others."""

import zlib

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.home.checkpoint_mark import CheckpointMark, read_mark, write_mark
from nyala.schemas.errors import CorruptionError, InvalidArgumentError

SOURCE = "00112233445566778899aabbccddeeff"
BODY = b'{"source":"00112233445566778899aabbccddeeff"}'


def pinned(version: int = 1, magic: bytes = b"NYALACKP") -> bytes:
    head = magic + version.to_bytes(4, "little") + len(BODY).to_bytes(8, "little")
    return head + zlib.crc32(BODY, zlib.crc32(head)).to_bytes(4, "little") + BODY


def on_disk(content: bytes) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    file = fs.create("checkpoint")
    file.append(content)
    file.close()
    return fs


def test_the_bytes_of_a_mark() -> None:
    fs = MemoryFileSystem()
    write_mark(fs, CheckpointMark(source=SOURCE))
    file = fs.open("checkpoint")
    assert file.pread(0, file.size) == pinned() and fs.list("") == ["checkpoint"]
    assert read_mark(on_disk(pinned())) == CheckpointMark(source=SOURCE)
    assert read_mark(MemoryFileSystem()) is None


def test_what_is_no_mark() -> None:
    whole = pinned()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            read_mark(on_disk(bytes(flipped)))
    for content in (b"", whole[:10], whole[:-1], whole + b"x", pinned(magic=b"NYALAMAN")):
        with pytest.raises(CorruptionError):
            read_mark(on_disk(content))
    with pytest.raises(InvalidArgumentError, match="format version 2"):
        read_mark(on_disk(pinned(version=2)))
