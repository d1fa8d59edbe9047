"""The bytes of a piece of the cache, pinned: after an update a store finds what it has kept."""

import zlib
from hashlib import blake2b

from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.bucket.memory import MemoryBucket
from nyala.engine.fs import MemoryFileSystem

CONTENT = bytes(range(256)) * 300
NAME = "pieces/tablets%2F7%2F9.base@0.1"
MAKER = "00112233445566778899aabbccddeeff"


def pinned() -> bytes:
    sums = [zlib.crc32(CONTENT[:65_536]), zlib.crc32(CONTENT[65_536:])]
    assert [f"{each:08x}" for each in sums] == ["b11de6a1", "4a073b77"]
    tail = b"".join(each.to_bytes(4, "little") for each in sums) + b"NYALAPC\n"
    key = blake2b(f"0123abcd\ntablets/7/9.base\n76800\n0\n{MAKER}".encode(), digest_size=16).digest()
    tail += key + (76_800).to_bytes(8, "little")
    return CONTENT + tail + zlib.crc32(tail).to_bytes(4, "little")


def files(bucket: MemoryBucket, disk: MemoryFileSystem, maker: str = MAKER) -> BucketFileSystem:
    return BucketFileSystem(bucket, "", disk, 1 << 20, "0123abcd", maker_of=lambda path: maker)


def test_the_bytes_of_a_piece() -> None:
    for is_reader in (False, True):
        bucket, disk = MemoryBucket(), MemoryFileSystem()
        writer = files(bucket, MemoryFileSystem() if is_reader else disk)
        file = writer.create("tablets/7/9.base")
        file.append(CONTENT)
        file.sync()
        file.close()
        if is_reader:
            found = files(bucket, disk).open("tablets/7/9.base")
            assert found.pread(0, 1 << 20) == CONTENT
        assert disk.list("pieces") == [NAME.removeprefix("pieces/")]
        assert bytes(disk.open(NAME).view()) == pinned()


def test_a_piece_is_found_again() -> None:
    bucket, disk = MemoryBucket(), MemoryFileSystem()
    bucket.put("tablets/7/9.base", bytes(len(CONTENT)))  # what is in the bucket is not looked at
    disk.make_directory("pieces")
    disk.create(NAME).append(pinned())
    assert files(bucket, disk).open("tablets/7/9.base").pread(0, 1 << 20) == CONTENT


def test_a_piece_of_a_file_that_another_process_made_is_not_believed() -> None:
    for maker in ("", MAKER.upper()):
        bucket, disk = MemoryBucket(), MemoryFileSystem()
        bucket.put("tablets/7/9.base", bytes(len(CONTENT)))
        disk.make_directory("pieces")
        disk.create(NAME).append(pinned())
        assert files(bucket, disk, maker).open("tablets/7/9.base").pread(0, 1 << 20) == bytes(len(CONTENT))
