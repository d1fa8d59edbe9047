"""The bytes of the objects ``cluster`` and ``where``, and the names of the objects of a store in a bucket."""

import zlib

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.bucket import MemoryBucket
from nyala.engine.home import cluster, copy_makers, copy_mark, where
from nyala.engine.home.cluster import Cluster, read_cluster
from nyala.engine.home.copy_makers import CopyMakers, read_copy_makers
from nyala.engine.home.copy_mark import CopyMark, read_copy_mark
from nyala.engine.home.where import read_where, write_where
from nyala.engine.store import Store
from nyala.schemas.errors import CorruptionError, InvalidArgumentError
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.doubles.machines import OPTIONS, Machine

BODY = b'{"uuid":"00112233445566778899aabbccddeeff"}'
START = b"NYALACLU" + (1).to_bytes(4, "little") + len(BODY).to_bytes(8, "little")
CONTENT = START + zlib.crc32(START + BODY).to_bytes(4, "little") + BODY
CLUSTER = Cluster(uuid="00112233445566778899aabbccddeeff")


def read(content: bytes) -> Cluster | None:
    bucket = MemoryBucket()
    bucket.put("root/cluster", content)
    return read_cluster(bucket, "root/")


def test_the_bytes_of_a_cluster() -> None:
    assert cluster.DOCUMENT.pack(CLUSTER) == CONTENT
    assert read(CONTENT) == CLUSTER
    assert read_cluster(MemoryBucket(), "") is None


@pytest.mark.parametrize("place", range(0, len(CONTENT), 5))
def test_a_flipped_bit_is_seen(place: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[place] ^= 4
    with pytest.raises(CorruptionError):
        read(bytes(damaged))


def test_a_later_version_is_refused_by_number() -> None:
    start = START[:8] + (2).to_bytes(4, "little") + START[12:]
    with pytest.raises(InvalidArgumentError, match="version 2"):
        read(start + zlib.crc32(start + BODY).to_bytes(4, "little") + BODY)


def test_the_names_of_objects() -> None:
    machine = Machine()
    with Store.open(machine.home("b"), OPTIONS) as store:
        table = Database(store).create_table("t", pa.schema([("id", pa.int64())]), ["id"])
        table.insert([{"id": 1}])
        table.maintain("flush")
        manifests = sum(verb == "put" and "/manifests/" in name for verb, name in machine.objects.effects)
    names = {name for name, _ in machine.bucket.list("") if "/log/" not in name}
    file = (1 << 40) + 1
    assert names == {
        "cluster",
        f"stores/b/manifests/1-{manifests}",
        f"stores/b/tablets/2/{file}.base",
        "stores/b/authors",
    } | {name for name in names if name.endswith(".undo")}
    assert machine.bucket.list("stores/b/log/")[0][0] == "stores/b/log/00000000000000000001"


HOLDER = Holder(locations=["grpc://m1:8815"], epoch=12, process="00112233445566778899aabbccddeeff")
WHERE = Whereabouts(name="a", state="holder", holder=HOLDER)
WHERE_BODY = (
    b'{"name":"a","state":"holder","holder":{"locations":["grpc://m1:8815"],"epoch":12,'
    b'"process":"00112233445566778899aabbccddeeff"}}'
)


def test_the_bytes_of_where() -> None:
    bucket = MemoryBucket()
    assert read_where(bucket, "a") is None
    write_where(bucket, "a", WHERE)
    start = b"NYALAWHR" + (1).to_bytes(4, "little") + len(WHERE_BODY).to_bytes(8, "little")
    content = start + zlib.crc32(start + WHERE_BODY).to_bytes(4, "little") + WHERE_BODY
    assert bucket.get("stores/a/where") == content == where.DOCUMENT.pack(WHERE)
    assert read_where(bucket, "a") == WHERE
    for damaged in (content[:-1], content[:40] + b"x" + content[41:], b""):
        bucket.put("stores/a/where", damaged)
        with pytest.raises(CorruptionError):
            read_where(bucket, "a")


def test_the_bytes_of_the_mark_of_a_copy() -> None:
    bucket, mark = MemoryBucket(), CopyMark(source="00112233445566778899aabbccddeeff")
    assert read_copy_mark(bucket, "stores/a/") is None
    body = b'{"source":"00112233445566778899aabbccddeeff"}'
    start = b"NYALACPY" + (1).to_bytes(4, "little") + len(body).to_bytes(8, "little")
    content = start + zlib.crc32(start + body).to_bytes(4, "little") + body
    assert copy_mark.DOCUMENT.pack(mark) == content
    bucket.put("stores/a/copy", content)
    assert read_copy_mark(bucket, "stores/a/") == mark
    bucket.put("stores/a/copy", content[:-1])
    with pytest.raises(CorruptionError):
        read_copy_mark(bucket, "stores/a/")


def test_the_bytes_of_the_makers_of_a_copy() -> None:
    bucket, makers = MemoryBucket(), CopyMakers(makers={4: "00112233445566778899aabbccddeeff"})
    assert read_copy_makers(bucket, "stores/a/").makers == {}
    body = b'{"makers":{"4":"00112233445566778899aabbccddeeff"}}'
    start = b"NYALACPM" + (1).to_bytes(4, "little") + len(body).to_bytes(8, "little")
    content = start + zlib.crc32(start + body).to_bytes(4, "little") + body
    assert copy_makers.DOCUMENT.pack(makers) == content
    bucket.put("stores/a/makers", content)
    assert read_copy_makers(bucket, "stores/a/") == makers
    bucket.put("stores/a/makers", content[:-1])
    with pytest.raises(CorruptionError):
        read_copy_makers(bucket, "stores/a/")
