"""The manifest: golden bytes, damage, and every way in which writing it can fail."""

import errno
import random

import pytest

from nyala.engine.fs.memory import MemoryFileSystem, PowerFailure
from nyala.engine.manifest.manifest import Manifest, ManifestFile, TabletEntry, pack_manifest, read_manifest
from nyala.engine.manifest.place import ManifestInDirectory
from nyala.engine.manifest.rowset_entry import RowsetEntry
from nyala.schemas.errors import CorruptionError, InvalidArgumentError, StorageFullError, UnavailableError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.column import ColumnDefinition
from nyala.schemas.table.partition_schema import (
    UNPARTITIONED,
    WHOLE,
    HashSchema,
    PartitionSchema,
    RangePartition,
    TabletPartition,
)
from nyala.schemas.table.table import TableDefinition, TableOptions, TableSchema

UUID = "0123456789abcdef0123456789abcdef"


def store(manifest: Manifest) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    file = fs.create("manifest")
    file.append(pack_manifest(manifest))
    file.sync()
    file.close()
    fs.sync_directory("")
    return fs


def edited(file: ManifestFile, timestamp: int) -> None:
    file.commit(lambda manifest: manifest.model_copy(update={"last_timestamp": timestamp}))


def test_golden_bytes():
    packed = pack_manifest(Manifest(store_uuid=UUID))
    assert packed[:24].hex() == "4e59414c414d414e01000000820000000000000013ecc975"
    assert packed[24:].decode() == (
        '{"store_uuid":"0123456789abcdef0123456789abcdef","next_id":1,"tables":[],'
        '"log_needed_from":1,"last_timestamp":0,"clean_stop":null}'
    )
    assert len(packed) == 24 + packed[12]


def test_golden_partitions():
    levels = PartitionSchema(
        hash=(HashSchema(columns=(2, 1), buckets=4, seed=7),),
        range_columns=(3,),
        ranges=(RangePartition(upper=("2014-01-01",)), RangePartition(lower=("2015-01-01",), hash=())),
    )
    assert levels.model_dump_json() == (
        '{"hash":[{"columns":[2,1],"buckets":4,"seed":7}],"range_columns":[3],'
        '"ranges":[{"lower":[],"upper":["2014-01-01"],"hash":null},{"lower":["2015-01-01"],"upper":[],"hash":[]}]}'
    )
    tablet = TabletEntry(id=5, partition=TabletPartition(upper=("2014-01-01",), buckets=(3,)))
    assert tablet.model_dump_json() == (
        '{"id":5,"inserts_durable_lsn":0,"in_files_lsn":0,"attached_durable_lsn":0,"rowsets":[],"history_floor":0,'
        '"partition":{"lower":[],"upper":["2014-01-01"],"buckets":[3]},'
        '"directory":null,"ancestors":[],"elsewhere":null,"aliases":[],"moved":null,"arriving":null}'
    )
    assert TabletEntry.model_validate_json('{"id":5,"inserts_durable_lsn":0,"rowsets":[]}').partition == WHOLE
    assert UNPARTITIONED.model_dump_json() == (
        '{"hash":[],"range_columns":[],"ranges":[{"lower":[],"upper":[],"hash":null}]}'
    )


def test_golden_options_of_a_table():
    """Parts with their defaults are left out: version 0.1 knows none of them."""
    names = [("k", "int64"), ("at", "timestamp[us]"), ("n", "int32")]
    definition = TableDefinition(
        name="t", columns=[ColumnDefinition(name=name, type=kind) for name, kind in names], primary_key=["k"]
    )
    definition.columns[0] = definition.columns[0].model_copy(update={"nullable": False})
    plain = TableSchema.create(definition, Limits())
    assert plain.model_dump_json().endswith('],"key_columns":1,"unique_key":true,"next_column_id":4}')
    options = TableOptions(order_by="n", ttl="at + 30d", row_column=True)
    assert options.model_dump_json() == (
        '{"history_max_age_seconds":604800,"maintenance":"on","comment":"","row_column":true,"order_by":"n",'
        '"ttl":"at + 30d"}'
    )
    schema = TableSchema.create(definition.model_copy(update={"options": options}), Limits())
    assert schema.model_dump_json().endswith(
        '],"key_columns":1,"unique_key":true,"next_column_id":4,"row_column":true,"order_by":3,'
        '"ttl":{"column":2,"microseconds":2592000000000,"is_filled":false}}'
    )
    assert TableSchema.model_validate_json(schema.model_dump_json()) == schema
    written = TableSchema.create(definition.model_copy(update={"options": TableOptions(ttl="90s")}), Limits())
    assert written.model_dump_json().endswith(
        '"next_column_id":5,"ttl":{"column":4,"microseconds":90000000,"is_filled":true}}'
    )


