"""The bytes of the file ``authors``.

A change here is a change of the format: files of released versions must be read all the same.
"""

import json
import struct
import zlib

import numpy as np
import pytest

from nyala.engine.commit.authors_file import pack_authors, unpack_authors
from nyala.engine.commit.commit_authors import ANY_TABLE, NOTHING, Authored, Origin
from nyala.schemas.errors import CorruptionError, InvalidArgumentError

HEAD = b'{"commits":3,"origins":[["upsert","ann",3],["transaction","",0]]}'
TIMESTAMPS = (6_963_200_000_000_000_001, 6_963_200_000_000_000_002, 6_963_200_000_000_000_007)
BODY = struct.pack("<I", len(HEAD)) + HEAD + struct.pack("<3q3I", *TIMESTAMPS, 0, 1, 0)
ORIGINS: list[Origin] = [("upsert", "ann", 3), ("transaction", "", ANY_TABLE)]
AUTHORED = Authored(np.array(TIMESTAMPS, np.int64), np.array([0, 1, 0], np.uint32), ORIGINS)


def document(body: bytes, version: int = 1, magic: bytes = b"NYALAAUT") -> bytes:
    start = magic + struct.pack("<IQ", version, len(body))
    return start + struct.pack("<I", zlib.crc32(start + body)) + body


def body_of(head: object, *cells: bytes) -> bytes:
    text = json.dumps(head).encode()
    return struct.pack("<I", len(text)) + text + b"".join(cells)


def test_the_bytes() -> None:
    assert pack_authors(AUTHORED) == document(BODY)
    found = unpack_authors(document(BODY))
    assert found.timestamps.tolist() == list(TIMESTAMPS)
    assert found.at(found.timestamps, 3) == [ORIGINS[0], ORIGINS[1], ORIGINS[0]]
    assert found.at(found.timestamps, 4) == [None, ORIGINS[1], None]


def test_no_commits() -> None:
    assert pack_authors(NOTHING) == document(struct.pack("<I", 26) + b'{"commits":0,"origins":[]}')
    assert len(unpack_authors(pack_authors(NOTHING)).timestamps) == 0


@pytest.mark.parametrize("place", range(len(document(BODY))))
def test_a_flipped_bit_is_seen(place: int) -> None:
    damaged = bytearray(document(BODY))
    damaged[place] ^= 16
    with pytest.raises(CorruptionError):
        unpack_authors(bytes(damaged))
    with pytest.raises(CorruptionError):
        unpack_authors(document(BODY)[:place])


def test_a_later_version_is_refused_by_number() -> None:
    with pytest.raises(InvalidArgumentError, match="version 2"):
        unpack_authors(document(BODY, 2))


def test_a_later_operation_and_a_later_member_of_the_head_are_taken() -> None:
    cells = struct.pack("<qI", 7, 0)
    found = unpack_authors(document(body_of({"commits": 1, "origins": [["merge", "ann", 3]], "more": {}}, cells)))
    assert found.at(found.timestamps, 3) == [("merge", "ann", 3)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x09\0\0\0{}",
        body_of({"commits": -1, "origins": []}),
        body_of({"commits": 1, "origins": [["upsert", "ann", 3]]}),
        body_of({"commits": 1, "origins": []}, struct.pack("<qI", 7, 0)),
        body_of({"commits": 2, "origins": [["upsert", "", 3]]}, struct.pack("<2q2I", 7, 7, 0, 0)),
        body_of({"commits": 1, "origins": [["upsert"]]}, struct.pack("<qI", 7, 0)),
    ],
)
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptionError):
        unpack_authors(document(body))
