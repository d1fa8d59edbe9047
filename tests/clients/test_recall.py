"""Tables that are dropped and recalled, in this process and over Flight."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, NotFoundError

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
WEEK = 7 * 86_400


def made(db: Database, name: str, city: str) -> None:
    db.create_table(name, SCHEMA, ["id"]).insert([{"id": 1, "city": city}])


def city(db: Database, name: str) -> str:
    (row,) = db.table(name).scan().to_arrow().to_pylist()
    return row["city"]


def test_a_table_is_set_aside_and_recalled(db: Database) -> None:
    made(db, "homes", "Oslo")
    table = db.table("homes")
    db.drop_table("homes", keep_seconds=WEEK)
    assert db.tables() == []
    for use in (table.describe, table.scan().to_arrow, lambda: table.insert([{"id": 2}]), lambda: table.get(1)):
        with pytest.raises(NotFoundError):
            use()
    (kept,) = db.dropped_tables()
    assert kept.name == "homes"
    assert timedelta(0) <= datetime.now(UTC) + timedelta(seconds=WEEK) - kept.until < timedelta(minutes=1)
    assert db.recall_table("homes").name == "homes"
    assert city(db, "homes") == "Oslo" and table.get(1) == {"id": 1, "city": "Oslo"} and db.dropped_tables() == []


def test_a_name_is_free_and_several_of_one_name_are_told_apart_by_id(db: Database) -> None:
    for name in ("Oslo", "Hamar"):
        made(db, "homes", name)
        db.drop_table("homes", keep_seconds=WEEK)
    ids = [table.table_id for table in db.dropped_tables()]
    with pytest.raises(ConflictError, match=f"{ids[0]}, {ids[1]}"):
        db.recall_table("homes")
    db.recall_table(ids[1])
    assert city(db, "homes") == "Hamar"
    with pytest.raises(AlreadyPresentError, match="new_name"):
        db.recall_table("homes")
    db.recall_table("homes", new_name="old homes")
    assert city(db, "old homes") == "Oslo" and db.tables() == ["homes", "old homes"]


def test_at_once_as_always(db: Database) -> None:
    made(db, "homes", "Oslo")
    db.drop_table("homes")
    assert db.dropped_tables() == []
    with pytest.raises(NotFoundError, match="known: none"):
        db.recall_table("homes")


@pytest.mark.parametrize("seconds", [-1, 1.5, "7d", None, 1 << 60])
def test_times_that_are_none(db: Database, seconds: Any) -> None:
    made(db, "homes", "Oslo")
    with pytest.raises(InvalidArgumentError, match="keep_seconds"):
        db.drop_table("homes", keep_seconds=seconds)
    assert db.tables() == ["homes"]


def test_names_that_are_none(db: Database) -> None:
    made(db, "homes", "Oslo")
    db.drop_table("homes", keep_seconds=WEEK)
    for name in ("", " x", "a\0"):
        with pytest.raises(InvalidArgumentError, match="name"):
            db.recall_table("homes", new_name=name)
    with pytest.raises(NotFoundError, match="'homes'"):
        db.recall_table("hoems")
    assert len(db.dropped_tables()) == 1
