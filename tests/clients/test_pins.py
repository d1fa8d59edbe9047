"""Pins that are kept, as a caller in Python names them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.jobs.under_way import TableUnderWay
from nyala.jobs import copy_store, restore_pin


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with nyala.open(tmp_path / "store", maintenance="off") as made:
        made.create_table("t", data={"id": [1, 2]}, primary_key=["id"])
        yield made


def test_a_pin_is_named_by_what_create_returned(db: Database) -> None:
    pin = db.create_pin("before", "t")
    assert db.pinned_scan(pin).to_arrow().num_rows == 2
    assert restore_pin(db, pin, name="again", show="off").rows == 2
    db.drop_pin(pin)
    assert db.pins() == []


def test_of_two_restores_the_later_leaves_nothing_behind(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other restore ends after this one has looked whether the name is free."""
    pin = db.create_pin("before", "t")
    take = TableUnderWay._taken

    def take_late(table: TableUnderWay) -> Any:
        monkeypatch.setattr(TableUnderWay, "_taken", take)
        restore_pin(db, pin, name="again", show="off")
        return take(table)

    monkeypatch.setattr(TableUnderWay, "_taken", take_late)
    with pytest.raises(nyala.AlreadyPresentError, match="'again' already exists"):
        restore_pin(db, pin, name="again", show="off")
    assert db.tables() == ["again", "t"]
    assert db.table("again").scan().count() == 2


@pytest.mark.parametrize("other", [7, None, b"before"])
def test_another_thing_is_no_pin(db: Database, other: Any) -> None:
    for use in (db.drop_pin, db.pinned_scan):
        with pytest.raises(nyala.InvalidArgumentError, match="give the name of a pin, its id, or a KeptPin"):
            use(other)


@pytest.mark.parametrize("name", ["bad/name", "", ".x", "a" * 65])
def test_a_bad_name_is_told_what_a_good_one_is(db: Database, name: str) -> None:
    with pytest.raises(nyala.InvalidArgumentError, match=r"use up to 64 letters, digits and '\._-'"):
        db.create_pin(name, "t")


def test_a_directory_that_is_not_the_servers_is_told(db: Database, tmp_path: Path) -> None:
    pin = db.create_pin("before", "t")
    with pytest.raises(
        nyala.NotFoundError, match=f"no files of the pin '{pin.pin_id}' here: this is not the data directory"
    ):
        db.pinned_scan(pin, directory=tmp_path)
    split = db.pinned_scan(pin).splits[0]
    db.drop_pin(pin)
    with pytest.raises(nyala.NotFoundError, match="or the pin was dropped"):
        list(split.batches())


def test_a_store_in_a_directory_is_not_copied(db: Database, tmp_path: Path) -> None:
    said = "this store is in a directory: use nyala checkpoint DIR"
    with pytest.raises(nyala.InvalidArgumentError, match=said):
        copy_store(db, f"file://{tmp_path}/copy", "a", show="off")


@pytest.mark.parametrize("seconds", ["2", True])
def test_a_staleness_is_a_number(db: Database, seconds: Any) -> None:
    with pytest.raises(nyala.InvalidArgumentError, match="max_staleness"):
        db.table("t").scan(max_staleness=seconds)