def test_every_bit_flip_is_detected():
    sound = pack_manifest(Manifest(store_uuid=UUID))
    for position in range(len(sound) * 8):
        damaged = bytearray(sound)
        damaged[position // 8] ^= 1 << position % 8
        fs = MemoryFileSystem()
        file = fs.create("manifest")
        file.append(bytes(damaged))
        with pytest.raises(CorruptionError):
            read_manifest(fs)


@pytest.mark.parametrize("length", range(0, 60, 7))
def test_a_truncated_manifest_is_refused(length):
    fs = MemoryFileSystem()
    fs.create("manifest").append(pack_manifest(Manifest(store_uuid=UUID))[:length])
    with pytest.raises(CorruptionError):
        read_manifest(fs)


def test_a_newer_format_is_refused_by_number(monkeypatch):
    monkeypatch.setattr("nyala.engine.manifest.manifest._VERSION", 2)
    fs = store(Manifest(store_uuid=UUID))
    monkeypatch.undo()
    with pytest.raises(InvalidArgumentError, match="format version 2"):
        read_manifest(fs)


def test_power_failure_at_every_call_leaves_the_old_or_the_new_document():
    calls = 0
    while True:
        fs = store(Manifest(store_uuid=UUID))
        file = ManifestFile.open(fs)
        assert file is not None
        edited(file, 5)
        fs.crash_at = fs.operations + calls + 1
        try:
            edited(file, 6)
        except PowerFailure:
            for seed in range(20):
                found = read_manifest(fs.crash_image(random.Random(seed)))
                assert found.last_timestamp in (5, 6)
            calls += 1
            continue
        assert calls >= 5, "create, append, sync, rename, sync the directory"
        return


def failing(monkeypatch: pytest.MonkeyPatch, fs: MemoryFileSystem, call: str, number: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "injected")

    monkeypatch.setattr(fs, call, fail)


def test_a_full_disk_changes_nothing_and_can_be_tried_again(monkeypatch):
    fs = store(Manifest(store_uuid=UUID))
    file = ManifestFile.open(fs)
    assert file is not None
    failing(monkeypatch, fs, "create", errno.ENOSPC)
    with pytest.raises(StorageFullError):
        edited(file, 9)
    monkeypatch.undo()
    assert read_manifest(fs).last_timestamp == file.current.last_timestamp == 0
    edited(file, 9)
    assert read_manifest(fs).last_timestamp == 9


@pytest.mark.parametrize("call", ["rename", "sync_directory"])
def test_a_failed_install_stops_all_further_writing(monkeypatch, call):
    fs = store(Manifest(store_uuid=UUID))
    file = ManifestFile.open(fs)
    assert file is not None
    failing(monkeypatch, fs, call, errno.EIO)
    with pytest.raises(UnavailableError):
        edited(file, 9)
    monkeypatch.undo()
    with pytest.raises(UnavailableError, match="read-only"):
        edited(file, 10)
    assert file.failed


def test_ids_are_never_given_twice_through_a_restart():
    fs = MemoryFileSystem()
    file = ManifestFile.create(fs, UUID)
    first = [file.new_id() for _ in range(3)]
    edited(file, 1)
    again = ManifestFile.open(fs)
    assert again is not None
    assert again.new_id() > max(first)


def test_files_may_have_numbers_of_their_own():
    """In a bucket their numbers say in which reign they were made; those of tables must fit into log records."""
    file = ManifestFile(ManifestInDirectory(MemoryFileSystem()), Manifest(store_uuid=UUID, next_id=7), 3 << 40)
    assert [file.new_file_ids(5), file.new_file_id()] == [3 << 40, (3 << 40) + 5]
    file.assume(lambda manifest: manifest, ids_used=2 << 40)
    assert file.new_id() == 7
    edited(file, 1)
    assert file.current.next_id == 8


def test_files_and_tables_share_their_numbers_in_a_directory():
    file = ManifestFile(ManifestInDirectory(MemoryFileSystem()), Manifest(store_uuid=UUID, next_id=7))
    assert [file.new_file_ids(5), file.new_id(), file.new_file_id()] == [7, 12, 13]
    file.assume(lambda manifest: manifest, ids_used=20)
    assert file.new_id() == 21


def test_a_place_that_takes_no_manifest_now_can_be_asked_again(monkeypatch):
    """Nothing is in doubt while the new manifest does not count."""
    fs = store(Manifest(store_uuid=UUID))
    place = ManifestInDirectory(fs)
    file = ManifestFile(place, read_manifest(fs))

    def away(document: bytes) -> None:
        raise UnavailableError("the place is away")

    monkeypatch.setattr(place, "write", away)
    with pytest.raises(UnavailableError, match="away"):
        edited(file, 9)
    monkeypatch.undo()
    edited(file, 9)
    assert read_manifest(fs).last_timestamp == 9


def test_the_newest_durable_record_is_known():
    entry = RowsetEntry(id=3, durable_lsn=17)
    assert entry.undo == () and Manifest(store_uuid=UUID).last_durable_lsn == 0
