"""Checksums of tables and the comparison of two."""

from __future__ import annotations

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import checksum, verify
from tests.clients.jobs.job_rows import SCHEMA


@pytest.fixture
def copy(homes: Table, target: Database) -> Table:
    """The same rows in another store, cut otherwise, its columns in another order."""
    schema = pa.schema([SCHEMA.field("id"), *reversed(list(SCHEMA)[1:])])
    table = target.create_table("homes", schema, ["id"], [nyala.hash("id", buckets=2)])
    table.insert(homes.scan().to_arrow())
    return table


def test_a_copy_is_equal(source: Database, target: Database, copy: Table) -> None:
    found = verify(source, target, "homes", split_bytes=5_000)
    assert found.equal and found.complete and not found.differences
    assert found.left.rows == 500
    assert [tablet.rows for tablet in found.left.tablets] != [tablet.rows for tablet in found.right.tablets]
    assert sum(tablet.rows for tablet in found.left.tablets) == 500


def test_neither_flushes_nor_compactions_change_a_checksum(source: Database, homes: Table) -> None:
    before = checksum(source, "homes")
    homes.maintain("flush")
    homes.update({"id": [1, 2], "small": [7, 8]})
    homes.maintain("flush_deltas")
    homes.maintain("compact")
    assert checksum(source, "homes", as_of=before.snapshot).checksum == before.checksum
    assert checksum(source, "homes").checksum != before.checksum


def test_differing_keys_are_named(source: Database, target: Database, copy: Table) -> None:
    copy.delete({"id": [17]})
    copy.update({"id": [100], "city": ["elsewhere"]})
    copy.insert({"id": [9_999]})
    found = verify(source, target, "homes")
    assert not found.equal and found.complete
    named = {each.key["id"]: each.what for each in found.differences}
    assert named == {17: "only_left", 100: "values", 9_999: "only_right"}
    assert 1 <= len(found.tablets) <= 2
    some = verify(source, target, "homes", differences=1)
    assert len(some.differences) == 1 and not some.complete


def test_snapshots_are_compared_each_at_its_own_moment(source: Database, target: Database, copy: Table) -> None:
    before = source.now()
    source.table("homes").delete({"id": [1]})
    assert not verify(source, target, "homes").equal
    assert verify(source, target, "homes", as_of=before).equal


def test_other_columns_are_told(source: Database, homes: Table, target: Database) -> None:
    target.create_table("other", pa.schema([("id", pa.int32()), ("city", pa.binary()), ("more", pa.int8())]), ["id"])
    found = verify(source, target, "homes", right_table="other")
    assert not found.equal
    text = "\n".join(found.columns)
    assert "column 'city' is string on the left, binary on the right" in text
    assert "only the right has the column 'more'" in text and "only the left has the column 'price'" in text
    assert "'id'" not in text  # a narrower integer holds the same numbers


def test_an_empty_table(source: Database, target: Database) -> None:
    for database in (source, target):
        database.create_table("none", pa.schema([("id", pa.int64())]), ["id"])
    found = verify(source, target, "none")
    assert found.equal and found.left.rows == 0 and found.left.checksum == "0" * 16
