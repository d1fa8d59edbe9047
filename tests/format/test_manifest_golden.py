"""Golden bytes of a manifest that names an attached rowset, and what an older one without the newer members means.

A change here is a change of the format: files of released versions must open all the same.
"""

import struct
import zlib

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.manifest import (
    GrantEntry,
    Manifest,
    PinEntry,
    TableEntry,
    TabletEntry,
    pack_manifest,
    read_manifest,
)
from nyala.engine.manifest.moving_entries import ArrivingEntry, MovedEntry
from nyala.engine.manifest.rowset_entry import RowsetEntry
from nyala.schemas.store.grants import Privilege
from nyala.schemas.table.column import ColumnDefinition, ColumnSchema
from nyala.schemas.table.table import TableOptions, TableSchema

KEY = ColumnDefinition(name="k", type="int64", nullable=False, encoding="bitshuffle")
SCHEMA = TableSchema(
    columns=(
        ColumnSchema.from_definition(
            1, ColumnDefinition(name="k", type="int64", nullable=False, encoding="bitshuffle")
        ),
    ),
    key_columns=1,
    next_column_id=2,
)
ROWSETS = (
    RowsetEntry(id=5, durable_lsn=7, born=6_963_200_000_000_000_001),
    RowsetEntry(id=6, undo=(8,), durable_lsn=9),
)
MANIFEST = Manifest(
    store_uuid="00112233445566778899aabbccddeeff",
    next_id=10,
    tables=(
        TableEntry(
            id=2,
            name="t",
            schema_=SCHEMA,
            options=TableOptions(),
            tablets=(
                TabletEntry(id=3, inserts_durable_lsn=9, in_files_lsn=8, attached_durable_lsn=7, rowsets=ROWSETS),
            ),
        ),
    ),
    log_needed_from=9,
    last_timestamp=6_963_200_000_000_000_002,
)
TABLET = (
    '{"id":3,"inserts_durable_lsn":9,"in_files_lsn":8,"attached_durable_lsn":7,"rowsets":['
    '{"id":5,"undo":[],"redo":[],"columns":{},"durable_lsn":7,"born":6963200000000000001},'
    '{"id":6,"undo":[8],"redo":[],"columns":{},"durable_lsn":9,"born":null}'
    '],"history_floor":0,"partition":{"lower":[],"upper":[],"buckets":[]},"directory":null,"ancestors":[],'
    '"elsewhere":null,"aliases":[],"moved":null,"arriving":null}'
)


COLUMN = (
    '{"id":1,"name":"k","type":"int64","nullable":false,"encoding":"bitshuffle","compression":"none",'
    '"read_default":null,"write_default":null,"comment":"","immutable":false}'
)


def test_a_column_in_a_manifest_has_no_word_that_an_older_build_refuses() -> None:
    packed = pack_manifest(MANIFEST)
    assert f'"columns":[{COLUMN}]' in packed[24:].decode()
    assert read(packed) == MANIFEST


def test_a_column_of_shorter_pages_in_a_manifest() -> None:
    column = SCHEMA.columns[0].model_copy(update={"block_rows": 1024})
    schema = SCHEMA.model_copy(update={"columns": (column,)})
    shorter = MANIFEST.with_altered(2, lambda table: table.model_copy(update={"schema_": schema}))
    packed = pack_manifest(shorter)
    assert '"compression":"none","block_rows":1024,"read_default":null' in packed[24:].decode()
    assert read(packed) == shorter


def test_a_column_that_refuses_long_text_in_a_manifest() -> None:
    column = SCHEMA.columns[0].model_copy(update={"type": "varchar(3)", "encoding": "auto", "too_long": "error"})
    schema = SCHEMA.model_copy(update={"columns": (column,)})
    refusing = MANIFEST.with_altered(2, lambda table: table.model_copy(update={"schema_": schema}))
    packed = pack_manifest(refusing)
    assert '"comment":"","immutable":false,"too_long":"error"}' in packed[24:].decode()
    assert read(packed) == refusing


