"""The bytes of the file ``pin`` of a kept pin."""

from __future__ import annotations

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.document import pack, write
from nyala.engine.manifest.pin_note import PinNote, pack_note, read_note
from nyala.schemas.errors import CorruptionError, InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.store.direct import PinnedTable
from nyala.schemas.table.column import ColumnSchema
from nyala.schemas.table.partition_schema import PartitionSchema
from nyala.schemas.table.table import TableOptions, TableSchema

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
HEADER = bytes.fromhex("4e59414c4150494e 01000000 8403000000000000 0ae5a07b")
BODY = (
    '{"name":"monday","pinned":{"pin_id":"2-60a9","table":"t","table_id":2,"snapshot":6963200000000000001,'
    '"schema_":{"version":1,"columns":[{"id":1,"name":"k","type":"int64","nullable":false,"encoding":"auto",'
    '"compression":"none","read_default":null,"write_default":null,"comment":"","immutable":false}],"key_columns":1,'
    '"unique_key":true,"next_column_id":2},"partitions":{"hash":[],"range_columns":[],"ranges":[{"lower":[],"upper":[],'
    '"hash":null}]},"tablets":[],"limits":{"cell_bytes":65536,"key_bytes":16384,"columns":300,"tablets":10000,'
    '"tables":10000,"store_tablets":100000,"identifier_bytes":256,"batch_bytes":268435456,"batch_rows":67108864,'
    '"predicate_nodes":10000,"in_list_values":100000,"predicate_values":400000,"aggregate_bytes":268435456},'
    '"directory":"pins/2-60a9","ttl_seconds":null},"options":{"history_max_age_seconds":604800,"maintenance":"on",'
    '"comment":""},"sizes":{"tablets/3/4.base":100}}'
)


def test_the_note_of_a_pin() -> None:
    packed = pack_note(NOTE)
    assert packed[24:].decode() == BODY
    assert packed[:24].hex(" ", 4) == HEADER.hex(" ", 4)
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
