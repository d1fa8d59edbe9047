"""The bytes of the file ``pin`` of a kept pin."""

from __future__ import annotations

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.document import pack, write
from nyala.engine.manifest.pin_note import PinNote, pack_note, read_note
from nyala.schemas.column import ColumnSchema
from nyala.schemas.direct import PinnedTable
from nyala.schemas.errors import CorruptionError, InvalidArgumentError
from nyala.schemas.limits import Limits
from nyala.schemas.partition_schema import PartitionSchema
from nyala.schemas.table import TableOptions, TableSchema

COLUMN = ColumnSchema(id=1, name="k", type="int64", nullable=False, encoding="auto", compression="none")
SCHEMA = TableSchema(columns=(COLUMN,), key_columns=1, next_column_id=2)
NOTE = PinNote(
    name="monday",
    pinned=PinnedTable(
        pin_id="2-60a9",
        table="t",
        table_id=2,
        snapshot=6_963_200_000_000_000_001,
        schema_=SCHEMA,
        partitions=PartitionSchema(),
        tablets=(),
        limits=Limits(),
        directory="pins/2-60a9",
        ttl_seconds=None,
    ),
    options=TableOptions(),
    sizes={"tablets/3/4.base": 100},
)


def test_the_note_of_a_pin() -> None:
    packed = pack_note(NOTE)
    body = packed[24:].decode()
    assert packed[:12] == b"NYALAPIN\1\0\0\0" and int.from_bytes(packed[12:20], "little") == len(body)
    assert body.startswith('{"name":"monday","pinned":{"pin_id":"2-60a9","table":"t","table_id":2,"snapshot":69632')
    assert '"directory":"pins/2-60a9","ttl_seconds":null},"options":{' in body
    assert body.endswith(',"sizes":{"tablets/3/4.base":100}}')
    fs = MemoryFileSystem()
    write(fs, "pin", packed)
    assert read_note(fs, "") == NOTE
    for at, error in ((8, CorruptionError), (len(packed) - 1, CorruptionError)):
        broken = bytearray(packed)
        broken[at] ^= 1
        write(fs, "pin", bytes(broken))
        with pytest.raises(error):
            read_note(fs, "")


def test_a_later_version_of_the_note_is_refused() -> None:
    fs = MemoryFileSystem()
    write(fs, "pin", pack(b"NYALAPIN", 2, b"{}"))
    with pytest.raises(InvalidArgumentError, match="format version 2"):
        read_note(fs, "")
