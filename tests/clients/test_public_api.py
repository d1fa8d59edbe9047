"""The names of the public API, embedded and over Flight."""

from __future__ import annotations

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def test_levels_of_the_partition_module_are_those_of_the_short_names(db: Database) -> None:
    assert (nyala.partition.hash, nyala.partition.range) == (nyala.hash, nyala.range)
    levels = [nyala.partition.hash("k", buckets=2), nyala.partition.range("k", bounds=[(0, 10), (10, None)])]
    assert len(db.create_table("parts", SCHEMA, ["k"], levels).tablets()) == 4


def test_tables_are_listed_by_both_names(db: Database) -> None:
    for name in ("b", "a"):
        db.create_table(name, SCHEMA, ["k"])
    assert db.list_tables() == db.tables() == ["a", "b"]


def test_a_server_is_connected_to_by_either_name(embedded: Database, url: str) -> None:
    embedded.create_table("t", SCHEMA, ["k"])
    for connected in (nyala.connect(url), nyala.connect(uri=url), nyala.connect(url=url)):
        with connected as database:
            assert database.list_tables() == ["t"]
    with pytest.raises(nyala.InvalidArgumentError, match="the uri of a server, or a placement"):
        nyala.connect()


def test_modules_are_found_without_an_import_of_their_own() -> None:
    assert nyala.jobs.load.__name__ == "load" and nyala.spark.read_table.__name__ == "read_table"
    assert {"jobs", "partition", "spark", "connect", "open"} <= set(dir(nyala))