def test_a_column_whose_values_are_computed_in_a_manifest() -> None:
    update = {"default_expression": "now()", "merge": "sum"}
    column = SCHEMA.columns[0].model_copy(update=update)
    schema = SCHEMA.model_copy(update={"columns": (column,)})
    computed = MANIFEST.with_altered(2, lambda table: table.model_copy(update={"schema_": schema}))
    packed = pack_manifest(computed)
    assert '"comment":"","immutable":false,"default_expression":"now()","merge":"sum"}' in packed[24:].decode()
    assert read(packed) == computed


def test_a_table_of_longer_cells_in_a_manifest() -> None:
    """A table without the option has neither word: see the column above, and the tablet below."""
    schema = SCHEMA.model_copy(update={"cell_bytes_max": 100_000, "cell_bytes_before": 1 << 20})
    options = TableOptions(cell_bytes_max=100_000)
    longer = MANIFEST.with_altered(2, lambda table: table.model_copy(update={"schema_": schema, "options": options}))
    packed = pack_manifest(longer)
    expected = '"next_column_id":2,"cell_bytes_max":100000,"cell_bytes_before":1048576},"options":{'
    assert expected + '"history_max_age_seconds":604800,"maintenance":"on","comment":"","cell_bytes_max":100000}' in (
        packed[24:].decode()
    )
    assert read(packed) == longer
    assert b"cell_bytes" not in pack_manifest(MANIFEST)


def test_a_column_with_an_empty_block_rows_in_a_manifest() -> None:
    """As builds after 0.1 wrote it for a while."""
    body = pack_manifest(MANIFEST)[24:].decode()
    body = body.replace('"compression":"none",', '"compression":"none","block_rows":null,')
    head = struct.pack("<8sIQ", b"NYALAMAN", 1, len(body))
    assert read(head + struct.pack("<I", zlib.crc32(body.encode(), zlib.crc32(head))) + body.encode()) == MANIFEST


def test_an_attached_rowset_in_a_manifest() -> None:
    packed = pack_manifest(MANIFEST)
    magic, version, length, crc = struct.unpack_from("<8sIQI", packed)
    assert (magic, version, length) == (b"NYALAMAN", 1, len(packed) - 24)
    assert crc == zlib.crc32(packed[24:], zlib.crc32(packed[:20]))
    assert f'"tablets":[{TABLET}]' in packed[24:].decode()
    assert read(packed) == MANIFEST


def test_a_dropped_table_in_a_manifest() -> None:
    dropped = MANIFEST.with_altered(
        2,
        lambda table: table.model_copy(
            update={"dropped_until": 1_700_000_000_000_000, "last_auto_id": 4, "last_change": 6_963_200_000_000_000_000}
        ),
    )
    packed = pack_manifest(dropped)
    assert (
        '"last_auto_id":4,"dropped_until":1700000000000000,"last_change":6963200000000000000}],"log_needed_from":9'
        in packed[24:].decode()
    )
    assert read(packed) == dropped


def test_a_tablet_between_two_servers_in_a_manifest() -> None:
    """One that is prepared here, and one that was handed over."""
    arriving = ArrivingEntry(
        name="f00", server="b", came_as=4, number=3, tablet=11, rowsets=ROWSETS[1:], history_floor=12
    )
    tablets = (
        TabletEntry(id=3, elsewhere="b", arriving=arriving),
        TabletEntry(id=9, elsewhere="b", aliases=(3, 7), moved=MovedEntry(name="ba7", server="b", tablet=7)),
    )
    moving = MANIFEST.with_altered(2, lambda table: table.model_copy(update={"tablets": tablets}))
    packed = pack_manifest(moving)
    text = packed[24:].decode()
    assert (
        '"elsewhere":"b","aliases":[],"moved":null,"arriving":{"name":"f00","server":"b","came_as":4,"number":3,'
        '"tablet":11,"rowsets":[{"id":6,"undo":[8],"redo":[],"columns":{},"durable_lsn":9,"born":null}],'
        '"history_floor":12}}' in text
    )
    assert '"aliases":[3,7],"moved":{"name":"ba7","server":"b","tablet":7},"arriving":null}' in text
    assert read(packed) == moving


