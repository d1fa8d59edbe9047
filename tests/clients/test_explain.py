"""How a scan would run, for people and for programs."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("price", pa.float64())])


@pytest.fixture
def table(db: Database) -> Table:
    made = db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.range("id", splits=[[100], [200]])])
    for first in (0, 100, 200):
        made.insert({"id": list(range(first, first + 100)), "city": ["Oslo"] * 100, "price": [float(first)] * 100})
    made.maintain("flush")
    return made


def test_a_page_says_what_is_read_and_what_is_left_out(table: Table) -> None:
    scan = table.scan(["id"], where="price > 150 and id >= 100", order_by="city DESC", limit=5, offset=2)
    told = scan.explain()
    page = str(told)
    assert page == repr(told)
    lines = [line.split(None, 1) for line in page.splitlines()[1:]]
    assert page.startswith("scan of table 'homes' at ") and " UTC)" in page.splitlines()[0]
    said = dict(lines)
    assert said["where"] == "price > 150 and id >= 100" and said["order"] == "city DESC NULLS LAST"
    assert said["limit"] == "5 rows, from row 2 on"
    assert said["tablets"].startswith("2 of 3 read; 2 of 3 by range(id) (")
    assert said["pieces"] == "2 in all; 1 skipped by the minimum and maximum of their pages"
    assert page.count("took") == 0


def test_the_same_as_json_and_as_a_dict(table: Table) -> None:
    told = table.scan(where="price > 150").explain()
    assert json.loads(told.json()) == dict(told)
    assert told["tablets"] == 3 and told["chunks_pruned_by_zone_map"] == 2


def test_analyze_runs_the_scan(table: Table) -> None:
    told = table.scan(where="price > 50").explain(analyze=True)
    ran = told["analyze"]
    assert ran["rows"] == 200 and ran["bytes"] > 200 * 16 and 0 <= ran["first_batch_seconds"] <= ran["seconds"]
    assert "200 rows" in str(told) and "took" in str(told)
    nothing = table.scan(where="price > 5000").explain(analyze=True)
    assert nothing["analyze"]["rows"] == 0 and "took" in str(nothing)


def test_changes(db: Database, table: Table) -> None:
    moment = db.now()
    table.delete({"id": [7]})
    page = str(table.changes(moment).explain(analyze=True))
    assert page.startswith("changes of table 'homes'") and "since" in page and "1 rows" in page
