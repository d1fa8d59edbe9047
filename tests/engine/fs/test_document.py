"""Whoever reads a document that holds a message gets the message, or an error that says what is damaged, and where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nyala.engine.bucket import MemoryBucket
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.document import HEADER, pack, write
from nyala.engine.home.checkpoint_mark import read_mark
from nyala.engine.home.cluster import read_cluster
from nyala.engine.home.copy_mark import read_copy_mark
from nyala.engine.home.where import read_where
from nyala.engine.manifest.pin_note import read_note
from nyala.schemas.errors import CorruptionError

Reader = Callable[[MemoryBucket, MemoryFileSystem], object]
READERS: list[tuple[bytes, str, str, Reader]] = [
    (b"NYALACLU", "cluster", "cluster", lambda bucket, fs: read_cluster(bucket, "")),
    (b"NYALACPY", "stores/a/copy", "mark of a copy", lambda bucket, fs: read_copy_mark(bucket, "stores/a/")),
    (b"NYALAWHR", "stores/a/where", "hint where the store is", lambda bucket, fs: read_where(bucket, "a")),
    (b"NYALAPIN", "pin", "note of a pin", lambda bucket, fs: read_note(fs, "")),
    (b"NYALACKP", "checkpoint", "mark of a checkpoint", lambda bucket, fs: read_mark(fs)),
]


@pytest.mark.parametrize(("magic", "path", "what", "read"), READERS, ids=[what for _, _, what, _ in READERS])
def test_a_body_that_is_no_message_is_damage(magic: bytes, path: str, what: str, read: Reader) -> None:
    for document, offset, why in (
        (pack(magic, 1, b"[]"), HEADER.size, f"the {what} cannot be parsed"),
        (pack(b"NYALANOT", 1, b"{}"), 0, f"this is not a {what}"),
        (b"{}", 0, f"2 bytes are too few for a {what}"),
    ):
        bucket, fs = MemoryBucket(), MemoryFileSystem()
        bucket.put(path, document)
        if "/" not in path:
            write(fs, path, document)
        with pytest.raises(CorruptionError) as caught:
            read(bucket, fs)
        assert caught.value.why.startswith(why) and (caught.value.path, caught.value.offset) == (path, offset)