def test_one_written_before_these_members_were() -> None:
    body = pack_manifest(MANIFEST)[24:].decode()
    newer_ones = (
        '"in_files_lsn":8,',
        '"attached_durable_lsn":7,',
        ',"born":6963200000000000001',
        ',"born":null',
        ',"directory":null',
        ',"ancestors":[]',
        ',"elsewhere":null',
        ',"aliases":[]',
        ',"moved":null',
        ',"arriving":null',
        ',"dropped_until":null',
        ',"last_change":0',
    )
    for newer in newer_ones:
        assert newer in body
        body = body.replace(newer, "")
    head = struct.pack("<8sIQ", b"NYALAMAN", 1, len(body))
    table = read(head + struct.pack("<I", zlib.crc32(body.encode(), zlib.crc32(head))) + body.encode()).tables[0]
    (tablet,) = table.tablets
    assert table.dropped_until is None
    assert (tablet.in_files_lsn, tablet.attached_durable_lsn) == (0, 0)
    assert [rowset.born for rowset in tablet.rowsets] == [None, None]


def read(packed: bytes) -> Manifest:
    fs = MemoryFileSystem()
    fs.create("manifest").append(packed)
    return read_manifest(fs)


def test_grants_in_a_manifest() -> None:
    grants = (
        GrantEntry(user="alice", table=2, privileges={Privilege.READ: (1,), Privilege.DELETE: None}),
        GrantEntry(role="team", privileges={Privilege.ADMIN: None}),
    )
    granted = MANIFEST.model_copy(update={"grants": grants})
    packed = pack_manifest(granted)
    assert (
        '"clean_stop":null,"grants":[{"user":"alice","role":null,"table":2,"privileges":{"read":[1],"delete":null}},'
        '{"user":null,"role":"team","table":null,"privileges":{"admin":null}}]}' in packed[24:].decode()
    )
    assert read(packed) == granted
    assert b"grants" not in pack_manifest(MANIFEST)


def test_pins_in_a_manifest() -> None:
    pin = PinEntry(
        id="2-60a9",
        manifest="3-17",
        table=2,
        snapshot=6_963_200_000_000_000_001,
        ttl_seconds=3600,
        expires=1_700_000_000_000_000,
    )
    pinned = MANIFEST.with_pin(pin)
    packed = pack_manifest(pinned)
    assert (
        '"clean_stop":null,"pins":[{"id":"2-60a9","manifest":"3-17","table":2,"snapshot":6963200000000000001,'
        '"ttl_seconds":3600,"expires":1700000000000000,"name":null}]}' in packed[24:].decode()
    )
    assert read(packed) == pinned
    assert b"pins" not in pack_manifest(pinned.without_pins(["2-60a9"])) and b"pins" not in pack_manifest(MANIFEST)


def test_a_rowset_with_copied_files_in_a_manifest() -> None:
    """An earlier version refuses it: it would take the files for damaged ones."""
    copied = RowsetEntry(id=6, undo=(8,), durable_lsn=9, written_as={6: 70, 8: 72})
    tablets = (TabletEntry(id=3, rowsets=(copied,)),)
    near = MANIFEST.with_altered(2, lambda table: table.model_copy(update={"tablets": tablets}))
    packed = pack_manifest(near)
    assert '"durable_lsn":9,"born":null,"written_as":{"6":70,"8":72}}]' in packed[24:].decode()
    assert read(packed) == near
    assert b"written_as" not in pack_manifest(MANIFEST)


def test_the_makers_of_files_in_a_manifest() -> None:
    makers = {1: "00112233445566778899aabbccddeeff", 4: "ffeeddccbbaa99887766554433221100"}
    in_bucket = MANIFEST.model_copy(update={"makers": makers})
    packed = pack_manifest(in_bucket)
    assert (
        '"clean_stop":null,"makers":{"1":"00112233445566778899aabbccddeeff","4":"ffeeddccbbaa99887766554433221100"}}'
        in packed[24:].decode()
    )
    assert read(packed) == in_bucket
    assert b"makers" not in pack_manifest(MANIFEST)
